"""The page of a graph: that of its explanation, with the streams, the moves of heads and the neurons."""

import msgspec

from duat_jax.display.page.graph_view import GraphView, GroupView, MovesView, NeuronView
from duat_jax.display.page.view import View, numbers
from duat_jax.display.tables import token_label
from duat_jax.interpret.attention.page import score_view
from duat_jax.interpret.explain.page import view as view_of_explanation
from duat_jax.interpret.explain.result import Explanation
from duat_jax.interpret.graph.result import Graph, Moves, ReadNeuron
from duat_jax.models.vocabulary.token import quoted_label

READS = 12
"""The number of parts of a pre-activation that a page has; the others stand in it as their sum."""


def view(graph: Graph) -> View:
    """Return what the page of a graph shows.

    Args:
        graph: the result.
    """
    streams, kept, terms, biases = map(numbers, (graph.streams, graph.kept, graph.terms, graph.biases))
    return msgspec.structs.replace(
        view_of_explanation(graph.explanation),
        kind="graph",
        graph=GraphView(
            rows=list(graph.rows),
            streams=streams,
            kept=kept,
            terms=terms,
            biases=biases,
            moves=[None, *map(_moves, graph.moves.values())],
            after=graph.after,
            neurons=[neuron_view(graph.explanation, each) for each in graph.neurons],
            groups=[
                GroupView(token_label(name), list(members), predicted, measured)
                for name, members, predicted, measured in graph.groups
            ],
            scores=list(map(score_view, graph.scores)),
        ),
    )


def _moves(moves: Moves) -> MovesView:
    places = zip(moves.sources.tolist(), moves.tokens.tolist(), strict=True)
    edges = [[*place, *parts] for place, parts in zip(places, numbers(moves.parts), strict=True)]
    return MovesView(edges, numbers(moves.others))


def neuron_view(explanation: Explanation, each: ReadNeuron) -> NeuronView:
    """Return what a page shows of a neuron.

    Args:
        explanation: of the number.
        each: the neuron, with what it reads and writes.
    """
    neuron, layer = each.neuron, each.neuron.term.layer
    return NeuronView(
        name=f"{explanation.labels[neuron.term]}, neuron {neuron.neuron}, token {neuron.token_index}",
        contribution=neuron.contribution,
        coefficient=neuron.coefficient,
        activation=neuron.activation,
        pre_activation=each.pre_activation,
        reads=each.largest_reads(explanation, READS),
        raised=[(quoted_label(output), change) for output, change in each.raised],
        lowered=[(quoted_label(output), change) for output, change in each.lowered],
        switch_off="" if layer is None else f"neuron {layer}:{neuron.neuron}@{neuron.token_index} set 0",
    )
