"""The data of a graph on a page: streams, moves of heads, neurons and attention scores."""

import msgspec
import numpy as np
from jaxtyping import Float


class MovesView(msgspec.Struct):
    """The moves of heads to the tokens of a stream.

    Args:
        edges: of each edge the source, the token, and what each head moves along it.
        others: of each token, what each head moves to it from all others.
    """

    edges: Float[np.ndarray, "edges columns"]
    others: Float[np.ndarray, "tokens heads"]


class NeuronView(msgspec.Struct):
    """One neuron at one token.

    Args:
        name: where it stands.
        contribution: coefficient times activation.
        coefficient: what one unit more of its activation would add.
        activation: how strongly it fired.
        pre_activation: the sum of what it reads.
        reads: parts of it by name, the others as one.
        raised: the outputs whose logits it raises, and by how much.
        lowered: those that it lowers.
        switch_off: the edit that switches it off, as it is written for `duat intervene --edit`.
    """

    name: str
    contribution: float
    coefficient: float
    activation: float
    pre_activation: float
    reads: list[tuple[str, float]]
    raised: list[tuple[str, float]]
    lowered: list[tuple[str, float]]
    switch_off: str


class GroupView(msgspec.Struct):
    """Several neurons, switched off together.

    Args:
        name: its name.
        members: their places in the list of neurons.
        predicted: the change of the value by the table.
        measured: the change when the model is run again; absent if it wasn't.
    """

    name: str
    members: list[int]
    predicted: float
    measured: float | None


class ScoreView(msgspec.Struct):
    """The reason why a head attends from one token to another one, rather than to a third.

    Args:
        title: which head, from which token to which.
        layer: the layer.
        head: the head.
        query: the token that attends.
        key: the token that it attends to.
        versus: the other token that it is compared with; absent without one.
        value: the score, or the difference of two.
        note: what it means for the attention.
        verdict: of the sum of all pairs of sources.
        pairs: the largest pairs of sources, and the sum of all others.
        queries: the largest sources of the query, each with everything on the other side, and the sum of all others.
        keys: the same of the key.
    """

    title: str
    layer: int
    head: int
    query: int
    key: int
    versus: int | None
    value: float
    note: str
    verdict: str
    pairs: list[tuple[str, float]]
    queries: list[tuple[str, float]]
    keys: list[tuple[str, float]]


class GraphView(msgspec.Struct):
    """The streams of a graph.

    Args:
        rows: the names of the streams.
        streams: the part of each token in each.
        kept: what came from the stream before.
        terms: what the layer's terms wrote.
        biases: what its biases added.
        moves: what its heads moved; absent of the first stream.
        after: what is added after the last stream.
        neurons: the neurons with the largest contributions.
        groups: groups of them.
        scores: why the heads that move most attend where they do.
        has_scores: whether that can be asked for of every head; it can't of a model that PyTorch's code computes.
    """

    rows: list[str]
    streams: list[list[float]]
    kept: list[list[float]]
    terms: list[list[float]]
    biases: list[list[float]]
    moves: list[MovesView | None]
    after: float
    neurons: list[NeuronView]
    groups: list[GroupView]
    scores: list[ScoreView]
    has_scores: bool
