"""Runs, terms, optimisers and numbers that can't be explained are refused, each with its reason."""

import math

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx
from training_cases import RATE, STEPS, WHICH, X, Y, batches, first_weights, number, terms

from duat_jax.errors import DuatError, NotFinite
from duat_jax.training.kept import train
from duat_jax.training.over_examples.compute import influence
from duat_jax.training.over_weights.compute import begin, follow
from duat_jax.training.run import Run


@pytest.fixture(autouse=True)
def _as_optax_needs_it():
    with jax.numpy_dtype_promotion("standard"):
        yield


class Tied(nnx.Module):
    """A module with one array in two places."""

    def __init__(self):
        self.one = self.other = nnx.Param(jnp.ones(2))


@jax.custom_vjp
def squared(x):
    return x**2


squared.defvjp(lambda x: (x**2, x), lambda x, change: (2 * x * change,))


def backwards_only(weights, batch):
    return squared(terms(weights, batch))


def broken(folder, **settings):
    parts = {"terms": terms, "optimiser": optax.sgd(RATE), "batches": batches, "steps": STEPS} | settings
    return train(Run(**parts), first_weights(), folder)


@pytest.mark.parametrize(
    ("error", "message", "ask"),
    [
        (NotFinite, "the loss of step 1 is", lambda folder: broken(folder, optimiser=optax.sgd(1e200))),
        (  # a gradient of one, and a step that no float holds
            NotFinite,
            "weights aren't finite after step 0, though its loss is",
            lambda folder: broken(
                folder, terms=lambda w, _: w["in"].sum()[None], optimiser=optax.scale(-math.inf), steps=1
            ),
        ),
        (DuatError, "0 steps: give at least one", lambda folder: broken(folder, steps=0)),
        (
            DuatError,
            r"that of in by sign; that of out by sign",
            lambda folder: influence(broken(folder, optimiser=optax.lion(RATE)), number),
        ),
        (
            DuatError,
            "there are 7 batches for 9 steps",
            lambda folder: broken(folder, batches=X[WHICH], steps=9),
        ),
        (
            DuatError,
            "is of another run",
            lambda folder: (broken(folder), broken(folder, optimiser=optax.sgd(2 * RATE))),
        ),
        (
            DuatError,
            "is of another run",
            lambda folder: (broken(folder), broken(folder, terms=lambda w, batch: 2 * terms(w, batch))),
        ),
        (
            DuatError,
            "aren't one array of floats",
            lambda folder: broken(folder, terms=lambda w, batch: (terms(w, batch),)),
        ),
        (DuatError, "no derivative in forward mode", lambda folder: broken(folder, terms=backwards_only)),
        (DuatError, "isn't one real scalar", lambda folder: influence(broken(folder), lambda w: w["out"])),
        (DuatError, "gradients, state and weights alone", lambda folder: broken(folder, optimiser=optax.polyak_sgd())),
        (
            DuatError,
            r"between\(0, weights\) returns arrays of another",
            lambda folder: broken(folder, between=lambda _, w: jax.tree.map(lambda leaf: leaf.astype(jnp.float32), w)),
        ),
        (
            DuatError,
            "bias, in, out differ",
            lambda folder: follow(number, begin(number, first_weights()), {"bias": jnp.ones(2)}),
        ),
        (
            DuatError,
            "state isn't one of this optimiser",
            lambda folder: train(
                Run(terms, optax.sgd(RATE), batches, STEPS),
                first_weights(),
                folder,
                state=optax.adam(RATE).init(first_weights()),
            ),
        ),
        (
            DuatError,
            "state isn't one of this optimiser",
            lambda folder: train(
                Run(terms, optax.trace(0.9), batches, STEPS), first_weights(), folder, state=(first_weights(),)
            ),
        ),
        (
            DuatError,
            "state isn't one of this optimiser",
            lambda folder: train(Run(terms, optax.trace(0.9), batches, STEPS), first_weights(), folder, state="fresh"),
        ),
        (
            DuatError,
            "is of another run",
            lambda folder: [
                train(Run(terms, optax.trace(0.9), batches, STEPS), first_weights(), folder, state=state)
                for state in (None, optax.TraceState(first_weights()))
            ],
        ),
        (DuatError, "one array in several places", lambda folder: begin(number, Tied())),
        (DuatError, "there are no numbers", lambda folder: influence(broken(folder), {})),
        (
            NotFinite,
            "the number is nan",
            lambda folder: influence(broken(folder), lambda w: jnp.log(-(w["in"][0, 0] ** 2))),
        ),
        (  # weights go from 1 to -1 and on to 2: the first step after which the logarithm isn't a number is named
            NotFinite,
            "the number is nan after step 0",
            lambda folder: influence(
                train(
                    Run(lambda w, batch: w * batch, optax.sgd(1.0), jnp.array([[2.0], [-3.0]]), 2),
                    jnp.array(1.0),
                    folder,
                    every=1,
                ),
                jnp.log,
            ),
        ),
        (
            DuatError,
            r"step 1 are \(3,\), and those of step 0 \(2,\)",
            lambda folder: influence(
                broken(folder, batches=lambda step: (X[: 2 + min(step, 1)], Y[: 2 + min(step, 1)])), number
            ),
        ),
        (
            DuatError,
            "is of another run",
            lambda folder: (broken(folder), broken(folder, optimiser=optax.sgd(RATE, momentum=0.9))),
        ),
        (
            DuatError,
            "is damaged .*: remove it",
            lambda folder: (broken(folder), (folder / "after-00000007.safetensors").write_bytes(b""), broken(folder)),
        ),
        (
            DuatError,
            "isn't there: train the run",
            lambda folder: (
                (kept := broken(folder)),
                (folder / "after-00000004.safetensors").unlink(),
                influence(kept, number),
            ),
        ),
        (
            DuatError,
            r"step aren't arrays of floats",
            lambda folder: train(Run(terms, optax.sgd(RATE), batches, 1), {**first_weights(), "step": 1}, folder),
        ),
        (
            DuatError,
            r"numbers from 0 to 4 of the shape \(7, 3\)",
            lambda folder: influence(broken(folder), number).by_example(WHICH, 5),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_explained_is_named(tmp_path, error, message, ask):
    with pytest.raises(error, match=message):
        ask(tmp_path)
