"""Search for exact numbers at which two expressions differ."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from zlib import crc32

from sympy import ImmutableMatrix, Integer, MatrixExpr, Max, Symbol, sstr

from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import equal
from symbolic.errors import ShapeMismatch
from symbolic.evaluation.interpreter import Interpreter, exact
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.parameter import Parameter
from symbolic.theorems.residual_stack import i

_NUMBERS = (1, 2, -1, 3, -2)

_SIZES, _TRIES = (1, 2), 24


RELU = exact(lambda t: Max(0, t))  # exact arithmetic with `σ` the ReLU


def _sample(parameter: Parameter, seed: int, sizes: Mapping[Symbol, int] | None = None) -> ImmutableMatrix:
    """Return a small matrix of whole numbers that depends on the parameter's name and a seed only."""
    rows, columns = (int(size.xreplace(sizes or {})) for size in parameter.shape)
    return ImmutableMatrix(
        rows, columns, lambda r, c: _NUMBERS[crc32(f"{parameter} {r} {c} {seed}".encode()) % len(_NUMBERS)]
    )


def _numbers(matrix: ImmutableMatrix) -> str:
    return sstr(matrix[0]) if matrix.shape == (1, 1) else sstr(matrix.tolist())


def counterexample(left: MatrixExpr, right: MatrixExpr, using: Iterable[Definition] = ()) -> str | None:
    """Return whole numbers at which the two sides differ, with `σ` the ReLU, in words; None if the search finds none.

    Example:
        >>> from symbolic.theorems.residual_stack import ResidualStack
        >>> s = ResidualStack()
        >>> print(counterexample(s.W(1, 1) * s.x(0), s.W(1, 1) * s.x(0) + s.b(1, 3)))
        all sizes 1, W′₁,₁ = 1, b′₁,₃ = -1, x′₀ = 3: 3 on the left, 2 on the right
    """
    # A symbolic layer `i` becomes layer 1.
    indices = {i: Integer(1)}
    left, right = left.xreplace(indices), right.xreplace(indices)
    using = [d if d.variables else Definition(d.left.xreplace(indices), d.right.xreplace(indices)) for d in using]
    whole = (left, right, *(d.right for d in using))
    sizes_in = [size for e in whole for part in e.atoms(Parameter) for size in part.shape]
    sizes_in += [bound for e in (left, right) for part in e.atoms(IndexedSum) for bound in (part.first, part.last)]
    symbols = {symbol for size in sizes_in for symbol in size.free_symbols}
    for size in _SIZES:
        sizes = dict.fromkeys(symbols, Integer(size))
        for seed in range(_TRIES):
            values: dict[Parameter, ImmutableMatrix] = {}

            def value(p: Parameter, values: dict = values, seed: int = seed, sizes: dict = sizes) -> ImmutableMatrix:
                return values.setdefault(p, _sample(p, seed, sizes))

            interpreter = Interpreter(value, RELU, using, sizes)
            sides = [interpreter.value(e) for e in (left, right)]
            if list(sides[0]) != list(sides[1]):
                given = ", ".join(f"{p} = {_numbers(values[p])}" for p in sorted(values, key=str))
                return f"all sizes {size}, {given}: {_numbers(sides[0])} on the left, {_numbers(sides[1])} on the right"
    return None


@dataclass(frozen=True)
class Outcome:
    """The result of a check, with its evidence.

    Args:
        holds: whether what was checked holds: True is proved, False refuted, None neither.
        how: how that was decided, with the numbers of a counterexample.
        sizes: the sizes at which it was checked, in words, if it is checked at those only; empty for a proof.
    """

    holds: bool | None
    how: str
    sizes: str = ""


def identity(left: MatrixExpr, right: MatrixExpr, using: Iterable[Definition] = ()) -> Outcome:
    """Decide an equation: proved by the normal form, refuted by numbers or by its shapes, or neither.

    Example:
        >>> from sympy import symbols
        >>> d = symbols("d", integer=True, positive=True)
        >>> x, y = Parameter("x", (), d, 1), Parameter("y", (), d, 1)
        >>> print(identity(x.T * y, y).holds, identity(x * y.T, y * x.T).holds, identity(x + y, y + x).holds)
        False False True
    """
    using = tuple(using)
    try:
        if equal(left, right, using):
            return Outcome(True, "proved: both sides have the same normal form")
    except ShapeMismatch as error:
        return Outcome(False, f"it can't be formed: {error}")
    numbers = counterexample(left, right, using)
    if numbers is None:
        return Outcome(None, "undecided: the normal forms differ, and no numbers were found at which the sides do")
    return Outcome(False, f"counterexample, σ = ReLU, {numbers}")
