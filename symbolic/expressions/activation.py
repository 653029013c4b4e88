"""An activation function of a matrix, entry by entry."""

from typing import Any

from sympy import Basic, sympify
from sympy.printing.printer import Printer

from symbolic.errors import SymbolicError
from symbolic.expressions.matrix import Matrix


class Activation(Matrix):
    """`σ(z)`, or its derivative `σ'(z)`, entry by entry.

    Args:
        argument: `z`.
        order: 0 for `σ`, 1 for `σ'`.
    """

    def __new__(cls, argument: Any, order: Any = 0) -> "Activation":
        """Return the expression."""
        if order not in (0, 1):
            raise SymbolicError(f"σ with {order} primes: only σ and its slope σ' are known")
        return Basic.__new__(cls, sympify(argument), sympify(order))

    argument = property(lambda self: self.args[0])
    order = property(lambda self: int(self.args[1]))
    shape = property(lambda self: self.args[0].shape)

    def _latex(self, printer: Printer) -> str:
        return rf"\sigma{chr(39) * self.order}\!\left({printer._print(self.argument)}\right)"

    def _sympystr(self, printer: Printer) -> str:
        return f"σ{'′' * self.order}({printer._print(self.argument)})"
