"""The result of a graph: how one number comes about, stream by stream, head by head, and what its neurons read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from duat_jax.display.named_arrays import NamedArray, at_mark, by_mark, numbered, of_tokens, whole
from duat_jax.display.page.view import largest
from duat_jax.display.result import Paged, Plotted, beside
from duat_jax.forms.completeness import Completeness
from duat_jax.interpret.attention.result import AttentionScore, pair_fields
from duat_jax.interpret.explain.result import ActiveNeuron, Explanation
from duat_jax.interpret.graph.record import GraphRecord
from duat_jax.json_record import as_record
from duat_jax.models.vocabulary.token import Token, quoted_label
from duat_jax.transform.keys import Key, Marked

if TYPE_CHECKING:
    from networkx import MultiDiGraph

EMBEDDING = "embedding"


class Moves(NamedTuple):
    """The moves of one layer's heads from token to token: to each token from those that they bring most from.

    Args:
        sources: of each edge the index of the token that it comes from, `[edges]`.
        tokens: of each edge the index of the token that it goes to, `[edges]`.
        parts: what each head moves along it, `[edges, heads]`.
        others: what each head moves to a token from all others together, `[tokens, heads]`.
    """

    sources: Int[np.ndarray, "edges"]
    tokens: Int[np.ndarray, "edges"]
    parts: Float[np.ndarray, "edges heads"]
    others: Float[np.ndarray, "tokens heads"]


class Move(NamedTuple):
    """The move of one head from one token to another.

    Args:
        key: the mark of what the layer's heads mix.
        source: the index of the token that it comes from.
        token: the index of the token that it goes to.
        head: the head.
        part: what it moves.
    """

    key: Key
    source: int
    token: int
    head: int
    part: float


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


@dataclass(frozen=True, eq=False)
class Graph(Paged, Plotted):
    """The way of one number through a model: at each stream, each token's part is the sum of what came in.

    `stream = kept + Σ moves + terms + biases` at every token of every stream, and the last stream with `after` sums to
    the value. Everything is held at what it is on this text.

    Args:
        explanation: the number, and the table of its direct contributions.
        ids: the text's token ids; empty of an image.
        streams: the part of each token in the stream before each layer and after the last one, `[streams, tokens]`.
        kept: what came from the same token of the stream before; in the first one from its embedding.
        terms: what the terms of the layer wrote.
        biases: what biases and norm offsets of the layer added, those that heads moved included.
        moves: what heads moved, by the layer's attention.
        after: what terms and biases after the last stream add to the value; of a log-probability with minus the
            entropy.
        neurons: the neurons with the largest contributions.
        groups: these neurons by their tokens, with the effect of each group.
        scores: why the heads with the largest moves attend where they do, rather than to the other token that they
            attend to most.
        completeness: of the stream's token whose sum is furthest from it, relative to its tolerance; or of the last
            stream's sum, if that is.
    """

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
        return EMBEDDING, *(f"layer {layer}" for layer in range(len(self.streams) - 1))

    def top_moves(self, count: int) -> list[Move]:
        """Return the largest moves of heads by size.

        Args:
            count: how many.
        """
        sizes = np.concatenate([np.abs(moves.parts).ravel() for moves in self.moves.values()] or [np.zeros(0)])
        if not count or not len(sizes):
            return []
        least = np.sort(sizes)[-min(count, len(sizes))]
        found = [
            Move(key, int(moves.sources[edge]), int(moves.tokens[edge]), int(head), float(moves.parts[edge, head]))
            for key, moves in self.moves.items()
            for edge, head in np.argwhere(np.abs(moves.parts) >= least)
        ]
        return sorted(found, key=lambda move: -abs(move.part))[:count]

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

    def arrays(self) -> Iterator[NamedArray]:
        """Yield the parts with named axes, those of the explanation too.

        At each token of a stream `kept`, `terms`, `stream_biases`, `moves` and `other_moves` sum to `streams`; the
        sum of the last stream and `after` is the value; `scores` sum to each attention score.
        """
        yield from self.explanation.arrays()
        token = of_tokens(self.explanation.tokens)
        axes = {"stream": {"stream": self.rows}, **token}
        parts = {"streams": self.streams, "kept": self.kept, "stream_terms": self.terms, "stream_biases": self.biases}
        yield from (whole(name, part, axes) for name, part in parts.items())
        for key, moves in self.moves.items():
            edges, heads = moves.parts.shape
            edge = {"edge": range(edges), "source_index": moves.sources.tolist(), "target_index": moves.tokens.tolist()}
            yield NamedArray("moves", moves.parts, {"edge": edge, **numbered("head", heads)}, at_mark(key))
        yield from by_mark("other_moves", Marked({key: each.others for key, each in self.moves.items()}), token, "head")
        yield whole("after", self.after)
        readers = [str(each) for each in self.neurons]
        for each, name in zip(self.neurons, readers, strict=True):
            place = {"reader": name}
            yield NamedArray("read_embedding", each.embedding, token, place)
            terms = {"term": {"term": [str(key) for key in self.explanation.terms]}, **token}
            yield NamedArray("read_terms", each.terms, terms, place)
            biases = {"bias": {"bias": [str(key) for key in each.biases]}}
            yield NamedArray("read_biases", np.array([*each.biases.values()]), biases, place)
            yield NamedArray("read_edges", each.edges, {"source": {"source": readers}}, place)

        for score in self.scores:
            names, pairs = score.by_part()
            sides = {f"{side}_part": {f"{side}_part": names} for side in ("query", "key")}
            yield NamedArray("scores", pairs, sides, {"score": score.label})

    def as_dict(self, model: str = "", count: int = 10) -> dict[str, Any]:
        """Return the graph as plain data for JSON, with the fields of `GraphRecord`.

        Args:
            model: name of the model.
            count: how many parts of each neuron's pre-activation to list.
        """
        explanation = self.explanation
        return as_record(
            GraphRecord,
            self,
            model=model,
            family=explanation.family,
            tokens=explanation.tokens,
            target=explanation.target,
            dtype=self.completeness.dtype,
            predictions=explanation.predictions,
            streams=[
                {"name": name, "parts": parts, "kept": kept, "terms": terms, "biases": biases}
                for name, parts, kept, terms, biases in zip(
                    self.rows, self.streams, self.kept, self.terms, self.biases, strict=True
                )
            ],
            moves=[
                {"mark": str(key), "source_index": source, "token_index": token, "heads": heads}
                for key, moves in self.moves.items()
                for source, token, heads in zip(moves.sources, moves.tokens, moves.parts, strict=True)
            ],
            other_moves={key: moves.others for key, moves in self.moves.items()},
            neurons=[
                {
                    "neuron": each.neuron,
                    "pre_activation": each.pre_activation,
                    "reads": [{"name": name, "part": part} for name, part in each.largest_reads(explanation, count)],
                    "raised": [_logit_change(*pair) for pair in each.raised],
                    "lowered": [_logit_change(*pair) for pair in each.lowered],
                }
                for each in self.neurons
            ],
            scores=[
                {
                    "layer": each.layer,
                    "head": each.head,
                    "query": each.query,
                    "key": each.key,
                    "contrast": each.contrast,
                    "value": each.value,
                    "completeness": each.completeness,
                    "top": pair_fields(each.top(count)),
                }
                for each in self.scores
            ],
        )

    def to_viewer(self, name: str, *, biases: bool = False) -> dict[str, Any]:
        """Return the graph of the neurons as the plain data that circuit-tracer's and Neuronpedia's viewers read.

        Its nodes are the neurons, the tokens, the target, and for each layer and token the sum of all other neurons, in
        the place of an error. The edges into a node, with those of biases, sum to it.

        Args:
            name: a name for the graph, of letters, digits and `_.-`.
            biases: whether biases are nodes too, which Neuronpedia reads and circuit-tracer doesn't.

        Raises:
            BadText: for another name.
        """
        return beside(self, "viewer").viewer_of(self, name, biases)

    def to_networkx(self) -> "MultiDiGraph":
        """Return streams, tokens and heads' moves as a networkx graph; the edges into a stream's token sum to it.

        Nodes have `kind` and `value`, edges `kind` and `weight`, those of heads `head`; thin moves are one edge.

        Raises:
            DuatError: if networkx isn't installed.
        """
        return beside(self, "network").network_of(self)

    def __repr__(self) -> str:
        return f"Graph({self.explanation.target} = {self.value:.6g}, error {float(self.completeness.error):+.1e})"


def _logit_change(output: str, change: float) -> dict[str, Any]:
    """Return a changed logit as plain data, with the id of its token or class."""
    return {"output": output, "change": change, "id": output.id if isinstance(output, Token) else None}
