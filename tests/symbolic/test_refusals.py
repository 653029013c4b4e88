"""What has no symbol, and no exact number, is refused in one line that says what to write."""

import builtins
import math

import jax.numpy as jnp
import numpy as np
import pytest
import sympy
from sympy.core.function import FunctionClass

from symbolic import Block, SymbolicError, activation, diag, hadamard, identity, kronecker, matrix, vec

A = matrix("A", 3, 3)
SQUARE, COLUMN = np.ones((3, 3)), np.ones((3, 1))
ARRAYS = {"numpy": np.asarray, "jax": jnp.asarray}
MEETINGS = {
    "times an array": lambda x, a, c: x.T * a,
    "an array times": lambda x, a, c: a * x,
    "@ an array": lambda x, a, c: x.T @ a,
    "an array @": lambda x, a, c: a @ x,
    "plus an array": lambda x, a, c: x + c,
    "an array plus": lambda x, a, c: c + x,
    "minus an array": lambda x, a, c: x - c,
    "an array minus": lambda x, a, c: c - x,
    "diag": lambda x, a, c: diag(c) * x,
    "vec": lambda x, a, c: x + vec(c),
    "kronecker": lambda x, a, c: kronecker(a, identity(1)) * x,
    "hadamard": lambda x, a, c: hadamard(c, x),
    "activation": lambda x, a, c: x + activation(c),
}
FUNCTIONS = {
    **{name: getattr(builtins, name) for name in ("abs", "round", "float")},
    "max": lambda x: max(x, 0),
    "min": lambda x: min(0, x),
    "if": lambda x: x if x > 0 else 0,
    "%": lambda x: x % 2,
    "//": lambda x: x // 2,
    "1/x": lambda x: 1 / x,
    "x/x": lambda x: x / x,
    "**": lambda x: A**-1 * x,
    **{f"np.{name}": getattr(np, name) for name in ("sum", "mean", "asarray")},
    "np.where": lambda x: np.where(x > 0, x, 0),
    "np.dot": lambda x: np.dot(SQUARE, x),
    **{f"jnp.{name}": getattr(jnp, name) for name in ("abs", "tanh", "sqrt", "sum", "exp")},
    "jnp.maximum": lambda x: jnp.maximum(x, 0),
    "math.tanh": math.tanh,
    "sympy.sqrt": sympy.sqrt,
    "x.norm()": lambda x: x.norm() * x,
    "x.exp()": lambda x: x + x.exp(),
    "x.det()": lambda x: x.T.det() * x,
    "x.inverse()": lambda x: (x * x.T).inverse() * x,
    "a text": lambda x: x * "a",
    "a list": lambda x: x * [1, 2],
    "None": lambda x: x + None,
    "a number": lambda x: x + 1,
}
ROUNDED = {
    "np.sqrt(3)": np.sqrt(3),
    "math.sqrt(3)": math.sqrt(3),
    "1/3": 1 / 3,
    "pi": math.pi,
    "0.1 + 0.2": 0.1 + 0.2,
}
EXACT = {
    "np.sqrt(4)": (np.sqrt(4), 2),
    "np.float32": (np.float32(0.5), sympy.Rational(1, 2)),
    "0.1": (0.1, sympy.Rational(1, 10)),
    "1e-05": (1e-5, sympy.Rational(1, 100000)),
    "an integer of numpy": (np.int64(3), 3),
    "sqrt(3) of sympy": (sympy.sqrt(3), sympy.sqrt(3)),
}


def refusal(layer):
    with pytest.raises(SymbolicError) as refused:
        Block(layer, shape=(3, 1))
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("library", ARRAYS)
@pytest.mark.parametrize("meeting", MEETINGS)
def test_an_array_is_refused_wherever_it_meets_a_symbol(meeting, library):
    array = ARRAYS[library]
    message = refusal(lambda x: MEETINGS[meeting](x, array(SQUARE), array(COLUMN)))
    assert "array" in message


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_without_a_symbol_is_refused(function):
    refusal(FUNCTIONS[function])


METHODS = {f"x.{name}": name for name in dir(A) if not name.startswith("_") and name != "expr_free_symbols"}
UFUNCS = {f"np.{name}": function for name, function in vars(np).items() if isinstance(function, np.ufunc)}
CLASSES = {f"sympy.{name}": kind for name, kind in vars(sympy).items() if isinstance(kind, FunctionClass)}
WALKED = {
    **{name: lambda x, method=method: called(getattr(x, method)) for name, method in METHODS.items()},
    **{name: lambda x, function=function: function(*[x] * function.nin) for name, function in UFUNCS.items()},
    **{name: lambda x, kind=kind: kind(x) for name, kind in CLASSES.items()},
}


def called(attribute):
    return attribute() if callable(attribute) else attribute


def test_every_method_and_function_gives_a_block_or_is_refused():
    raw, taken = {}, []
    for name, layer in WALKED.items():
        for whole in (layer, lambda x, layer=layer: x + A * layer(x)):
            try:
                Block(whole, shape=(3, 3))
                taken.append(name)
            except SymbolicError as refused:
                assert "\n" not in str(refused), name
            except Exception as error:  # every other error is a fault
                raw[name] = repr(error)
    assert not raw
    assert {"x.as_expr", "x.simplify"} <= set(taken) and len(WALKED) > 300


@pytest.mark.parametrize("number", ROUNDED)
def test_a_rounded_number_is_refused(number):
    assert "is a rounded number" in refusal(lambda x: ROUNDED[number] * x)
    assert "is a rounded number" in refusal(lambda x: x / ROUNDED[number])


@pytest.mark.parametrize("number", EXACT)
def test_a_number_is_exact(number):
    written, meant = EXACT[number]
    assert (written * A).args[0] == meant
    assert (A / written).args[0] == 1 / sympy.sympify(meant)


LAYERS = {
    "two arguments": (lambda x, m: x, "function of \\(x, m\\)"),
    "no argument": (lambda: A, "function of \\(\\)"),
    "two kinds": ([lambda x: x, lambda x: 2 * x], "layers of 2 kinds"),
    "no function": (A, "give a function"),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_is_a_function_of_the_stream_alone(layer):
    function, words = LAYERS[layer]
    with pytest.raises(SymbolicError, match=words):
        Block(function, shape=(3, 1))


def test_layers_of_two_kinds_that_take_turns_are_one_block():
    F, G, V = matrix("F", 5, 3), matrix("G", 3, 5), matrix("V", 3, 3)

    def first(x):
        return x + G * activation(F * x)

    def second(x):
        return x + V * x

    assert Block(lambda x: second(first(x)), shape=(3, 1)).prove().proved
