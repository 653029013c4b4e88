"""The result of an attribution: a score of every unit of one kind, by one method."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from duat_jax.attribution.record import AttributionRecord
from duat_jax.deprecation import renamed_fields
from duat_jax.display.named_arrays import NamedArray, numbered, of_tokens, whole
from duat_jax.display.result import Displayed
from duat_jax.display.view import (
    DIFFERENCE,
    RANKED,
    Colouring,
    Largest,
    ModelRun,
    Table,
    TokenRow,
    View,
    line_ends,
    sides,
)
from duat_jax.inputs.labels import Prediction
from duat_jax.interpret.comparison import Compared
from duat_jax.interpret.headline import of_attribution, place_of
from duat_jax.json_record import as_record
from duat_jax.kinds import kept_as
from duat_jax.models.targets.description import TargetDescription
from duat_jax.models.vocabulary.token import token_label


class UnitScore(NamedTuple):
    """The score of one unit.

    Args:
        layer: the layer of a neuron or a head; of a stream, the number of layers before it; `None` of a token.
        token_index: index of the token.
        unit: index of the neuron or head; `None` of a token and a stream.
        score: its score.
    """

    layer: int | None
    token_index: int
    unit: int | None
    score: float


@kept_as("attribution")
@renamed_fields(others="references")
@dataclass(frozen=True, eq=False)
class Attribution(Displayed):
    """The scores that an attribution method gives to the units of one kind, for one number of a model.

    Only exact methods sum: over the tokens, or over every stream, to the difference of the number between the input
    and the reference (of methods without a reference, to the number and less its biases). `gap` says how far.

    Args:
        family: the checkpoint family.
        tokens: the input's tokens, readable.
        target: the target, which prints as a sentence, with the outputs that it reads.
        method: the name of the method.
        unit: the kind of units: `"token"`, `"neuron"`, `"head"` or `"stream"`.
        score: the formula of a score.
        source: where the method comes from.
        value: the number on the input, from the plain forward pass.
        predictions: what the model says on the input; empty for an encoder.
        references: what the input is contrasted with, with the number on each; empty for a method without one.
        difference: the value minus the mean of those on the references; the value itself without one.
        scores: of tokens `[tokens]`; of streams `[layers + 1, tokens]`, the first after the embedding; of neurons
            `[layers, tokens, neurons]`; of heads `[layers, tokens, heads]`. The mean over several references.
    """

    family: str
    tokens: tuple[str, ...]
    target: TargetDescription
    method: str
    unit: str
    score: str
    source: str
    value: float
    predictions: tuple[Prediction, ...]
    references: tuple[Compared, ...]
    difference: float
    scores: Float[np.ndarray, "..."]

    @property
    def gap(self) -> Float[np.ndarray, "..."] | None:
        """The difference minus the sum of the scores of all tokens, `[]`, or of every stream, `[layers + 1]`.

        It is None for neurons and heads: their parts don't sum to the difference, since one can act through another.
        """
        if self.unit not in ("token", "stream"):
            return None
        return np.asarray(self.difference - self.scores.sum(-1, dtype=np.float64))

    def top(self, count: int) -> list[UnitScore]:
        """Return the units with the largest scores by size.

        Args:
            count: how many.
        """
        sizes = -np.abs(self.scores.reshape(-1))
        chosen = np.argsort(sizes, kind="stable")[:count]
        largest = []
        for place in zip(*np.unravel_index(chosen, self.scores.shape), strict=True):
            layer = None if self.unit == "token" else int(place[0])
            token = int(place[0] if self.unit == "token" else place[1])
            index = int(place[2]) if len(place) > 2 else None
            largest.append(UnitScore(layer, token, index, float(self.scores[place])))
        return largest

    def view(self) -> View:
        """Return the attribution as it is shown: the scores of all units at every token, and the largest of them."""
        names, tokens = ", ".join(each.name for each in self.references), tuple(map(token_label, self.tokens))
        by_token = self.scores.reshape(-1, len(tokens)) if self.unit in ("token", "stream") else self.scores.sum(-1)
        layers = [None] if self.unit == "token" else range(len(by_token))
        rows = tuple(
            TokenRow("tokens" if i is None else f"{self.unit}s {i}", each)
            for i, each in zip(layers, by_token, strict=True)
        )
        (best,) = self.top(1)
        parts = (best.score, best.layer) if best.unit is None else (None, best.layer, best.unit, best.score)
        return View(
            kind="attribution",
            target=f"the {self.target}" + (f", {sides('the input', names)}" if names else ""),
            headline=self._headline(best),
            largest=Largest(best.token_index, *parts),
            value=self.difference,
            value_name=DIFFERENCE if names else "value",
            completeness=None,
            exact=f"Method: {self.method}, {self.score}. {self._account()}",
            runs=(
                ModelRun("the input", self.value, self.predictions),
                *(ModelRun(each.name, each.value, each.predictions) for each in self.references),
            ),
            output=self.target.output_id,
            tokens=tokens,
            line_ends=line_ends(self.tokens),
            heading="Scores at every token",
            rows=rows,
            colourings=(Colouring("scores", "The sum of the scores at each token.", by_token.sum(0)),),
            tables=(self._largest(),),
        )

    def _headline(self, best: UnitScore) -> str:
        """Return the headline: what the number is, and the unit with the largest score."""
        token = place_of(best.token_index, self.tokens)
        place = {
            "token": token,
            "stream": f"the stream after {best.layer} layers at {token}",
        }.get(self.unit, f"{self.unit} {best.unit} of layer {best.layer} at {token}")
        return of_attribution(
            self.target, self.value, self.difference, best.score, place, compared=bool(self.references)
        )

    def _largest(self) -> Table:
        """Return the table of the units with the largest scores."""
        layered, numbered = self.unit != "token", self.unit in ("neuron", "head")
        rows = tuple(
            (
                *[each.layer] * layered,
                each.token_index,
                token_label(self.tokens[each.token_index]),
                *[each.unit] * numbered,
                each.score,
            )
            for each in self.top(RANKED)
        )
        columns = (*["layer"] * layered, "token", "", *[self.unit] * numbered, "score")
        title = f"The {self.unit}s with the largest scores, of {self.scores.size}"
        return Table(title, columns, rows, labels=len(columns) - 1, ranked=True)

    def _account(self) -> str:
        """Return how the scores sum, in one sentence."""
        if self.gap is None:
            return "Neurons' and heads' scores need not sum to the difference: one can act through another."
        worst = float(self.gap.flat[abs(self.gap).argmax()])
        rows = "all tokens" if self.unit == "token" else "the tokens of every stream"
        return f"The scores of {rows} sum to the difference but for {worst:+.1e}."

    def arrays(self) -> Iterator[NamedArray]:
        """Yield the scores with named axes; `layer` of a stream is the number of layers before it."""
        layer = {} if self.unit == "token" else numbered("layer", len(self.scores))
        unit = numbered(self.unit, self.scores.shape[-1]) if self.unit in ("neuron", "head") else {}
        yield whole("scores", self.scores, {**layer, **of_tokens(self.tokens), **unit})

    def as_dict(self, model: str = "") -> dict[str, Any]:
        """Return everything as plain data for JSON, with the fields of `AttributionRecord`.

        Args:
            model: name of the model.
        """
        return as_record(AttributionRecord, self, model=model)

    def __repr__(self) -> str:
        return f"Attribution({self.method}, {self.unit}s: {self.target}, {self.difference:+.6g})"
