"""Words: products of atoms, of which a normal form is a sum.

An atom is a parameter, the transpose of one, an activation of a normal form, a Kronecker product of words, `diag` of a
normal form, `vec` of a word, or a sum with symbolic bounds over a word.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from sympy import Basic, Expr, Identity, Integer, MatrixExpr, S, Transpose, ZeroMatrix

from symbolic.errors import SymbolicError
from symbolic.expressions.activation import Activation
from symbolic.expressions.diagonal import Diagonal
from symbolic.expressions.indexed_sum import Index, IndexedSum, bound_index
from symbolic.expressions.kronecker import Kronecker
from symbolic.expressions.matrix import MatrixProduct, MatrixSum
from symbolic.expressions.parameter import Parameter, Variable
from symbolic.expressions.vec import Vec

Shape = tuple[Expr, Expr]

Word = tuple["Atom", ...]


@dataclass(frozen=True, eq=False)
class Atom:
    """One factor of a word: a parameter, or a construction on words and normal forms.

    Args:
        kind: `parameter`, `transpose`, `activation`, `diagonal`, `kronecker`, `vec` or `sum`.
        parts: what it is made of, all of it in normal form.
        shape: rows and columns.
    """

    kind: str
    parts: tuple[Any, ...]
    shape: Shape

    @cached_property
    def _content(self) -> tuple[Any, ...]:
        return self.kind, self.parts, self.shape

    @cached_property
    def _hash(self) -> int:
        return hash(self._content)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Atom) and self._hash == other._hash and self._content == other._content


@lru_cache(maxsize=1 << 12)
def _expanded(shape: Shape) -> Shape:
    return shape[0].expand(), shape[1].expand()


@lru_cache(maxsize=1 << 16)
def _shared(atom: Atom) -> Atom:
    """Return the one object that stands for an atom, so that equal deep expressions compare at once."""
    return atom


def atom_of(kind: str, parts: tuple[Any, ...], shape: Shape) -> Atom:
    """Return the atom of a kind, one object for equal atoms.

    Args:
        kind: as in `Atom`.
        parts: as in `Atom`.
        shape: rows and columns.
    """
    return _shared(Atom(kind, parts, _expanded(shape)))


class NormalForm:
    """A sum of words: the normal form of one expression.

    Args:
        shape: rows and columns.
        words: words with their coefficients, which are added where a word comes twice; the empty word is the identity.
    """

    def __init__(self, shape: Shape, words: Iterable[tuple[Word, Expr]]) -> None:
        self.shape = _expanded(shape)
        total: dict[Word, Expr] = {}
        for word, coefficient in words:
            word = _commuted(word)
            total[word] = total.get(word, S.Zero) + coefficient
        self.words = {word: c for word, coefficient in total.items() if (c := coefficient.expand()) != 0}
        self._hash = hash((self.shape, frozenset(self.words.items())))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, NormalForm) or self._hash != other._hash:
            return False
        return (self.shape, self.words) == (other.shape, other.words)

    def expression(self) -> MatrixExpr:
        """Return the normal form as a sympy expression."""
        if not self.words:
            return ZeroMatrix(*self.shape)
        summands = [MatrixProduct(c, word_expression(word, self.shape)) for word, c in self.words.items()]
        return MatrixSum(*summands)


def word_expression(word: Word, shape: Shape) -> MatrixExpr:
    """Return a word as a sympy expression.

    Args:
        word: the word; the empty one is the identity.
        shape: its shape.
    """
    if not word:
        return Identity(shape[0])
    return MatrixProduct(*map(_atom_expression, word))


@lru_cache(maxsize=1 << 16)
def _atom_expression(atom: Atom) -> MatrixExpr:
    match atom.kind, atom.parts:
        case "parameter", (parameter,):
            return parameter
        case "transpose", (parameter,):
            return Transpose(parameter)
        case "activation", (form, *function):
            return Activation(form.expression(), *function)
        case "diagonal", (form,):
            return Diagonal(form.expression())
        case "kronecker", (left, right, left_shape, right_shape):
            return Kronecker(word_expression(left, left_shape), word_expression(right, right_shape))
        case "vec", (word, shape):
            return Vec(word_expression(word, shape))
        case _, (word, index, first, last):
            return IndexedSum(word_expression(word, atom.shape), index, first, last)
    raise SymbolicError(f"{atom.kind} is no atom of a normal form")


def transposed(word: Word) -> Word:
    """Return the transpose of a word.

    Args:
        word: the word.

    Raises:
        SymbolicError: if it contains a `vec`, whose transpose has no normal form.
    """

    def one(atom: Atom) -> Atom:
        shape = (atom.shape[1], atom.shape[0])
        match atom.kind, atom.parts:
            case "parameter", (inner,):
                return atom_of("transpose", (inner,), shape)
            case "transpose", (inner,):
                return parameter_atom(inner)
            case "activation", (form, *function):
                flipped = NormalForm(shape, ((transposed(inner), c) for inner, c in form.words.items()))
                return atom_of("activation", (flipped, *function), shape)
            case "diagonal", _:
                return atom
            case "kronecker", (left, right, left_shape, right_shape):
                parts = (transposed(left), transposed(right), left_shape[::-1], right_shape[::-1])
                return atom_of("kronecker", parts, shape)
            case "sum", (inner, *bounds):
                return atom_of("sum", (transposed(inner), *bounds), shape)
        raise SymbolicError(f"the transpose of {_atom_expression(atom)} has no normal form: transpose the matrix in it")

    return tuple(one(atom) for atom in reversed(word))


def parameter_atom(parameter: Parameter) -> Atom:
    """Return a parameter as an atom.

    Args:
        parameter: the parameter.
    """
    return atom_of("parameter", (parameter,), parameter.shape)


def _kronecker(left: Word, right: Word, left_shape: Shape, right_shape: Shape) -> Word:
    if not left and not right:
        return ()
    shape = (left_shape[0] * right_shape[0], left_shape[1] * right_shape[1])
    return (atom_of("kronecker", (_commuted(left), _commuted(right), left_shape, right_shape), shape),)


@lru_cache(maxsize=1 << 16)
def _deeper(part: Any, level: int) -> Any:
    """Return a part of a word with its bound indices renamed, so that it can stand inside a sum at a level."""
    match part:
        case Atom():
            return atom_of(part.kind, tuple(_deeper(p, level) for p in part.parts), _deeper(part.shape, level))
        case NormalForm():
            words = ((_deeper(word, level), _deeper(c, level)) for word, c in part.words.items())
            return NormalForm(_deeper(part.shape, level), words)
        case tuple():
            return tuple(_deeper(p, level) for p in part)
        case Basic():
            bound = [s for s in part.free_symbols if isinstance(s, Index) and s.level >= level]
            return part.xreplace({s: bound_index(s.level + 1) for s in bound})
    return part


def _in_sum(atom: Atom, before: Word, after: Word) -> Word:
    """Return `before Σ word after` as one sum, `Σ before word after`."""
    inner, index, *bounds = atom.parts
    level = index.level
    word = joined(_deeper(before, level), joined(inner, _deeper(after, level)))
    return (atom_of("sum", (word, index, *bounds), (word[0].shape[0], word[-1].shape[1])),)


def joined(left: Word, right: Word) -> Word:
    """Return the product of two words.

    Args:
        left: the left factor.
        right: the right factor.
    """
    if not left or not right:
        return left + right
    for k, atom in enumerate(left):
        if atom.kind == "sum":
            return _in_sum(atom, left[:k], joined(left[k + 1 :], right))
    if right[0].kind == "sum":
        return _in_sum(right[0], left, right[1:])
    last, first = left[-1], right[0]
    if last.kind == first.kind == "kronecker":
        l1, r1, l1_shape, r1_shape = last.parts
        l2, r2, l2_shape, r2_shape = first.parts
        if l1_shape[1] == l2_shape[0] and r1_shape[1] == r2_shape[0]:  # (A ⊗ B)(C ⊗ D) = AC ⊗ BD
            shapes = (l1_shape[0], l2_shape[1]), (r1_shape[0], r2_shape[1])
            merged = _kronecker(joined(l1, l2), joined(r1, r2), *shapes)
            return joined(joined(left[:-1], merged), right[1:])
    return left + right


def _shallow(word: Word) -> tuple[Any, ...]:
    """Return what words are sorted by: those with data last, then names; nested normal forms only by their hash."""

    def key(atom: Atom) -> tuple[str, int]:
        return (str(atom.parts[0]), 0) if atom.kind in ("parameter", "transpose") else (atom.kind, hash(atom))

    data = any(atom.kind == "activation" or isinstance(atom.parts[0], Variable) for atom in word)
    return (data, len(word), tuple(map(key, word)))


@lru_cache(maxsize=1 << 16)
def _commuted(word: Word) -> Word:
    """Return a word with the factors of every `v ⊙ w = diag(v) w = diag(w) v` in one order."""
    word = tuple(
        atom_of("sum", (_commuted(atom.parts[0]), *atom.parts[1:]), atom.shape) if atom.kind == "sum" else atom
        for atom in word
    )
    end = max((k + 1 for k, atom in enumerate(word) if atom.shape[1] == 1), default=0)
    tail: Word = word[end:]
    vector: Word = ()
    factors: list[Word] = []
    for atom in reversed(word[:end]):
        if atom.kind == "diagonal" and len(atom.parts[0].words) == 1 and vector:
            factors.append(next(iter(atom.parts[0].words)))
        else:
            vector = (atom, *_product_of_vectors(factors, vector))
            factors = []
    return (*_product_of_vectors(factors, vector), *tail)


def _product_of_vectors(factors: list[Word], vector: Word) -> Word:
    if not factors:
        return vector
    *first, last = sorted([*factors, vector], key=_shallow)
    shape = (last[0].shape[0], Integer(1))
    diagonals = (atom_of("diagonal", (NormalForm(shape, [(f, S.One)]),), (shape[0], shape[0])) for f in first)
    return (*diagonals, *last)


def kronecker_word(left: Word, right: Word, left_shape: Shape, right_shape: Shape) -> Word:
    """Return the Kronecker product of two words, with a sum in one of them taken out.

    Args:
        left: the left factor.
        right: the right factor.
        left_shape: its shape.
        right_shape: its shape.
    """
    for k, word in enumerate((left, right)):
        if len(word) == 1 and word[0].kind == "sum":
            inner, *bounds = word[0].parts
            level = bounds[0].level
            pair = (inner, _deeper(right, level)) if k == 0 else (_deeper(left, level), inner)
            body = kronecker_word(*pair, left_shape, right_shape)
            shape = (left_shape[0] * right_shape[0], left_shape[1] * right_shape[1])
            return (atom_of("sum", (body, *bounds), shape),)
    return _kronecker(left, right, left_shape, right_shape)


def vec_form(form: NormalForm) -> NormalForm:
    """Return `vec` of a normal form.

    Args:
        form: of a matrix.
    """
    shape = (form.shape[0] * form.shape[1], Integer(1))
    return NormalForm(shape, ((vec_word(word, form.shape), c) for word, c in form.words.items()))


def vec_word(word: Word, shape: Shape) -> Word:
    """Return `vec` of a word: `vec(A x B) = (A ⊗ Bᵀ) vec(x)`, `vec(u vᵀ) = u ⊗ v`, `vec(σ(Z)) = σ(vec(Z))`.

    Args:
        word: a word that is a matrix.
        shape: its shape.
    """
    rows, columns = shape
    if len(word) == 1 and word[0].kind == "sum":
        inner, *bounds = word[0].parts
        return (atom_of("sum", (vec_word(inner, shape), *bounds), (rows * columns, Integer(1))),)
    for k, atom in enumerate(word):
        if atom.kind == "activation" or (atom.kind == "parameter" and isinstance(atom.parts[0], Variable)):
            n, m = atom.shape
            if atom.kind == "activation":
                form, *function = atom.parts
                vector = vec_form(form)
                base = atom_of("activation", (vector, *function), vector.shape)
            else:
                base = atom_of("vec", ((atom,), atom.shape), (n * m, Integer(1)))
            outer = _kronecker(word[:k], transposed(word[k + 1 :]), (rows, n), (columns, m))
            return joined(outer, (base,))
    for k in range(1, len(word)):
        if word[k].shape[0] == 1:
            return _kronecker(word[:k], transposed(word[k:]), (rows, Integer(1)), (columns, Integer(1)))
    return (atom_of("vec", (word, shape), (rows * columns, Integer(1))),)
