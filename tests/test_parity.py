"""Tiny random checkpoints of every family load into what the reference implementation computes with them."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from cases import GOLDEN
from helpers import near

import duat_jax as duat
from duat_jax.models.registry import FAMILIES
from duat_jax.models.target.base import forward

CHECKPOINTS = sorted(path.name for path in GOLDEN.iterdir())
# A family's name is its base; what follows names a switch or a head.
EACH = [pytest.param(name, marks=[pytest.mark.slow] * ("-" in name)) for name in CHECKPOINTS]
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
REAL = 9
"""Number of tokens in front of the padding."""


@functools.cache
def golden(name, dtype="float64"):
    """Return a model, a text or image, and what the reference computes: values, streams, the text without padding."""
    outputs = dict(np.load(GOLDEN / name / "outputs.npz"))
    given = outputs.pop("ids" if "ids" in outputs else "pixels")
    return duat.load(GOLDEN / name, dtype=jnp.dtype(dtype)), jnp.asarray(given), outputs


def agree(actual, expected, dtype="float64"):
    """Assert that no entry differs by more than the tolerance, of the largest entry."""
    assert actual.shape == expected.shape and actual.dtype == dtype
    near(actual, expected, within=TOLERANCE[dtype] * np.abs(expected).max())


def test_every_family_has_a_checkpoint():
    assert {duat.load_config(GOLDEN / name).family for name in CHECKPOINTS} == set(FAMILIES)


@pytest.mark.parametrize("name", EACH)
def test_the_model_is_the_reference(name):
    model, given, outputs = golden(name)
    agree(model(given), outputs["float64"])


QUICK = ("bert", "gpt2")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in CHECKPOINTS])
def test_the_model_is_the_reference_in_float32(name):
    model, given, outputs = golden(name, "float32")
    agree(model(given), outputs["float32"], "float32")


@pytest.mark.parametrize("name", EACH)
def test_every_hidden_state_is_the_reference(name):
    model, given, outputs = golden(name)
    streams = forward(model, given, jnp.ones(outputs["streams"].shape[1], bool), tuple(range(model.config.layers + 1)))
    agree(jnp.stack(list(streams.streams.values())), outputs["streams"])


@pytest.mark.parametrize("name", [name for name in EACH if not name.values[0].startswith("vit")])
def test_what_follows_as_padding_changes_nothing(name):
    model, given, outputs = golden(name)
    real = jnp.arange(len(given)) < REAL
    actual = model(jnp.where(real, given, 7), real)
    agree(actual[:REAL] if actual.ndim == 2 else actual, outputs["padded"])
