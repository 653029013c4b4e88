"""Editing at marks: the edited function is the one that has the change written into it, and its marks are all there."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES
from helpers import FEATURES, close, far, make_input, numbers, recorded, weights_of

import duat_jax as duat
from duat_jax.transform import marks

TOKENS = 4
HIDDEN = 5
STEPS = 3
W = [0.5 * numbers(*shape, key=k) for k, shape in enumerate([(FEATURES, FEATURES)] * 3 + [(FEATURES, HIDDEN)])]
OUTER = 0.5 * numbers(HIDDEN, FEATURES, key=9)
SHAPES = {
    "hold": (TOKENS, TOKENS),
    "pre_activation": (TOKENS, HIDDEN),
    "activation": (TOKENS, HIDDEN),
    "term_output": (TOKENS, FEATURES),
    "offset": (FEATURES,),
    "stream": (TOKENS, FEATURES),
    "point": (TOKENS, FEATURES),
}


def block(x, change=lambda kind, value: value):
    """Attention and an MLP with every kind of mark, and a change to be written into it."""
    with jax.named_scope("attention"):
        pattern = duat.hold(change("hold", jax.nn.softmax(x @ W[0] @ x.T)), "pattern")
        mixed = duat.point(change("point", pattern @ x @ W[1]), "mixed")
    x = duat.stream(change("stream", x + mixed @ W[2]), "layer")
    x = x + duat.offset(change("offset", jnp.asarray(W[0][0])), "bias")
    return x + duat.term(
        lambda z: change("activation", jnp.tanh(z)),
        change("pre_activation", x @ W[3]),
        "mlp",
        outer=lambda a: change("term_output", a @ OUTER),
    )


def scanned(x, change=lambda step, kind, value: value):
    """The block in a scan, rematerialised."""

    def body(x, step):
        return jax.checkpoint(lambda x: block(x, partial(change, step)))(x), None

    return jax.lax.scan(body, x, jnp.arange(STEPS))[0]


def the_site(fn, kind, x):
    (key,) = duat.record(fn)(x).dynamics[marks.KINDS.index(kind)]
    return duat.Site(kind, key)


@pytest.mark.parametrize("kind", marks.KINDS)
def test_the_edited_function_is_the_one_with_the_change_written_into_it(kind):
    x = make_input()
    kept, added = numbers(*SHAPES[kind], key=1), numbers(*SHAPES[kind], key=2)
    by_hand = block(x, lambda where, value: kept * value + added if where == kind else value)
    edits = {the_site(block, kind, x): duat.edits.Edit(kept, added)}
    assert far(by_hand, block(x))
    close(jax.jit(duat.edit(jax.jit(block), edits))(x), by_hand)


@pytest.mark.parametrize("kind", marks.KINDS)
def test_a_mark_in_a_scan_is_edited_step_by_step(kind):
    x = make_input()
    kept, added = numbers(STEPS, *SHAPES[kind], key=1), numbers(STEPS, *SHAPES[kind], key=2)

    def change(step, where, value):
        return kept[step] * value + added[step] if where == kind else value

    kept, added = jnp.asarray(kept), jnp.asarray(added)
    by_hand = jax.jit(lambda x: scanned(x, change))(x)
    edits = {the_site(scanned, kind, x): duat.edits.Edit(kept, added)}
    close(jax.jit(duat.edit(scanned, edits))(x), by_hand)


def test_several_edits_at_once_and_one_after_another():
    x = make_input()
    stream, activation = (the_site(block, kind, x) for kind in ("stream", "activation"))
    first, second = duat.edits.Edit(kept=0.5, added=1), duat.edits.Edit(kept=jnp.arange(HIDDEN) % 2)
    together = duat.edit(block, {stream: first, activation: second})(x)
    by_hand = {"stream": lambda v: 0.5 * v + 1, "activation": lambda v: v.at[:, ::2].set(0)}
    close(together, block(x, lambda kind, value: by_hand.get(kind, lambda v: v)(value)))
    np.testing.assert_array_equal(duat.edit(duat.edit(block, {stream: first}), {activation: second})(x), together)
    twice = duat.edit(duat.edit(block, {stream: first}), {stream: first})(x)
    close(twice, duat.edit(block, {stream: duat.edits.Edit(0.25, 1.5)})(x))


def of_rows(dtype):
    """Blocks under a `vmap`, and a mark that nothing needs."""

    def fn(x):
        duat.point(2 * x, "unused")
        return jax.vmap(block)(x)

    return fn, jnp.stack([make_input(key=k) for k in range(2)])


NOTHING_CHANGED = {name: CASES[name] for name in ("tree", "nested", "gpt2")} | {"rows": of_rows}


@pytest.mark.parametrize("name", NOTHING_CHANGED)
def test_edits_that_change_nothing_give_the_function_and_all_of_its_marks(name):
    fn, x, *_ = NOTHING_CHANGED[name](jnp.float64)
    recording = jax.jit(duat.record(fn))(x)
    same = {site: duat.edits.Edit(1, 0) for site in recording.seen}
    found = jax.jit(duat.record(duat.edit(fn, same)))(x)
    chex.assert_trees_all_close((found.value, found.seen), (recording.value, recording.seen), rtol=1e-12)
    assert [(site, place.axes) for site, place in found.program.places.items()] == [
        (site, place.axes) for site, place in recording.program.places.items()
    ]


def test_an_edited_function_is_recorded_with_its_changed_values_and_decomposed():
    x = make_input()
    weights = weights_of((TOKENS, FEATURES))

    def fn(x):
        return jnp.vdot(weights, scanned(x))

    _, before = recorded(fn)(x)
    set_to = numbers(STEPS, TOKENS, FEATURES, key=3)
    sites = [the_site(fn, kind, x) for kind in ("point", "stream", "activation", "pre_activation")]
    point, stream, activation, pre_activation = sites
    edited = duat.edit(
        fn, {point: duat.edits.Edit(0, set_to), stream: duat.edits.Edit(2.0), activation: duat.edits.Edit(-1.0, 0.5)}
    )
    _, after = recorded(edited)(x)
    np.testing.assert_array_equal(after.points[point.key], set_to)
    # In the first step nothing but the point's new value is different before the stream.
    close(after.streams[stream.key][0], 2 * (x + set_to[0] @ W[2]))
    close(after.activations[activation.key], 0.5 - jnp.tanh(after.pre_activations[pre_activation.key]))
    (pattern,) = before.held
    np.testing.assert_array_equal(after.held[pattern][0], before.held[pattern][0])
    assert duat.decompose(edited, x).completeness.verdict == "holds"


def test_gradients_flow_into_what_is_kept_and_added_and_vmap_takes_many_of_them():
    x = make_input()
    weights = weights_of((TOKENS, FEATURES))
    site = the_site(block, "stream", x)
    kept, added = (jnp.asarray(numbers(3, TOKENS, FEATURES, key=k)) for k in (1, 2))

    def edited(kept, added):
        return jnp.vdot(weights, duat.edit(block, {site: duat.edits.Edit(kept, added)})(x))

    def by_hand(kept, added):
        return jnp.vdot(weights, block(x, lambda kind, v: kept * v + added if kind == "stream" else v))

    found = jax.vmap(jax.value_and_grad(edited, argnums=(0, 1)))(kept, added)
    for k in range(3):
        value, gradients = jax.value_and_grad(by_hand, argnums=(0, 1))(kept[k], added[k])
        close(found[0][k], value)
        for many, one in zip(found[1], gradients, strict=True):
            close(many[k], one, layers=9)
    inputs = jnp.stack([make_input(key=k) for k in range(2)])
    first = duat.edit(block, {site: duat.edits.Edit(kept[0], added[0])})
    close(jax.vmap(first)(inputs)[1], first(inputs[1]))
    assert "remat" in str(jax.make_jaxpr(jax.grad(lambda x: duat.edit(scanned, {})(x).sum()))(x))
    # A mark under a `vmap` inside the function has one value for each row.
    rows = duat.edit(jax.vmap(block), {site: duat.edits.Edit(kept[:2], added[:2])})
    each = [duat.edit(block, {site: duat.edits.Edit(kept[k], added[k])})(inputs[k]) for k in range(2)]
    close(rows(inputs), jnp.stack(each))


@pytest.mark.slow
def test_a_neuron_or_head_set_to_zero_is_one_whose_outer_weights_are_zero():
    model = duat.load(dtype=jnp.float64)
    ids = jnp.array([5, 7, 9, 3, 11])
    embedded = model.embed(ids)
    value = model.output(embedded)
    layer, neuron, head = 2, 17, 1
    block = model.stack.blocks[layer]
    _, dynamics = recorded(model.output)(embedded)
    (mixed,) = (key for key in dynamics.points if key.path == f"layers.{layer}.attention.mixed")
    edits = {
        duat.Site("activation", duat.Key((f"layers.{layer}",), "mlp", 0)): duat.edits.Edit(
            kept=jnp.ones(block.mlp.output.kernel.shape[0]).at[neuron].set(0)
        ),
        duat.Site("point", mixed): duat.edits.Edit(kept=jnp.ones((block.attention.heads, 1)).at[head].set(0)),
    }
    found = [duat.edit(model.output, dict([one]))(embedded) for one in edits.items()]
    kernels = block.mlp.output.kernel, block.attention.output.kernel
    features = block.attention.head_features
    rows = slice(neuron, neuron + 1), slice(head * features, (head + 1) * features)
    for edited, kernel, row in zip(found, kernels, rows, strict=True):
        weights = kernel[...]
        kernel[...] = weights.at[row].set(0)
        close(edited, model.output(embedded), layers=30)
        assert far(edited, value)
        kernel[...] = weights


def test_a_whole_number_that_is_held_is_edited_as_one():
    def fn(x):
        return x[duat.hold(jnp.argmax(x), "choice")]

    x = jnp.array([1.0, 3.0, 2.0])
    site = duat.Site("hold", duat.Key((), "choice", 0))
    assert duat.edit(fn, {site: duat.edits.Edit(added=1)})(x) == 2.0
    with pytest.raises(duat.DuatError, match=r"`kept` at hold choice is float64\[\], which doesn't broadcast"):
        duat.edit(fn, {site: duat.edits.Edit(kept=0.5)})(x)


def test_what_is_added_between_an_activation_and_its_outer_map_has_a_secant_and_no_closed_form():
    x = make_input(TOKENS)

    def fn(x):
        outer = lambda a: duat.point(a, "neurons") @ OUTER  # noqa: E731
        return x + duat.term(jnp.tanh, x @ W[3], "mlp", outer=outer)

    added = numbers(TOKENS, HIDDEN, key=3)
    for kind in ("point", "activation"):
        edited = duat.edit(fn, {the_site(fn, kind, x): duat.edits.Edit(added=added)})
        close(edited(x), x + (jnp.tanh(x @ W[3]) + added) @ OUTER)
        assert duat.secant(lambda x, edited=edited: edited(x).sum())(x, 2 * x).completeness.holds
        recording = duat.record(edited)(x)
        if kind == "activation":
            close(duat.replay(edited, recording.dynamics)(x), recording.value)
        else:
            with pytest.raises(duat.NotAffine, match="adds a constant to the activation's own part"):
                duat.replay(edited, recording.dynamics)(x)


def test_every_edit_that_does_not_fit_is_named_with_what_there_is():
    site = the_site(block, "stream", make_input())
    edits = {
        site._replace(kind="neuron"): duat.edits.Edit(0),
        site._replace(key=duat.Key(("layers.9",), "layer", 0)): duat.edits.Edit(0),
        site: duat.edits.Edit(added=jnp.zeros((TOKENS, FEATURES + 1))),
        the_site(block, "offset", make_input()): duat.edits.Edit(added=jnp.zeros((TOKENS, FEATURES))),
        "layer": duat.edits.Edit(0),
        the_site(block, "hold", make_input()): 0.0,
        duat.Site("stream", duat.Key((), "layer", 1)): duat.edits.Stream(1).set(0),
    }
    with pytest.raises(duat.DuatError) as error:
        duat.edit(block, edits)(make_input())
    for part in (
        "no kind of mark is called 'neuron': choose one of hold, pre_activation",
        "there is no stream called 'layers.9.layer' to be edited; the marks of this kind are layer",
        "`added` at stream layer is float64[4,7], which doesn't broadcast to the mark's value, float64[4,6]",
        "`added` at offset bias is float64[4,6], which doesn't broadcast to the mark's value, float64[6]",
        "an edit is given as Site(kind, key): Edit(kept, added), not as 'layer': Edit(kept=0, added=None, place=None)",
        ": 0.0",
        "Edit(kept=0, added=0, place=Stream(layers=1, tokens=None))",
    ):
        assert part in str(error.value)
