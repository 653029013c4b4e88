"""Define words, which are products of atoms; a normal form is a sum of words.

An atom is a class that knows how it is written, its transpose and its `vec`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Protocol, Self

from sympy import Basic, Expr, Identity, MatrixExpr, Mul, Symbol

from symbolic.expressions.indexed_sum import Index
from symbolic.expressions.matrix import MatrixProduct
from symbolic.expressions.scalar import Entry

Shape = tuple[Expr, Expr]


@lru_cache(maxsize=1 << 12)
def expanded(shape: Shape) -> Shape:
    """Return a shape with its products multiplied out, so that equal shapes are one."""
    return shape[0].expand(), shape[1].expand()


def indices_of(*expressions: Basic) -> frozenset[Symbol]:
    """Return the indices of sums that are free in expressions."""
    return frozenset(s for expression in expressions for s in expression.free_symbols if isinstance(s, Index))


class Word(NamedTuple):
    """A product of atoms with its shape; without atoms it is the identity.

    Args:
        atoms: its factors.
        shape: rows and columns.
        scalars: the 1 × 1 words that multiply it, which commute with everything.
    """

    atoms: tuple[Atom, ...]
    shape: Shape
    scalars: tuple[Word, ...] = ()

    def expression(self) -> MatrixExpr:
        """Return the word as a sympy expression."""
        matrices = [atom.expression for atom in self.atoms] or [Identity(self.shape[0])]
        return MatrixProduct(*(scalar.number() for scalar in self.scalars), *matrices)

    def number(self) -> Expr:
        """Return a 1 × 1 word as a number."""
        numbers = [scalar.number() for scalar in self.scalars]
        if len(self.atoms) == 1 and (number := self.atoms[0].number) is not None:
            numbers.append(number)
        elif self.atoms:
            numbers.append(Entry(self.alone().expression(), 0, 0))
        return Mul(*numbers)

    def scaled(self, scalars: tuple[Word, ...]) -> Word:
        """Return the word multiplied by 1 × 1 words."""
        return self._replace(scalars=(*self.scalars, *scalars)) if scalars else self

    def alone(self) -> Word:
        """Return the word without its scalars."""
        return self._replace(scalars=()) if self.scalars else self

    def as_scalars(self) -> tuple[Word, ...]:
        """Return the scalars that a 1 × 1 word consists of."""
        return (*self.scalars, *([self.alone()] if self.atoms else []))

    def transposed(self) -> Word:
        """Return the transpose of the word."""
        return Word(tuple(atom.transposed() for atom in reversed(self.atoms)), self.shape[::-1], self.scalars)

    @property
    def weight(self) -> int:
        """A number that equal words share; two words that share it may be equal."""
        return sum(atom.weight for atom in self.atoms) + sum(scalar.weight for scalar in self.scalars)

    @property
    def data(self) -> bool:
        """Whether a variable or an activation is in it, of which `vec` is taken."""
        return any(atom.data for atom in self.atoms)

    @property
    def free(self) -> frozenset[Symbol]:
        """The indices of sums around it that occur in it."""
        return frozenset().union(*(atom.free for atom in self.atoms), *(scalar.free for scalar in self.scalars))


@lru_cache(maxsize=1 << 16)
def _shared(atom: Atom) -> Atom:
    """Return the one object that stands for an atom, so that equal deep expressions compare at once."""
    return atom


class Form(Protocol):
    """A sum of words, as the argument of an activation is one: `NormalForm`."""

    shape: Shape

    def __hash__(self) -> int: ...

    @property
    def words(self) -> Mapping[Word, Expr]:
        """The words with their coefficients."""

    @property
    def free(self) -> frozenset[Symbol]:
        """The indices of sums around it that occur in it."""

    def expression(self) -> MatrixExpr:
        """Return it as a sympy expression."""

    def number(self) -> Expr:
        """Return it as a number, if it is 1 × 1."""

    def transposed(self) -> Form:
        """Return the transpose."""

    def vec(self) -> Form:
        """Return its `vec`."""


@dataclass(frozen=True, eq=False)
class Atom(ABC):
    """One factor of a word.

    Args:
        shape: rows and columns.
    """

    shape: Shape

    @classmethod
    def shared(cls, shape: Shape, *parts: Any) -> Self:
        """Return the atom with these parts, one object for equal atoms."""
        return _shared(cls(expanded(shape), *parts))  # type: ignore[return-value]

    @cached_property
    def _content(self) -> tuple[Any, ...]:
        return (type(self), *(getattr(self, field.name) for field in fields(self)))

    @cached_property
    def _hash(self) -> int:
        return hash(self._content)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Atom) and self._hash == other._hash and self._content == other._content

    @cached_property
    def weight(self) -> int:
        """The weight of what it is made of."""
        return sum(part.weight for part in self._content if isinstance(part, Atom | Word))

    @property
    @abstractmethod
    def expression(self) -> MatrixExpr:
        """The atom as a sympy expression."""

    @cached_property
    def free(self) -> frozenset[Symbol]:
        """The indices of sums around it that occur in its parts."""
        parts = [getattr(self, field.name) for field in fields(self) if field.name != "shape"]
        inside = (part.free for part in parts if hasattr(part, "free"))
        return indices_of(*(part for part in parts if isinstance(part, Basic))).union(*inside)

    @property
    def number(self) -> Expr | None:
        """The number that a 1 × 1 atom is, if it isn't written as a matrix."""
        return None

    @property
    def data(self) -> bool:
        """Whether a variable or an activation is in it, of which `vec` is taken."""
        return False

    @abstractmethod
    def transposed(self) -> Atom:
        """Return its transpose."""

    def vec(self) -> Word | None:
        """Return its `vec` in other atoms; None if that is an atom of its own, or the atom itself."""
        return None
