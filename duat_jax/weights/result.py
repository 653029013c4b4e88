"""Result of `duat.diff`: the parts of every parameter, neuron, head and row, and what runs of the model say."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from duat_jax.deprecation import renamed_arguments, renamed_fields
from duat_jax.display.named_arrays import NamedArray, by_name, numbered, numeric_order, of_tokens, whole
from duat_jax.display.result import Displayed
from duat_jax.display.view import (
    DIFFERENCE,
    DISCONTINUITIES,
    Colouring,
    ModelRun,
    Table,
    TokenRow,
    View,
    compared,
    named_parts,
)
from duat_jax.evaluation.statistics import students_mean
from duat_jax.forms.completeness import HOLDS, Completeness, worst_of
from duat_jax.json_record import as_record
from duat_jax.kinds import kept_as
from duat_jax.models.targets.description import TargetDescription
from duat_jax.models.vocabulary.token import token_label
from duat_jax.weights.record import ModelDiffRecord
from duat_jax.weights.units import EMBEDDINGS, LAYERS

ATTENTION, MLP, OTHER, FIRST_ORDER = COLUMNS = "attention", "mlp", "other", "first_order"
"""Of a layer's weights: attention, MLP, norms and all else; and all of them to first order."""


EMBEDDING = "How much of the difference comes from what the changed embeddings write at each token."

CANCELLING = 5
"""From how many times the difference on the sizes of all parts make a note."""

SHOWN = 0.5e-4
"""The smallest part of a neuron, head or row that a table of four digits shows."""

EXACT = (
    "part: of the difference, exact for these two models. set back: what is lost if the model gets its reference's"
    " weights there. put in: what is gained if the reference gets the model's. Both by running the model again; where"
    " weights act together, neither has to be the part."
)


@kept_as("run again")
class RunAgain(NamedTuple):
    """The effects of exchanging a parameter, by runs of the model, beside its part.

    Args:
        name: the parameter.
        part: its part of the difference.
        set_back: the number of the model minus that of the model with this parameter of the reference.
        put_in: the number of the reference with this parameter of the model, minus that of the reference.
    """

    name: str
    part: float
    set_back: float
    put_in: float


@kept_as("unit part")
class UnitPart(NamedTuple):
    """A neuron, a head or a row of an embedding with a large part.

    Args:
        weights: the weights of a layer, or the embedding, that it belongs to.
        unit: its name, such as `"neuron 7"`; of a row the token's text beside its number.
        part: the part of its weights in the difference.
    """

    weights: str
    unit: str
    part: float


@kept_as("flow", "duat_jax.weights.result:Flow")
class LayerDifferences(NamedTuple):
    """The place of the difference, layer by layer: the tokens' streams, or weights after them.

    Args:
        tokens: the part of what moved in every token's stream before each layer, and after all, `[streams, tokens]`.
        later: the part of the weights after this stream, `[streams]`; with the tokens of a row it sums to the
            difference.
    """

    tokens: Float[np.ndarray, "streams tokens"]
    later: Float[np.ndarray, "streams"]


@kept_as("model diff")
@renamed_fields(before="reference_value", after="value")
@dataclass(frozen=True, eq=False)
class ModelDiff(Displayed):
    """The difference of a number between a model and its reference, as an exact sum over their weights.

    Args:
        family: the checkpoint family.
        tokens: display labels of the text's tokens; empty of several texts.
        target: the number, which prints as a sentence.
        values: of each text, the number by the reference and by the model, from plain forward passes.
        parameters: the part of every parameter, by its name, on each text.
        first_order: the same to first order at the reference: the gradient times the change.
        neurons: by linear layer of an MLP, the part of each neuron's weights.
        heads: by linear layer of an attention, that of each head's weights.
        rows: by embedding, that of each row.
        units: of neurons, heads and rows, those with the largest parts.
        again: the parameters with the largest parts, exchanged one at a time and together, by runs of the model.
        flow: where the difference is, layer by layer; absent of several texts.
        discontinuities: parts that have no slope, such as a router's choice, by primitive and source line.
        completeness: of each text, the difference and the sum of all parts.
        notes: caveats on the parts, such as a softmax that isn't recognised; as in `duat.secant`.

    All parts but those of each text are means over texts.
    """

    family: str
    tokens: tuple[str, ...]
    target: TargetDescription
    values: Float[np.ndarray, "texts 2"]
    parameters: dict[str, Float[np.ndarray, "texts"]]
    first_order: dict[str, Float[np.ndarray, "texts"]]
    neurons: dict[str, Float[np.ndarray, "..."]]
    heads: dict[str, Float[np.ndarray, "heads"]]
    rows: dict[str, Float[np.ndarray, "rows"]]
    units: tuple[UnitPart, ...]
    again: tuple[RunAgain, ...]
    flow: LayerDifferences | None
    discontinuities: dict[str, float]
    completeness: tuple[Completeness, ...]
    notes: tuple[str, ...] = ()

    @property
    def value(self) -> float:
        """The number of the model, `A`."""
        return float(self.values[:, 1].mean())

    @property
    def reference_value(self) -> float:
        """The number of the reference, `B`."""
        return float(self.values[:, 0].mean())

    @property
    def difference(self) -> float:
        """The number of the model minus that of the reference, `A − B`."""
        return float(np.mean([each.value for each in self.completeness]))

    @property
    def parts(self) -> dict[str, float]:
        """The part of every parameter, the mean over texts."""
        return {name: float(np.mean(part)) for name, part in self.parameters.items()}

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Of several texts, the ends of the 95 % interval of every parameter's part, by Student's t over the texts."""
        if len(self.values) == 1:
            return {}
        return {name: students_mean(part)[1:] for name, part in self.parameters.items()}

    @property
    def cancellation(self) -> float:
        """The sum of the sizes of all parameters' parts, as a multiple of the difference; 1 of a difference of zero."""
        sizes = float(np.abs(list(self.parts.values())).sum())
        return sizes / abs(self.difference) if self.difference else 1.0

    @property
    def layers(self) -> dict[str, dict[str, Float[np.ndarray, "texts"]]]:
        """Of each layer, and of the weights before and after all of them, the parts of attention, MLP and all else."""
        rows: dict[str, dict[str, Any]] = {}
        nothing = np.zeros(len(self.values))
        for name, part in sorted(self.parameters.items(), key=lambda named: _order(named[0])):
            row, column = _place(name)
            of_row = rows.setdefault(row, dict.fromkeys(COLUMNS, nothing))
            of_row[column] = of_row[column] + part
            of_row[FIRST_ORDER] = of_row[FIRST_ORDER] + self.first_order[name]
        return rows

    def top(self, count: int) -> list[tuple[str, float]]:
        """Return the parameters with the largest parts.

        Args:
            count: how many.
        """
        return sorted(self.parts.items(), key=lambda named: -abs(named[1]))[:count]

    def view(self, model: str = "the model", reference: str = "the reference") -> View:
        """Return the difference as it is shown: by layer, the largest parameters run again, and units.

        Args:
            model: the name of the model.
            reference: that of its reference.
        """
        rows: list[TokenRow] = []
        tokens: tuple[str, ...] = ()
        if self.flow is not None:
            names = ("embedding", *(f"layer {i}" for i in range(len(self.flow.tokens) - 1)))
            tokens = (*map(token_label, self.tokens), "later weights")
            rows = [TokenRow(name, np.append(*each)) for name, *each in zip(names, *self.flow, strict=True)]
        shown = tuple(unit for unit in self.units if abs(unit.part) >= SHOWN)
        return View(
            kind="model diff",
            target=f"the difference of the {self.target}"
            + (f", the mean of {len(self.values)} texts" if len(self.values) > 1 else ""),
            value=self.difference,
            value_name=DIFFERENCE,
            completeness=worst_of(self.completeness),
            exact=EXACT,
            runs=compared(ModelRun(model, self.value), ModelRun(reference, self.reference_value)),
            output=self.target.output_id,
            tokens=tokens,
            heading="Where the difference is, after each layer",
            rows=tuple(rows),
            row_sums=bool(rows),
            colourings=tuple(Colouring("embedding", EMBEDDING, row.parts) for row in rows[:1]),
            added=named_parts(DISCONTINUITIES, self.discontinuities.items()),
            tables=(
                self._by_layer(),
                *([Table("Neurons, heads and rows", ("weights", "unit", "part"), shown, labels=2)] if shown else []),
                *([self._run_again()] if self.again else []),
            ),
            notes=(*self._account(), *self.notes),
        )

    def _by_layer(self) -> Table:
        """Return the parts of each layer's attention, MLP and all else."""
        means = {name: [float(np.mean(part)) for part in row.values()] for name, row in self.layers.items()}
        rows = tuple((name, *parts, sum(parts), first) for name, (*parts, first) in means.items())
        totals = [sum(column) for column in zip(*(row[1:] for row in rows), strict=True)]
        columns = "weights", "attention", "MLP", "norms and other", "together", "of first order"
        return Table("By layer", columns, rows, ("together", *totals), drawn=columns[1:4])

    def _run_again(self) -> Table:
        """Return the parameters with the largest parts, beside runs of the model."""
        several = ("its 95 % interval",) if self.intervals else ()
        first = {row.name: float(self.first_order[row.name].mean()) for row in self.again[:-1]}
        first[self.again[-1].name] = sum(first.values())

        def row(each: RunAgain) -> tuple:
            ends = self.intervals.get(each.name, ())
            interval = [" to ".join(f"{end:+z.4f}" for end in ends)] if several else []
            return each.name, each.part, *interval, each.set_back, each.put_in, first[each.name]

        *rows, together = map(row, self.again)
        columns = "parameter", "part", *several, "set back", "put in", "of first order"
        drawn = "part", "set back", "put in"
        return Table("The largest parts, and the model run again", columns, tuple(rows), together, drawn=drawn)

    def _account(self) -> list[str]:
        """Return on how many texts the parts sum, the interval of their mean, and how much parts cancel."""
        notes = []
        if len(self.completeness) > 1:
            held = sum(each.verdict == HOLDS for each in self.completeness)
            low, high = students_mean(self.values[:, 1] - self.values[:, 0])[1:]
            notes.append(
                f"On {held} of {len(self.completeness)} texts the parts sum to the difference, and the sum above is"
                f" that of the worst one. The mean difference is {self.difference:+z.4f} [{low:+z.4f}, {high:+z.4f}]."
            )
        sizes = f"The sizes of all parameters' parts are {self.cancellation:.3g} times the difference"
        if self.cancellation >= CANCELLING:
            sizes += ": parts cancel. So a large part needn't be a large effect, and other texts may have other signs"
        return [*notes, f"{sizes}."]

    def part_sums(self) -> Mapping[str, Any]:
        """Return the sums of the parts that each completeness is about."""
        if len(self.values) > 1 and self.discontinuities:  # which are means over the texts
            return {}
        totals = sum(np.asarray(part, np.float64) for part in self.parameters.values())
        return {"completeness": totals + sum(map(float, self.discontinuities.values()))}

    def arrays(self) -> Iterator[NamedArray]:
        """Yield the parts with named axes; the sum of `parts` and `discontinuities` is the difference.

        `neurons`, `heads` and `rows` are finer sums of the same weights.
        """
        names = {"parameter": {"parameter": list(self.parameters)}}
        yield whole("parts", list(self.parts.values()), names)
        yield whole("first_order", [float(np.mean(part)) for part in self.first_order.values()], names)
        for kind, axis in ((self.neurons, "neuron"), (self.heads, "head"), (self.rows, "row")):
            for name, part in kind.items():
                named = zip(("expert", axis)[2 - part.ndim :], part.shape, strict=True)
                axes = {each: labels for name, size in named for each, labels in numbered(name, size).items()}
                yield NamedArray(f"{axis}s", part, axes, {"weights": name})
        yield from by_name("discontinuities", self.discontinuities)
        if self.flow is not None:
            yield whole(
                "flow", self.flow.tokens, {**numbered("stream", len(self.flow.later)), **of_tokens(self.tokens)}
            )

    @renamed_arguments(other="reference")
    def as_dict(self, model: str = "", reference: str = "", **more: Any) -> dict[str, Any]:
        """Return the result as plain data for JSON, with the fields of `ModelDiffRecord`.

        Args:
            model: name of the model.
            reference: name of its reference.
            more: fields of the record that aren't in the result.
        """
        return as_record(
            ModelDiffRecord,
            self,
            model=model,
            reference=reference,
            texts=len(self.values),
            dtype=self.completeness[0].dtype,
            first_order={name: float(np.mean(part)) for name, part in self.first_order.items()},
            **more,
        )

    def __repr__(self) -> str:
        error = max((float(each.error) for each in self.completeness), key=abs)
        return f"ModelDiff({self.target}: {self.difference:+.6g}, error {error:+.1e})"


def _order(name: str) -> tuple[int, list[tuple[int, str]]]:
    """Return a sort key: embeddings, the layers by their numbers, then all parameters after them."""
    return 1 if name.startswith(LAYERS) else 0 if name.startswith(EMBEDDINGS) else 2, numeric_order(name)


def _place(name: str) -> tuple[str, str]:
    """Return the layer of a parameter, or what it belongs to outside of all layers, and its part of the layer."""
    steps = name.split(".")
    if not name.startswith(LAYERS):
        return steps[0], OTHER
    return ".".join(steps[:2]), next((part for part in (ATTENTION, MLP) if steps[2] == part), OTHER)
