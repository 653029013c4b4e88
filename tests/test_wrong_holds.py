"""No drawn answer that holds is further from an independent evaluation than it says; planted ones are found."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import near

import duat_jax as duat
from benchmarks.wrong_holds import counted
from duat_jax.forms.completeness import Completeness
from fuzzing import model_cases, models, programs
from fuzzing.rounding import carried
from fuzzing.verdicts import ROUNDED, Tally, inputs

SMALL = model_cases.Sizes(texts=20, pairs=2, files=10, results=10)


def found(tallies):
    return [wrong for tally in tallies.values() for wrong in tally.wrong]


@pytest.mark.parametrize("table", ["OF_ONE", "OF_TWO", "TO_ONE_NUMBER"])
def test_every_operation_is_the_same_in_both_libraries(table):
    constants, pair = programs.constants(jnp.float64), inputs(0, 40, programs.SHAPE)
    values = [np.clip(v, -20, 20) for v in pair[: 2 if table == "OF_TWO" else 1]]
    operations = getattr(programs, table)
    functions = {name: function for name, (function, _) in operations.items()}
    computed = jax.jit(lambda *values: {name: jax.vmap(f)(*values) for name, f in functions.items()})(*values)
    for name, (_, twin) in operations.items():
        expected = np.asarray(computed[name])
        actual = np.broadcast_to(twin(*(v.astype(programs.LONG) for v in values), constants), expected.shape)
        near(actual.astype(np.float64), expected, within=1e-12 * max(1, np.abs(expected).max()), message=name)


@pytest.mark.parametrize("seed", range(4))
def test_a_drawn_checkpoint_is_the_same_in_numpy(tmp_path, seed):
    models.write(tmp_path, seed)
    ids = [3, 1, 0, 22, 3]
    near(duat.load(tmp_path, dtype="float64")(jnp.array(ids)), models.read(tmp_path)(ids), within=1e-12)


@pytest.mark.parametrize(
    ("sum", "rounding", "wrong", "rounded"),
    [(1.0, 0, 0, 0), (1.1, 0, 1, 0), (1.1, 0.05, 0, 1), (1.1, 0.03, 1, 0), (np.nan, 0, 1, 0)],
)
def test_a_hold_is_wrong_if_its_sum_is_further_off_than_it_says(sum, rounding, wrong, rounded):
    tally = Tally()
    numbers = map(np.float64, (sum, sum, 0, 1e-3, 1))
    tally.judge("planted", Completeness(*numbers), 1.0, lambda: rounding)
    assert (len(tally.wrong), tally.counts[ROUNDED], tally.cases) == (wrong, rounded, 1)


def test_a_slice_has_cases_of_every_kind_and_no_wrong_hold():
    tallies = counted(100, seed=1, batch=30, sizes=SMALL)
    assert all(tally.counts["holds"] for tally in tallies.values())
    assert tallies["files"].counts["refused"] and tallies["results"].counts["refused"]
    assert not found(tallies)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_larger_slices_have_no_wrong_hold(seed):
    assert not found(counted(20_000, seed=seed, batch=200, sizes=SMALL._replace(texts=1000)))


def test_a_value_that_isnt_the_functions_is_found(monkeypatch):
    """The sum agrees with the value that the answer states, and both are off by four tolerances."""
    plain = duat.decompose

    def planted(fn, x, **options):
        found = plain(fn, x, **options)
        value, total, _, tolerance, _ = found.completeness[:5]
        return found._replace(
            completeness=found.completeness._replace(value=value + 4 * tolerance, sum=total + 4 * tolerance)
        )

    monkeypatch.setattr(duat, "decompose", planted)
    wrong = found(counted(80, seed=1, batch=30, sizes=SMALL))
    assert len(wrong) > 20 and all("decompose" in each.case for each in wrong)


def test_what_rounding_carries_is_seen_where_no_input_shows_it():
    """Numbers without their mean sum to zero at all inputs; what single precision computes is rounding."""
    x = inputs(0, 40, (12,))[0].astype(np.float32)

    def evaluate(numbers):
        z = numbers(x.astype(programs.LONG))
        return (z - z.mean(-1, keepdims=True)).sum(-1) / np.abs(x).max(-1)

    seen = carried(evaluate, 0, float(np.finfo(np.float32).eps), seed=0).max(0)
    computed = (x - x.mean(-1, keepdims=True)).sum(-1) / np.abs(x).max(-1)
    assert evaluate(np.asarray).max() < 1e-17
    assert (abs(computed) <= 3 * seen).all() and (seen < 1e-5).all()


@pytest.mark.parametrize("table", ["OF_ONE", "OF_TWO", "TO_ONE_NUMBER"])
def test_every_operation_but_choices_rounds(table):
    chance, constants = np.random.default_rng(0), programs.constants(jnp.float64)
    values = chance.normal(size=(1 + (table == "OF_TWO"), 5, *programs.SHAPE)).astype(programs.LONG)

    def largest(twin):
        exact = twin(*values, constants)
        return carried(lambda numbers: twin(*map(numbers, values), constants), exact, 1e-7, seed=0).max()

    off = {name: largest(twin) for name, (_, twin) in getattr(programs, table).items()}
    assert {name for name, size in off.items() if size == 0} == CHOICES.intersection(off)
    assert all(size < 1e-5 for size in off.values()), off


CHOICES = {
    "relu",
    "floor",
    "sort",
    "gathered",
    "reversed",
    "size",
    "rounded",
    "sign",
    "running maximum",
    "replaced row",
}
CHOICES |= {"maximum", "minimum", "entry"}


def test_of_numbers_near_the_smallest_normal_one_the_tolerance_counts_what_becomes_zero():
    """Products below it are zero, and the sum of the others is off by as much."""
    x = jnp.array([1.3e-19, 1e-19, 3e-20, 7e-22], jnp.float32)
    found = duat.decompose(lambda x: (duat.hold(x, "factor") * x).sum(), x).completeness
    assert found.tolerance >= np.finfo(np.float32).tiny
    t = Tally()
    exact = (np.asarray(x).astype(np.longdouble) ** 2).sum()
    t.judge("underflow", found, exact, lambda: 0)
    assert not t.wrong
