"""Normal forms: sums of words, in which words that are the same in index notation are merged."""

from collections.abc import Hashable, Iterable
from functools import cached_property

from sympy import Add, Expr, Integer, MatrixExpr, S, Symbol, ZeroMatrix

from symbolic.equality.atoms import ActivationAtom, DiagonalAtom
from symbolic.equality.index_notation import word_key
from symbolic.equality.linear_atoms import ParameterAtom, TransposeAtom, vec
from symbolic.equality.word import Atom, Shape, Word, expanded, indices_of
from symbolic.expressions.matrix import MatrixProduct, MatrixSum
from symbolic.expressions.parameter import Ones

Summand = tuple[Word, Expr]  # a word with its coefficient


class NormalForm:
    """A sum of words: the normal form of one expression.

    Args:
        shape: rows and columns.
        words: words with their coefficients, which are added where words are the same in index notation.
    """

    def __init__(self, shape: Shape, words: Iterable[Summand]) -> None:
        self.shape = expanded(shape)
        total: dict[int, dict[Word, Expr]] = {}
        places: dict[Word, int] = {}
        for written, number in words:
            word, sizes = _without_ones(written)
            alike = total.setdefault(word.weight, {})
            alike[word] = alike.get(word, S.Zero) + number * sizes
            places.setdefault(word, len(places))
        merged = sorted((pair for alike in total.values() for pair in _merged(alike)), key=lambda pair: places[pair[0]])
        self.words = {_longest_last(word): c for word, coefficient in merged if (c := coefficient.expand()) != 0}
        self._hash = hash((self.shape, frozenset(word.weight for word in self.words)))

    @cached_property
    def _keys(self) -> frozenset[tuple[Hashable, Expr]]:
        keys = ((word_key(word), coefficient) for word, coefficient in self.words.items())
        return frozenset((key, (loops * coefficient).expand()) for (key, loops), coefficient in keys)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, NormalForm) or self._hash != other._hash or self.shape != other.shape:
            return False
        return self.words == other.words or self._keys == other._keys

    @property
    def summands(self) -> list[Summand]:
        """The words with their coefficients."""
        return list(self.words.items())

    @cached_property
    def free(self) -> frozenset[Symbol]:
        """The indices of sums around it that occur in it."""
        return indices_of(*self.words.values()).union(*(word.free for word in self.words))

    def expression(self) -> MatrixExpr:
        """Return the normal form as a sympy expression."""
        if not self.words:
            return ZeroMatrix(*self.shape)
        return MatrixSum(*(MatrixProduct(c, word.expression()) for word, c in self.words.items()))

    def number(self) -> Expr:
        """Return the normal form of a 1 × 1 matrix as a number."""
        return Add(*(c * word.number() for word, c in self.words.items()))

    def transposed(self) -> "NormalForm":
        """Return the normal form of the transpose."""
        return NormalForm(self.shape[::-1], ((word.transposed(), c) for word, c in self.words.items()))

    def vec(self) -> "NormalForm":
        """Return the normal form of `vec`."""
        shape = (self.shape[0] * self.shape[1], Integer(1))
        return NormalForm(shape, ((vec(word), c) for word, c in self.words.items()))


def _merged(words: dict[Word, Expr]) -> Iterable[Summand]:
    """Return words of one weight with their coefficients, those that are the same in index notation as one."""
    if len(words) == 1:
        return words.items()
    total: dict[Hashable, tuple[Word, Expr, Expr]] = {}
    for word, coefficient in words.items():
        key, loops = word_key(word)
        first, before, of_first = total.get(key, (word, S.Zero, loops))
        total[key] = first, before + coefficient * loops / of_first, of_first
    return [(word, coefficient) for word, coefficient, _ in total.values()]


def _without_ones(word: Word) -> Summand:
    """Return a word without the products `1ᵀ1` in it, and the product of their sizes."""
    number: Expr = S.One
    kept: list[Atom] = []
    for atom in word.atoms:
        match kept[-1:], atom:
            case [TransposeAtom(inner=ParameterAtom(parameter=Ones()))], ParameterAtom(parameter=Ones()):
                kept.pop()
                number *= atom.shape[0]
            case _:
                kept.append(atom)
    return (word, number) if number == 1 else (word._replace(atoms=tuple(kept)), number)


def _longest_last(word: Word) -> Word:
    """Return `diag(v) w` or `diag(w) v`: an activation comes last, then data, then the longer word."""

    def rank(vector: Word) -> tuple[bool, bool, int, str]:
        activated = any(isinstance(atom, ActivationAtom) for atom in vector.atoms)
        return activated, vector.data, len(vector.atoms), str(vector.expression())

    if word.shape[1] != 1 or not any(isinstance(atom, DiagonalAtom) for atom in word.atoms):
        return word
    tail = Word((), word.shape, word.scalars)
    for atom in reversed(word.atoms):
        if isinstance(atom, DiagonalAtom) and tail.atoms and rank(atom.vector) > rank(tail):
            tail = Word((DiagonalAtom.shared(atom.shape, tail.alone()), *atom.vector.atoms), tail.shape, word.scalars)
        else:
            tail = Word((atom, *tail.atoms), (atom.shape[0], word.shape[1]), word.scalars)
    return tail
