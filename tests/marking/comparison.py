"""How the parts of two functions are compared, and how a function loses its marks."""

from contextlib import contextmanager
from unittest.mock import patch

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import near

import duat_jax as duat
from duat_jax.forms.completeness import HOLDS


def quick_or_slow(names, quick):
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


def parts_of(fn, x):
    """Return the decomposition of a function, which has to hold, and what isn't attributed."""
    found = duat.decompose(fn, x)
    assert found.completeness.verdict == HOLDS
    return found, {key for key in found.offsets if key.name == "not_attributed"}


def entries(parts):
    return np.concatenate([np.zeros(0), *(np.ravel(part) for part in parts.values())])


def assert_same_parts(one, other, within=1e-12):
    """Inputs and terms have the same parts, whatever these are called and however often a scan repeats a mark."""
    near(one.input, other.input, within)
    near(entries(one.terms), entries(other.terms), within)


@contextmanager
def without_marks():
    with patch("duat_jax.transform.marks.bind_mark", lambda x, *_: jnp.asarray(x)):
        yield


def stripped(fn):
    """Return a function without the marks that it has."""

    def unmarked(x):
        with without_marks():
            return fn(x)

    return unmarked
