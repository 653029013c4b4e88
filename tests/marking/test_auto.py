"""Functions without marks have the closed form that those marked by hand have."""

import warnings
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import near
from jax import lax

import duat_jax as duat
from duat_jax.transform.program import trace
from tests.marking.comparison import assert_same_parts, parts_of, quick_or_slow
from tests.marking.plain_programs import PROGRAMS, X, weights

W, B = weights((8, 6), (6,))
FEW = "gpt by_products", "lstm", "cross_attention"
"""One of each kind; the others are slow."""


@pytest.mark.parametrize("name", quick_or_slow(PROGRAMS, FEW))
def test_a_plain_program_has_its_closed_form(name):
    fn, x = PROGRAMS[name]
    marked = duat.auto(fn)
    assert marked(x) == fn(x)
    found, not_attributed = parts_of(marked, x)
    assert not not_attributed
    assert found.unmarked == 0
    jax.tree.map(np.testing.assert_array_equal, duat.decompose(fn, x, marks="auto"), found)
    inputs = sum(float(part.sum()) for part in jax.tree.leaves(found.input))
    rest = sum(float(part.sum()) for part in (*found.terms.values(), *found.offsets.values()))
    near(inputs + rest, fn(x), 1e-12)
    assert any(np.any(part) for part in jax.tree.leaves((found.input, list(found.terms.values()))))


def test_a_form_takes_a_function_without_marks():
    def fn(x):
        return jax.nn.relu(x @ W + B) @ W.T

    form, map_of_all = duat.unroll(fn, X, marks="auto"), duat.collapse(fn, X, marks="auto")
    near(form.inner_map(1).dense(), np.kron(np.eye(len(X)), W.T), 1e-12)
    near(map_of_all.linear.dense(), jax.jacfwd(lambda x: fn(x).ravel())(X).reshape(X.size, X.size), 1e-12)


@pytest.mark.parametrize("form", [duat.decompose, duat.unroll, duat.collapse])
def test_marks_are_the_own_ones_or_automatic(form):
    with pytest.raises(duat.DuatError, match="marks = 'by hand' isn't known: give 'auto'"):
        form(lambda x: x.sum(), X, marks="by hand")


CAPS = {
    "a quotient": lambda z: 3 * jnp.tanh(z / 3),
    "a product": lambda z: jnp.tanh(z * (1 / 3)) * 3,
    "twice": lambda z: 2 * (1.5 * jnp.tanh(z / 3)),
    "a ratio": lambda z: z * jnp.where(z == 0, 1, 3 * jnp.tanh(z / 3) / jnp.where(z == 0, 1, z)),
}


@pytest.mark.parametrize("name", CAPS)
def test_a_soft_cap_is_a_held_ratio(name):
    def logits(x, cap):
        return jnp.vdot(cap(0.5 * (x + jax.nn.relu(x @ W) @ W.T)), jnp.arange(1.0 * X.size).reshape(X.shape))

    x = X.at[0, 0].set(0)
    marked = duat.auto(lambda x: logits(x, CAPS[name]))
    near(marked(x), logits(x, CAPS["a quotient"]), 1e-12)
    by_hand = duat.auto(lambda x: logits(x, lambda z: z * duat.hold(3 * jnp.tanh(z / 3) / z, "cap")))
    assert_same_parts(parts_of(marked, x)[0], parts_of(by_hand, x)[0])
    assert marked.choices(x).terms == 1


def to_whole_numbers(x):
    return (x @ W).sum() + (10 * x).astype(jnp.int8).sum().astype(x.dtype)


def by_while(x):
    grown = lax.while_loop(lambda v: (v**2).sum() < 100, lambda v: 2 * v, x)
    return (grown @ W).sum() + (x @ W).sum()


def by_product_of_all(x):
    return jnp.prod(1 + x[0]) + (x @ W).sum()


ODD = {fn.__name__: fn for fn in (to_whole_numbers, by_while, by_product_of_all)}


@pytest.mark.parametrize("name", ODD)
def test_what_cannot_be_followed_is_one_named_part(name):
    fn = ODD[name]
    found, not_attributed = parts_of(duat.auto(fn), X)
    assert len(not_attributed) == 1
    near(sum(float(found.offsets[key].sum()) for key in not_attributed), fn(X) - (X @ W).sum(), 1e-12)
    near(found.not_attributed, fn(X) - (X @ W).sum(), 1e-12)
    assert str(found).endswith(f"completeness: holds, not attributed: {float(found.not_attributed):.6g})")
    many = jax.vmap(lambda x: duat.decompose(fn, x, marks="auto"))(jnp.stack([X, 2 * X]))
    near(many.not_attributed, jnp.stack([fn(x) - (x @ W).sum() for x in (X, 2 * X)]), 1e-12)
    (line,) = duat.auto(fn).choices(X).not_attributed
    assert f"({name})" in line


def sorted_entries(x):
    return jnp.sort(x @ W)[0, 2] + lax.top_k(x[1], 2)[0].sum()


def pooled(x):
    return lax.reduce_window(x @ W, -jnp.inf, lax.max, (2, 2), (1, 1), "VALID").sum() + jnp.abs(x).max()


def branched(x):
    return lax.cond(x[0, 0] > 0, lambda x: x @ W + B, lambda x: -x @ W, x).sum()


@pytest.mark.parametrize("fn", [sorted_entries, pooled, branched])
def test_a_choice_is_held_and_its_entries_flow(fn):
    found, not_attributed = parts_of(duat.auto(fn), X)
    assert not not_attributed
    offsets = sum(float(part.sum()) for part in found.offsets.values())
    near(found.input.sum() + sum(part.sum() for part in found.terms.values()) + offsets, fn(X), 1e-12)


def ruled(value, rule):
    """Return a function of which JAX believes another derivative."""
    fn = jax.custom_vjp(value)
    fn.defvjp(lambda z: (value(z), z), lambda z, of: (rule(z, of),))
    return fn


DIFFERENTIATED = {
    "straight through": ruled(jnp.tanh, lambda _, of: of),
    "a rule around weights": ruled(lambda z: jnp.tanh(z @ W.T) @ W, lambda _, of: 3 * of),
    "a clipped derivative": ruled(lambda z: z, lambda _, of: jnp.clip(of, -0.1, 0.1)),
    "relu": jax.nn.relu,
    "softplus": jax.nn.softplus,
    "elu": jax.nn.elu,
    "a branch that isn't taken": lambda z: lax.cond(z[1, 0] > 1e9, lambda z: jnp.sqrt(z - z), lambda z: z, z),
    "a window's maximum": lambda z: lax.reduce_window(z, -jnp.inf, lax.max, (2, 2), (1, 1), "SAME"),
}


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_values_and_derivatives_are_those_of_the_function(name):
    """At zero too, where a library's ReLU has a derivative of its own."""

    def fn(inputs):
        x, w = inputs
        return (DIFFERENTIATED[name](x @ w) ** 2).sum()

    marked, given = duat.auto(fn), (X.at[0].set(0), W)
    for found, expected in zip(jax.grad(marked)(given), jax.grad(fn)(given), strict=True):
        np.testing.assert_array_equal(found, expected)
    closed_over = jax.grad(lambda w: duat.auto(lambda x: fn((x, w)))(given[0]))(W)
    np.testing.assert_array_equal(closed_over, jax.grad(fn)(given)[1])
    many = jax.tree.map(lambda a: jnp.stack([a, -a]), given)
    np.testing.assert_array_equal(jax.vmap(marked)(many), jax.vmap(fn)(many))
    assert jax.jit(marked)(given) == jax.jit(fn)(given)


SQUARES = weights((2, 8, 8))[0]
INFINITE = jnp.where(jnp.eye(5, 6) > 0, -jnp.inf, 0)
VALUES = {
    "infinite entries that aren't chosen": lambda x: jnp.maximum(x @ W + INFINITE, x @ -W) + (x @ W + INFINITE).max(),
    "bounds that are numbers": lambda x: lax.clamp(x.min(), x @ W, x.max()),
    "constants that are chosen": lambda x: lax.sort((x @ W, jnp.ones((5, 1)) * B), num_keys=1)[1],
    "a constant between moving bounds": lambda x: lax.clamp(x[:, :6] - 1, jnp.ones((5, 6)), x[:, 2:] + 1),
    "written numbers": lambda x: jnp.clip(x @ W, x[0, 0] - 0.5, x[1, 1] + 0.5) + 1 / (3 + jnp.abs(x @ W)),
    "nothing, reshaped": lambda x: jnp.concatenate([x, x[:0].reshape(4, 0, 2).reshape(0, 8)]) @ W,
    "whole numbers and truths": lambda x: ((10 * x).astype(jnp.int32), x > 0),
    "a term that is infinite where it isn't taken": lambda x: lax.cond(
        x[0, 0] > 1e9, lambda z: jnp.log(-1 - z**2), lambda z: z, x @ W
    ),
    "a scale that is NaN where it isn't taken": lambda x: lax.cond(
        x[0, 0] > 1e9, lambda z: z / jnp.sqrt(-1 - (z**2).sum()), lambda z: z, x @ W
    ),
    "a scale in a scan that is NaN where it isn't taken": lambda x: lax.cond(
        x[0, 0] > 1e9,
        lambda z: lax.scan(lambda c, w: (c @ w / jnp.sqrt(-1 - (c**2).sum()), None), z, SQUARES)[0],
        jax.checkpoint(lambda z: z / jnp.sqrt(1 + (z**2).sum())),
        x,
    ),
    "a rematerialised scale that is NaN where it isn't taken": lambda x: lax.cond(
        x[0, 0] > 1e9, jax.checkpoint(lambda z: z / jnp.sqrt(-1 - (z**2).sum())), lambda z: z, x @ W
    ),
    "a loop that has no end where it isn't taken": lambda x: lax.cond(
        x[0, 0] > 1e9, lambda z: lax.while_loop(lambda v: v.sum() < 1e9, lambda v: v * 0, z), lambda z: z, x @ W
    ),
    "a soft cap of what may be infinite": lambda x: 2 * jnp.tanh((x @ W + INFINITE) / 2) + x[:, :6],
    "a product with numbers that move": lambda x: (
        (x @ W) * (jnp.sign(x[0, 0]) * jnp.sign(x[1, 1]) * jax.nn.sigmoid(x @ W) * jnp.sign(x @ W[:, :1]))
    ),
    "a scan that chooses": lambda x: lax.scan(lambda c, w: (jnp.tanh(c @ w), jnp.tanh(w[jnp.argmax(c)])), x, SQUARES)[
        1
    ],
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_kept_and_their_parts_hold(name):
    fn = VALUES[name]

    def total(x):
        return sum(leaf.astype(x.dtype).sum() for leaf in jax.tree.leaves(fn(x))) + x[0, 0]

    for found, expected in zip(jax.tree.leaves(duat.auto(fn)(X)), jax.tree.leaves(fn(X)), strict=True):
        near(found, expected, 1e-15)  # one compiler's loop may round otherwise than the other's
    found, _ = parts_of(duat.auto(total), X)
    parts = (found.input, list(found.terms.values()), list(found.offsets.values()), found.unmarked)
    near(sum(float(part.sum()) for part in jax.tree.leaves(parts)), total(X), 1e-12)


def partly_marked(x):
    with jax.named_scope("first"):
        z = duat.term(jnp.tanh, x @ W + duat.offset(B, "mine"), "neurons")
    gate = duat.hold(jax.nn.sigmoid(z.sum()), "gate")
    return (gate * jax.nn.relu(z) @ W.T).sum()


def test_marks_of_the_user_are_kept():
    found, not_attributed = parts_of(duat.auto(partly_marked), X)
    assert [str(key) for key in found.terms] == ["first.neurons", "relu"]
    assert [str(key) for key in found.offsets] == ["first.mine"]
    assert not not_attributed


def test_marking_takes_as_many_steps_as_the_program_has_operations():
    """Each of forty residual layers doubles the ways back to the input: following them all would never end."""

    def fn(x):
        for _ in range(40):
            x = x + (0.1 * x @ W) @ jnp.tanh(W).T
        return (jax.nn.relu(x @ W) @ W.T).sum()

    program, _ = trace(duat.auto(fn), X)
    assert [str(site.key) for site in program.sites.values() if site.kind == "activation"] == ["relu"]


def bilinear(x):
    return ((x @ W) * (x @ (W + 1))).sum()


def stack_of_stacks(x):
    def layer(x, w):
        with jax.named_scope("layers.0:3"):
            return x + jax.nn.relu(x @ w) @ w.T, None

    weights = jnp.stack([W, W + 1, W - 1])
    return lax.scan(lambda x, w: lax.scan(layer, x, w), x, jnp.stack([weights, 2 * weights]))[0].sum()


def test_layers_that_the_user_names_in_a_scan_keep_their_names():
    found, _ = parts_of(duat.auto(stack_of_stacks), X)
    assert [str(key) for key in found.terms] == [f"layers.{layer}.relu" for layer in range(3)]


def test_a_tie_is_said_and_decided_by_the_caller():
    (product,) = duat.auto(bilinear).choices(X).products
    assert "a tie" in product.rule
    first, second = (duat.auto(bilinear, prefer={product.line: factor}) for factor in (0, 1))
    assert "preferred by the caller" in str(second.choices(X))
    for marked, flowing, held in ((first, W, W + 1), (second, W + 1, W)):
        expected = X * ((X @ held) @ flowing.T)
        near(parts_of(marked, X)[0].input, expected, 1e-12)


READOUTS = {
    "a probability": (lambda x: jax.nn.softmax(x @ W)[-1, 2], "exp"),
    "a probability minus another": (lambda x: jnp.subtract(*jax.nn.softmax(x @ W)[-1, :2]), "exp"),
    "a sum of probabilities": (lambda x: jax.nn.softmax(x @ W)[-1, :2].sum(), "exp"),
    "a mean of probabilities": (lambda x: jax.nn.sigmoid(x @ W).mean(), "logistic"),
    "an activation that has no limit": (lambda x: jax.nn.silu(x @ W)[-1, 2], None),
    "a softplus by hand": (lambda x: jnp.log(1 + jnp.exp(x @ W))[-1, 2], None),
    "a probability more than a logit": (lambda x: (x @ W + jax.nn.sigmoid(x @ W))[0, 0], None),
    "a class's probability": (lambda x: jax.nn.sigmoid((x @ W)[-1, 2]), "logistic"),
    "a logit's hyperbolic tangent": (lambda x: 2 * jnp.tanh(x @ W / 3)[-1, 2], "tanh"),
    "a capped logit": (lambda x: (30 * jnp.tanh(x @ W / 30))[-1, 2], None),
    "a logit": (lambda x: (x @ W)[-1, 2], None),
    "a network of sigmoids": (lambda x: (jax.nn.sigmoid(x @ W) @ B)[-1], None),
    "a probability's logarithm": (lambda x: jax.nn.log_softmax(x @ W)[-1, 2], None),
}


@pytest.mark.parametrize("name", READOUTS)
def test_a_read_out_that_is_one_activation_is_warned_of(name):
    fn, said = READOUTS[name]
    for call in (lambda: duat.auto(fn)(X), lambda: duat.decompose(fn, X, marks="auto")):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        lines = [f"the result is {said}," in str(w.message) and w.filename == __file__ for w in caught]
        assert lines == [True] * (said is not None)


def test_the_choices_are_said():
    chosen = duat.auto(PROGRAMS["llama"][0]).choices(X)
    assert chosen.terms == 2
    assert chosen.holds["pattern"] == 2
    assert chosen.streams == 3
    assert any("an activation and its factor come from one value" in line for line in str(chosen).splitlines())


def test_a_function_is_planned_at_every_call_and_compiled_once():
    """Weights that are changed in place are read anew."""
    weight = [1 * W]
    marked = duat.auto(lambda x: (jax.nn.relu(x @ weight[0]) @ W.T).sum())
    first, _ = trace(marked, X)
    weight[0] = 2 * W
    assert trace(marked, X)[0] == first  # equal programs share what was compiled
    assert duat.decompose(marked, X).completeness.value == marked.fn(X)


def test_a_secant_has_the_parts_of_neurons_at_automatic_marks():
    def fn(x):
        return (jax.nn.relu(x @ W + B) @ jnp.arange(6.0)).sum()

    y = X[::-1] / 2
    parts = duat.secant(duat.auto(fn), at="activation")(X, y).contributions.activations["relu"]
    near(parts, (jax.nn.relu(X @ W + B) - jax.nn.relu(y @ W + B)) * jnp.arange(6.0), 1e-12)


def test_every_term_bias_and_stream_is_listed_with_its_line():
    def network(x):
        return x + jnp.tanh(x @ jnp.eye(3) + jnp.arange(3.0))

    chosen = duat.auto(lambda x: network(network(x)).sum()).choices(jnp.ones((2, 3)))
    kinds = Counter(kind for kind, _ in chosen.lines)
    assert kinds == {"term": chosen.terms, "bias": chosen.biases, "stream": chosen.streams} and min(kinds.values()) == 2
    line = f"{__file__}:{network.__code__.co_firstlineno + 1} (network)"
    assert {place for _, place in chosen.lines} <= {line, "the argument"} and f"{line}: bias" in str(chosen)
