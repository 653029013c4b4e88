"""Result of `ledger`: the effect of a part of a text, as exact sums over dynamic parameters."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from duat_jax.deprecation import renamed_fields
from duat_jax.display.named_arrays import NamedArray, by_mark, by_name, numbered, whole
from duat_jax.display.result import Displayed
from duat_jax.display.view import DIFFERENCE, DISCONTINUITIES, Curves, ModelRun, Table, View, compared, named_parts
from duat_jax.forms.completeness import Completeness
from duat_jax.in_context.parameters import PartsByParameter
from duat_jax.in_context.record import LedgerRecord
from duat_jax.json_record import as_record
from duat_jax.kinds import kept_as
from duat_jax.transform.keys import Key, Marked

COLUMNS = (
    "parameters at the part",
    "attention to the part",
    "attention to other tokens",
    "norm scales",
    "gates and others",
)
"""Groups of changed dynamic parameters: all at the part's own tokens, then those at other tokens."""

EXACT = (
    "Every column up to the sum is a part of one difference; so is 'what is read', where nothing is held. Run again:"
    " how much less is added where that layer alone, or it and all later ones, read the part as in the second run."
)
MASKED = "No input moves: the text is the same in both runs, and its hidden part is masked."


@kept_as("in-context ledger")
@renamed_fields(jumps="discontinuities")
@dataclass(frozen=True, eq=False)
class Ledger(Displayed):
    """Effect of a part of a text on a mean log-probability, `f(first run) − f(second run)`, as exact sums.

    Args:
        values: the mean log-probability of both runs, from plain forward passes.
        hidden: true for the tokens of the part, `[tokens]`.
        inputs: parts of each token's changed embedding, `[tokens]`; absent if the part is masked, since nothing changes
            then.
        within: parts of every dynamic parameter that changed at the part's own tokens, by key.
        patterns: parts of each head's changed attention to each token, over the queries outside of the part, `[layers,
            heads, tokens]`.
        held: parts of every other dynamic parameter that changed outside of the part, such as norm scales and gates.
        discontinuities: parts without a slope between both runs, such as a router's choice, by name and place.
        heads: parts of each head's mixed values, `[layers, heads]`; they don't sum to the difference: later heads can
            undo earlier ones.
        reads: parts of the inputs that each layer reads from the part, with nothing held, `[layers]`.
        form: the same difference in the parameters of the closed form.
        again_at: the measured decrease when one layer reads the part as in the second run, the model run again,
            `[layers]`; absent if not measured.
        again_from: the same with that layer and all later ones, `[layers]`.
        completeness: the difference of the plain forward passes, the sum of `inputs`, `within`, `patterns`, `held` and
            `discontinuities`, error and tolerance.
        reads_completeness: the same for `reads`.
        notes: caveats on the parts, such as a softmax that isn't recognised; as in `duat.secant`.
    """

    values: tuple[float, float]
    hidden: Bool[np.ndarray, "tokens"]
    inputs: Float[np.ndarray, "tokens"] | None
    within: Marked[float]
    patterns: Float[np.ndarray, "layers heads tokens"]
    held: Marked[float]
    discontinuities: dict[str, float]
    heads: Float[np.ndarray, "layers heads"]
    reads: Float[np.ndarray, "layers"]
    form: PartsByParameter
    again_at: Float[np.ndarray, "layers"] | None
    again_from: Float[np.ndarray, "layers"] | None
    completeness: Completeness
    reads_completeness: Completeness
    notes: tuple[str, ...] = ()

    @property
    def difference(self) -> float:
        """The mean log-probability of the first run minus that of the second."""
        return float(self.completeness.value)

    @property
    def layers(self) -> Float[np.ndarray, "rows 5"]:
        """The sum of each layer's parts in five groups, `[layers + 1, 5]`; the last row is the read-out.

        The groups are all dynamic parameters at the part's own tokens and, at later tokens, attention to the part,
        attention to other tokens, norm scales, and gates and others. The first row includes the norm of the embeddings,
        if the model has one.
        """
        rows = np.zeros((len(self.patterns) + 1, len(COLUMNS)))
        by_token = self.patterns.astype(np.float64).sum(1)
        for key, part in self.within.items():
            rows[_layer_of(key, len(rows) - 1), 0] += part
        rows[:-1, 1], rows[:-1, 2] = by_token[:, self.hidden].sum(-1), by_token[:, ~self.hidden].sum(-1)
        for key, part in self.held.items():
            rows[_layer_of(key, len(rows) - 1), 3 if key.name.endswith(".scale") else 4] += part
        return rows

    def view(self) -> View:
        """Return the ledger as it is shown: layer by layer, and in the closed form's parameters."""
        first, second = self.values
        masked = self.inputs is None
        runs = ("with the part in view", "without") if masked else ("with the part", "with the reference in its place")
        inputs = [] if self.inputs is None else [("all tokens", float(self.inputs.sum()))]
        return View(
            kind="in-context ledger",
            target="the difference of the mean log-probability",
            value=self.difference,
            value_name=DIFFERENCE,
            completeness=self.completeness,
            exact=EXACT,
            runs=compared(ModelRun(runs[0], first), ModelRun(runs[1], second)),
            added=(*named_parts("Moved inputs", inputs), *named_parts(DISCONTINUITIES, self.discontinuities.items())),
            tables=(self._by_layer(), self._by_term()),
            curves=(self._reads(),),
            sums={"in the closed form's parameters": self.form.completeness},
            notes=(*([MASKED] if masked else []), *self.notes),
        )

    def _by_layer(self) -> Table:
        """Return the parts of every layer in the groups of dynamic parameters."""
        layers = self.layers
        # A hidden part's own parameters are the same in both runs.
        first = int(self.inputs is None)
        names = (*(f"layer {i}" for i in range(len(layers) - 1)), "read-out")
        measured = {"what is read": self.reads}
        if self.again_at is not None and self.again_from is not None:
            measured |= {"run again: alone": self.again_at, "and later": self.again_from}
        runs: list[list[float | None]] = [
            [float(column[i]) for column in measured.values()] for i in range(len(layers) - 1)
        ]
        last: list[float | None] = [None] * len(measured)
        rows = tuple(
            (name, *row[first:].tolist(), float(row.sum()), *more)
            for name, row, more in zip(names, layers, [*runs, last], strict=True)
        )
        total = ("all", *layers[:, first:].sum(0).tolist(), float(layers.sum()), *last)
        title = "Moved parameters, layer by layer; the part is what differs, such as demonstrations"
        return Table(title, ("", *COLUMNS[first:], "sum", *measured), rows, total, drawn=COLUMNS[first:])

    def _reads(self) -> Curves:
        """Return what each layer reads, and what runs of the model say of it, as curves over the layers."""
        layers = list(range(len(self.reads)))
        curves = {"part of what this layer reads, nothing held": (layers, self.reads)}
        kind = "hidden from" if self.inputs is None else "the other part for"
        if self.again_at is not None and self.again_from is not None:
            curves[f"run again: {kind} this layer alone"] = (layers, self.again_at)
            curves[f"run again: {kind} it and all later ones"] = (layers, self.again_from)
        return Curves("layer", "nats", curves)

    def _by_term(self) -> Table:
        """Return the same difference in the parameters of the closed form."""
        form, masked = self.form, self.inputs is None
        columns = ("W'3, after the part", "W'3, the part", "W'2, after the part", "W'2, the part", "c_j", "inputs")
        kept = len(columns) - masked
        bias, inputs = form.inner_bias[:, None], form.inner_inputs[:, None]
        parts = np.concatenate([form.outer, form.inner, bias, inputs], 1)[:, :kept]
        rows = [(f"term {i}", *row.tolist(), float(row.sum())) for i, row in enumerate(parts, 1)]
        rows.append(("all terms", *parts.sum(0).tolist(), float(parts.sum())))
        rest = {"W'1, after the part": form.path[0], "W'1, the part": form.path[1], "bias q": form.bias}
        rest |= {} if masked else {"inputs": form.inputs}
        rows += [(name, *[None] * kept, float(part)) for name, part in rest.items()]
        return Table("The same in the closed form's parameters", ("", *columns[:kept], "sum"), tuple(rows))

    def part_sums(self) -> Mapping[str, Any]:
        """Return the sums of the parts that each completeness is about."""
        inputs = 0.0 if self.inputs is None else self.inputs.sum(dtype=np.float64)
        sums = map(float, (*self.within.values(), *self.held.values(), *self.discontinuities.values()))
        return {
            "completeness": inputs + self.patterns.sum(dtype=np.float64) + sum(sums),
            "reads_completeness": self.reads.sum(dtype=np.float64),
        }

    def arrays(self) -> Iterator[NamedArray]:
        """Yield the parts with named axes.

        The sum of `inputs`, `within`, `patterns`, `held` and `discontinuities` is the difference; that of `reads` too.
        """
        layers, heads, tokens = self.patterns.shape
        layer, token = numbered("layer", layers), numbered("token_index", tokens)
        if self.inputs is not None:
            yield whole("inputs", self.inputs, token)
        yield from by_mark("within", self.within, {})
        yield whole("patterns", self.patterns, {**layer, **numbered("head", heads), **token})
        yield from by_mark("held", self.held, {})
        yield from by_name("discontinuities", self.discontinuities)
        yield whole("heads", self.heads, {**layer, **numbered("head", heads)})
        yield whole("reads", self.reads, layer)
        for name, measured in (("again_at", self.again_at), ("again_from", self.again_from)):
            if measured is not None:
                yield whole(name, measured, layer)

    @property
    def totals(self) -> dict[str, float]:
        """The sum over all layers, for every column."""
        return dict(zip(COLUMNS, self.layers.sum(0).tolist(), strict=True))

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain data for JSON, with the fields of `LedgerRecord`."""
        first, second = self.values
        return as_record(LedgerRecord, self, first=first, second=second, columns=COLUMNS, tokens=self.patterns.sum(1))

    def __repr__(self) -> str:
        return f"Ledger({self.difference:+.6g}, error {float(self.completeness.error):+.1e})"


def _layer_of(key: Key, after: int) -> int:
    """Return the layer of a mark: the first one for the embeddings' norm, and `after` outside of all layers."""
    if key.name.startswith("embedding_norm"):
        return 0
    return after if key.layer is None else key.layer
