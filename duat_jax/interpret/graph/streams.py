"""The streams of a number: at each stream, each token's part is the sum of what came in."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from duat_jax.forms.completeness import Completeness
from duat_jax.interpret.attention.result import AttentionScore
from duat_jax.interpret.explain.result import Explanation
from duat_jax.interpret.graph.read_neuron import NeuronGroup, ReadNeuron
from duat_jax.interpret.moves import Move, Moves, top_moves
from duat_jax.transform.keys import Marked


@dataclass(frozen=True, eq=False)
class Streams:
    """The fields of `Graph`, and what follows from them alone."""

    explanation: Explanation
    ids: tuple[int, ...]
    streams: Float[np.ndarray, "streams tokens"]
    kept: Float[np.ndarray, "streams tokens"]
    terms: Float[np.ndarray, "streams tokens"]
    biases: Float[np.ndarray, "streams tokens"]
    moves: Marked[Moves]
    after: float
    neurons: tuple[ReadNeuron, ...]
    groups: tuple[NeuronGroup, ...]
    scores: tuple[AttentionScore, ...]
    completeness: Completeness

    @property
    def value(self) -> float:
        """The explained number, from the plain forward pass."""
        return self.explanation.value

    @property
    def rows(self) -> tuple[str, ...]:
        """The names of the streams: after the embedding and after each layer."""
        return "embedding", *(f"layer {layer}" for layer in range(len(self.streams) - 1))

    def top_moves(self, count: int) -> list[Move]:
        """Return the largest moves of heads by size.

        Args:
            count: how many.
        """
        return top_moves(self.moves, count)

    def part_sums(self) -> Mapping[str, Any]:
        """Return the sums of the parts that each completeness is about."""
        moved = np.zeros(self.streams.shape)
        for row, each in enumerate(self.moves.values(), 1):
            np.add.at(moved[row], each.tokens, each.parts.sum(-1))
            moved[row] += each.others.sum(-1)
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
