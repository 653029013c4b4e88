"""Define the atoms of linear algebra: parameters, transposes, Kronecker products and `vec`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sympy import MatrixExpr

from symbolic.equality.word import Atom, Notation, Sides, Word
from symbolic.expressions.kronecker import Kronecker
from symbolic.expressions.matrix import Transposed
from symbolic.expressions.parameter import Ones, Parameter, Variable
from symbolic.expressions.vec import Vec


@dataclass(frozen=True, eq=False)
class ParameterAtom(Atom):
    """A parameter.

    Args:
        parameter: the parameter.
    """

    parameter: Parameter

    @property
    def expression(self) -> MatrixExpr:
        """The parameter."""
        return self.parameter

    @cached_property
    def weight(self) -> int:
        """A number for its name; its indices count where they aren't those of a sum, which may be called otherwise."""
        if isinstance(self.parameter, Ones):
            return 0
        return hash((self.parameter.of_layer, self.parameter.letter, () if self.free else self.parameter.indices))

    @property
    def data(self) -> bool:
        """Whether it is a variable."""
        return isinstance(self.parameter, Variable)

    def transposed(self) -> Atom:
        """Return `Wᵀ`."""
        return TransposeAtom.of(self.shape[::-1], self)

    def sides(self, notation: Notation) -> Sides:
        """Write `W_{rc}`."""
        sides = notation.index(self.shape[0]), notation.index(self.shape[1])
        if not isinstance(self.parameter, Ones):  # whose entries are 1, and no factor
            notation.factor(self.parameter, *sides)
        return sides


@dataclass(frozen=True, eq=False)
class TransposeAtom(Atom):
    """The transpose of a parameter or of a `vec`.

    Args:
        inner: what is transposed.
    """

    inner: Atom

    @cached_property
    def expression(self) -> MatrixExpr:
        """The transpose."""
        return Transposed(self.inner.expression)

    def transposed(self) -> Atom:
        """Return the matrix that is transposed."""
        return self.inner

    def sides(self, notation: Notation) -> Sides:
        """Write `W_{cr}`."""
        rows, columns = self.inner.sides(notation)
        return columns, rows


@dataclass(frozen=True, eq=False)
class PairAtom(Atom):
    """A product of two words that a transpose goes into, factor by factor.

    Args:
        left: `A`.
        right: `B`.
    """

    left: Word
    right: Word

    def transposed(self) -> Atom:
        """Return the same product of `Aᵀ` and `Bᵀ`."""
        return self.of(self.shape[::-1], self.left.transposed(), self.right.transposed())


@dataclass(frozen=True, eq=False)
class KroneckerAtom(PairAtom):
    """`A ⊗ B` of words."""

    @cached_property
    def expression(self) -> MatrixExpr:
        """The Kronecker product."""
        return Kronecker(self.left.expression(), self.right.expression())

    def sides(self, notation: Notation) -> Sides:
        """Write `A_{ac} B_{bd}`, with the pairs `ab` for its rows and `cd` for its columns."""
        (a, c), (b, d) = notation.word(self.left), notation.word(self.right)
        return a + b, c + d


@dataclass(frozen=True, eq=False)
class VecAtom(Atom):
    """`vec` of a word.

    Args:
        matrix: the word.
    """

    matrix: Word

    @cached_property
    def expression(self) -> MatrixExpr:
        """The vector."""
        return Vec(self.matrix.expression())

    @property
    def data(self) -> bool:
        """Whether its matrix has data in it."""
        return self.matrix.data

    def transposed(self) -> Atom:
        """Return `vec(X)ᵀ`."""
        return TransposeAtom.of(self.shape[::-1], self)

    def sides(self, notation: Notation) -> Sides:
        """Write `X_{rc}`, with the pair `rc` for its rows."""
        rows, columns = notation.word(self.matrix)
        return rows + columns, ()
