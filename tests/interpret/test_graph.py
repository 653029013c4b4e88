"""Graphs: streams sum, moves are those of plain matrices, and neurons read, write and matter as is said."""

import functools
import importlib.util
import json
import re
import sys
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import networkx
import numpy as np
import pytest

import duat_jax as duat
from duat_jax.interpret.attention.scores import split_scores_at
from duat_jax.interpret.graph.neurons import _without
from duat_jax.nn import attention
from tests.golden_checkpoints import CHECKPOINTS, golden
from tests.heads import CONFIGS, GIVEN, model_of
from tests.helpers import close, near

SOME = ["gpt_oss", "gpt_neox", "gemma2", "opt-post-norm"]
"""Sinks and experts; a parallel block; capped scores and four norms; norms after."""
TEXT = "for i in range(10"


def moved_to(graph, row):
    """Return what all heads moved to each token of a stream."""
    moves = list(graph.moves.values())[row]
    found = moves.others.sum(-1)
    np.add.at(found, moves.tokens, moves.parts.sum(-1))
    return found


def require_sums(graph):
    """Assert that streams sum, and the last one to the value."""
    assert graph.completeness.verdict == "holds"
    for row, stream in enumerate(graph.streams):
        moved = moved_to(graph, row - 1) if row else 0
        close(graph.kept[row] + graph.terms[row] + graph.biases[row] + moved, stream)
    close(graph.streams[-1].sum() + graph.after, graph.value)


@pytest.mark.parametrize("name", CONFIGS)
def test_streams_sum_for_every_read_out(name):
    graph = duat.graph(
        model_of(name), GIVEN[name], position=2 if name == "masked token" else None, top_neurons=0, top_heads=0
    )
    require_sums(graph)
    close(graph.value, graph.explanation.value)


@pytest.mark.parametrize(
    "name", [name if name in SOME else pytest.param(name, marks=pytest.mark.slow) for name in CHECKPOINTS]
)
def test_streams_sum_for_every_family(name):
    model, given, _ = golden(name)
    batched = given.ndim == (2 if model.config.image is None else 4)
    options = {"target": duat.targets.Direction(np.arange(model.config.features) - 3.0, 1)}
    require_sums(duat.graph(model, np.asarray(given[0] if batched else given), top_neurons=0, top_heads=0, **options))


def by_hand(model, ids, output):
    """Return the parts of GPT-2's streams and every move of every head, `[heads, queries, keys]`, by matrices alone."""

    def array(parameter):
        return np.asarray(parameter[...])

    def scale_of(x, norm):
        centred = x - x.mean(-1, keepdims=True)
        return array(norm.scale) / np.sqrt((centred**2).mean(-1, keepdims=True) + norm.epsilon)

    def centred(x):
        return x - x.mean(-1, keepdims=True)

    streams = [np.asarray(model.stream(model.embed(ids), i)) for i in range(model.config.layers + 1)]
    tokens, features = streams[0].shape
    u = np.zeros_like(streams[0])
    u[-1] = centred(
        array(model.unembedding if hasattr(model.unembedding, "value") else _Array(model.unembedding))[output]
        * scale_of(streams[-1], model.final_norm)[-1]
    )
    parts, moves = [(u * streams[-1]).sum(-1)], []
    for block, x in zip(reversed(list(model.stack.blocks)), reversed(streams[:-1]), strict=True):
        scale, a = scale_of(x, block.norm_1), block.attention
        normed = centred(x) * scale
        full = normed + array(block.norm_1.bias)
        split = (tokens, a.heads, features // a.heads)
        q, k = ((full @ array(p.kernel) + array(p.bias)).reshape(split) for p in (a.query, a.key))
        scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(split[-1])
        scores[:, np.triu(np.ones((tokens, tokens), bool), 1)] = -np.inf
        pattern = np.exp(scores - scores.max(-1, keepdims=True))
        pattern /= pattern.sum(-1, keepdims=True)
        values = (normed @ array(a.value.kernel)).reshape(split)
        on_mixed = (u @ array(a.output.kernel).T).reshape(split)
        moves.append(pattern * np.einsum("thd,shd->hts", on_mixed, values))
        on_values = np.einsum("hts,thd->shd", pattern, on_mixed).reshape(tokens, features)
        u = u + centred(on_values @ array(a.value.kernel).T * scale)
        parts.append((u * x).sum(-1))
    return parts[::-1], moves[::-1]


class _Array:
    def __init__(self, value):
        self.value = value

    def __getitem__(self, _):
        return self.value


@pytest.mark.parametrize("stored", [True, False])
def test_moves_are_those_of_plain_matrices(stored, monkeypatch):
    if not stored:
        monkeypatch.setattr(attention, "LONGEST_STORED", 4)
        jax.clear_caches()
    model, given, _ = golden("gpt2")
    ids = np.asarray(given[0] if given.ndim == 2 else given)
    graph = duat.graph(model, ids, 7, top_neurons=0, top_heads=0)
    parts, moves = by_hand(model, jnp.asarray(ids), 7)
    close(graph.streams, np.stack(parts))
    for found, expected in zip(graph.moves.values(), moves, strict=True):
        assert len(found.sources) == np.count_nonzero(np.abs(expected).sum(0)) or len(ids) > 8
        close(found.parts, expected[:, found.tokens, found.sources].T)
        others = expected.sum(-1).T
        np.subtract.at(others, found.tokens, found.parts)
        near(found.others, others, within=1e-12)
    if not stored:
        jax.clear_caches()


@functools.cache
def graph_of():
    model = duat.load(dtype=jnp.float32)
    tokenizer = model.tokenizer
    return model, tokenizer, duat.graph(model, TEXT, "):", top_neurons=6, tokenizer=tokenizer)


def test_what_a_neuron_reads_sums_to_its_pre_activation():
    graph = graph_of()[2]
    assert len(graph.neurons) == 6 and graph.neurons[0].neuron == graph.explanation.top(1)[0]
    for each in graph.neurons:
        close(each.embedding.sum() + each.terms.sum() + sum(each.biases.values()), np.float32(each.pre_activation))
        close(sum(part for _, part in each.largest_reads(graph.explanation, 5)), np.float32(each.pre_activation))


def test_an_edge_between_neurons_is_the_derivative_times_the_activation():
    model, tokenizer, graph = graph_of()
    ids = jnp.array(tokenizer.encode(TEXT).ids)
    recording = duat.record(model.states)(model.embed(ids))
    neurons = [each.neuron for each in graph.neurons]
    steps = dict(zip(graph.explanation.terms, recording.terms, strict=True))
    sources = dict(zip(graph.explanation.terms, recording.activations, strict=True))
    for each in graph.neurons:
        for part, source in zip(each.edges, neurons, strict=True):
            start = sources[source.term]
            change = jnp.zeros_like(recording.at(start)).at[source.token_index, source.neuron].set(source.activation)
            pushed = np.zeros(())
            if int(source.term.scope[0][7:]) < int(each.neuron.term.scope[0][7:]):
                pushed = duat.linear_map(recording, start, steps[each.neuron.term])(change)
                pushed = pushed[each.neuron.token_index, each.neuron.neuron]
            near(part, pushed, within=1e-5)


def test_a_neuron_raises_the_target_by_its_contribution():
    model, tokenizer, graph = graph_of()
    for each in graph.neurons[:2]:
        (raised, change) = each.raised[0]
        target = duat.graph(model, TEXT, raised, top_neurons=0, tokenizer=tokenizer).explanation
        neuron = each.neuron
        near(target.terms[neuron.term][neuron.token_index, neuron.neuron], change, within=1e-5)
        assert each.raised[0][1] > each.raised[-1][1] > each.lowered[-1][1] > each.lowered[0][1]


def test_a_group_is_measured_by_the_model_without_its_neurons():
    model, tokenizer, graph = graph_of()
    assert sorted(member for group in graph.groups for member in group.members) == list(range(6))
    group = max(graph.groups, key=lambda group: len(group.members))
    chosen = [graph.neurons[member].neuron for member in group.members]
    changes = [
        duat.edits.Neurons(int(key.scope[0][7:]), [n.neuron for n in chosen if n.term == key], n.token_index).set(0)
        for key in dict.fromkeys(n.term for n in chosen)
        for n in chosen[:1]
    ]
    found = duat.intervene(model, TEXT, changes, "):", tokenizer=tokenizer)
    near(group.measured, found.difference, within=1e-4)
    near(group.predicted, sum(effect.frozen.sum() for effect in found.effects), within=1e-4)


def test_texts_of_one_padded_length_share_the_program_of_their_groups():
    model, known = duat.load(), _without.jitted._cache_size()
    texts = TEXT, "x = self.", "import os\nx = [1, 2]"
    graphs = [duat.graph(model, text, top_neurons=8, top_heads=0) for text in texts]
    layers = {frozenset(each.term.layer for each in graph.explanation.top(8)) for graph in graphs}
    assert len({len(graph.groups) for graph in graphs}) > 1
    assert len(layers) > 1
    assert _without.jitted._cache_size() == known + 1


def test_the_scores_of_any_layers_share_one_program_and_are_those_that_are_explained_alone():
    model, given, _ = golden("gpt2")
    ids, before = np.asarray(given), split_scores_at.jitted._cache_size()
    scores = duat.graph(model, ids, top_neurons=0, top_heads=4).scores
    assert split_scores_at.jitted._cache_size() - before <= 1
    assert len({score.layer for score in scores}) > 1
    for score in scores:
        place = {name: getattr(score, name) for name in ("layer", "head", "query", "key", "contrast")}
        alone = duat.explain_attention(model, ids, **place)
        assert score.query_sources == alone.query_sources and score.key_sources == alone.key_sources
        close(score.pairs, alone.pairs)
        close(score.attention, alone.attention)


@pytest.mark.parametrize("neurons", [-1, True])
def test_a_number_of_neurons_is_whole(neurons):
    with pytest.raises(duat.InvalidInput, match="must be a whole number from 0"):
        duat.graph(graph_of()[0], [5, 6, 7], top_neurons=neurons)


def test_a_graph_of_one_token_has_no_other_sources():
    graph = duat.graph(graph_of()[0], [5], top_neurons=1)
    require_sums(graph)
    assert graph.moves["layers.0.attention.mixed"].sources.tolist() == [0]


def viewers_model():
    """Return circuit-tracer's own model of its files, without the package around it, which imports torch."""
    (place,) = importlib.util.find_spec("circuit_tracer").submodule_search_locations
    file = Path(place) / "frontend" / "graph_models.py"
    spec = importlib.util.spec_from_file_location("graph_models", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Model


def test_circuit_tracers_own_model_reads_the_graph():
    graph = graph_of()[2]
    found = viewers_model().model_validate_json(json.dumps(graph.to_viewer("range")))
    kinds = Counter(node.feature_type for node in found.nodes)
    layers, tokens = 6, len(graph.explanation.tokens)
    assert kinds == {
        "embedding": tokens,
        "cross layer transcoder": 6,
        "mlp reconstruction error": layers * tokens,
        "logit": 1,
    }
    identities = {node.node_id for node in found.nodes}
    assert len(identities) == len(found.nodes)
    assert {link[end] for link in found.links for end in ("source", "target")} <= identities
    (logit,) = (node for node in found.nodes if node.feature_type == "logit")
    assert re.fullmatch(r'Output "\):" \(p=0\.\d{3}\)', logit.clerp) and logit.token_prob > 0.3
    influences = [node.influence for node in found.nodes if node.feature_type != "logit"]
    assert min(influences) > 0 and max(influences) == pytest.approx(1)


def test_every_node_of_a_viewer_has_an_identifier_of_its_own():
    # circuit-tracer 0.5 calls neuron n of layer 0 at token t, and the rest of layer n at token t, 0_n_t both.
    model, tokenizer, _ = graph_of()
    graph = duat.graph(model, TEXT, "):", top_neurons=400, top_heads=0, tokenizer=tokenizer)
    nodes = graph.to_viewer("x", biases=True)["nodes"]
    rest = [node for node in nodes if node["feature_type"] == "mlp reconstruction error"]
    identities = {node["node_id"] for node in nodes}
    assert identities & {f"0_{node['layer']}_{node['ctx_idx']}" for node in rest}  # neurons that would share one
    assert len(identities) == len(nodes)
    drawn = [{n["jsNodeId"] for n in nodes if n["feature_type"] == kind} for kind in {n["feature_type"] for n in nodes}]
    assert sum(map(len, drawn)) == len(set().union(*drawn))


def test_neurons_behind_the_stream_that_is_read_arent_among_a_graphs():
    model, given, _ = golden("mixtral")
    target = duat.targets.Direction(np.arange(model.config.features) - 3.0, 1)
    graph = duat.graph(model, np.asarray(given), target=target, top_neurons=5, top_heads=0)
    assert {each.neuron.term.layer for each in graph.neurons} == {0}


def test_edges_into_a_viewers_node_sum_to_it_with_biases():
    graph = graph_of()[2]
    written = graph.to_viewer("range", biases=True)
    into = Counter()
    for link in written["links"]:
        into[link["target"]] += link["weight"]
    ends = [node["node_id"] for node in written["nodes"] if node["feature_type"] in ("logit", "cross layer transcoder")]
    values = [each.pre_activation for each in graph.neurons] + [graph.value]
    near([into[end] for end in ends], values, within=1e-4)


def test_edges_into_a_stream_of_the_network_sum_to_it(tmp_path):
    graph = graph_of()[2]
    network = graph.to_networkx()
    sums = [node for node, data in network.nodes(data=True) if data["kind"] in ("stream", "value")]
    assert len(sums) == graph.streams.size + 1
    for node in sums:
        weights = [data["weight"] for _, _, data in network.in_edges(node, data=True)]
        near(sum(weights), network.nodes[node]["value"], within=1e-4)
    networkx.write_graphml(network, tmp_path / "graph.graphml")
    assert networkx.read_graphml(tmp_path / "graph.graphml").number_of_edges() == network.number_of_edges()


def test_a_viewers_name_is_one_of_a_file():
    with pytest.raises(duat.InvalidInput, match="'a b' can't name a graph in a viewer: take letters, digits"):
        graph_of()[2].to_viewer("a b")


def test_networkx_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(duat.DuatError, match=r"to_networkx needs packages .*: pip install 'networkx>="):
        graph_of()[2].to_networkx()
