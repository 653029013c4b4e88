"""Represent an activation function of a matrix, entry by entry."""

from typing import Any

from sympy import Tuple, sympify
from sympy.core.symbol import Str
from sympy.printing.printer import Printer

from symbolic.errors import SymbolicError
from symbolic.expressions.latex import typeset
from symbolic.expressions.matrix import Matrix
from symbolic.expressions.parameter import subscript


class Activation(Matrix):
    """`σ(z)`, or its derivative `σ'(z)`, entry by entry; nothing is assumed of `σ`.

    Args:
        argument: `z`.
        order: 0 for `σ`, 1 for `σ'`.
        function: the name of the function, where there are several; those of different names are different functions.
        lower: the layer's index where every layer has a function of its own; those of other indices are others.
    """

    def __new__(cls, argument: Any, order: Any = 0, function: Any = "σ", lower: Any = ()) -> "Activation":
        """Return the expression."""
        if order not in (0, 1):
            raise SymbolicError(f"σ with {order} primes: only σ and its slope σ' are known")
        return super().__new__(cls, argument, order, Str(str(function)), Tuple(*map(sympify, lower)))

    argument = property(lambda self: self.args[0])
    order = property(lambda self: int(self.args[1]))
    function = property(lambda self: self.args[2].name)
    indices = property(lambda self: self.args[3])
    shape = property(lambda self: self.args[0].shape)

    def of_layer(self, k: Any) -> "Activation":
        """Return the function that is layer k's own, of the same argument.

        Args:
            k: the layer.
        """
        return Activation(self.argument, self.order, self.function, (k,))

    @property
    def name(self) -> str:
        """The name by which the function is given in numbers: `σ`, or `σ[2]` where it is that of layer 2."""
        return self.function + (f"[{','.join(map(str, self.indices))}]" if self.indices else "")

    @property
    def latex_name(self) -> str:
        """The LaTeX of the function's name."""
        name = r"\sigma" if self.function == "σ" else rf"\operatorname{{{self.function}}}"
        return name + "'" * self.order + (f"_{{{','.join(map(typeset, self.indices))}}}" if self.indices else "")

    @property
    def text_name(self) -> str:
        """The function's name in plain text."""
        return f"{self.function}{'′' * self.order}{subscript(self.indices)}"

    def _latex(self, printer: Printer) -> str:
        return rf"{self.latex_name}\!\left({printer._print(self.argument)}\right)"

    def _sympystr(self, printer: Printer) -> str:
        return f"{self.text_name}({printer._print(self.argument)})"
