"""A function that is asked again is traced again, so that nothing is stale, and compiled once for each shape."""

import gc
import weakref
from contextlib import contextmanager
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import close, far, make_stack

import duat_jax as duat
import duat_jax.transform.compiled as compilation
from duat_jax.errors import UnsupportedProgram
from duat_jax.transform.program import Program, trace

X = jnp.array([1.0, -2.0, 3.0])
WEIGHT = jnp.ones((3, 3))
FACTOR = 2.0


def test_a_trace_that_fails_leaves_a_module_as_it_was():
    for module in (
        nnx.Linear(3, 3, rngs=nnx.Rngs(0)),
        nnx.Sequential(nnx.Linear(3, 3, rngs=nnx.Rngs(0)), nnx.Dropout(0.5, deterministic=True)),
    ):
        x = jnp.ones(3, jnp.float32)
        expected = module(x)
        with pytest.raises(UnsupportedProgram, match=r"nnx\.jit"):
            duat.secant(lambda x, module=module: nnx.jit(lambda m, y: m(y).sum())(module, x))(x, 0 * x)
        assert (module(x) == expected).all()


class Net(nnx.Module):  # noqa: D101
    def __init__(self):
        self.weight = nnx.Param(jnp.ones((3, 3)))

    def __call__(self, x):  # noqa: D102
        return x + duat.term(jax.nn.relu, x @ self.weight[...], "relu") * FACTOR


class Plain:
    """What is no pytree."""

    def __init__(self):
        self.weight = jnp.ones((3, 3))

    def __call__(self, x):  # noqa: D102
        return x @ self.weight


# --- What a function reaches is read anew ---------------------------------------------------------------------------


def of_module(use):
    """Return a maker of a function of a module, and of what changes its weight in place."""

    def make():
        net = Net()

        def change():
            net.weight[...] = net.weight[...] * 3

        return use(net), change

    return make


def of_globals():
    def change():
        global WEIGHT, FACTOR
        WEIGHT, FACTOR = WEIGHT * 3, FACTOR + 1

    return lambda x: FACTOR * (x @ WEIGHT), change


def of_cells():
    weight, others, factor = jnp.ones((3, 3)), [jnp.ones(3), {"b": jnp.zeros(3)}], 2.0

    def change():
        nonlocal weight, factor
        weight, factor = weight * 3, factor + 1
        others[1]["b"] = others[1]["b"] + 1

    return lambda x: factor * (x @ weight) * others[0] + others[1]["b"], change


def of_numpy(use):
    def make():
        weight = np.ones((3, 3))

        def change():
            weight[0] += 1

        return use(weight), change

    return make


def of_an_arrays_value():
    sign = jnp.ones(())

    def change():
        nonlocal sign
        sign = -sign

    return lambda x: x if float(sign) > 0 else x**2, change


def of_a_derivative():
    weight = jnp.ones((3, 3))

    @jax.custom_jvp
    def fn(x):
        return x @ weight

    fn.defjvp(lambda primals, tangents: (fn(*primals), tangents[0] @ weight))

    def change():
        nonlocal weight
        weight = weight * 3

    return fn, change


def of_an_object():
    plain = Plain()

    def change():
        plain.weight = plain.weight * 3

    return plain, change


def of_functions_in_a_list():
    layers = [jnp.tanh]
    return (lambda x: layers[-1](x)), lambda: layers.append(jnp.tanh if layers[-1] is jnp.sin else jnp.sin)


CAPTURED = {
    "a module": of_module(lambda net: net),
    "a method": of_module(lambda net: net.__call__),
    "a partial function": of_module(lambda net: partial(lambda net, x: net(x), net)),
    "a default": of_module(lambda net: lambda x, net=net: net(x)),
    "a function mapped": of_module(lambda net: lambda x: jax.vmap(net)(x[None])),
    "a function with checkpoints": of_module(lambda net: lambda x: jax.checkpoint(lambda x: net(x))(x)),
    "a function scanned": of_module(lambda net: lambda x: jax.lax.scan(lambda x, _: (net(x), None), x, length=2)[0]),
    "a function compiled inside": of_module(lambda net: lambda x: jax.jit(lambda x: net(x))(x)),
    "a function edited": of_module(lambda net: duat.edit(net, {})),
    "globals": of_globals,
    "cells": of_cells,
    "numpy": of_numpy(lambda weight: lambda x: x @ weight + np.tanh(weight).sum()),
    "numpy, compiled inside": of_numpy(lambda weight: lambda x: jax.jit(lambda x: x @ weight)(x)),
    "an array's value": of_an_arrays_value,
    "a derivative of its own": of_a_derivative,
    "an object": of_an_object,
    "functions in a list": of_functions_in_a_list,
}


@pytest.mark.parametrize("name", CAPTURED)
def test_what_a_function_reaches_is_read_at_every_call(name):
    fn, change = CAPTURED[name]()
    for _ in range(3):
        before = np.asarray(fn(X))
        close(duat.record(fn)(X).value, before)
        close(duat.record(fn)(X).value, before)
        change()
        assert far(before, fn(X))


# --- Which programs are equal ---------------------------------------------------------------------------------------


def in_scope(name):
    def fn(x):
        with jax.named_scope(name):
            return duat.hold(x, "h")

    return fn


def by_a_rule(slope):
    @jax.custom_jvp
    def fn(x):
        return x * 2

    fn.defjvp(lambda primals, tangents: (fn(*primals), tangents[0] * slope))
    return fn


def with_constant(constant):
    return lambda x: jax.jit(lambda x: x + constant)(x)


LAYER, OTHER = jnp.ones((3, 3)), jnp.ones((3, 3)) * 2
FUNCTIONS = {
    "literal": lambda k: lambda x: x * k,
    "literal in a scan": lambda k: lambda x: jax.lax.scan(lambda x, _: (x * k, x), x, length=2),
    "literal in a branch": lambda k: lambda x: jax.lax.cond(x[0] > 0, lambda x: x * k, lambda x: x, x),
    "literal in a loop": lambda k: lambda x: jax.lax.fori_loop(0, 3, lambda _, x: x * k, x),
    "literal compiled inside": lambda k: lambda x: jax.jit(lambda x: x * k)(x),
    "literal recomputed": lambda k: lambda x: jax.checkpoint(lambda x: x * k)(x),
    "derivative": by_a_rule,
}
DIFFERENT = {
    **{f"{name}, {a} and {b}": (make(a), make(b)) for name, make in FUNCTIONS.items() for a, b in ((2.0, 3.0),)},
    "minus zero": (FUNCTIONS["literal"](0.0), FUNCTIONS["literal"](-0.0)),
    "dtype": (lambda x: x.astype("float32"), lambda x: x.astype("float16")),
    "parameter": (lambda x: x**2, lambda x: x**3),
    "primitive": (jnp.sin, jnp.cos),
    "operands": (lambda x: x[0] - x[1], lambda x: x[1] - x[0]),
    "result": (lambda x: (x, x + 1), lambda x: (x + 1, x)),
    "structure": (lambda x: (x, x), lambda x: [x, x]),
    "name of a mark": (lambda x: duat.hold(x, "a"), lambda x: duat.hold(x, "b")),
    "kind of a mark": (lambda x: duat.hold(x, "a"), lambda x: duat.offset(x, "a")),
    "scope": (in_scope("a"), in_scope("b")),
    "precision": tuple(partial(jnp.dot, LAYER, precision=precision) for precision in ("highest", "default")),
    "constant compiled inside": (with_constant(np.ones(3)), with_constant(np.array([1.0, 1.0, 2.0]))),
    "line": (
        lambda x: jnp.sin(x) + 1,
        lambda x: jnp.sin(x) + 1,
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_programs_that_differ_are_not_equal(name):
    first, second = (trace(fn, X)[0] for fn in DIFFERENT[name])
    assert first != second and second != first


@pytest.mark.parametrize("name", FUNCTIONS)
def test_programs_of_one_content_are_equal_whatever_object_the_function_is(name):
    for k in (2.0, float("nan")):
        first, second = (trace(FUNCTIONS[name](k), X)[0] for _ in range(2))
        assert first == second and hash(first) == hash(second)


@pytest.mark.parametrize(
    "activation",
    [jax.nn.relu, jax.nn.gelu, jax.nn.silu, jax.nn.softplus, jax.nn.elu, jax.nn.softmax, jnp.logaddexp.reduce],
)
def test_activations_with_derivatives_of_their_own_are_equal(activation):
    assert trace(lambda x: activation(x), X)[0] == trace(lambda x: activation(x), X)[0]


def test_other_shapes_and_structures_are_other_programs():
    programs = [trace(lambda x: jax.tree.leaves(x)[0] * 2, x)[0] for x in (X, X[:2], X[None], X.astype("float32"), 1.0)]
    assert len(set(programs)) == len(programs)


def test_a_jump_is_named_by_the_line_of_the_function_that_is_asked():
    first = lambda x: jnp.where(x > 0, x, 2 * x).sum()  # noqa: E731
    second = lambda x: jnp.where(x > 0, x, 2 * x).sum()  # noqa: E731
    for fn in (first, second):
        line = fn.__code__.co_firstlineno
        assert all(f"test_programs.py:{line} " in name for name in duat.secant(fn)(X, -X).discontinuities)


# --- What is compiled and kept --------------------------------------------------------------------------------------


@contextmanager
def counted():
    """Count the programs that are compiled meanwhile, and those that are alive after it."""
    numbers = {"compiled": 0, "alive": 0}

    def listen(event, _, **__):
        numbers["compiled"] += event == "/jax/core/compile/backend_compile_duration"

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield numbers
    jax.monitoring.unregister_event_duration_listener(listen)
    gc.collect()
    numbers["alive"] = sum(isinstance(each, Program) for each in gc.get_objects())


def scanned(x):
    return jax.lax.scan(lambda x, _: (STACK(x), None), x, None, length=2)[0]


STACK = make_stack("pre-norm", layers=1, activation="relu")
QUESTIONS = {
    "record": lambda x: duat.record(STACK)(x).value,
    "record a scan": lambda x: duat.record(scanned)(x).value,
    "secant": lambda x: duat.secant(lambda x: STACK(x)[-1].sum(), at="stream", held=True)(x, 2 * x).parts,
    "contributions": lambda x: duat.contributions(duat.record(STACK)(x), jnp.ones_like(x)).input,
    "unroll": lambda x: (duat.unroll(STACK, x).evaluate(), duat.unroll(STACK, x).bias()),
    "collapse": lambda x: duat.collapse(STACK, x).bias,
    "decompose": lambda x: duat.decompose(lambda x: STACK(x)[-1].sum(), x).input,
    "linear map": lambda x: duat.linear_map(duat.record(STACK)(x))(x),
    "linear map, transposed": lambda x: duat.linear_map(duat.record(STACK)(x)).T(x),
    "replay": lambda x: duat.replay(STACK, duat.record(STACK)(x).dynamics)(x),
    "replay a scan": lambda x: duat.replay(scanned, duat.record(scanned)(x).dynamics)(x),
    "edit": lambda x: duat.edit(STACK, {})(x),
    "edit a scan": lambda x: duat.edit(scanned, {})(x),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_loop_over_texts_compiles_once_for_each_length(name):
    texts = [jax.random.normal(jax.random.key(n), (n, 6)) for n in ((2, 3, 4) if name == "record" else (2, 3))]
    with counted() as first:
        for x in texts:
            jax.block_until_ready(QUESTIONS[name](x))
    texts = [2 * x for x in texts]
    with counted() as later:
        for x in texts * 3:
            jax.block_until_ready(QUESTIONS[name](x))
    assert later == {"compiled": 0, "alive": first["alive"]}


@pytest.mark.slow
def test_a_thousand_texts_of_ten_lengths_take_no_memory():
    texts = [jax.random.normal(jax.random.key(n), (n, 6)) for n in range(2, 12)]

    def run(times):
        for _ in range(times):
            for x in texts:
                duat.decompose(lambda x: STACK(x)[-1].sum(), x)
        gc.collect()
        return len(jax.live_arrays())

    with counted() as first:
        arrays = run(1)
    with counted() as second:
        assert run(100) == arrays
    assert second == {"compiled": 0, "alive": first["alive"]}


def by_a_rule_of_its_own():
    """Return a function whose derivative is another object at each call, so that its programs are never equal."""

    @jax.custom_vjp
    def fn(x):
        return x * 2

    fn.defvjp(lambda x: (fn(x), None), lambda _, g: (g * 2,))
    return fn


def test_programs_that_are_never_equal_are_forgotten(monkeypatch):
    monkeypatch.setattr(compilation, "KEPT", 3)
    double = compilation.compiled(lambda program, x: 2 * x, static_argnames=("program",))
    with counted() as before:
        pass
    for _ in range(8):
        program = trace(by_a_rule_of_its_own(), X)[0]
        np.testing.assert_array_equal(double(program, X), 2 * X)
    del program
    with counted() as after:
        pass
    assert before["alive"] <= after["alive"] <= before["alive"] + 3


def test_a_program_keeps_no_weight():
    net = Net()
    weight = weakref.ref(net.weight[...])
    duat.decompose(lambda x: net(x).sum(), X)
    assert weight() is not None
    del net
    gc.collect()
    assert weight() is None


LANGUAGE = {
    "explain": lambda model, ids: duat.explain(model, ids, [7, duat.targets.LogProbability(3)]),
    "contrast": lambda model, ids: duat.contrast(model, ids, [*ids[:-1], 9], 7),
    "intervene": lambda model, ids: duat.intervene(model, ids, duat.edits.Neurons(0, 3).set(0), 7),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LANGUAGE)
def test_a_loop_over_a_models_texts_compiles_once_for_each_bucket(name):
    model = duat.load()
    texts = [[5 + i for i in range(n)] for n in (3, 20)]
    with counted() as first:
        for ids in texts:
            LANGUAGE[name](model, ids)
    with counted() as later:
        for ids in texts * 3:
            LANGUAGE[name](model, ids)
    assert later == {"compiled": 0, "alive": first["alive"]}
