"""Edits whose values a model computes, and edits as they are written, against the model run in other ways."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import GOLDEN
from golden_checkpoints import CHECKPOINTS
from golden_checkpoints import golden as with_reference
from helpers import close

import duat_jax as duat
from duat_jax.edits import Edit, FromInput, HeadMove, Heads, MeanEmbedding, Neurons, SteeringVector, Stream
from duat_jax.interpret.intervene import compute
from duat_jax.interpret.intervene.written import parse_edits
from duat_jax.nn import attention

IDS, OTHER, TOKEN = [5, 17, 3, 44, 17, 20], [5, 17, 8, 44, 9, 20], 7


@cache
def golden(name):
    return duat.load(GOLDEN / name, dtype=jnp.float64)


def logit(output):
    return float(output[-1, TOKEN])


def without_edge(model, layer, head, source, token, factor=0.0):
    """Return the logit when one entry of one attention pattern is scaled."""
    x = model.embed(jnp.array(IDS))
    kept = jnp.ones((model.config.blocks[layer].heads, len(IDS), len(IDS))).at[head, token, source].set(factor)
    pattern = duat.Site("hold", duat.Key((f"layers.{layer}",), "attention.pattern", 0))
    return logit(duat.edit(model.output, {pattern: Edit(kept=kept)})(x))


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2"])
def test_an_edge_taken_away_is_an_entry_of_the_pattern_set_to_zero(name):
    model = golden(name)
    for layer, head, source, token in ((1, 2, 0, -1), (0, 1, 2, 4)):
        found = duat.intervene(model, IDS, Heads(layer, head, tokens=token).steer(HeadMove(source)), TOKEN)
        close(found.after, without_edge(model, layer, head, source, token), layers=9)
        assert abs(found.difference) > 1e-7 and found.completeness.verdict == "holds"
    (edge,) = parse_edits([f"edge 1:2 0>{len(IDS) - 1} scale 0.25"])
    found = duat.intervene(model, IDS, edge, TOKEN)
    close(found.after, without_edge(model, 1, 2, 0, -1, 0.25), layers=9)


SOME = ["gpt_oss", "gpt_neox", "gemma2", "opt-post-norm"]
"""Sinks and experts; a parallel block; capped scores and four norms; norms after."""


@pytest.mark.parametrize(
    "name", [name if name in SOME else pytest.param(name, marks=pytest.mark.slow) for name in CHECKPOINTS]
)
def test_the_edges_of_a_head_are_the_head_and_the_last_stream_is_the_other_texts_in_every_family(name):
    model, given, _ = with_reference(name)
    batched = given.ndim == (2 if model.config.image is None else 4)
    given = np.asarray(given[0] if batched else given)
    other = given[::-1] if model.config.image is None else 0.5 * given
    target = duat.targets.Direction(np.arange(model.config.features) - 3.0, 1)
    found = duat.intervene(model, given, Heads(0, 1, tokens=2).set(0), target)
    block = model.config.blocks[0]
    tokens = len(found.tokens)
    window = tokens if block.window is None else block.window
    seen = [source for source in range(3 if block.causal else tokens) if abs(source - 2) < window]
    edges = [duat.intervene(model, given, Heads(0, 1, tokens=2).steer(HeadMove(source)), target) for source in seen]
    close(sum(edge.effects[0].frozen.sum() for edge in edges), found.effects[0].frozen.sum(), layers=9)
    patched = duat.intervene(model, given, Stream(1).set(FromInput(other)), target)
    close(patched.after, duat.intervene(model, other, Heads(0, 1).scale(2), target).before, layers=9)
    assert patched.completeness.verdict == "holds"


def test_an_edge_of_a_text_whose_pattern_is_not_kept(monkeypatch):
    model = golden("gpt2")
    expected = without_edge(model, 1, 2, 0, -1)
    monkeypatch.setattr(attention, "LONGEST_STORED", 4)
    jax.clear_caches()
    found = duat.intervene(model, IDS, Heads(1, 2, tokens=-1).steer(HeadMove(0)), TOKEN)
    close(found.after, expected, layers=9)
    jax.clear_caches()


def test_an_edges_prediction_is_its_part_of_the_graph_with_the_bias_of_its_value():
    model = golden("llama")  # without biases
    graph = duat.graph(model, IDS, TOKEN, top_neurons=0)
    moves = graph.moves["layers.1.attention.mixed"]
    (edge,) = np.flatnonzero((moves.sources == 0) & (moves.tokens == len(IDS) - 1))
    found = duat.intervene(model, IDS, Heads(1, 2, tokens=-1).steer(HeadMove(0)), TOKEN)
    close(found.effects[0].frozen.sum(), -moves.parts[edge, 2], layers=9)


@pytest.mark.parametrize("name", ["gpt2", "gemma2"])
def test_a_token_set_to_the_mean_embedding(name):
    model = golden(name)
    table, x = np.asarray(model.embedding.token[...]), np.array(model.embed(jnp.array(IDS)))
    x[2] += model.config.embedding_scale * (table.mean(0) - table[IDS[2]])
    found = duat.intervene(model, IDS, Stream(0, tokens=2).set(MeanEmbedding()), TOKEN)
    close(found.after, logit(model.output(jnp.asarray(x))), layers=9)
    assert found.effects[0].edit == "stream 0, token 2, 'w3': set to the vocabulary's mean embedding"


@pytest.mark.parametrize("place", [Neurons(1, [3, 8]), Heads(1, 2), Heads(0, [1, 3], tokens=-1), Stream(1, tokens=4)])
def test_values_on_another_text_are_those_that_a_recording_of_it_has(place):
    model = golden("llama")
    there = duat.record(model.hidden)(model.embed(jnp.array(OTHER)))
    if isinstance(place, Stream):
        values = there.at(there.streams[1])[4]
    else:
        name = "mlp.neurons" if isinstance(place, Neurons) else "attention.mixed"
        units = place.neurons if isinstance(place, Neurons) else np.atleast_1d(place.heads)
        values = there.dynamics.points[f"layers.{place.layer}.{name}"][:, np.array(units)]
        values = values if place.tokens is None else values[place.tokens]
    found, expected = (duat.intervene(model, IDS, place.set(given), TOKEN) for given in (FromInput(OTHER), values))
    close(found.effects[0].secant, expected.effects[0].secant, layers=9)
    assert found.effects[0].edit.endswith("set to the values on another input")


def test_a_direction_leads_from_one_text_to_another():
    model = duat.load(dtype=jnp.float64)
    tokenizer = model.tokenizer
    ends = [
        np.asarray(model.stream(model.embed(jnp.array(tokenizer.encode(text).ids)), 2)[-1])
        for text in ("class Box:", "import os")
    ]
    texts = SteeringVector("import os", "class Box:", strength=3)
    found, expected = (
        duat.intervene(model, "x = self.", Stream(2).steer(given), ")", tokenizer=tokenizer)
        for given in (texts, 3 * (ends[1] - ends[0]))
    )
    close(found.difference, expected.difference, layers=9)


def test_a_steering_vector_is_what_leads_from_one_text_to_the_other():
    model = duat.load(dtype=jnp.float64)
    tokenizer = model.tokenizer
    texts = SteeringVector("import os", "class Box:", strength=3)
    inputs, _, (edit,) = compute.check(model, "x = self.", [Stream(2).steer(texts)], tokenizer=tokenizer)
    towards, away = (
        np.asarray(model.stream(model.embed(jnp.array(tokenizer.encode(text).ids)), 2)[-1])
        for text in ("import os", "class Box:")
    )
    close(texts._values(model, inputs, edit.place, tokenizer), 3 * (towards - away), layers=9)


def test_edits_of_any_layer_are_one_program():
    model = golden("gpt2")
    for kinds in ((Heads,), (Neurons,), (Heads, Neurons)):
        sizes = set()
        for layer in (0, 1, 0):
            edits = [kind(layer, layer).set(0) for kind in kinds]
            edits += [kind(1 - layer, 2, tokens=[0, -1]).scale(2) for kind in kinds]
            duat.intervene(model, IDS, edits, TOKEN)
            sizes.add((compute._run.jitted._cache_size(), compute._split.jitted._cache_size()))
        assert len(sizes) == 1


def test_more_edits_than_slots_are_all_made():
    model, x = duat.load(dtype=jnp.float64), jnp.array(IDS)
    written = [Heads(layer, head, tokens=-1).scale(0.1 * layer) for layer in range(6) for head in (0, 2)]
    kept = [jnp.ones((len(IDS), 4, 1)).at[-1, jnp.array([0, 2])].set(0.1 * layer) for layer in range(6)]
    sites = [duat.Site("point", duat.Key((f"layers.{layer}",), "attention.mixed", 0)) for layer in range(6)]
    edits = dict(zip(sites, map(Edit, kept), strict=True))
    found = duat.intervene(model, IDS, written, TOKEN)
    close(found.after, logit(duat.edit(model.output, edits)(model.embed(x))), layers=9)
    assert found.completeness.verdict == "holds" and len(found.effects) == 12


WRITTEN = {
    "head 5:3@-1 set 0": Heads(5, [3], tokens=[-1]).set(0.0),
    "neurons 3:17,20 scale -0.5": Neurons(3, [17, 20]).scale(-0.5),
    "stream 6@2,3 set 2": Stream(6, tokens=[2, 3]).set(2.0),
    "head 5:3 set reference": Heads(5, [3]).set(FromInput("a b")),
    "token 3 set mean": Stream(0, tokens=[3]).set(MeanEmbedding()),
    "tokens 3,-1 set mean": Stream(0, tokens=[3, -1]).set(MeanEmbedding()),
    "edge 5:3 2>7 set 0": Heads(5, [3], tokens=[7]).steer(HeadMove(2)),
    "edge 5:3 2>7 scale 3": Heads(5, [3], tokens=[7]).steer(HeadMove(2, 2.0)),
    'stream 3@1 steer -2 "a \\"b\\"" "c"': Stream(3, tokens=[1]).steer(SteeringVector('a "b"', "c", -2.0)),
}


def fields(value):
    """Return an edit as plain data; its parts are compared by what they are."""
    if isinstance(value, Edit):
        return list(map(fields, value))
    if dataclasses.is_dataclass(value):
        return type(value).__name__, [fields(getattr(value, field.name)) for field in dataclasses.fields(value)]
    return value


@pytest.mark.parametrize("written", WRITTEN)
def test_an_edit_is_read_as_it_is_written(written):
    (edit,) = parse_edits([f" {written} "], "a b")
    assert fields(edit) == fields(WRITTEN[written])


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (Heads(1, 0, tokens=2).steer(HeadMove(4)), "token 2 doesn't see token 4, so nothing comes from it"),
        (Heads(1, 0, tokens=2).steer(HeadMove(9)), "token 9 is none of 6: give -6 to 5"),
        (Heads(1, 0, tokens=2).steer(HeadMove(1, np.inf)), "the factor inf isn't finite"),
        (Neurons(1, 0).steer(HeadMove(0)), "moves nothing from token to token"),
        (Stream(1).set(MeanEmbedding()), "stream 1 isn't the first stream"),
        (Heads(1, 0).set(FromInput([5, 6])), "the text has 6 tokens and the other text 2"),
        (Heads(1, 0).set(FromInput(IDS)), "the same for the model"),
        (Heads(1, 0).set(FromInput([5, 10**9, 3, 4, 5, 6])), "the other text"),
        (Heads(1, 0).set(FromInput("w5 w6")), "the text has 6 tokens and the other text 2"),
        (Heads(1, 0).steer(SteeringVector("a", "b")), "isn't a stream"),
        (Stream(1).steer(SteeringVector("a", "a")), "towards and away are both 'a': their direction is zero"),
        (Heads(1, 0).scale(FromInput(OTHER)), "must be a number"),
        (Heads(1, 0).steer(FromInput(OTHER)), "layer 1, head 0 can't be steered by FromInput: give it to .set"),
        (Stream(0).steer(MeanEmbedding()), "stream 0 can't be steered by MeanEmbedding: give it to .set"),
        (Heads(1, 0, tokens=2).set(HeadMove(1)), "layer 1, head 0 can't be set to HeadMove: give it to .steer"),
        (Stream(1).set(SteeringVector("a", "b")), "stream 1 can't be set to SteeringVector: give it to .steer"),
    ],
)
def test_what_is_wrong_with_a_source_is_said(edit, says):
    with pytest.raises(duat.InvalidInput) as error:
        duat.intervene(golden("gpt2"), IDS, edit, TOKEN)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("edge 5:3 2>7 set 2", "which can be set to 0 or scaled"),
        ('stream 3 steer 1 "\\x" "a"', "strings as in JSON"),
        ("head 5:3 set reference", "sets values to those on a reference: give one"),
        ("token 3 set 0", "is no edit"),
        ("token 3 set mean; token 4 set mean", "is no edit"),
        ("head 5:3 set 0" * 1000, "is no edit"),
        (f"head {'9' * 5000}:0 set 0", "is no edit"),
        (f"edge 1:0 {'9' * 5000}>1 set 0", "is no edit"),
    ],
)
def test_what_is_no_edit_is_said(written, says):
    with pytest.raises(duat.InvalidInput) as error:
        parse_edits([written])
    assert says in str(error.value)
