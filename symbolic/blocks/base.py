"""Define what blocks of one stream and of several have in common: their letters, comparison with numbers, display."""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sympy import Basic

from symbolic.errors import NumbersDiffer
from symbolic.expressions.parameter import Held, Ones, Parameter, dotted
from symbolic.proof.derivation import Derivation
from symbolic.theorems.residual_stack import i

if TYPE_CHECKING:
    from symbolic.evaluation.comparison import Numbers


class BaseBlock(ABC):
    """One layer that is written as an expression of its streams: `written` is what it makes of them."""

    name: str
    written: Basic
    _named: tuple[Parameter, ...]  # its streams, and the sums that have a name

    @property
    def held(self) -> tuple[Held, ...]:
        """The parameters of one layer that depend on the input and are treated as constants, at their values on it."""
        return tuple(sorted(self.written.atoms(Held), key=str))

    @property
    def weights(self) -> tuple[Parameter, ...]:
        """The constant parameters of one layer."""
        moved = self.written.atoms(Held, Ones) | {p for p in self.written.atoms(Parameter) if i in p.lower}
        return tuple(sorted(self.written.atoms(Parameter) - moved, key=str))

    def on_paper(self, parameter: Parameter) -> Parameter:
        """Return a symbol of the form as it is printed: with a dot where a letter of the layer looks the same.

        Args:
            parameter: any parameter; those of the layer stay as they are.
        """
        own = parameter.of_layer or parameter.parts.printed not in self._own_letters
        return parameter if own else dotted(parameter)

    @cached_property
    def _own_letters(self) -> set[str]:
        return {p.parts.printed for p in (*self.written.atoms(Parameter), *self._named) if p.of_layer}

    def _certified(self, numbers: "Numbers") -> "Numbers":
        """Return a comparison with a function if all of it agrees."""
        if not numbers.holds:
            raise NumbersDiffer(
                f"the function isn't the {self.name}:\n{numbers}\nthe first ✗ says which part to look at: another"
                " weight, a mark of another name, or a block that is written otherwise"
            )
        return numbers

    @abstractmethod
    def residual_terms(self) -> Derivation:
        """Return the layer's matrices and biases, read off, with the check that they give the layer."""

    def __str__(self) -> str:
        return str(self.residual_terms())

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_latex_(self) -> str:
        return self.residual_terms()._repr_latex_()
