"""The tables of primitives hold whatever the parameters are: each parameter of each entry is given two values."""

from collections import defaultdict

import jax
import jax.numpy as jnp
import pytest
from helpers import close, near
from parameters_of_primitives import ELSEWHERE, LINEAR, NOT_LINEAR, OF_COMPLEX_NUMBERS_AND_DEVICES, X, Y, w
from test_primitives import EXAMPLES, OF_OTHER_VERSIONS
from test_secant_primitives import JUMPING, NONLINEAR

import duat_jax as duat
from duat_jax.forms import cancellation
from duat_jax.transform import definitions, double_precision, primitives
from duat_jax.transform.calls import CALLS, programs_in
from duat_jax.transform.program import trace
from duat_jax.transform.secant import elementwise_secants, rules, unrecognised_softmax

TABLES = {
    *(*primitives.LINEAR, *primitives.FOLLOWED, *primitives.TRANSPOSABLE),
    *(*primitives.ELEMENTWISE, *primitives.KEEPS_PLACE, *primitives.MIXES_AXES),
    *(*rules.RULES, *rules.MAPPED, *rules.RELAYING),
    *(*elementwise_secants.CLOSED, *elementwise_secants.SLOPED, *elementwise_secants.ROUNDING),
    *(*unrecognised_softmax.SUMS, *unrecognised_softmax.KEEPS_SUMS, *cancellation.SUMS),
    *(*double_precision.SCATTERS, *double_precision.EXACT, *definitions.KEEPS_NUMBERS, *CALLS),
}
"""Every primitive that a table knows by its name."""

OF_JAX_ITSELF = frozenset(
    (
        *("jaxpr", "call_jaxpr", "update_jaxpr", "jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "consts", "num_consts"),
        *("update_consts", "perturb_singular", "differentiated", "group_offset", "conjugate_a", "batch_axes"),
        *("sharding", "out_sharding", "layout", "out_shardings", "out_layouts", "context_mesh", "ctx_mesh", "mesh"),
        *("devices", "srcs", "in_specs", "manual_axes", "newly_manual_axes", "axis_name", "axis_size"),
        *("unconstrained_dims", "compiler_options_kvs", "keep_unused", "inline", "weak_type", "input_dtype"),
        "axis_index_groups",
    )
)
"""Parameters that are programs, that say on which devices an array lies, that JAX sets, or of complex numbers."""


def equations_of(jaxpr):
    """Return every equation of a program, also of those inside of it."""
    inner = (inside for equation in jaxpr.eqns for inside in programs_in(equation))
    return [*jaxpr.eqns, *(equation for inside in inner for equation in equations_of(inside.jaxpr))]


def test_every_parameter_of_every_primitive_has_two_values():
    values = defaultdict(lambda: defaultdict(set))
    for table in (EXAMPLES, NONLINEAR, JUMPING, LINEAR, OF_COMPLEX_NUMBERS_AND_DEVICES, NOT_LINEAR):
        for fn in table.values():
            for equation in equations_of(jax.make_jaxpr(fn)(X).jaxpr):
                for parameter, value in {"": None, **equation.params}.items():
                    values[equation.primitive.name][parameter].add(repr(value))
    assert TABLES - {*values} <= {*OF_OTHER_VERSIONS}
    single = {(name, parameter) for name in TABLES for parameter, seen in values[name].items() if len(seen) < 2}
    of_one_axis = {(name, "axes") for name in ("psum", "psum_invariant", "pvary")}
    assert {pair for pair in single - of_one_axis if pair[1] not in {"", *OF_JAX_ITSELF}} == set()


def number(name, fn):
    """Return a function that reads all results of another one as one number."""

    def read(x):
        with jax.named_scope(name):
            results = [z.astype(float) for z in jax.tree.leaves(fn(x))]
            return sum(jnp.vdot(w(z, *z.shape), z) for z in results)

    return read


def numbers(table):
    """Return a function from an input to the number of every case."""
    return lambda x: {name: number(name, fn)(x) for name, fn in table.items()}


def total(table):
    """Return the sum of the numbers of all cases, of an input for each."""
    return lambda x: sum(number(name, fn)(x[name]) for name, fn in table.items())


@pytest.mark.slow
@pytest.mark.parametrize("table", [LINEAR, NOT_LINEAR], ids=["linear", "not linear"])
def test_parts_and_discontinuities_are_the_difference_and_multipliers_of_near_points_the_slope(table):
    plain, secant = jax.jit(numbers(table)), jax.jit(duat.secant(total(table)))
    step = 1e-5 * (X - Y)
    after, before = (plain(X + sign * 1e-5 * ELSEWHERE) for sign in (1, -1))
    for a, b in ((X, Y), (X + step, X - step))[: 1 if table is LINEAR else 2]:
        found, first, second = secant(dict.fromkeys(table, a), dict.fromkeys(table, b)), plain(a), plain(b)
        for name, parts in found.parts.items():
            jumps = [part for label, part in found.discontinuities.items() if label.startswith(f"{name}:")]
            allowed = 1e-12 * (1 + abs(first[name]) + abs(second[name]))
            near(parts.sum() + sum(jumps), first[name] - second[name], allowed, name)
            if a is not X and not any(jumps):
                slope = (after[name] - before[name]) / 2e-5
                near(jnp.vdot(found.multiplier[name], ELSEWHERE), slope, 1e-7 * (1 + abs(slope)), name)
        assert found.completeness.within


@pytest.mark.slow
def test_parts_of_a_linear_operation_are_those_of_its_matrix():
    table = LINEAR | OF_COMPLEX_NUMBERS_AND_DEVICES
    plain, parts = jax.jit(numbers(table)), duat.decompose(total(table), dict.fromkeys(table, X))
    moved, zero = plain(ELSEWHERE), plain(0 * X)
    assert parts.completeness.verdict == "holds"
    for name, part in parts.input.items():
        close(jnp.vdot(part / X, ELSEWHERE), moved[name] - zero[name], layers=20)


@pytest.mark.slow
def test_a_program_in_single_precision_is_evaluated_in_double():
    table, x = LINEAR | NOT_LINEAR, X.astype(jnp.float32)

    def doubled(fn):
        program, constants = trace(fn, x)
        return double_precision.DoublePrecision(program.jaxpr, constants)([x], {})[0]

    found = jax.jit(lambda: {name: doubled(number(name, fn)) for name, fn in table.items()})()
    for name, expected in jax.jit(numbers(table))(X).items():
        near(found[name], expected, 1e-12 * (1 + abs(expected)), name)
