"""The tables of primitives are complete, by JAX's own registry, and each of their entries is what it says."""

import ast
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close, make_input, weights_of
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.interpreters import ad

import duat_jax as duat
from duat_jax.transform.calls import CALLS, programs_in
from duat_jax.transform.identities import fence_p
from duat_jax.transform.primitives import FOLLOWED, LINEAR, NONLINEAR, REFUSED

W = weights_of((6, 6))
INDICES = jnp.array([0, 1, 1, 9])
MESH = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
PARTS = jax.sharding.PartitionSpec
WHOLE = PARTS(None, None)


def names_of(fn, *arguments):
    """Return the name of every primitive in a function's program."""

    def walk(jaxpr):
        for equation in jaxpr.eqns:
            yield equation.primitive.name
            for inner in programs_in(equation):
                yield from walk(inner.jaxpr)

    return set(walk(jax.make_jaxpr(fn)(*arguments).jaxpr))


ROWS = PARTS("i")


def on_devices(fn, out=ROWS, **options):
    return jax.shard_map(fn, mesh=MESH, in_specs=ROWS, out_specs=out, **options)


@partial(jax.custom_vjp)
def with_its_own_rule(x):
    return 2 * x


with_its_own_rule.defvjp(lambda x: (2 * x, None), lambda _, u: (7 * u,))


@jax.custom_jvp
def with_its_own_derivative(x):
    return 2 * x


with_its_own_derivative.defjvp(lambda x, dx: (2 * x[0], 9 * dx[0]))


I, J = jnp.complex128(1 + 2j), jnp.complex128(2 - 1j)

EXAMPLES = {
    "add": lambda x: x + x[::-1],
    "add_any": lambda x: ad.add_jaxvals_p.bind(x, 2 * x),
    "sub": lambda x: x - 3 * x[::-1],
    "neg": lambda x: -x,
    "reduce_sum": lambda x: x.sum(0),
    "cumsum": lambda x: jnp.cumsum(x, 1),
    "reduce_window_sum": lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "VALID"),
    "convert_element_type": lambda x: x.astype(jnp.complex128).real,
    "broadcast_in_dim": lambda x: jnp.broadcast_to(x, (2, 4, 6)),
    "reshape": lambda x: x.reshape(3, 8),
    "transpose": lambda x: x.T,
    "squeeze": lambda x: lax.squeeze(x[:1], (0,)),
    "concatenate": lambda x: jnp.concatenate([x, 2 * x, jnp.zeros((1, 6))]),
    "slice": lambda x: x[1:3, ::2],
    "split": lambda x: sum(jnp.split(x, [2], 1)[1].T),
    "stack": lambda x: jnp.stack([x, 2 * x]),
    "unstack": lambda x: jnp.unstack(x)[2],
    "rev": lambda x: lax.rev(x, (0, 1)),
    "tile": lambda x: jnp.tile(x, (2, 3)),
    "pad": lambda x: lax.pad(x, x[0, 0], ((1, 1, 1), (0, -1, 0))),
    "fft": lambda x: jnp.fft.irfft(jnp.fft.rfft(x)[:, 1:]),
    "copy": lambda x: jnp.array(x, copy=True),
    "copy_p": lambda x: jnp.copy(x),
    "name": lambda x: checkpoint_name(x, "x"),
    "duat_mark": lambda x: duat.stream(x, "x"),
    "duat_fence": lambda x: fence_p.bind(x),
    "reduce_precision": lambda x: lax.reduce_precision(x, 11, 52),
    "real": lambda x: (x.astype(complex) * I).real,
    "imag": lambda x: (x.astype(complex) * I).imag,
    "conj": lambda x: (jnp.conj(x.astype(complex) * I) * J).real,
    "complex": lambda x: (lax.complex(x, 2 * x) * J).imag,
    "optimization_barrier": lambda x: lax.optimization_barrier((x, 2.0))[0],
    "sharding_constraint": lambda x: lax.with_sharding_constraint(x, jax.sharding.NamedSharding(MESH, WHOLE)),
    "device_put": lambda x: jax.device_put(x, jax.devices()[0]),
    "psum": on_devices(lambda x: lax.psum(x, "i"), PARTS(), check_vma=False),
    "psum_invariant": on_devices(lambda x: lax.psum(x, "i"), PARTS()),
    "pvary": on_devices(lambda x: x + lax.pcast(lax.psum(x, "i"), "i", to="varying")),
    "ppermute": on_devices(lambda x: lax.ppermute(x, "i", [(0, 0)])),
    "all_gather": on_devices(lambda x: lax.all_gather(x, "i")),
    "all_to_all": on_devices(lambda x: lax.all_to_all(x, "i", 0, 0, tiled=True)),
    "reduce_scatter": on_devices(lambda x: lax.psum_scatter(x, "i", tiled=True)),
    "gather": lambda x: jnp.take(x, INDICES, axis=0, mode="fill", fill_value=0.0),
    "dynamic_slice": lambda x: lax.dynamic_slice(x, (1, 2), (2, 3)),
    "div": lambda x: x / (2 + W[:4] ** 2),
    "mul": lambda x: W[:4] * x,
    "dot_general": lambda x: x @ W,
    "ragged_dot_general": lambda x: lax.ragged_dot(x, jnp.stack([W, 2 * W]), jnp.array([1, 3])),
    "conv_general_dilated": lambda x: jnp.convolve(x[0], W[0]),
    "dynamic_update_slice": lambda x: lax.dynamic_update_slice(x, 2 * x[:2], (1, 0)),
    "scatter-add": lambda x: x.at[INDICES].add(2 * x),
    "scatter-sub": lambda x: x.at[INDICES].subtract(2 * x),
    "scatter": lambda x: x.at[INDICES].set(2 * x),
    "scatter-mul": lambda x: x.at[jnp.array([0, 2])].multiply(3.0),
    "triangular_solve": lambda x: jax.scipy.linalg.solve_triangular(jnp.tril(W) + 3 * jnp.eye(6), x.T, lower=True),
    "tridiagonal_solve": lambda x: lax.linalg.tridiagonal_solve(jnp.ones(6).at[0].set(0), W[0] + 9, jnp.ones(6), x.T),
    # Those with a rule of their own.
    "jit": jax.jit(lambda x: 2 * x),
    "remat2": jax.checkpoint(lambda x: 2 * x),
    "custom_jvp_call": with_its_own_derivative,
    "custom_vjp_call": with_its_own_rule,
    "scan": lambda x: lax.scan(lambda c, w: (c @ w, c.sum(0)), x, jnp.stack([W, W.T]))[1],
    "cond": lambda x: lax.switch(duat.hold(jnp.int32(1), "i"), [lambda x: x, lambda x: x @ W], x),
    "shard_map": on_devices(lambda x: 2 * x),
    "select_n": lambda x: jnp.where(W[:4] > 0, x, -x),
    "custom_linear_solve": lambda x: jnp.linalg.solve(W + 5 * jnp.eye(6), x.T),
    "integer_pow": lambda x: x**1,
    "reduce": lambda x: lax.reduce(x, x[0, 0], lambda a, b: a + b, (0,)),
    "reduce_window": lambda x: (
        lax.reduce_window(x, x[0, 0], lambda a, b: a + b, (2, 2), (1, 2), "VALID", None, (2, 1)).sum()
        + lax.reduce_window(x, 0.0, lambda a, b: a + b, (2, 2), (1, 2), ((1, 0), (0, 1)), (1, 2), (2, 1))
    ),
}

OF_OTHER_VERSIONS = {
    "pjit": "the name of jit until JAX 0.6",
    "checkpoint": "the user's name of remat2",
    "closed_call": "JAX 0.10: a program that was differentiated",
    "call": "JAX 0.10: as closed_call",
    "eval_jaxpr": "from JAX 0.11 on: as closed_call",
    "expand_dims": "broadcast_in_dim today",
    **dict.fromkeys(("log2", "one_minus_square", "polynomial"), "from JAX 0.11 on: a row in test_secant_primitives.py"),
    "copy_p": "copy today",
    **dict.fromkeys(("stack", "unstack"), "absent in JAX 0.10.0, which writes them as other primitives"),
    "layout_constraint": "layouts exist on accelerators only",
    "with_memory_space_constraint": "memory spaces exist on accelerators only",
    "pbroadcast": "bound by the transpose of psum only",
    "all_gather_invariant": "private to JAX",
    "all_gather_reduced": "its result is of a reduced axis, which only private code makes",
    "reshard": "sharding is explicit on a mesh of its own: tests/interpret/test_devices.py",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_entry_of_the_table_is_what_it_says(name):
    fn, x = EXAMPLES[name], make_input()
    if name not in names_of(fn, x):
        assert name in (*OF_OTHER_VERSIONS, "pvary"), f"the example has no {name}"
    weights = weights_of(fn(x).shape, key=5)

    def readout(x):
        return jnp.vdot(weights, fn(x))

    parts = duat.decompose(readout, x)
    assert parts.completeness.verdict == "holds"
    assert float(parts.unmarked) == 0
    # By another route: column by column of the dense matrix of a function that is linear.
    columns = jnp.stack([fn(one) for one in jnp.eye(24).reshape(24, 4, 6)])
    close(parts.input, jnp.einsum("i...,...->i", columns, weights).reshape(x.shape) * x, layers=20)


def test_every_entry_of_the_table_has_an_example():
    assert {*LINEAR, *FOLLOWED} <= {*EXAMPLES, *OF_OTHER_VERSIONS}


def test_the_tables_are_disjoint():
    assert not {*LINEAR} & {*REFUSED}
    assert not {*FOLLOWED} & {*REFUSED}
    assert not {*LINEAR} & {*FOLLOWED}
    assert {*CALLS} <= FOLLOWED


def test_every_primitive_that_jax_can_transpose_is_followed_or_refused_with_a_reason():
    private = pytest.importorskip("jax._src.interpreters.ad")
    if not hasattr(private, "fancy_transposes"):
        pytest.skip("this version of JAX keeps its registry elsewhere")
    registered = {**ad.primitive_transposes, **private.fancy_transposes}
    # Libraries register primitives of their own, which aren't JAX's.
    names = {p.name for p, rule in registered.items() if getattr(rule, "func", rule).__module__.startswith("jax")}
    unknown = names - {*LINEAR, *FOLLOWED, *REFUSED}
    assert len(names) > 50
    assert not unknown


CONSTANTS = {
    "a fill value": (lambda x: jnp.take(x, INDICES, axis=0, mode="fill", fill_value=7.0), 42.0),
    "get with a fill value": (lambda x: x.at[INDICES].get(mode="fill", fill_value=3.0), 18.0),
    "padding": (lambda x: lax.pad(x, 3.0, ((1, 1, 1), (0, 0, 0))), 90.0),
    "a branch": (lambda x: lax.cond(duat.hold(x.sum() < 99, "c"), lambda x: x + 1, lambda x: x, x), 24.0),
    "the start of a reduction": (lambda x: lax.reduce(x, 5.0, lambda a, b: a + b, (0,)), 30.0),
    "the start of every window": (
        lambda x: lax.reduce_window(x, 5.0, lambda a, b: b + a, (2, 6), (1, 1), "VALID"),
        15.0,
    ),
    "a constant of a jit": (lambda x: jax.jit(lambda x: x + jnp.arange(6.0))(x), 60.0),
    "a constant of a remat": (lambda x: jax.checkpoint(lambda x: x + jnp.arange(6.0))(x), 60.0),
    "what is overwritten": (lambda x: jnp.ones((4, 6)).at[0].set(x[0]), 18.0),
    "a product of constants": (lambda x: x + jnp.full(6, 2.0) * jnp.full(6, 3.0), 144.0),
    "a sum with zeros": (lambda x: x + (jnp.zeros(6) + jnp.ones(6)), 24.0),
    "a function of zeros": (lambda x: x + jnp.exp(jnp.zeros(6)), 24.0),
    "the first entry": (lambda x: x + jnp.full(6, 2.0)[jnp.zeros(6, int)], 48.0),
    "what is set in zeros": (lambda x: x + jnp.zeros(6).at[0].set(5.0), 20.0),
}


@pytest.mark.parametrize("what", CONSTANTS)
def test_what_no_mark_accounts_for_is_unmarked(what):
    fn, expected = CONSTANTS[what]
    parts = duat.decompose(lambda x: fn(x).sum(), make_input())
    close(parts.unmarked, expected)
    assert parts.completeness.verdict == "holds"


ZEROS = {
    "a product": lambda x: x + jnp.zeros(6) * jnp.exp(jnp.ones(6)),
    "a quotient": lambda x: x + jnp.zeros(6) / jnp.exp(jnp.ones(6)),
    "a product of matrices": lambda x: x + jnp.ones((4, 3)) @ jnp.zeros((3, 6)),
    "entries": lambda x: x + jnp.zeros(9)[INDICES[0]],
}


@pytest.mark.parametrize("what", ZEROS)
def test_what_is_zero_by_a_factor_is_no_constant(what):
    assert not duat.record(ZEROS[what])(make_input()).traced.affinity.adds_a_constant(None)


NOT_LINEAR = {
    "a function in a scatter": (lambda x: x.at[0].apply(jnp.tanh), "scatter isn't linear"),
    "a linear function in a scatter": (lambda x: x.at[0].apply(lambda v: 2 * v), "scatter isn't linear"),
    "a product in a scatter": (lambda x: x.at[0].multiply(x[0]), "scatter-mul isn't linear"),
    "a maximum in a scatter": (lambda x: x.at[0].max(x[1]), "scatter-max"),
    "a product over a scan": (lambda x: lax.scan(lambda c, r: (c * r, None), jnp.ones(6), x)[0], "mul isn't linear"),
    "a polynomial": (lambda x: jnp.polyval(jnp.array([1.0, 2.0]), x) * x, "mul isn't linear"),
    "a reduction by another rule": (lambda x: lax.reduce(x, 1.0, lambda a, b: a * b, (0,)), "reduce"),
    "windows that are padded with more than zero": (
        lambda x: lax.reduce_window(x, 5.0, lambda a, b: a + b, (2, 2), (1, 1), "SAME"),
        "reduce_window isn't linear",
    ),
    "two reductions": (
        lambda x: lax.reduce((x, x), (0.0, 0.0), lambda a, b: (a[0] + b[1], a[1] + b[0]), (0,))[0],
        "reduce isn't linear",
    ),
    "a matrix that flows": (lambda x: jnp.linalg.solve(x[:, :4], jnp.ones(4)), "custom_linear_solve isn't linear"),
    "a divisor": (lambda x: 1 / x, "div isn't linear"),
    "a branch that isn't": (
        lambda x: lax.cond(duat.hold(x.sum() > 0, "c"), jnp.tanh, lambda x: x, x),
        "tanh isn't linear",
    ),
    "a choice that flows": (lambda x: lax.cond(x.sum() > 0, lambda x: x, lambda x: -x, x), "mark the condition"),
    "a stopped gradient": (lambda x: x * lax.stop_gradient(x), "stop_gradient isn't linear"),
    "a remainder": (lambda x: x % 1, "rem"),
}


@pytest.mark.parametrize("what", NOT_LINEAR)
def test_what_isnt_linear_is_refused_in_finite_time(what):
    fn, message = NOT_LINEAR[what]
    with pytest.raises(duat.NotAffine, match=message):
        duat.decompose(lambda x: fn(x).sum(), make_input())


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: lax.while_loop(lambda c: c.sum() < 99, lambda c: 2 * c, x),
        lambda x: jax.pure_callback(lambda v: 2 * np.asarray(v), jax.ShapeDtypeStruct(x.shape, x.dtype), x),
    ],
    ids=["while", "callback"],
)
def test_not_supported_yet_is_another_sentence_than_a_mark_that_is_missing(fn):
    with pytest.raises(duat.NotAffine, match="isn't supported yet where something flows") as raised:
        duat.decompose(lambda x: fn(x).sum(), make_input())
    assert "mark" not in str(raised.value)
    for name in REFUSED:
        assert name not in NONLINEAR


def test_parameters_of_primitives_are_read_in_one_file():
    """What a release of JAX may change: whatever else reads an equation's parameters, as `equation.params`."""
    readers = {
        file.name
        for folder in ("duat_jax/transform", "symbolic/evaluation")
        for file in (Path(__file__).parents[2] / folder).glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "params"
    }
    assert readers == {"calls.py", "parameters.py"}
