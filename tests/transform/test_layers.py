"""Scans whose scopes name a number for each step: their marks are those of the steps written out."""

import re
from contextlib import ExitStack

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close, weights_of

import duat_jax as duat
from duat_jax import Key, Site, hold, offset, point, stream, term
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.keys import Occurrence

W, V = weights_of((6, 4, 4)) / 6, weights_of((6, 4, 4), key=3) / 6
X, Y = weights_of((3, 4), key=4), weights_of((3, 4), key=5)


def layer(x, W, V, *, window=False):
    rows = hold(jax.nn.softmax(x @ x.T), "pattern") @ x
    x = x + point(rows, "mixed") @ W + offset(W[0], "b")
    x = x + (jnp.flip(x, 0) if window else x) * hold(jnp.round(x).sum(), "jump") / 100
    return x + term(jax.nn.gelu, x @ W, "mlp", outer=lambda a: a @ V)


def inner_scan(x, W, V):
    """A layer with a scan of its own, whose marks are stacked."""
    x = layer(x, W, V)
    return jax.lax.scan(lambda x, v: (x + hold(jnp.tanh(v), "gate") * x @ W, None), x, V)[0]


def written_out(*layers, order=range(6)):
    def fn(x):
        x = stream(x, "layer")
        for i in order:
            with jax.named_scope(f"layers.{i}"):
                x = layers[i % len(layers)](x, W[i], V[i])
            x = stream(x, "layer")
        return (x**2).sum()

    return fn


def in_loop(*layers, reverse=False, remat=False):
    turn = len(layers)

    def step(x, weights):
        for k, layer in enumerate(layers):
            with jax.named_scope(f"layers.{k}:6:{turn}"):
                x = layer(x, *(each[k] for each in weights))
            x = stream(x, "layer")
        return x, None

    def fn(x):
        weights = jax.tree.map(lambda each: each.reshape(6 // turn, turn, 4, 4), (W, V))
        body = jax.checkpoint(step) if remat else step
        return (jax.lax.scan(body, stream(x, "layer"), weights, reverse=reverse)[0] ** 2).sum()

    return fn


def windowed(x, W, V):
    return layer(x, W, V, window=True)


PAIRS = {
    "one layer a step": (written_out(layer), in_loop(layer)),
    "two layers a step": (written_out(layer, windowed), in_loop(layer, windowed)),
    "backwards": (written_out(layer, order=range(5, -1, -1)), in_loop(layer, reverse=True)),
    "recomputed": (written_out(layer), in_loop(layer, remat=True)),
    "with a scan inside": (written_out(inner_scan), in_loop(inner_scan)),
}


def same(found, expected):
    """Assert that two mappings, or tuples of them, have the same keys in the same order and the same values."""
    if isinstance(expected, tuple):
        for one, other in zip(found, expected, strict=True):
            same(one, other)
        return
    assert list(found) == list(expected)
    for key in expected:
        close(found[key], expected[key], layers=6)


@pytest.mark.parametrize("pair", PAIRS)
def test_every_mark_has_the_key_and_value_that_it_has_where_layers_are_written_out(pair):
    written, looped = (duat.record(fn)(X) for fn in PAIRS[pair])
    same(looped.dynamics, written.dynamics)
    assert len(written.terms) == 6
    for steps in ("streams", "terms", "activations", "offsets"):
        assert getattr(looped, steps) == getattr(written, steps)


@pytest.mark.parametrize("pair", PAIRS)
def test_contributions_are_those_of_layers_written_out(pair):
    readout = weights_of((3, 4), key=6)
    last = Occurrence(Site("stream", Key((), "layer", 6)), ())
    written, looped = (duat.contributions(duat.record(fn)(X), readout, target=last) for fn in PAIRS[pair])
    same(looped.terms, written.terms)
    same(looped.offsets, written.offsets)
    close(looped.input, written.input, layers=6)


@pytest.mark.parametrize("held", [False, "pattern", True])
@pytest.mark.parametrize("pair", PAIRS)
def test_secants_are_those_of_layers_written_out(pair, held):
    written, looped = (duat.secant(fn, held=held, at=("point", "stream", "hold"))(X, Y) for fn in PAIRS[pair])
    assert written.completeness.verdict == looped.completeness.verdict == "holds"
    for part in ("multipliers", "changes", "moved"):
        same(getattr(looped, part), getattr(written, part))
    close(looped.multiplier, written.multiplier, layers=6)
    # In a loop a part that is zero, because nothing jumps before the first layer, is named as the other layers' is.
    assert looped.discontinuities.keys() >= written.discontinuities.keys()
    for name, value in looped.discontinuities.items():
        close(value, written.discontinuities.get(name, 0.0), layers=6)


@pytest.mark.parametrize("pair", ["one layer a step", "two layers a step", "backwards", "with a scan inside"])
def test_an_edit_of_one_layer_leaves_the_others_as_they_are(pair):
    edits = {
        Site("hold", Key(("layers.2",), "pattern", 0)): Edit(kept=0.5),
        Site("activation", Key(("layers.3",), "mlp", 0)): Edit(kept=0, added=1.0),
        Site("stream", Key((), "layer", 2)): Edit(added=weights_of((3, 4), key=7)),
    }
    written, looped = (duat.record(edit(fn, edits))(X) for fn in PAIRS[pair])
    close(looped.value, written.value, layers=6)
    same(looped.dynamics, written.dynamics)


@pytest.mark.parametrize("pair", PAIRS)
def test_maps_from_one_layer_to_another_are_those_of_layers_written_out(pair):
    recordings = [duat.record(fn)(X) for fn in PAIRS[pair]]
    first, last = (
        Site("activation", Key((f"layers.{i}",), "mlp", 0)) for i in ((4, 1) if pair == "backwards" else (1, 4))
    )
    target = Occurrence(last._replace(kind="pre_activation"), ())
    written, looped = (duat.linear_map(recording, Occurrence(first, ()), target) for recording in recordings)
    close(looped.dense(), written.dense(), layers=6)
    change = weights_of((3, 4), key=8)
    close(looped.T(change), written.T(change), layers=6)


def test_it_composes_with_vmap_and_jit():
    written, looped = PAIRS["two layers a step"]
    both = jnp.stack([X, Y])
    found, expected = (
        jax.jit(jax.vmap(lambda x, fn=fn: duat.record(fn)(x).dynamics))(both) for fn in (looped, written)
    )
    same(found, expected)


def test_a_name_that_does_not_fit_the_scan_says_so():
    def fn(x, name, length):
        def step(x, _):
            with jax.named_scope(name):
                return hold(x, "h"), None

        return jax.lax.scan(step, x, None, length=length)[0]

    with pytest.raises(duat.DuatError, match=r"'layers.0:5' names 5 numbers, but the scan around it has 4 steps"):
        duat.record(lambda x: fn(x, "layers.0:5", 4))(X)
    # Without a scan around it, and without numbers, a name is a name.
    with jax.named_scope("layers.0:5"):
        assert [str(key) for key in duat.record(lambda x: hold(x, "h"))(X).dynamics.held] in (["h"], ["layers.0:5.h"])
    assert [v.shape for v in duat.record(lambda x: fn(x, "layers", 4))(X).dynamics.held.values()] == [(4, 3, 4)]

    def nested(x):
        def step(x, _):
            with jax.named_scope("layers.0:2"):
                return fn(x, "heads.0:3", 3), None

        return jax.lax.scan(step, x, None, length=2)[0]

    with pytest.raises(duat.DuatError, match="in a scan within a scan whose scopes both name numbers"):
        duat.record(nested)(X)


MISSPELT = [
    *("layer0:4", "layers_0:4", "layers/0:4", "layers[0:4]", "0:4", "layers.0:4.mlp", "layers.0:4:1:1"),
    *("layers.-4:0", "layers.0:-1", "layers.3:-1:-1", "layers.0:4:0", "layers.0: 4"),
    *("layers.:4", "layers.0:", "layers.:", "layers.0::1", "layers.::2"),
]
ORDINARY = ["layers", "layers.0", "layer:0", "step 1: mix", "a.b:c", "bqhd,bkhd->bhqk", "std::vector", "layers.0-4"]


def held_in(inside, *around, length=4, inner=None):
    """Return the names and shapes of a held value in a scan, with a scope inside it and scopes around it."""

    def step(x, _):
        with jax.named_scope(inside):
            return hold(x, "h") if inner is None else inner(x), None

    def fn(x):
        with ExitStack() as scopes:
            for scope in around:
                scopes.enter_context(jax.named_scope(scope))
            return jax.lax.scan(step, x, None, length=length)[0]

    return {str(key): np.shape(value) for key, value in duat.record(fn)(X).dynamics.held.items()}


@pytest.mark.parametrize("name", MISSPELT)
def test_a_misspelt_slice_in_a_scan_says_so(name):
    message = f"the scope {name!r} is in a scan and has a slice, but isn't of the form name.start:stop"
    with pytest.raises(duat.DuatError, match=re.escape(message)):
        held_in(name)


@pytest.mark.parametrize("name", ORDINARY)
def test_a_name_without_a_slice_is_a_name(name):
    assert held_in(name) == {f"{name}.h": (4, 3, 4)}


def test_a_slice_around_a_scan_says_that_it_belongs_into_the_body():
    message = (
        "the scope 'layers.0:4' is around a scan of as many steps, and gives them no numbers: open it in the scan's"
    )
    with pytest.raises(duat.DuatError, match=message):
        held_in("mixer", "layers.0:4")
    with pytest.raises(duat.DuatError, match=message):  # in the body of another scan
        held_in("layers.0:4", length=3, inner=lambda x: jax.lax.scan(lambda x, _: (hold(x, "h"), None), x, None, 4)[0])
    # Its steps have numbers already, or it is a scan over something else.
    assert held_in("layers.0:4", "blocks.0:4") == {f"blocks.0:4.layers.{i}.h": (3, 4) for i in range(4)}
    assert held_in("mixer", "layers.0:5") == {"layers.0:5.mixer.h": (4, 3, 4)}


def test_a_loop_of_one_step_has_the_marks_of_its_layer():
    def step(x, _):
        with jax.named_scope("layers.0:1"):
            return stream(x + hold(jnp.tanh(x), "gate") * x, "layer"), None

    recording = duat.record(lambda x: jax.lax.scan(step, x, None, length=1)[0])(X)
    assert [str(key) for key in recording.dynamics.held] == ["layers.0.gate"]
    assert np.shape(recording.dynamics.held["layers.0.gate"]) == X.shape
