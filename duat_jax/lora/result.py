"""Result of `lora_change`: three columns, every adapter's part, and the first order."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from duat_jax.deprecation import renamed_fields
from duat_jax.display.named_arrays import NamedArray, by_mark, by_name, of_tokens, whole
from duat_jax.display.result import Displayed
from duat_jax.display.view import DIFFERENCE, ModelRun, Table, View, compared
from duat_jax.forms.completeness import Completeness
from duat_jax.inputs.labels import Prediction
from duat_jax.json_record import as_record
from duat_jax.kinds import kept_as
from duat_jax.lora.record import LoraChangeRecord
from duat_jax.models.targets.description import TargetDescription
from duat_jax.transform.keys import Marked

COLUMNS = ("moved", "adapter", "interaction")

SHOWN = 12
"""The number of adapters in a table."""

EXACT = (
    "moved: the base's terms under the dynamic parameters that the adapters moved. adapter: the adapted weights under"
    " the base's own. interaction: what both change together. part: of the difference, exact for this pair of runs."
    " alone: the model run again with this adapter only."
)


@kept_as("adapter columns")
class Columns(NamedTuple):
    """A part of the metric without adapters, and the three columns of its change, which sum to the change.

    Args:
        base: the part itself, without adapters.
        moved: the base's weights with the adapted run's dynamic parameters, minus `base`.
        adapter: the adapted weights with the base's dynamic parameters, minus `base`.
        interaction: the change of both together, minus `moved` and `adapter`.
    """

    base: Any
    moved: Any
    adapter: Any
    interaction: Any


@kept_as("adapter parts", "duat_jax.lora.result:Parts")
class MetricParts(NamedTuple):
    """Parts of the metric: of the embeddings, of every neuron of every term, of every bias.

    Args:
        embedding: of every token, `[tokens]`.
        terms: of every neuron at every token, by term, `[tokens, neurons]`.
        biases: of every bias and norm offset, by name.
        reader: constants of the read-out: its bias, and for a log-probability minus the
            entropy.
    """

    embedding: Float[Any, "tokens"]
    terms: Marked[Any]
    biases: Marked[Any]
    reader: Any


@kept_as("effect of an adapter", "duat_jax.lora.result:Effect")
class AdapterEffect(NamedTuple):
    """Effect of one adapter on the metric.

    Args:
        name: the stored name of the adapted layer.
        part: its part of the difference, by the secant in the adapters' scales: the parts sum to the difference.
        first_order: the same to first order at the base.
        alone: the change of the metric when the model is run with this adapter alone.
    """

    name: str
    part: float
    first_order: float
    alone: float


@kept_as("adapter change")
@renamed_fields(jumps="discontinuities", top_neurons="top")
@dataclass(frozen=True, eq=False)
class LoraChange(Displayed):
    """Change of a metric by adapters, as exact sums over terms and over adapters.

    Args:
        family: the checkpoint family.
        tokens: display labels of the text's tokens.
        target: the target, which prints as a sentence, with the outputs that it reads.
        before: the metric without adapters, from the plain forward pass.
        after: the metric with adapters.
        predictions: the model's predictions without and with adapters; empty for an encoder.
        columns: the parts of the metric and of its change; each has `embedding`, `terms`, `biases` and `reader`.
        effects: the effect of each adapter.
        first_order: the whole change to first order in the adapters, at the base.
        first_order_held: the same with the base's dynamic parameters held: the first order of the column `adapter`.
        discontinuities: parts of the difference in the adapters' scales that have no slope, such as a router's choice.
        completeness: the difference (from the plain forward passes), the sum of all parts in the three columns.
        corners: the completeness of each of the four numbers: base and adapted weights, each with the dynamic
            parameters of the base's run and of the adapted one's.
        by_adapter: the difference, and the sum of the adapters' parts.
        notes: caveats on the parts, such as a softmax that isn't recognised; as in `duat.secant`.
    """

    family: str
    tokens: tuple[str, ...]
    target: TargetDescription
    before: float
    after: float
    predictions: tuple[tuple[Prediction, ...], tuple[Prediction, ...]]
    columns: Columns
    effects: tuple[AdapterEffect, ...]
    first_order: float
    first_order_held: float
    discontinuities: dict[str, float]
    completeness: Completeness
    corners: tuple[Completeness, ...]
    by_adapter: Completeness
    notes: tuple[str, ...] = ()

    @property
    def difference(self) -> float:
        """The metric with adapters minus the metric without them."""
        return float(self.completeness.value)

    @property
    def totals(self) -> dict[str, float]:
        """The sum of each column over all parts."""
        return {name: sum(row[name] for row in self.rows.values()) for name in COLUMNS}

    @property
    def rows(self) -> dict[str, dict[str, float]]:
        """The part without adapters and the three columns, for embeddings, each term and all biases together."""

        def row(select: Any) -> dict[str, float]:
            return {name: float(np.sum(select(parts))) for name, parts in self.columns._asdict().items()}

        rows = {"embedding": row(lambda parts: parts.embedding)}
        rows |= {str(key): row(lambda parts, key=key: parts.terms[key]) for key in self.columns.base.terms}
        rows["biases"] = row(lambda parts: [*parts.biases.values(), parts.reader])
        return rows

    def top(self, count: int) -> list[dict[str, Any]]:
        """Return the neurons whose parts changed most, all columns together.

        Args:
            count: the number of neurons.
        """
        from duat_jax.display.neurons import largest_entries

        base, *columns = self.columns
        changes = {key: sum(column.terms[key] for column in columns) for key in base.terms}
        rows = []
        for key, token, neuron, change in largest_entries(Marked(changes), count):
            values = {name: float(parts.terms[key][token, neuron]) for name, parts in self.columns._asdict().items()}
            rows.append({"term": str(key), "token_index": token, "neuron": neuron, "change": change, **values})
        return rows

    def view(self) -> View:
        """Return the change as it is shown: the three columns by term, and each adapter."""
        without, adapted = self.predictions
        return View(
            kind="adapter change",
            target=f"the change of the {self.target}",
            value=self.difference,
            value_name=DIFFERENCE,
            completeness=self.completeness,
            exact=EXACT,
            runs=compared(ModelRun("with adapters", self.after, adapted), ModelRun("without", self.before, without)),
            output=self.target.output_id,
            tables=(self._by_term(), self._by_adapter()),
            sums={"by adapter": self.by_adapter},
            notes=self.notes,
        )

    def _by_term(self) -> Table:
        """Return the metric without adapters and the three columns of its change, by term."""
        rows = tuple((name, *row.values(), sum(row[column] for column in COLUMNS)) for name, row in self.rows.items())
        totals = self.totals
        base = sum(row["base"] for row in self.rows.values())
        moved = self.first_order - self.first_order_held
        first_order = ("of first order", None, moved, self.first_order_held, None, self.first_order)
        return Table(
            "By term of the closed form",
            ("", "without", *COLUMNS, "change"),
            (*rows, first_order),
            ("together", base, *totals.values(), sum(totals.values())),
            drawn=COLUMNS,
        )

    def _by_adapter(self) -> Table:
        """Return the effect of each adapter, the largest first."""
        columns = "part", "first_order", "alone"
        ordered = sorted(self.effects, key=lambda effect: -abs(effect.part))
        rows: list[tuple] = [(each.name, *(getattr(each, name) for name in columns)) for each in ordered[:SHOWN]]
        if rest := ordered[SHOWN:]:
            rows.append((f"{len(rest)} others", *(sum(getattr(each, name) for each in rest) for name in columns)))
        rows += [(f"discontinuity: {name}", part, None, None) for name, part in self.discontinuities.items()]
        together = float(self.by_adapter.sum), self.first_order, sum(effect.alone for effect in self.effects)
        drawn = "part", "first order", "alone"
        return Table("By adapter", ("adapter", *drawn), tuple(rows), ("together", *together), drawn=drawn)

    def part_sums(self) -> Mapping[str, Any]:
        """Return the sums of the parts that each completeness is about."""
        base, moved, adapter, both = (sum(row[name] for row in self.rows.values()) for name in Columns._fields)
        parts = [float(effect.part) for effect in self.effects]
        return {
            "completeness": moved + adapter + both,
            "corners": (base, base + moved, base + adapter, base + moved + adapter + both),
            "by_adapter": sum(parts) + sum(map(float, self.discontinuities.values())),
        }

    def arrays(self) -> Iterator[NamedArray]:
        """Yield the parts and the effects of adapters with named axes.

        The sum of `embedding`, `terms`, `biases` and `reader` is the metric without adapters where `column` is `base`,
        and its change over the three others. The sum of `part` and `discontinuities` is the change too.
        """
        column, token = {"column": {"column": Columns._fields}}, of_tokens(self.tokens)

        def stacked(name: str) -> Marked[np.ndarray]:
            each = [getattr(parts, name) for parts in self.columns]
            return Marked({key: np.stack([values[key] for values in each]) for key in each[0]})

        yield whole("embedding", np.stack([parts.embedding for parts in self.columns]), {**column, **token})
        yield from by_mark("terms", stacked("terms"), {**column, **token}, "neuron")
        yield from by_mark("biases", stacked("biases"), column)
        yield whole("reader", np.stack([parts.reader for parts in self.columns]), column)
        names = [effect.name for effect in self.effects]
        for name in ("part", "first_order", "alone"):
            yield whole(name, [getattr(effect, name) for effect in self.effects], {"adapter": {"adapter": names}})
        yield from by_name("discontinuities", self.discontinuities)

    def as_dict(self, model: str = "", count: int = 10, **more: Any) -> dict[str, Any]:
        """Return the result as plain data for JSON, with the fields of `LoraChangeRecord`; of neurons the largest.

        Args:
            model: name of the model.
            count: how many neurons to list.
            more: fields of the record that aren't in the result.
        """
        return as_record(
            LoraChangeRecord,
            self,
            model=model,
            dtype=self.completeness.dtype,
            adapters=self.effects,
            top_neurons=self.top(count),
            **more,
        )

    def __repr__(self) -> str:
        return f"LoraChange({self.target}: {self.difference:+.6g}, error {float(self.completeness.error):+.1e})"
