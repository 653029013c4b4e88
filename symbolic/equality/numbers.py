"""Define the atoms that are numbers: entries and traces of words, and powers of numbers that aren't products."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sympy import Expr, Identity, MatrixExpr, Pow, Trace, Tuple, srepr

from symbolic.equality.atoms import ActivationAtom
from symbolic.equality.word import Atom, Form, Notation, Sides, Word
from symbolic.expressions.matrix import MatrixProduct
from symbolic.expressions.scalar import Entry


class _Number(Atom):
    """The base class of atoms that are numbers; each is its own transpose."""

    @cached_property
    def expression(self) -> MatrixExpr:
        """The number as a 1 × 1 matrix."""
        return MatrixProduct(self.number, Identity(1))

    def transposed(self) -> Atom:
        """Return itself."""
        return self


@dataclass(frozen=True, eq=False)
class EntryAtom(_Number):
    """One entry of a word.

    Args:
        matrix: the word.
        row: its row, from 0.
        column: its column, from 0.
    """

    matrix: Word
    row: Expr
    column: Expr

    @cached_property
    def number(self) -> Expr:
        """The entry."""
        return Entry(self.matrix.expression(), self.row, self.column)

    def sides(self, notation: Notation) -> Sides:
        """Write `A_{rc}` with values for `r` and `c`."""
        rows, columns = notation.word(self.matrix)
        notation.fix(rows, self.row)
        notation.fix(columns, self.column)
        return (), ()


@dataclass(frozen=True, eq=False)
class TraceAtom(_Number):
    """The trace of a word.

    Args:
        matrix: the word, which is square.
    """

    matrix: Word

    @cached_property
    def number(self) -> Expr:
        """The trace."""
        return Trace(self.matrix.expression())

    def sides(self, notation: Notation) -> Sides:
        """Write `A_{rr}`."""
        notation.join(*notation.word(self.matrix))
        return (), ()


@dataclass(frozen=True, eq=False)
class PowerAtom(ActivationAtom):
    """A number to a power that is no whole number from 1 on: a function of it, of which nothing more is known.

    Args:
        exponent: the power, which has no index of a sum.
    """

    exponent: Expr

    @staticmethod
    def to_the(argument: Form, exponent: Expr) -> Atom:
        """Return a number to a power.

        Args:
            argument: the number, a 1 × 1 form.
            exponent: the power.
        """
        return PowerAtom.of(argument.shape, argument, 0, f"^{srepr(exponent)}", Tuple(), exponent)

    @cached_property
    def number(self) -> Expr:
        """The power."""
        return Pow(self.argument.number(), self.exponent)

    @cached_property
    def expression(self) -> MatrixExpr:
        """The power as a 1 × 1 matrix."""
        return MatrixProduct(self.number, Identity(1))

    def transposed(self) -> Atom:
        """Return itself."""
        return self
