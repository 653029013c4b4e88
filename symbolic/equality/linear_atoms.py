"""Define the atoms of linear algebra: parameters, transposes, Kronecker products and `vec`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sympy import Integer, MatrixExpr

from symbolic.equality.word import Atom, Word, expanded
from symbolic.expressions.matrix import Transposed
from symbolic.expressions.operations import Kronecker, Vec
from symbolic.expressions.parameter import Ones, Parameter, Variable


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
        return TransposeAtom.shared(self.shape[::-1], self)


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
        return self.shared(self.shape[::-1], self.left.transposed(), self.right.transposed())


@dataclass(frozen=True, eq=False)
class KroneckerAtom(PairAtom):
    """`A ⊗ B` of words."""

    @cached_property
    def expression(self) -> MatrixExpr:
        """The Kronecker product."""
        return Kronecker(self.left.expression(), self.right.expression())


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
        return TransposeAtom.shared(self.shape[::-1], self)


def times(left: Word, right: Word) -> Word:
    """Return the product of two words; Kronecker products that meet become one, `(A ⊗ B)(C ⊗ D) = AC ⊗ BD`."""
    shape, scalars = (left.shape[0], right.shape[1]), left.scalars + right.scalars
    if left.atoms and right.atoms:
        a, b = left.atoms[-1], right.atoms[0]
        if (
            isinstance(a, KroneckerAtom)
            and isinstance(b, KroneckerAtom)
            and (a.left.shape[1], a.right.shape[1]) == (b.left.shape[0], b.right.shape[0])
        ):
            met = kronecker(times(a.left, b.left), times(a.right, b.right))
            return Word(left.atoms[:-1] + met.atoms + right.atoms[1:], shape, scalars + met.scalars)
    return Word(left.atoms + right.atoms, shape, scalars)


def kronecker(left: Word, right: Word) -> Word:
    """Return the Kronecker product of two words; one that is a number multiplies the other."""
    if left.shape == (1, 1):
        return right.scaled(left.as_scalars())
    if right.shape == (1, 1):
        return left.scaled(right.as_scalars())
    shape = expanded((left.shape[0] * right.shape[0], left.shape[1] * right.shape[1]))
    pair = (KroneckerAtom.shared(shape, left.alone(), right.alone()),) if left.atoms or right.atoms else ()
    return Word(pair, shape, left.scalars + right.scalars)


def vec(word: Word) -> Word:
    """Return the entries of a word as a column: `A x B` as `(A ⊗ Bᵀ) vec x` at its data, `u vᵀ` as `u ⊗ v`."""
    rows, columns = word.shape
    if word.scalars:
        return vec(word.alone()).scaled(word.scalars)
    inner = [rows, *(atom.shape[1] for atom in word.atoms)]

    def part(first: int, last: int) -> Word:
        return Word(word.atoms[first:last], (inner[first], inner[last]))

    count = len(word.atoms)
    # A column is its own vec, unless its data are a matrix, or a column that a number multiplies from the right.
    if (k := next((k for k, atom in enumerate(word.atoms) if atom.data), None)) is not None:
        return times(kronecker(part(0, k), part(k + 1, count).transposed()), _vec_of_atom(word.atoms[k]))
    if columns == 1:
        return word
    if (k := next((k for k in range(1, count) if inner[k] == 1), None)) is not None:
        return kronecker(part(0, k), part(k, count).transposed())
    if count == 1:
        return _vec_of_atom(word.atoms[0])
    return Word((VecAtom.shared((rows * columns, Integer(1)), word),), expanded((rows * columns, Integer(1))))


def _vec_of_atom(atom: Atom) -> Word:
    """Return the `vec` of an atom: the one that it knows, itself if it is a column, or an atom of its own."""
    known = atom.vec()
    if known is not None:
        return known
    shape, word = expanded((atom.shape[0] * atom.shape[1], Integer(1))), Word((atom,), atom.shape)
    return word if atom.shape[1] == 1 else Word((VecAtom.shared(shape, word),), shape)
