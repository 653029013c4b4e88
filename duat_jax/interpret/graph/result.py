"""The result of a graph: how one number comes about, stream by stream, head by head, and what its neurons read."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from duat_jax.display.named_arrays import NamedArray, by_mark, of_tokens, whole
from duat_jax.display.page.graph_view import GraphView, GroupView
from duat_jax.display.result import Displayed
from duat_jax.display.view import RANKED, Largest, Table, View, numbers
from duat_jax.inputs.images import reads_pixels
from duat_jax.interpret.attention.result import pair_fields
from duat_jax.interpret.graph.network import network_of
from duat_jax.interpret.graph.read_neuron import ReadNeuron
from duat_jax.interpret.graph.record import GraphRecord, HeadScoreRecord
from duat_jax.interpret.graph.streams import Streams
from duat_jax.interpret.graph.viewer import viewer_of
from duat_jax.interpret.headline import of_move
from duat_jax.interpret.moves import Move
from duat_jax.json_record import as_record, fields_of
from duat_jax.kinds import kept_as
from duat_jax.models.layout import layer_label
from duat_jax.models.sites import HEADS
from duat_jax.models.vocabulary.token import quoted_label, token_label
from duat_jax.transform.keys import Marked

if TYPE_CHECKING:
    from networkx import MultiDiGraph

READS = 2
"""The number of parts of what a neuron reads in a table."""

EXACT = (
    "Exact for this text, with attention patterns and norms held: at every token of every stream, what was kept, moved,"
    " written and added sums to it."
)
SCORES = "Where these heads attend to, with the share of their attention, and rather than to where"
GROUPS = "All of these neurons of a token switched off: what the table predicts, and the model run again says"


@kept_as("graph")
@dataclass(frozen=True, eq=False)
class Graph(Streams, Displayed):
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
        layers: of each stream the layer after which it is, `None` of the embedding: all layers, but of a model by its
            PyTorch code those whose stream was found; a decoder's are counted on from its encoder's.
        moves: what heads moved, by the layer's attention.
        after: what terms and biases after the last stream add to the value; of a log-probability with minus the
            entropy.
        neurons: the neurons with the largest contributions.
        groups: these neurons by their tokens, with the effect of each group.
        scores: why the heads with the largest moves attend where they do, rather than to the other token that they
            attend to most.
        completeness: of the stream's token whose sum is furthest from it, relative to its tolerance; or of the last
            stream's sum, if that is.
        notes: what to know of the streams though they sum, such as which of them are an encoder's.
    """

    def view(self) -> View:
        """Return the graph as it is shown: its explanation, with the streams, the moves of heads and the neurons."""
        streams, kept, terms, biases = map(numbers, (self.streams, self.kept, self.terms, self.biases))
        view = self.explanation.view()
        if move := self._largest_move():
            told, largest = self.explanation, Largest(move.source, None, move.key.layer, move.head, move.part)
            view = replace(view, headline=of_move(told.target, told.value, move, told.tokens), largest=largest)
        return replace(
            view,
            kind="graph",
            exact=EXACT,
            tables=tuple(table for table in self._tables() if table.rows),
            notes=(*view.notes, *self.notes),
            sums={"the furthest sum of a stream": self.completeness},
            graph=GraphView(
                rows=list(self.rows),
                streams=streams,
                kept=kept,
                terms=terms,
                biases=biases,
                moves=[None if moves is None else moves.view() for moves in self.moves_of_rows],
                after=self.after,
                neurons=[each.view(self.explanation) for each in self.neurons],
                groups=[
                    GroupView(token_label(name), list(members), predicted, measured)
                    for name, members, predicted, measured in self.groups
                ],
                scores=[score.score_view() for score in self.scores],
                has_scores=all(key.name == HEADS for key in self.moves),
            ),
        )

    def _largest_move(self) -> Move | None:
        """Return the largest move of a head of a text; nothing where no head moves anything."""
        moves = [] if self.explanation.image is not None else self.top_moves(1)
        return next((self.counted_on(move) for move in moves if move.key.layer is not None), None)

    def _tables(self) -> Iterator[Table]:
        """Yield the tables of the largest moves, of scores, neurons and groups."""
        labels = [token_label(token) for token in self.explanation.tokens]
        first, of_image = self.explanation.encoder_layers, reads_pixels(self.explanation.image)
        moves = (
            (layer_label(key.layer, first, of_image=of_image), source, labels[source], token, labels[token], head, part)
            for key, source, token, head, part in map(self.counted_on, self.top_moves(RANKED))
        )
        yield Table(
            "The largest moves of heads",
            ("", "from", "", "to", "", "head", "moved"),
            tuple(moves),
            labels=5,
            ranked=True,
        )
        scores = (
            (
                f"layer {each.layer}",
                each.head,
                *(each.place(token) for token in (each.query, each.key, each.contrast)),
                each.value,
            )
            for each in self.scores
        )
        yield Table(SCORES, ("", "head", "at", "to", "rather than to", "score"), tuple(scores), labels=4)
        neurons = (self._neuron(each) for each in self.neurons)
        columns = "", "token", "neuron", "contribution", "reads most from", "raises"
        yield Table(
            "What the neurons with the largest contributions read and write",
            columns,
            tuple(neurons),
            labels=3,
            ranked=True,
        )
        groups = ((token_label(name), len(members), *changes) for name, members, *changes in self.groups)
        yield Table(GROUPS, ("token", "neurons", "predicted", "run again"), tuple(groups), labels=2)

    def _neuron(self, each: ReadNeuron) -> tuple[Any, ...]:
        neuron = each.neuron
        reads = "; ".join(f"{name} {part:+z.2f}" for name, part in each.largest_reads(self.explanation, READS)[:READS])
        raised = ", ".join(quoted_label(output) for output, _ in each.raised[:READS])
        place = self.explanation.labels[neuron.term], neuron.token_index, neuron.neuron
        return *place, neuron.contribution, f"{each.pre_activation:+z.2f} = {reads}; …", raised

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
            yield moves.as_array(key)
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
            neurons=[each.as_dict(explanation, count) for each in self.neurons],
            notes=self.notes,
            scores=[fields_of(HeadScoreRecord, each, top=pair_fields(each.top(count))) for each in self.scores],
        )

    def to_viewer(self, name: str, *, biases: bool = False) -> dict[str, Any]:
        """Return the graph of the neurons as the plain data that circuit-tracer's and Neuronpedia's viewers read.

        Its nodes are the neurons, the tokens, the target, and for each layer and token the sum of all other neurons, in
        the place of an error. The edges into a node, with those of biases, sum to it.

        Args:
            name: a name for the graph, of letters, digits and `_.-`.
            biases: whether biases are nodes too, which Neuronpedia reads and circuit-tracer doesn't.

        Raises:
            InvalidInput: for another name.
        """
        return viewer_of(self, name, biases)

    def to_networkx(self) -> "MultiDiGraph":
        """Return streams, tokens and heads' moves as a networkx graph; the edges into a stream's token sum to it.

        Nodes have `kind` and `value`, edges `kind` and `weight`, those of heads `head`; thin moves are one edge.

        Raises:
            DuatError: if networkx isn't installed.
        """
        return network_of(self)

    def __repr__(self) -> str:
        return f"Graph({self.explanation.target} = {self.value:.6g}, error {float(self.completeness.error):+.1e})"
