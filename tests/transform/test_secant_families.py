"""The secant sums on every family of models: of the input, and at every layer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden_checkpoints import CHECKPOINTS, golden
from helpers import weights_of

import duat_jax as duat
from duat_jax.forms.completeness import HOLDS

TOLERANCE = {"float32": 1e-5, "float64": 1e-12}
"""Of the difference."""
FAMILIES = [name for name in CHECKPOINTS if "-" not in name]


def contrast(name, dtype):
    """Return a read-out of everything that a model returns, a text or image, and the same backwards."""
    model, given, _ = golden(name, dtype)
    x, y = model.embed(given), model.embed(jnp.flip(given))
    readout = weights_of(model.output(x).shape).astype(dtype)
    return lambda x: jnp.vdot(readout, model.output(x)), x, y


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", FAMILIES)
def test_parts_sum_to_the_difference_at_every_layer(name, dtype):
    fn, x, y = contrast(name, dtype)
    found = jax.jit(duat.secant(fn, at=("stream",)))(x, y)
    assert found.completeness.verdict == HOLDS
    difference, discontinuities = float(fn(x) - fn(y)), sum(map(float, found.discontinuities.values()))
    # Parts and jumps may be larger than what they sum to.
    allowed = TOLERANCE[dtype] * max(abs(difference), float(found.completeness.largest))
    assert abs(found.parts.sum() + discontinuities - difference) <= allowed
    if not any(found.discontinuities.values()):
        for key, parts in found.contributions.streams.items():
            assert abs(parts.sum() - difference) <= allowed, key
        assert len(found.contributions.streams) > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_held_moves_and_everything_still_sums(name):
    fn, x, y = contrast(name, "float64")
    found = jax.jit(duat.secant(fn, held=True))(x, y)
    assert found.completeness.verdict == HOLDS
    parts = [found.parts, *found.moved.values(), *found.discontinuities.values()]
    difference = float(fn(x) - fn(y))
    assert abs(sum(float(part.sum()) for part in parts) - difference) <= 1e-12 * max(1, abs(difference))
    assert any(np.abs(part).max() > 1e-3 * abs(difference) for part in found.moved.values())
