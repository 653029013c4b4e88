"""Automatic marks keep the values of random programs, and the parts sum to what the plain function computes."""

import jax
import pytest
from helpers import near

import duat_jax as duat
from duat_jax.forms.completeness import HOLDS
from tests.marking.random_programs import X, program

QUICK, ALL = 3, 60


@pytest.mark.filterwarnings("ignore:all of the result is")
@pytest.mark.parametrize("seed", [pytest.param(k, marks=[pytest.mark.slow] * (k >= QUICK)) for k in range(ALL)])
def test_a_random_program_is_decomposed(seed):
    fn, names = program(seed)
    expected, value = jax.jit(lambda x: (fn(x), duat.auto(fn)(x)))(X)
    near(value, expected, 1e-12)
    found = duat.decompose(fn, X, marks="auto")
    assert found.completeness.verdict == HOLDS, names
    parts = (found.input, *found.terms.values(), *found.offsets.values(), found.unmarked)
    near(sum(float(part.sum()) for part in parts), fn(X), 1e-11)
