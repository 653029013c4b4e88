"""The result of a contrast: the difference of a target between two inputs, as parts that sum to it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from duat_jax.deprecation import renamed_fields
from duat_jax.display.named_arrays import NamedArray, by_mark, by_name, of_tokens, whole
from duat_jax.display.neurons import Neuron, largest_entries
from duat_jax.display.page.graph_view import MovesView
from duat_jax.display.result import Displayed
from duat_jax.display.view import (
    DIFFERENCE,
    DISCONTINUITIES,
    Colouring,
    Largest,
    ModelRun,
    TokenRow,
    UnitParts,
    UnitTable,
    View,
    compared,
    line_ends,
    named_parts,
)
from duat_jax.forms.completeness import Completeness
from duat_jax.inputs.images import SeenImage, labels_beside, name_of_input, reads_pixels
from duat_jax.inputs.labels import Prediction
from duat_jax.interpret.comparison import Compared
from duat_jax.interpret.contrast.head_parts import HeadPart, HeadRuns, table_of_runs
from duat_jax.interpret.contrast.record import ContrastRecord
from duat_jax.interpret.headline import of_contrast
from duat_jax.interpret.moves import Move, Moves, top_moves
from duat_jax.json_record import as_record
from duat_jax.kinds import kept_as
from duat_jax.models.layout import layer_label
from duat_jax.models.targets.description import TargetDescription
from duat_jax.transform.keys import Key, Marked

UNPAIRED = "–"
"""The label of a place where an aligned text has no token of its own."""

EXACT = "Exact for this pair of inputs: in every row the parts sum to the difference. Another pair has other parts."
EXACT_WITH_MOVED = (
    "Exact for this pair of inputs: in every row the parts of all tokens, with what moved or jumped after it, sum to"
    " the difference. Another pair has other parts."
)
HEADS = (
    "What follows from what each head brings here on this text rather than on the other one; a head that is off and"
    " brings nothing is another question. They don't add up to the cell: what a head brings may flow on through the"
    " layer's neurons."
)
NEURONS = (
    "Parts of what each neuron of the layer adds here; with everything else that the stream has, they are the cell."
)


@kept_as("contrast")
@renamed_fields(jumps="discontinuities", others="references")
@dataclass(frozen=True, eq=False)
class Contrast(Displayed):
    """The difference of a number between two inputs, and its parts at every layer: exact for this pair of inputs.

    Every row of `flow` sums to the difference, together with what moved or jumped after it: everything flows through
    the stream. Heads' and neurons' parts don't sum to it: what flows through one may flow on through another. With
    several references, everything is the mean over them.

    Args:
        family: the checkpoint family.
        tokens: the text's tokens, readable; or `"whole"` and an image's patches, `"row,column"`.
        target: the target, which prints as a sentence, with the outputs that it reads.
        value: the number on the input, from the plain forward pass.
        predictions: what the model says on it; empty for an encoder.
        references: what it is contrasted with.
        flow: parts of every token in the stream after the embedding and after each layer, `[layers + 1, tokens]`.
        layers: of each row of `flow` the layer after which it is, `None` of the embedding: all layers, but of a model
            by its PyTorch code those whose stream was found; a decoder's are counted on from its encoder's.
        heads: parts of what each head mixes at every token, `[tokens, heads]`, in the order of computation.
        neurons: parts of every neuron of every MLP, `[tokens, neurons]`.
        moved: parts of what was held at its midpoint, by name.
        discontinuities: parts of what has no slope between the inputs, such as a router's choice, by name and place.
        completeness: the difference (from the plain forward passes), the sum of the tokens' parts and of what moved and
            jumped, error and tolerance.
        notes: what to know of the parts though they sum, such as a softmax that isn't recognised, as in `duat.secant`,
            or tokens that an alignment pairs with none.
        image: what was read, if it is an image.
        head_runs: the largest heads, each with the model run again without its part, as many as were asked for.
        moves: what each head brings to a token from each that it attends to, on the input minus on its only reference:
            they sum to `heads`; empty where patterns aren't formed, as in long texts.
        encoder_layers: of an encoder with a decoder the number of the encoder's layers, which come first; else 0.
    """

    family: str
    tokens: tuple[str, ...]
    target: TargetDescription
    value: float
    predictions: tuple[Prediction, ...]
    references: tuple[Compared, ...]
    flow: Float[np.ndarray, "rows tokens"]
    layers: tuple[int | None, ...]
    heads: Marked[Float[np.ndarray, "tokens heads"]]
    neurons: Marked[Float[np.ndarray, "tokens neurons"]]
    moved: Marked[float]
    discontinuities: dict[str, float]
    completeness: Completeness
    notes: tuple[str, ...] = ()
    image: SeenImage | None = None
    head_runs: tuple[HeadRuns, ...] = ()
    moves: Marked[Moves] = field(default_factory=lambda: Marked({}))
    encoder_layers: int = 0

    @property
    def difference(self) -> float:
        """The number on the input minus that on the reference, or minus the mean of those on the references."""
        return float(self.completeness.value)

    @property
    def leaves_out(self) -> bool:
        """Whether something held moved, or something jumped: rows before it don't have its part."""
        return any([*self.moved.values(), *self.discontinuities.values()])

    @property
    def rows(self) -> tuple[str, ...]:
        """The labels of the rows of the flow."""
        return tuple(
            layer_label(layer, self.encoder_layers, of_image=reads_pixels(self.image)) for layer in self.layers
        )

    def top_neurons(self, count: int) -> list[Neuron]:
        """Return the neurons with the largest parts by size.

        Args:
            count: how many.
        """
        return [Neuron(*entry) for entry in largest_entries(self.neurons, count)]

    def top_heads(self, count: int) -> list[HeadPart]:
        """Return the heads with the largest parts by size, each with the token that it carries them to.

        Args:
            count: how many.
        """
        return [HeadPart(*entry) for entry in largest_entries(self.heads, count)]

    def top_moves(self, count: int) -> list[Move]:
        """Return the largest moves of heads from token to token by size.

        Args:
            count: how many.
        """
        return top_moves(self.moves, count)

    def part_sums(self) -> Mapping[str, Any]:
        """Return the sums of the parts that each completeness is about."""
        sums = map(float, (*self.moved.values(), *self.discontinuities.values()))
        return {"completeness": self.flow[0].sum(dtype=np.float64) + sum(sums)}

    def view(self) -> View:
        """Return the contrast as it is shown."""
        # A layer with several marks of one kind has no rows for them: they are parts of the same cell twice.
        marks_in = Counter((key.layer, kind) for kind in ("heads", "neurons") for key in getattr(self, kind))
        several = {layer for (layer, _), count in marks_in.items() if count > 1}
        layers = [None if layer in several else layer for layer in self.layers]
        token = int(np.abs(self.flow[0]).argmax())
        move = next((each for each in self.top_moves(1) if each.key.layer is not None), None)
        move_parts = () if move is None else (move.key.layer, move.head, move.part)
        return View(
            kind="contrast",
            target=f"the difference of the {self.target}",
            headline=self._headline(token, move),
            largest=Largest(token, float(self.flow[0, token]), *move_parts),
            value=self.difference,
            value_name=DIFFERENCE,
            completeness=self.completeness,
            exact=EXACT_WITH_MOVED if self.leaves_out else EXACT,
            runs=self._runs(),
            output=self.target.output_id,
            position=self.target.position,
            tokens=labels_beside(self.tokens, self.image),
            others=self._other_tokens(),
            line_ends=line_ends(self.tokens),
            heading="Where the difference is, after each layer",
            rows=tuple(map(TokenRow, self.rows, self.flow, layers)),
            row_sums=True,
            moves=self._moves_of_rows(),
            later="moved or jumped later" if self.leaves_out else "",
            colourings=(
                Colouring(
                    "secant",
                    "How much of the difference from the other input comes from each token's own change, through all"
                    " layers.",
                    self.flow[0],
                ),
            ),
            units=(
                UnitTable("head", ("part",), HEADS, None, _unit_parts(self.heads, self.layers)),
                UnitTable(
                    "neuron",
                    ("part",),
                    NEURONS,
                    "everything else in the stream",
                    _unit_parts(self.neurons, self.layers),
                ),
            ),
            added=(
                *named_parts("Held at its midpoint, and moved", self.moved.items()),
                *named_parts(DISCONTINUITIES, self.discontinuities.items()),
            ),
            tables=(table_of_runs(self.head_runs, self.tokens, self.heads),) if self.head_runs else (),
            notes=self.notes,
            image=self.image,
        )

    def _moves_of_rows(self) -> tuple[MovesView | None, ...]:
        """Return the moves of heads by the rows that they lead to; nothing where a layer has several such marks."""
        of_layers = {key.layer: each.view() for key, each in self.moves.items() if key.layer is not None}
        if len(of_layers) < len(self.moves):
            return ()
        return tuple(None if layer is None else of_layers.get(layer) for layer in self.layers)

    def _headline(self, token: int, move: Move | None) -> str:
        """Return the headline: which token makes the difference, and which head brings most of it."""
        only = self.references[0] if len(self.references) == 1 else None
        others = only.tokens if only is not None and only.tokens else None
        part, image = float(self.flow[0, token]), self.image
        return of_contrast(
            self.target,
            self.value,
            self.difference,
            self.tokens,
            others,
            token,
            part,
            move,
            image,
            same_image=image is None or not self.flow[0, : image.patches.stop].any(),
        )

    def _runs(self) -> tuple[ModelRun, ...]:
        """Return the runs on the input and on each reference, and the mean of several."""
        run = ModelRun(name_of_input(self.image, len(self.tokens)), self.value, self.predictions)
        others = [ModelRun(each.name, each.value, each.predictions) for each in self.references]
        if len(others) == 1:
            return compared(run, others[0])
        run, mean = compared(run, ModelRun("the mean of the references", self.value - self.difference))
        return run, *others, mean

    def _other_tokens(self) -> tuple[str, ...] | None:
        """Return the tokens of the only other text, `UNPAIRED` where an alignment leaves none."""
        only = self.references[0]
        if len(self.references) > 1 or not only.tokens:
            return None
        labels = labels_beside(only.tokens, self.image)
        return tuple(UNPAIRED if i in only.unpaired else label for i, label in enumerate(labels))

    def arrays(self) -> Iterator[NamedArray]:
        """Yield the parts with named axes.

        The sum of the first row of `flow` (`row` is `embedding`), `moved` and `discontinuities` is the difference;
        `moves` and `other_moves` sum to `heads`.
        """
        token = of_tokens(self.tokens)
        yield whole("flow", self.flow, {"row": {"row": self.rows}, **token})
        yield from by_mark("heads", self.heads, token, "head")
        yield from by_mark("neurons", self.neurons, token, "neuron")
        for key, moves in self.moves.items():
            yield moves.as_array(key)
        yield from by_mark("other_moves", Marked({key: each.others for key, each in self.moves.items()}), token, "head")
        yield from by_mark("moved", self.moved, {})
        yield from by_name("discontinuities", self.discontinuities)

    def as_dict(self, model: str = "", count: int = 10) -> dict[str, Any]:
        """Return everything but single neurons as plain data for JSON, with the fields of `ContrastRecord`.

        Args:
            model: name of the model.
            count: how many of the largest heads and neurons to list.
        """
        return as_record(
            ContrastRecord,
            self,
            model=model,
            dtype=self.completeness.dtype,
            flow={
                row.replace("layer ", "layers.").replace(" ", "."): part
                for row, part in zip(self.rows, self.flow, strict=True)
            },
            top_heads=self.top_heads(count),
            top_neurons=self.top_neurons(count),
            head_runs=self.head_runs,
        )

    def __repr__(self) -> str:
        return f"Contrast({self.target}: {self.difference:+.6g}, error {float(self.completeness.error):+.1e})"


def _unit_parts(
    parts: Marked[Float[np.ndarray, "tokens units"]], layers: tuple[int | None, ...]
) -> tuple[UnitParts, ...]:
    """Return the parts of units by their layers; a layer with units of several kinds has no row for them."""
    kinds = {key: key._replace(number=0) for key in parts}
    in_layer = Counter(key.layer for key in set(kinds.values()))

    def unit_parts(key: Key, part: np.ndarray) -> UnitParts:
        number = [f"[{key.number}]"] if key.number else []
        label = " ".join([*(scope.replace("layers.", "layer ") for scope in key.scope), *number]) or str(key)
        alone = key.layer is not None and in_layer[key.layer] == 1
        row = layers.index(key.layer) if alone and key.layer in layers else None
        return UnitParts(label, row, (part,), range(part.shape[-1]))

    return tuple(unit_parts(key, part) for key, part in parts.items())
