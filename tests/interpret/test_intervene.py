"""An intervention is the model run with the edit written into it; its columns are what they say, and sum."""

import json
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from inspect import unwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import GOLDEN
from helpers import close, near, numbers

import duat_jax as duat
from duat_jax.nn.stack import Stack

IDS, TOKEN = [5, 17, 3, 44, 17, 20], 7


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@cache
def both(name, dtype=jnp.float64):
    return duat.load(GOLDEN / name, dtype=dtype)


def logit(model, ids=IDS, token=TOKEN):
    return float(model(jnp.array(ids))[-1, token])


@contextmanager
def zero(kernel, rows):
    """Some rows of a matrix set to zero."""
    weights = kernel[...]
    kernel[...] = weights.at[rows].set(0)
    yield
    kernel[...] = weights


def holds(found):
    parts = sum(effect.secant.sum() for effect in found.effects) + sum(found.discontinuities.values())
    assert found.completeness.verdict == "holds"
    near(parts, found.after - found.before, within=float(found.completeness.tolerance))
    return found


@cache
def edited(name):
    """Return a model's most probable logit with an edit of each kind, and the same edits by their marks."""
    model = both(name)
    direction = 9 * numbers(model.config.features)
    written = [
        duat.edits.Neurons(1, [3, 8]).set(0),
        duat.edits.Heads(1, 2).scale(0),
        duat.edits.Stream(1, tokens=-1).steer(direction),
    ]
    block = model.config.blocks[1]
    neurons = duat.edits.Edit(kept=jnp.ones(block.neurons * (block.chosen_experts or 1)).at[jnp.array([3, 8])].set(0))
    edits = {
        duat.Site("point", duat.Key(("layers.1",), "mlp.neurons", 0)): neurons,
        duat.Site("point", duat.Key(("layers.1",), "attention.mixed", 0)): duat.edits.Edit(
            kept=jnp.ones((block.heads, 1)).at[2].set(0)
        ),
        duat.Site("stream", duat.Key((), "layer", 1)): duat.edits.Edit(
            added=jnp.zeros((len(IDS), model.config.features)).at[-1].set(direction)
        ),
    }
    return model, holds(duat.intervene(model, IDS, written)), edits


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", slow("llama")])
def test_neurons_and_heads_set_to_zero_are_weights_set_to_zero(name):
    model, found, edits = edited(name)
    x = model.embed(jnp.array(IDS))
    token = int(model.output(x)[-1].argmax())
    steered = duat.edit(model.output, dict([list(edits.items())[2]]))
    block = model.stack.blocks[1]
    size = block.attention.head_features
    neurons = partial(zero, block.mlp.output.kernel, np.array([3, 8]))
    head = partial(zero, block.attention.output.kernel, slice(2 * size, 3 * size))
    close(found.before, logit(model, token=token), layers=9)
    for effect, without in zip(found.effects[:2], (neurons, head), strict=True):
        with without():
            close(found.before + effect.alone, logit(model, token=token), layers=9)
        assert abs(effect.alone) > 1e-4
    close(found.before + found.effects[2].alone, steered(x)[-1, token], layers=9)
    with neurons(), head():
        logits = steered(x)[-1]
    close(found.after, logits[token], layers=9)
    assert logits.argmax() != token, "the same token is read with the edits"


@pytest.mark.parametrize("name", ["gpt2", *(slow(name) for name in ("llama", "mixtral", "gemma2"))])
def test_the_frozen_column_is_the_replayed_function_with_the_edit_in_it(name):
    model, found, edits = edited(name)
    x = model.embed(jnp.array(IDS))
    recording = jax.jit(duat.record(model.states))(x)
    logits = model.logits_at(recording.value[-1])
    read = logits.direction(logits.values.argmax())
    for effect, one in zip(found.effects, edits.items(), strict=True):
        replayed = jax.jit(duat.replay(duat.edit(model.states, dict([one])), recording.dynamics))(x)
        close(effect.frozen.sum(), (replayed - recording.value)[-1] @ read, layers=9)
        assert abs(effect.frozen.sum()) > 1e-6
    close(found.effects[0].frozen, -duat.explain(model, IDS).terms["layers.1.mlp"][:, [3, 8]], layers=9)


@pytest.mark.slow
def test_an_edit_of_the_stream_is_one_of_what_enters_the_next_layer():
    model = both("gpt2")
    direction, rows = numbers(3, model.config.features), jnp.array([1, 4, 2])
    here = duat.record(model.hidden)(model.embed(jnp.array(IDS)))
    stream = here.at(here.streams[1])

    def from_there(stream):
        hidden = model.final_norm(Stack(model.stack.blocks[1:])(stream))
        return model.head.logits(model.head.states(hidden), model.embedding.token[...])[-1, TOKEN]

    reference = jax.jit(duat.secant(from_there))(stream.at[rows].add(direction), stream)
    steered = [duat.edits.Stream(1, [1, 4]).steer(direction[:2]), duat.edits.Stream(1, 2).steer(direction[2])]
    found = holds(duat.intervene(model, IDS, steered, TOKEN))
    secants = np.concatenate([effect.secant for effect in found.effects])
    close(secants, reference.parts[rows].sum(-1), layers=9)
    close([found.after, found.before], reference.values, layers=9)


@pytest.mark.parametrize(("layers", "tokens"), [(1, None), slow(0, None), slow(-1, None), slow(-1, -1)])
def test_a_stream_set_to_that_of_another_text_gives_the_other_text(layers, tokens):
    model, other = both("gpt2"), [9, 8, 7, 6, 1, 2]
    there = duat.record(model.hidden)(model.embed(jnp.array(other)))
    stream = there.at(there.streams[layers])
    place = duat.edits.Stream(layers % len(there.streams), tokens)
    found = holds(duat.intervene(model, IDS, place.set(stream[tokens or slice(None)]), TOKEN))
    close(found.after, logit(model, other), layers=9)


@pytest.mark.slow
def test_a_choice_of_experts_that_moves_is_a_part_by_name():
    model = both("mixtral")
    found = holds(duat.intervene(model, IDS, duat.edits.Stream(0).steer(3 * numbers(model.config.features)), TOKEN))
    assert any(found.discontinuities.values())
    assert "discontinuity: " in str(found)


@pytest.mark.slow
def test_every_number_is_read_again():
    model = both("gpt2")
    direction, other = (numbers(model.config.features, key=k) for k in (1, 2))
    steer = duat.edits.Stream(1, tokens=2).steer(direction)
    along = holds(duat.intervene(model, IDS, steer, duat.targets.Direction(other, stream=1, position=2)))
    close([along.difference, along.effects[0].frozen[0]], [direction @ other] * 2, layers=9)
    x = model.embed(jnp.array(IDS))
    site = duat.Site("stream", duat.Key((), "layer", 1))
    edited = duat.edit(model.output, {site: duat.edits.Edit(added=jnp.zeros_like(x).at[2].set(direction))})
    found = holds(duat.intervene(model, IDS, steer, duat.targets.LogProbability(3)))
    expected = [jax.nn.log_softmax(run(x)[-1])[3] for run in (model.output, edited)]
    close([found.before, found.after], expected, layers=9)
    similar = duat.intervene(both("bert"), IDS, duat.edits.Heads(0, [0, 1], tokens=[1, 2]).set(0), against=[9, 8, 7])
    assert holds(similar).effects[0].secant.shape == (2, 2)


def test_it_shows_itself_and_says_when_nothing_reaches_the_number():
    _, found, _ = edited("gpt2")
    text = str(found)
    for part in (
        "at token 5, 'w20'",
        "layer 1, neurons 3, 8, every token: set to 0",
        "layer 1, head 2, every token: scaled by 0",
        "stream 1, token 5, 'w20': steered by values of size",
        "together",
        f"{found.after:+.4f}",
    ):
        assert part in text
    assert "together" in found._repr_html_()
    parts = json.loads(json.dumps(found.as_dict("tiny")))
    assert parts["effects"][0]["units"] == [3, 8]
    assert parts["after"] == found.after
    assert [np.shape(effect["secant"]) for effect in parts["effects"]] == [(6, 2), (6, 1), (1,)]
    assert "doesn't move" not in text
    still = replace(found, completeness=found.completeness._replace(value=np.float64(0)))
    assert "doesn't move" in str(still)


def test_everything_wrong_is_said_at_once():
    model = both("gpt2")
    layers, heads, features = model.config.layers, model.config.blocks[0].heads, model.config.features
    wrong = [
        duat.edits.Neurons(layers, 0).set(0),
        duat.edits.Heads(0, [0, heads]).set(0),
        duat.edits.Stream(layers + 1).scale(2),
        duat.edits.Neurons(0, [1, 1]).set(0),
        duat.edits.Stream(1, tokens=6).steer(0.0),
        duat.edits.Stream(1).steer(np.zeros(features + 1)),
        duat.edits.Stream(1, tokens=0).set(np.nan),
        duat.edits.Heads(1, 0).scale("much"),
        duat.edits.Heads(1, 1).scale(2),
        duat.edits.Heads(1, [0, 1], tokens=2).set(0),
    ]
    with pytest.raises(duat.InvalidInput) as error:
        duat.intervene(model, IDS, wrong, 10**9)
    for part in (
        "the target 1000000000 is no token id",
        f"edit 0: layer {layers} is none of the {layers} before what is read, counted from 0",
        f"edit 1: head [0, {heads}] is none of {heads}: give 0 to {heads - 1}",
        f"edit 2: stream {layers + 1} isn't there before what is read: give 0 to {layers}",
        "edit 3: neuron [1, 1] names one twice",
    ):
        assert part in str(error.value)
    with pytest.raises(duat.InvalidInput) as error:
        duat.intervene(model, IDS, wrong[4:], TOKEN)
    for part in (
        "edit 0: token 6 is none of 6: give -6 to 5",
        f"edit 1: stream 1: what it is steered by must be a number, or numbers that broadcast to [6, {features}]",
        "edit 2: stream 1: what it is set to isn't finite",
        "edit 3: layer 1, head 0: what it is scaled by must be a number",
        "edits 4 and 5 overlap at layer 1, heads 0, 1: edit each value once",
    ):
        assert part in str(error.value)
    with pytest.raises(duat.InvalidInput, match="layer 1 is none of the 1 before what is read"):
        duat.intervene(model, IDS, duat.edits.Heads(1, 0).set(0), duat.targets.Direction(np.ones(features), stream=1))
    unchecked = unwrap(duat.intervene)  # for a user nothing checks the types of arguments before
    for nothing in ([], None, 3, [duat.edits.Heads(1, 0)], duat.edits.Edit(0)):
        with pytest.raises(duat.InvalidInput, match="edits are one or several such as"):
            unchecked(model, IDS, nothing, TOKEN)
    with pytest.raises(duat.InvalidInput, match="one input and one target are taken"):
        unchecked(model, [IDS, IDS], wrong[8], TOKEN)
    with pytest.raises(duat.NotFinite, match=r"logit of 'w7' at token 5, 'w20' is nan with the edits"):
        duat.intervene(model, IDS, duat.edits.Stream(1).set(1.7e308), TOKEN)
