"""Neurons of a graph, with what they read and what they write, and groups of them."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from duat_jax.display.page.graph_view import NeuronView
from duat_jax.display.view import largest
from duat_jax.interpret.explain.result import ActiveNeuron, Explanation
from duat_jax.kinds import kept_as
from duat_jax.models.vocabulary.token import Token, quoted_label
from duat_jax.transform.keys import Marked

EMBEDDING = "embedding"

READS = 12
"""The number of parts of a pre-activation that a page has; the others stand in it as their sum."""


@kept_as("read neuron", "duat_jax.interpret.graph.result:ReadNeuron")
class ReadNeuron(NamedTuple):
    """One of the neurons with the largest contributions: what it reads and what it writes.

    Its pre-activation is the sum of `embedding`, `terms` and `biases`.

    Args:
        neuron: the neuron, its contribution, coefficient and activation.
        pre_activation: what its activation function takes.
        embedding: the part of every token's embedding in the pre-activation, `[tokens]`.
        terms: that of every term at every token, `[terms, tokens]`; zero of later ones.
        biases: that of every bias and norm offset.
        edges: of the parts of terms that of each neuron of the graph, `[neurons]`.
        raised: the outputs whose logits it raises most, everything held, and by how much; empty of an encoder.
        lowered: those that it lowers most.
    """

    neuron: ActiveNeuron
    pre_activation: float
    embedding: Float[np.ndarray, "tokens"]
    terms: Float[np.ndarray, "terms tokens"]
    biases: Marked[float]
    edges: Float[np.ndarray, "neurons"]
    raised: tuple[tuple[str, float], ...]
    lowered: tuple[tuple[str, float], ...]

    def view(self, explanation: Explanation) -> NeuronView:
        """Return the neuron as a page shows it.

        Args:
            explanation: of the number.
        """
        neuron, layer = self.neuron, self.neuron.term.layer
        return NeuronView(
            name=f"{explanation.labels[neuron.term]}, neuron {neuron.neuron}, token {neuron.token_index}",
            contribution=neuron.contribution,
            coefficient=neuron.coefficient,
            activation=neuron.activation,
            pre_activation=self.pre_activation,
            reads=self.largest_reads(explanation, READS),
            raised=[(quoted_label(output), change) for output, change in self.raised],
            lowered=[(quoted_label(output), change) for output, change in self.lowered],
            switch_off="" if layer is None else f"neuron {layer}:{neuron.neuron}@{neuron.token_index} set 0",
        )

    def as_dict(self, explanation: Explanation, count: int) -> dict[str, Any]:
        """Return the neuron as plain data, with the fields of `ReadNeuronRecord`.

        Args:
            explanation: of the number.
            count: how many parts of its pre-activation to list.
        """
        return {
            "neuron": self.neuron,
            "pre_activation": self.pre_activation,
            "reads": [{"name": name, "part": part} for name, part in self.largest_reads(explanation, count)],
            "raised": [_logit_change(*pair) for pair in self.raised],
            "lowered": [_logit_change(*pair) for pair in self.lowered],
        }

    def __str__(self) -> str:
        return f"{self.neuron.term} neuron {self.neuron.neuron} at token {self.neuron.token_index}"

    def largest_reads(self, explanation: Explanation, count: int) -> list[tuple[str, float]]:
        """Return the largest parts of what it reads, by name, and the sum of all others.

        Args:
            explanation: names the terms and the tokens.
            count: how many parts.
        """
        tokens = [f"token {i} {quoted_label(token)}" for i, token in enumerate(explanation.tokens)]
        parts = [(f"{EMBEDDING}, {token}", part) for token, part in zip(tokens, self.embedding.tolist(), strict=True)]
        for label, row in zip(explanation.labels.values(), self.terms.tolist(), strict=True):
            parts += [(f"{label}, {token}", part) for token, part in zip(tokens, row, strict=True)]
        return largest([*parts, *((str(key), part) for key, part in self.biases.items())], count)


@kept_as("neuron group", "duat_jax.interpret.graph.result:NeuronGroup")
class NeuronGroup(NamedTuple):
    """Neurons of the graph at one token, switched off together.

    Args:
        name: the token.
        members: their places among the neurons of the graph.
        predicted: the change of the value by the table of contributions, everything else held.
        measured: the change when the model is run again without them.
    """

    name: str
    members: tuple[int, ...]
    predicted: float
    measured: float


def _logit_change(output: str, change: float) -> dict[str, Any]:
    """Return a changed logit as plain data, with the id of its token or class."""
    return {"output": output, "change": change, "id": output.id if isinstance(output, Token) else None}
