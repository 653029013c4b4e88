"""Automatic marks keep the values of random programs; parts and collapse sum to what the plain function computes."""

import jax
import pytest
from helpers import near

import duat_jax as duat
from duat_jax.forms.completeness import HOLDS
from tests.marking.comparison import assert_same_parts, parts_of
from tests.marking.random_programs import X, program, rewritten

QUICK, ALL = 3, 60
SEEDS = [pytest.param(k, marks=[pytest.mark.slow] * (k >= QUICK)) for k in range(ALL)]


@pytest.mark.filterwarnings("ignore:all of the result is")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_program_is_decomposed(seed):
    fn, names = program(seed)
    expected, value = jax.jit(lambda x: (fn(x), duat.auto(fn)(x)))(X)
    near(value, expected, 1e-12)
    found = duat.decompose(fn, X, marks="auto")
    assert found.completeness.verdict == HOLDS, names
    parts = (found.input, *found.terms.values(), *found.offsets.values(), found.unmarked)
    near(sum(float(part.sum()) for part in parts), expected, 1e-11)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:all of the result is")
@pytest.mark.parametrize("seed", range(ALL))
def test_a_random_program_is_collapsed(seed):
    """Some take the logarithm of a sum of exponentials, which isn't finite at zero."""
    fn, names = program(seed)
    form = duat.collapse(fn, X, marks="auto")
    near(form.linear(X) + form.bias, jax.jit(fn)(X), 1e-11)
    assert form.completeness.verdict == HOLDS, names


@pytest.mark.filterwarnings("ignore:all of the result is")
@pytest.mark.parametrize("rule", ["swapped", "reassociated"])
@pytest.mark.parametrize("seed", SEEDS)
def test_products_and_sums_that_are_written_otherwise_have_the_same_parts(seed, rule):
    fn, _ = program(seed)
    other = rewritten(fn, rule)
    near(other(X), fn(X), 1e-12)
    assert_same_parts(*(parts_of(duat.auto(f), X)[0] for f in (fn, other)), within=1e-11)
