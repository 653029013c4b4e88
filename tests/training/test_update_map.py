"""Optimisers as linear maps of gradients, running means and weights, with everything else held."""

import jax
import jax.numpy as jnp
import optax
import pytest
from helpers import near
from jax import lax

from duat_jax.errors import DuatError
from duat_jax.training.update import Update

SCHEDULE = optax.warmup_cosine_decay_schedule(0.0, 0.1, 3, 10)
OPTIMISERS = {
    "sgd": (optax.sgd(0.1), 0),
    "nesterov": (optax.sgd(0.1, momentum=0.9, nesterov=True), 2),
    "adam": (optax.adam(SCHEDULE), 2),
    "nadamw, clipped": (optax.chain(optax.clip_by_global_norm(0.1), optax.nadamw(0.1)), 2),
    "a rate in the state": (optax.inject_hyperparams(optax.adamw)(learning_rate=SCHEDULE), 2),
    "muon": (optax.contrib.muon(0.1), 2),
    "adafactor": (optax.adafactor(0.1, min_dim_size_to_factor=2), 0),
    "lamb": (optax.lamb(0.1), 2),
    "rmsprop": (optax.rmsprop(0.1, momentum=0.9), 2),
    "amsgrad": (optax.amsgrad(0.1), 2),
    "adabelief": (optax.adabelief(0.1), 2),
    "adan": (optax.adan(0.1), 6),
    "schedule-free": (optax.contrib.schedule_free_adamw(0.1), 2),
    "several small steps": (optax.MultiSteps(optax.adam(0.1), 2).gradient_transformation(), 4),
    "guarded": (optax.apply_if_finite(optax.adam(0.1), 2), 2),
    "partitioned": (
        optax.partition({"m": optax.sgd(0.1, momentum=0.9), "a": optax.adam(0.1)}, {"in": "m", "out": "a"}),
        2,
    ),
}


@pytest.fixture(autouse=True)
def _as_optax_needs_it():
    with jax.numpy_dtype_promotion("standard"):
        yield


def first_weights():
    keys = jax.random.split(jax.random.key(0))
    return {"in": jax.random.normal(keys[0], (4, 6)), "out": jax.random.normal(keys[1], (3,))}


def gradients_at(weights, step):
    return jax.tree.map(lambda leaf: jnp.sin(leaf * (step + 2) + 1), weights)


def dot(a, b):
    return sum(float((x * y).sum()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_update_is_its_own_linear_map(name):
    """The values are the optimiser's own; as a map that is linear in its arguments it gives them back."""
    optimiser, means = OPTIMISERS[name]
    weights = first_weights()
    update, state = Update(optimiser, weights), optimiser.init(weights)
    assert len(update.means_of(state)) == means
    for step in range(4):
        gradients = gradients_at(weights, step)
        (updates, after), transposed = update.transposed(gradients, state, weights)
        expected, expected_state = optimiser.update(gradients, state, weights)
        for own, known in zip(
            jax.tree.leaves((updates, after)), jax.tree.leaves((expected, expected_state)), strict=True
        ):
            near(own, known, 1e-12)
        on_updates = jax.tree.map(lambda leaf: jnp.cos(7 * leaf), updates)
        on_state = [jnp.cos(3 * mean) for mean in update.means_of(after)]
        back = transposed(on_updates, on_state)
        forward = dot(on_updates, updates) + dot(on_state, update.means_of(after))
        parts = [back.gradients, back.state, back.weights]
        backward = sum(map(dot, parts, [gradients, update.means_of(state), weights]))
        near(backward, forward, 1e-6 * abs(forward))
        state, weights = after, optax.apply_updates(weights, updates)


def only(rule):
    """Return an optimiser without a state from a function of gradients."""
    return optax.stateless(lambda gradients, _: jax.tree.map(rule, gradients))


def twice_in_a_loop(gradient):
    return lax.fori_loop(0, 2, lambda _, x: x / jnp.linalg.norm(x) + gradient, gradient)


def chosen(gradient):
    return lax.cond(jnp.abs(gradient).max() > 0.5, lambda x: x / jnp.abs(x).max(), lambda x: 2 * x, gradient)


@pytest.mark.parametrize("rule", [twice_in_a_loop, jax.jit(twice_in_a_loop), chosen, jax.jit(chosen), jnp.cumsum])
def test_loops_branches_and_calls_are_followed(rule):
    weights = {"out": jnp.array([3.0, -4.0])}
    gradients = {"out": jnp.array([0.3, 0.9])}
    (updates, _), transposed = Update(only(rule), weights).transposed(gradients, optax.EmptyState(), weights)
    near(updates["out"], rule(gradients["out"]), 1e-12)
    back = transposed({"out": jnp.array([2.0, 5.0])}, [])
    near(dot(back.gradients, gradients), dot({"out": jnp.array([2.0, 5.0])}, updates), 1e-12)


def test_a_held_factor_has_no_derivative():
    """`g / ‖g‖` is `g` times a held number: its derivative leaves the direction of `g` in."""
    gradients = {"out": jnp.array([3.0, 4.0])}
    _, transposed = Update(only(lambda g: g / jnp.linalg.norm(g)), gradients).transposed(
        gradients, optax.EmptyState(), gradients
    )
    near(transposed({"out": jnp.array([1.0, 0.0])}, []).gradients["out"], [0.2, 0.0], 1e-12)


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (jnp.sign, "sign"),
        (lambda g: jnp.clip(g, -1, 1), "max"),
        (jnp.square, "square"),
        (lambda g: g * g[::-1], "mul"),
        (lambda g: g / g.sum() + g[::-1], "div"),
        (lambda g: lax.while_loop(lambda x: x.sum() < 1, lambda x: 2 * x, g), "while"),
        (lambda g: lax.scan(lambda c, _: (jnp.tanh(c), None), g, length=2)[0], "tanh"),
        (jnp.sort, "sort"),
        (lambda g: g.astype(jnp.int32).astype(g.dtype), "convert_element_type"),
    ],
)
def test_an_update_that_is_not_linear_is_refused_by_its_operation(rule, name):
    with pytest.raises(DuatError, match=rf"that of out by {name}"):
        Update(only(rule), {"out": jnp.array([3.0, 4.0])})
