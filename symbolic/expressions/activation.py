"""Represent an activation function of a matrix, entry by entry."""

from typing import Any

from sympy.core.symbol import Str
from sympy.printing.printer import Printer

from symbolic.errors import SymbolicError
from symbolic.expressions.matrix import Matrix


class Activation(Matrix):
    """`σ(z)`, or its derivative `σ'(z)`, entry by entry; nothing is assumed of `σ`.

    Args:
        argument: `z`.
        order: 0 for `σ`, 1 for `σ'`.
        function: the name of the function, where there are several; those of different names are different functions.
    """

    def __new__(cls, argument: Any, order: Any = 0, function: Any = "σ") -> "Activation":
        """Return the expression."""
        if order not in (0, 1):
            raise SymbolicError(f"σ with {order} primes: only σ and its slope σ' are known")
        return super().__new__(cls, argument, order, Str(str(function)))

    argument = property(lambda self: self.args[0])
    order = property(lambda self: int(self.args[1]))
    function = property(lambda self: self.args[2].name)
    shape = property(lambda self: self.args[0].shape)

    @property
    def latex_name(self) -> str:
        """The LaTeX of the function's name."""
        return (r"\sigma" if self.function == "σ" else rf"\operatorname{{{self.function}}}") + "'" * self.order

    def _latex(self, printer: Printer) -> str:
        return rf"{self.latex_name}\!\left({printer._print(self.argument)}\right)"

    def _sympystr(self, printer: Printer) -> str:
        return f"{self.function}{'′' * self.order}({printer._print(self.argument)})"
