"""Tiny random checkpoints of every family load into what the reference implementation computes with them."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from cases import GOLDEN

import duat_jax as duat
from duat_jax.models.loader import FAMILIES
from duat_jax.models.target.base import forward

CHECKPOINTS = sorted(path.name for path in GOLDEN.iterdir())
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
    np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE[dtype] * np.abs(expected).max())


def test_every_family_has_a_checkpoint():
    assert {golden(name)[0].config.family for name in CHECKPOINTS} == set(FAMILIES)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_model_is_the_reference(name, dtype):
    model, given, outputs = golden(name, dtype)
    agree(model(given), outputs[dtype], dtype)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_every_hidden_state_is_the_reference(name):
    model, given, outputs = golden(name)
    streams = forward(model, given, jnp.ones(outputs["streams"].shape[1], bool), tuple(range(model.config.layers + 1)))
    agree(jnp.stack(list(streams.streams.values())), outputs["streams"])


@pytest.mark.parametrize("name", [name for name in CHECKPOINTS if not name.startswith("vit")])
def test_what_follows_as_padding_changes_nothing(name):
    model, given, outputs = golden(name)
    actual = model(given, jnp.arange(len(given)) < REAL)
    agree(actual[:REAL] if actual.ndim == 2 else actual, outputs["padded"])
