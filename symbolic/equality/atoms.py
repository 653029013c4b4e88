"""Define the atoms beyond linear algebra: activations, `diag`, ⊙, and sums with symbolic bounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sympy import Expr, Identity, MatrixExpr, Pow, Symbol, Trace, Tuple, srepr

from symbolic.equality.linear_atoms import PairAtom, times, vec
from symbolic.equality.word import Atom, Form, Word, indices_of
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.matrix import MatrixProduct
from symbolic.expressions.operations import Diagonal, Hadamard
from symbolic.expressions.scalar import Entry


@dataclass(frozen=True, eq=False)
class ActivationAtom(Atom):
    """`σ` of a normal form, or its slope.

    Args:
        argument: what it is taken of.
        order: 0 for `σ`, 1 for `σ'`.
        function: its name.
        lower: the layer's index where the function is a layer's own.
    """

    argument: Form
    order: int
    function: str
    lower: Tuple

    @cached_property
    def expression(self) -> MatrixExpr:
        """The activation."""
        return Activation(self.argument.expression(), self.order, self.function, self.lower)

    @cached_property
    def weight(self) -> int:
        """A number for its function; its index counts where it isn't that of a sum, which may be called otherwise."""
        return hash((self.function, self.order, () if indices_of(self.lower) else self.lower))

    @property
    def data(self) -> bool:
        """An activation is data: `vec(A σ(Z) B) = (A ⊗ Bᵀ) σ(vec Z)`."""
        return True

    def transposed(self) -> Atom:
        """Return `σ(Zᵀ)`."""
        return self._taken_of(self.argument.transposed())

    def vec(self) -> Word:
        """Return `σ(vec Z)`."""
        argument = self.argument.vec()
        return Word((self._taken_of(argument),), argument.shape)

    def _taken_of(self, argument: Form) -> ActivationAtom:
        """Return the same function of another argument."""
        return ActivationAtom.shared(argument.shape, argument, self.order, self.function, self.lower)


@dataclass(frozen=True, eq=False)
class DiagonalAtom(Atom):
    """`diag` of a word.

    Args:
        vector: the word.
    """

    vector: Word

    @cached_property
    def expression(self) -> MatrixExpr:
        """The diagonal matrix."""
        return Diagonal(self.vector.expression())

    def transposed(self) -> Atom:
        """Return itself."""
        return self


def diagonal(vector: Word) -> Word:
    """Return `diag` of a word, with its scalars taken out."""
    shape = (vector.shape[0], vector.shape[0])
    return Word((DiagonalAtom.shared(shape, vector.alone()),), shape, vector.scalars)


@dataclass(frozen=True, eq=False)
class HadamardAtom(PairAtom):
    """`A ⊙ B` of words that are matrices; of vectors it is `diag(v) w`."""

    @cached_property
    def expression(self) -> MatrixExpr:
        """The product entry by entry."""
        return Hadamard(self.left.expression(), self.right.expression())

    @property
    def data(self) -> bool:
        """Whether a factor has data in it."""
        return self.left.data or self.right.data

    def vec(self) -> Word:
        """Return `diag(vec A) vec B`."""
        factor, vector = sorted((vec(self.left), vec(self.right)), key=lambda word: word.data)
        return times(diagonal(factor), vector)


@dataclass(frozen=True, eq=False)
class SumAtom(Atom):
    """A sum with symbolic bounds over a word.

    Args:
        word: the summand.
        index: the bound index.
        first: its first value.
        last: its last value.
    """

    word: Word
    index: Symbol
    first: Expr
    last: Expr

    @cached_property
    def expression(self) -> MatrixExpr:
        """The sum."""
        return IndexedSum(self.word.expression(), self.index, self.first, self.last)

    @cached_property
    def free(self) -> frozenset[Symbol]:
        """The indices of sums around it that occur in its summand or its bounds."""
        return self.word.free - {self.index} | indices_of(self.first, self.last)

    @property
    def data(self) -> bool:
        """Whether its summand has data in it."""
        return self.word.data

    def transposed(self) -> Atom:
        """Return the sum of the transposes."""
        return SumAtom.shared(self.shape[::-1], self.word.transposed(), self.index, self.first, self.last)

    def vec(self) -> Word:
        """Return the sum of the `vec`."""
        return summed(vec(self.word), self.index, self.first, self.last)


def summed(word: Word, index: Symbol, first: Expr, last: Expr) -> Word:
    """Return the sum over a word, with the factors at its ends that don't move taken out: `Σ A F_j B = A (Σ F_j) B`."""
    moving = [k for k, atom in enumerate(word.atoms) if index in atom.free]
    start, end = (moving[0], moving[-1] + 1) if moving else (0, len(word.atoms))
    middle = word.atoms[start:end]
    shape = (middle[0].shape[0], middle[-1].shape[1]) if middle else word.shape
    inside = tuple(scalar for scalar in word.scalars if index in scalar.free)
    outside = tuple(scalar for scalar in word.scalars if index not in scalar.free)
    atom = SumAtom.shared(shape, Word(middle, shape, inside), index, first, last)
    return Word((*word.atoms[:start], atom, *word.atoms[end:]), word.shape, outside)


def hadamard(left: Word, right: Word) -> Word:
    """Return the product of two words entry by entry, with their scalars taken out."""
    atom = HadamardAtom.shared(left.shape, left.alone(), right.alone())
    return Word((atom,), left.shape, left.scalars + right.scalars)


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


@dataclass(frozen=True, eq=False)
class PowerAtom(_Number, ActivationAtom):
    """A number to a power that is no whole number from 1 on: a function of it, of which nothing more is known.

    Args:
        exponent: the power, which has no index of a sum.
    """

    exponent: Expr

    @staticmethod
    def to_the(argument: Form, exponent: Expr) -> Atom:
        """Return a number to a power."""
        return PowerAtom.shared(argument.shape, argument, 0, f"^{srepr(exponent)}", Tuple(), exponent)

    @cached_property
    def number(self) -> Expr:
        """The power."""
        return Pow(self.argument.number(), self.exponent)
