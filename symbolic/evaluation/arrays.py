"""Find the arrays of a block's letters among the given weights and the held values, and read the sizes off them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array
from sympy import Integer, Symbol, solve, sympify

from duat_jax.transform.recording import Recording
from symbolic.errors import NumbersDiffer, ShapeMismatch, SymbolicError, in_one_line
from symbolic.evaluation.bridge import name_of, needed
from symbolic.evaluation.code import of_user
from symbolic.evaluation.flow import Values
from symbolic.expressions.parameter import Held, Inner, Parameter, latin
from symbolic.theorems.residual_stack import i


class _Read(dict[str, Array]):
    """The held values of a function by name, which notes the names that are read."""

    def __init__(self, held: Mapping[str, Array]) -> None:
        super().__init__(held)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Array:
        self.names.add(name)
        return super().__getitem__(name)

    def __missing__(self, name: str) -> Array:
        raise SymbolicError(f"nothing called {name} is held in the function: held are {', '.join(self) or 'none'}")


def times(shape: tuple[Any, ...]) -> str:
    """Return a shape in words."""
    return " × ".join(map(str, shape)) or "a number"


def array_of(name: str, value: Any) -> Array:
    """Return an array if numbers are given."""
    try:
        return jnp.asarray(value)
    except (TypeError, ValueError):
        raise SymbolicError(f"{name} is {in_one_line(value)}: give an array of numbers") from None


def stream_of(name: str, value: Any) -> Array:
    """Return the array of a stream if its numbers needn't be whole."""
    array = array_of(name, value)
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        raise SymbolicError(f"{name} is of {array.dtype}: give it a floating-point dtype")
    return array


def _as_matrix(array: Array, parameter: Parameter) -> Array:
    return array.reshape(-1, 1) if parameter.shape[1] == 1 and array.ndim < 2 else array


def _own_name(block: Any, parameter: Parameter) -> str:
    """Return the name of a parameter as it was written, without the index of its layer."""
    of_layers = {p.letter for p in (*block.weights, *block.held) if p.lower[:1] == (i + 1,)}
    if parameter.letter not in of_layers:
        return name_of(parameter)
    rows, columns = parameter.shape
    return name_of(parameter.func(parameter.letter, parameter.lower[1:], rows, columns, parameter.upper))


def letters_of(block: Any, k: int) -> Iterator[tuple[Parameter, str]]:
    """Yield the parameters of layer k that have arrays, with the names as they were written."""
    for parameter in needed(block.written.xreplace({i: sympify(k - 1)})):
        if parameter.of_layer and not isinstance(parameter, Inner):  # a stream
            yield parameter, _own_name(block, parameter)


def arrays_of(block: Any, k: int, recording: Recording, weights: Mapping[str, Any]) -> dict[Parameter, Array]:
    """Return the array of every parameter of layer k, and say all at once that is missing, unclaimed or misshapen."""
    # A held letter has the value of the mark of its name, or is a function of what is held, given in the weights. Every
    # held value of the function has to be claimed by a held letter: otherwise a pattern could stand still in the block.
    marks = [latin(key.name) for key in recording.dynamics.held]
    held = _Read(dict(zip(marks, recording.dynamics.held.values(), strict=True)))
    arrays: dict[Parameter, Array] = {}
    missing, at_one_input, wrong = [], [], []
    for parameter, name in letters_of(block, k):
        moves = isinstance(parameter, Held)
        if name in weights:
            value = weights[name]
            if moves and callable(value):
                with of_user(f"the function that gives {name} in layer {k}"):
                    value = value(held)
            elif moves and not isinstance(weights, Values):
                at_one_input.append(name)
        elif moves and name in held:
            value = held[name]
        else:
            place = "hold(…, name) of the function" if moves else "weights"
            missing.append(f"{name} ({times(parameter.shape)}) in {place}")
            continue
        array = array_of(name, value)
        arrays[parameter] = _as_matrix(array, parameter)
        if arrays[parameter].shape != parameter.shape:
            wrong.append(f"{name} is {times(array.shape)}, expected {times(parameter.shape)}")
    if missing:
        raise SymbolicError(
            f"layer {k}: no array for {', '.join(missing)}: give each one there; held are {', '.join(held) or 'none'}"
        )
    if wrong:
        others = ": a block has the same sizes in every layer; duat.unroll takes layers of other sizes" if k > 1 else ""
        raise ShapeMismatch(f"layer {k}: {'; '.join(sorted(wrong))}{others}")
    if at_one_input:
        raise SymbolicError(
            f"layer {k}: {', '.join(at_one_input)} moves with the input, and an array is its value at one input alone:"
            f" mark it in the function, hold(…, {at_one_input[0]!r}), or give a function of what is held there,"
            f" {{{at_one_input[0]!r}: lambda held: …}}; of a block that was read from a program give block.values"
        )
    if not isinstance(weights, Values):
        _check_claims(block, k, marks, held.names)
    return arrays


def _check_claims(block: Any, k: int, marks: list[str], claimed: set[str]) -> None:
    """Raise if a held value of the function belongs to no held letter, or two of them share the name of one."""
    still = {p.letter for p in block.weights}
    unclaimed = sorted(set(marks) - claimed)
    if both := [name for name in unclaimed if name in still]:
        raise NumbersDiffer(
            f"layer {k}: {', '.join(both)} is held in the function and stands still in the block: write it as held(…)"
        )
    if unclaimed:
        raise NumbersDiffer(
            f"layer {k}: {', '.join(unclaimed)} is held in the function and no held letter of the block has that name:"
            f" write it as held({unclaimed[0]!r}, …), or give the mark the name of its letter"
        )
    if twice := sorted(name for name, count in Counter(marks).items() if count > 1 and name in claimed):
        raise SymbolicError(f"layer {k}: {', '.join(twice)} is held more than once: give each mark a name of its own")


def numbers_of_sizes(
    block: Any, x: Array, weights: Mapping[str, Any], sizes: Mapping[Symbol, int]
) -> dict[Symbol, Integer]:
    """Return the number of every symbol among a block's sizes, from the shapes of the stream and of its weights."""
    symbols = {s for s in block.written.free_symbols | block.stream.free_symbols if s.is_positive and s.is_integer}
    numbers = {symbol: Integer(number) for symbol, number in sizes.items()}
    of_x = (x.size, 1) if block.stream.shape[1] == 1 else x.shape
    named = [] if isinstance(weights, Values) else _named_weights(block, weights)
    shapes = [(block.stream.shape, of_x)]
    shapes += [(parameter.shape, array_of(name, weights[name]).shape or (1,)) for parameter, name in named]
    for written, shape in shapes:
        pairs = [(size.xreplace(numbers), number) for size, number in zip(written, shape, strict=False)]
        if any(size.is_Integer and size != number for size, number in pairs):
            continue  # which is said with what was expected, once all sizes are known
        for size, number in pairs:
            for symbol in size.free_symbols - numbers.keys() if len(size.free_symbols) == 1 else ():
                roots = (root for root in solve(size - number, symbol) if root.is_Integer and root > 0)
                numbers[symbol] = next(roots, Integer(number))
    expected = tuple(size.xreplace(numbers) for size in block.stream.shape)
    if len(of_x) != 2 or expected != tuple(of_x):
        raise ShapeMismatch(f"x is {times(x.shape)}, expected {times(expected)}")
    if unknown := sorted(map(str, symbols - numbers.keys())):
        raise SymbolicError(f"{', '.join(unknown)} is in no shape: give a number, sizes={{{unknown[0]}: 2}}")
    return {symbol: numbers[symbol] for symbol in symbols}


def _named_weights(block: Any, weights: Mapping[str, Any]) -> Iterator[tuple[Parameter, str]]:
    """Yield every letter that stands still with the first name under which it is given, for any index."""
    for parameter in block.weights:
        names = (name for name in weights if name.partition("[")[0] == parameter.letter)
        if (name := next(names, None)) is not None:
            yield parameter, name
