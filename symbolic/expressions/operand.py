"""Check what a matrix expression meets in sums, products and functions: expressions and exact numbers alone."""

from operator import add, matmul, mul, sub, truediv
from typing import Any, NoReturn

from sympy import Expr, MatrixExpr, sympify

from symbolic.errors import SymbolicError

OPERATORS = {"add": add, "subtract": sub, "multiply": mul, "matmul": matmul, "divide": truediv, "true_divide": truediv}
"""Python's operators by the names that NumPy has for them."""


def operand(value: Any) -> Expr:
    """Return a matrix expression or a number as sympy has it."""
    if isinstance(value, Expr):
        return value
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape and not isinstance(value, MatrixExpr):
        size = ", ".join(map(str, shape if len(shape) > 1 else (*shape, 1)))
        raise SymbolicError(
            f"an array of shape {shape} stands in a matrix expression: give it a letter there, matrix('W', {size}), and"
            " its numbers to Block.verify or to_jax"
        )
    if shape == () and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float | complex):
        raise SymbolicError(f"{value!r} stands in a matrix expression: give a matrix expression or a number")
    return sympify(value)


def refuse(function: str, expression: MatrixExpr) -> NoReturn:
    """Raise for a function that has no symbol."""
    raise SymbolicError(
        f"{function} of {expression} has no symbol: an entrywise function of the stream is an activation,"
        " activation(z, 'relu'); anything else that is computed from it is held, held('H', rows, columns)"
    )
