"""The golden checkpoints, and what the reference computes with them."""

import functools

import jax.numpy as jnp
import numpy as np
from cases import GOLDEN
from helpers import near

import duat_jax as duat

CHECKPOINTS = sorted(path.name for path in GOLDEN.iterdir())
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}


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
