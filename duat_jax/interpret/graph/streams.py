"""The streams of a number: at each stream, each token's part is the sum of what came in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from duat_jax.forms.completeness import Completeness
from duat_jax.inputs.images import reads_pixels
from duat_jax.interpret.attention.result import AttentionScore
from duat_jax.interpret.explain.result import Explanation
from duat_jax.interpret.graph.read_neuron import NeuronGroup, ReadNeuron
from duat_jax.interpret.moves import Move, Moves, side_by_side, top_moves
from duat_jax.models.layout import layer_label
from duat_jax.transform.keys import Marked


def moved_to(
    streams: Float[np.ndarray, "streams tokens"], layers: Sequence[int | None], moves: Marked[Moves]
) -> Float[np.ndarray, "streams tokens"]:
    """Return what all heads moved to each token of each stream."""
    moved = np.zeros_like(streams)
    for key, each in moves.items():
        row = moved[layers.index(key.layer)]
        np.add.at(row, each.tokens, each.parts.sum(-1))
        row += each.others.sum(-1)
    return moved


@dataclass(frozen=True, eq=False)
class Streams:
    """The fields of `Graph`, and what follows from them alone."""

    explanation: Explanation
    ids: tuple[int, ...]
    streams: Float[np.ndarray, "streams tokens"]
    kept: Float[np.ndarray, "streams tokens"]
    terms: Float[np.ndarray, "streams tokens"]
    biases: Float[np.ndarray, "streams tokens"]
    layers: tuple[int | None, ...]
    moves: Marked[Moves]
    after: float
    neurons: tuple[ReadNeuron, ...]
    groups: tuple[NeuronGroup, ...]
    scores: tuple[AttentionScore, ...]
    completeness: Completeness
    notes: tuple[str, ...] = ()

    @property
    def value(self) -> float:
        """The explained number, from the plain forward pass."""
        return self.explanation.value

    @property
    def rows(self) -> tuple[str, ...]:
        """The names of the streams: after the embedding and after each layer."""
        explanation = self.explanation
        of_image = reads_pixels(explanation.image)
        return tuple(layer_label(layer, explanation.encoder_layers, of_image=of_image) for layer in self.layers)

    @property
    def moves_of_rows(self) -> list[Moves | None]:
        """The moves of heads by the stream that they lead to; of a layer's several attentions heads are counted on."""
        rows = ([each for key, each in self.moves.items() if key.layer == layer] for layer in self.layers)
        return [side_by_side(row) if row else None for row in rows]

    def counted_on(self, move: Move) -> Move:
        """Return a move with the number of its head counted on from the layer's attentions before its own.

        Args:
            move: one of `top_moves`.
        """
        of_layer = [key for key in self.moves if key.layer == move.key.layer]
        before = of_layer[: of_layer.index(move.key)]
        return move._replace(head=move.head + sum(self.moves[key].others.shape[1] for key in before))

    def top_moves(self, count: int) -> list[Move]:
        """Return the largest moves of heads by size.

        Args:
            count: how many.
        """
        return top_moves(self.moves, count)

    def part_sums(self) -> Mapping[str, Any]:
        """Return the sums of the parts that each completeness is about."""
        moved = moved_to(self.streams.astype(np.float64), self.layers, self.moves)
        of_tokens = self.kept + self.terms + self.biases + moved - self.streams
        of_value = self.streams[-1].sum(dtype=np.float64) + self.after - self.value
        worst = max((*of_tokens.ravel().tolist(), float(of_value)), key=abs)
        kept = self.completeness
        tolerance = max(kept.tolerance, self.explanation.completeness.tolerance)
        if abs(worst) > tolerance:
            return {"completeness": kept.value + worst}
        # The value is that of a token of a stream, or the whole.
        distance = np.abs(np.append(self.streams, self.value) - kept.value).min()
        return {"completeness": kept.sum if distance <= tolerance else np.nan}
