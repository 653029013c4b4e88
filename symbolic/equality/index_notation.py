"""Write words in index notation, the same for every way to write a product of the same entries.

`A B` is `A_{rk} B_{kc}` and `diag(v) w` is `v_r w_r`; `vec(A)` is `A_{ij}` with the pair `ij` for its row, and where
`A ⊗ B` meets `C ⊗ D` the pairs meet index by index. What `⊗`, `vec`, `diag`, `⊙` and transposes say about each other is
nothing but names of indices: two words are equal if they differ in these names alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from functools import cache, lru_cache
from itertools import accumulate, count, pairwise, permutations
from typing import Any, NamedTuple

from sympy import Basic, Expr, Mul, S, Symbol, Tuple
from sympy.core.symbol import Str

from symbolic.equality.atoms import ActivationAtom, DiagonalAtom, EntryAtom, HadamardAtom, SumAtom, TraceAtom
from symbolic.equality.canonical_order import Factor, canonical
from symbolic.equality.linear_atoms import KroneckerAtom, ParameterAtom, TransposeAtom, VecAtom
from symbolic.equality.word import Atom, Form, Word
from symbolic.expressions.indexed_sum import Index
from symbolic.expressions.parameter import Ones

Side = tuple[int, ...]  # the rows, or the columns, of a matrix: the pair ij of a Kronecker product is (i, j)

Sides = tuple[Side, Side]

Environment = dict[Symbol, Expr]  # what the bound indices of the sums around are called here


class View(NamedTuple):
    """One way to read a factor: `A_{ij}`, or `σ(Zᵀ)_{ji}` for `σ(Z)_{ij}`.

    Args:
        label: what it is.
        sides: its indices.
        variables: the indices of summation in its label, in the order in which they are named there.
    """

    label: Hashable
    sides: tuple[Side, ...]
    variables: tuple[Symbol, ...] = ()


_PLACE = Str("place")  # the label of the vector that has 1 at one place and 0 elsewhere

_NEXT = count()


@cache
def _number(label: Hashable) -> int:
    """Return a number for a label, the same one for equal labels: labels have no order of their own."""
    return next(_NEXT)


@cache
def _place(k: int) -> Index:
    """Return the name of the k-th index of summation in a label."""
    return Index(f"j{k}", integer=True)


class IndexNotation:
    """The factors of a word with their indices, which are numbers; an index of size 1 isn't written.

    Args:
        environment: what the bound indices of the sums around are called here.
        named: how many names of indices of summation are taken.
    """

    def __init__(self, environment: Environment | None = None, named: int = 0) -> None:
        self.environment = environment or {}
        self.named = named
        self.sizes: list[Expr] = []
        self.meaning: dict[int, Side] = {}  # an index that was found to be a pair, or another index
        self.fixed: dict[int, Expr] = {}  # an index that has one value only
        self.factors: list[list[View]] = []
        self.variables: set[Symbol] = set()

    def _index(self, size: Expr) -> Side:
        """Return a new index."""
        if size == 1:
            return ()
        self.sizes.append(size)
        return (len(self.sizes) - 1,)

    def word(self, word: Word) -> Sides:
        """Write the factors of a word down, and return the indices of its rows and of its columns."""
        for scalar in word.scalars:
            self.word(scalar)
        if not word.atoms:
            rows = self._index(word.shape[0])
            return rows, rows
        rows, columns = self._sides(word.atoms[0])
        for atom in word.atoms[1:]:
            inner, last = self._sides(atom)
            self._join(columns, inner)
            columns = last
        return rows, columns

    def _sides(self, atom: Atom) -> Sides:
        """Write the entries of an atom down, and return the indices of its rows and of its columns."""
        match atom:
            case ParameterAtom(parameter=parameter):
                sides = self._index(atom.shape[0]), self._index(atom.shape[1])
                if not isinstance(parameter, Ones):  # whose entries are 1, and no factor
                    self._factor(parameter, *sides)
                return sides
            case TransposeAtom(inner=inner):
                rows, columns = self._sides(inner)
                return columns, rows
            case VecAtom(matrix=matrix):
                rows, columns = self.word(matrix)
                return rows + columns, ()
            case DiagonalAtom(vector=vector):
                rows, _ = self.word(vector)
                return rows, rows
            case KroneckerAtom(left=left, right=right):
                (a, c), (b, d) = self.word(left), self.word(right)
                return a + b, c + d
            case HadamardAtom(left=left, right=right):
                (a, c), (b, d) = self.word(left), self.word(right)
                self._join(a, b)
                self._join(c, d)
                return a, c
            case TraceAtom(matrix=matrix):
                self._join(*self.word(matrix))
            case EntryAtom(matrix=matrix, row=row, column=column):
                rows, columns = self.word(matrix)
                self._fix(rows, row)
                self._fix(columns, column)
            case SumAtom():
                return self._summand(atom)
            case ActivationAtom():
                return self._activation(atom)
        return (), ()

    def _fix(self, side: Side, place: Expr) -> None:
        """Give the indices of a side one value, that of an entry."""
        side = self._read(side)
        while len(side) > 1 and place.is_Integer and self.sizes[side[-1]].is_Integer:
            place, last = divmod(place, self.sizes[side[-1]])
            self._fix(side[-1:], last)
            side = side[:-1]
        if len(side) == 1 and place.is_Integer and self.fixed.get(side[0], place) == place:
            self.fixed[side[0]] = place
        elif side:
            self._factor(Tuple(_PLACE, place), side)

    def _size(self, side: Side) -> Expr:
        """Return how many values indices take together."""
        return Mul(*(self.sizes[i] for i in side)).expand()

    def _read(self, side: Side) -> Side:
        """Return indices with joined ones replaced by what they were joined with."""
        if self.meaning.keys().isdisjoint(side):
            return side
        return self._read(tuple(j for i in side for j in self.meaning.get(i, (i,))))

    def _join(self, left: Side, right: Side) -> None:
        """Make the indices of two sides the same, from the left; an index may become a pair."""
        left, right = self._read(left), self._read(right)
        if len(left) == len(right) == 1:
            if left != right:
                self.meaning[left[0]] = right
            return
        while left and right:
            p, q = next(
                (p, q)
                for p in range(1, len(left) + 1)
                for q in range(1, len(right) + 1)
                if self._size(left[:p]) == self._size(right[:q])
            )
            a, b = left[:p], right[:q]
            if a != b:
                if p == 1:
                    self.meaning[a[0]] = b
                elif q == 1:
                    self.meaning[b[0]] = a
                else:  # N · M and M · N: the same number written in two ways
                    self.factors.append([View("the same number", (a, b)), View("the same number", (b, a))])
            left, right = self._read(left[p:]), self._read(right[q:])

    def _factor(self, expression: Basic, *sides: Side) -> None:
        """Write a factor down."""
        expression = expression.xreplace(self.environment) if self.environment else expression
        variables = expression.free_symbols & self.variables if self.variables else ()
        self.factors.append(
            [View(expression.xreplace(names), sides, order) for order, names in self._names(variables)]
            if variables
            else [View(expression, sides)]
        )

    def _names(self, variables: Any) -> Iterator[tuple[tuple[Symbol, ...], dict[Symbol, Symbol]]]:
        """Yield every order of indices of summation, and what they are called in it."""
        for order in permutations(variables):
            yield order, {variable: _place(self.named + k) for k, variable in enumerate(order)}

    def _summand(self, total: SumAtom) -> Sides:
        """Write a sum with symbolic bounds down: its summand, with a new index that counts from 0."""
        outer = self.environment
        first, last = (bound.xreplace(outer) for bound in (total.first, total.last))
        variable = Index("j", integer=True)
        self.variables.add(variable)
        self._factor(Tuple(variable, (last - first).expand()))
        self.environment = outer | {total.index: first + variable}
        sides = self.word(total.word)
        self.environment = outer
        return sides

    def _activation(self, atom: ActivationAtom) -> Sides:
        """Write an activation down, which doesn't depend on which of its indices are rows and which are columns."""
        form = atom.argument
        parts = _parts(form)
        sides = tuple(self._index(size) for size in parts)
        rows, columns = (self._index(size) for size in atom.shape)
        self._join(rows + columns, tuple(i for side in sides for i in side))
        names = {s: self.environment[s] for s in atom.free if s in self.environment}
        variables = {s for name in names.values() for s in name.free_symbols} & self.variables
        views = []
        for order, called in self._names(variables):
            environment = tuple((s, name.xreplace(called)) for s, name in names.items())
            named = self.named + len(order) if names else 0
            function = atom.function, atom.order, atom.lower.xreplace(dict(environment))
            for arrangement in permutations(range(len(parts))):
                argument = _arranged(form, environment, named, parts, arrangement)
                views.append(View((*function, argument), tuple(sides[k] for k in arrangement), order))
        self.factors.append(views)
        return rows, columns

    def _merged(self, *outer: Side) -> list[Side]:
        """Return the sides of all factors, and of the whole, with one index for two that always stand together."""
        whole = (*outer, *(side for views in self.factors for side in views[0].sides))
        while True:
            sides = [self._read(side) for side in whole]
            if all(len(side) < 2 for side in sides):
                return sides
            after: dict[int | None, set[int | None]] = defaultdict(set)
            before: dict[int | None, set[int | None]] = defaultdict(set)
            for side in sides:
                for a, b in pairwise((None, *side, None)):
                    after[a].add(b)
                    before[b].add(a)
            pairs = ((a, b) for side in sides for a, b in pairwise(side) if after[a] == {b} and before[b] == {a})
            if (pair := next((pair for pair in pairs if self.fixed.keys().isdisjoint(pair)), None)) is None:
                return sides
            self.sizes[pair[0]] = self._size(pair)
            self.meaning[pair[1]] = ()

    def _parts(self, side: Side) -> list[Expr]:
        """Return the sizes of the indices of the whole word, all of them in one row."""
        return [self.sizes[i] for i in self._merged(side)[0]]

    def _key(self, *outer: Side) -> Hashable:
        """Return a key that is equal for words that differ in the names of their indices alone."""
        sides = self._merged(*outer)
        known: dict[Any, int] = {}
        for i in (i for side in sides[: len(outer)] for i in side):
            known.setdefault(i, len(known))
        written = tuple(tuple((known[i], self.sizes[i]) for i in side) for side in sides[: len(outer)])
        return written, canonical([self._numbered(views) for views in self.factors], known)

    def _loops(self, *outer: Side) -> Expr:
        """Return the product of the sizes of the indices that no factor has."""
        used = {i for side in self._merged(*outer) for i in side} | self.fixed.keys()
        return self._size(tuple(i for i in range(len(self.sizes)) if i not in used and i not in self.meaning))

    def _numbered(self, views: list[View]) -> Factor:
        """Return the number of a factor with its indices, in each of the ways to read it that come first."""
        numbered: Factor = []
        for view in views:
            sides = [self._read(side) for side in view.sides]
            sizes = tuple(None if len(side) == 1 else tuple(self.sizes[i] for i in side) for side in sides)
            places = tuple(self.fixed.get(i) for side in sides for i in side)
            indices = (i for side in sides for i in side if i not in self.fixed)
            numbered.append((_number((view.label, sizes, places)), (*indices, *view.variables)))
        first = min(number for number, _ in numbered)
        return [(number, indices) for number, indices in numbered if number == first]


@lru_cache(maxsize=1 << 16)
def word_key(word: Word) -> tuple[Hashable, Expr]:
    """Return a key that is equal for multiples of a word, and the number that multiplies this one."""
    notation = IndexNotation()
    sides = notation.word(word)
    return notation._key(*sides), notation._loops(*sides)


@lru_cache(maxsize=1 << 16)
def _parts(form: Form) -> tuple[Expr, ...]:
    """Return the sizes of the indices that all words of a form have, rows and columns in one row."""
    common: list[Expr] | None = None
    for word in form.words:
        notation = IndexNotation()
        rows, columns = notation.word(word)
        cuts = list(accumulate(notation._parts(rows + columns), lambda a, b: (a * b).expand()))
        common = cuts if common is None else [cut for cut in common if cut in cuts]
    if common is None:  # σ(0)
        return tuple(size for size in form.shape if size != 1)
    return tuple((b / a).cancel() for a, b in pairwise((S.One, *common)))


@lru_cache(maxsize=1 << 16)
def _arranged(
    form: Form,
    environment: tuple[tuple[Symbol, Expr], ...],
    named: int,
    parts: tuple[Expr, ...],
    arrangement: tuple[int, ...],
) -> Hashable:
    """Return a key that is equal for equal forms with their indices in an order, rows and columns in one row."""
    names = dict(environment)
    keys = []
    for word, coefficient in form.words.items():
        notation = IndexNotation(names, named)
        rows, columns = notation.word(word)
        sides = [notation._index(size) for size in parts]
        notation._join(rows + columns, tuple(i for side in sides for i in side))
        outer = [sides[k] for k in arrangement]
        keys.append((notation._key(*outer), (notation._loops(*outer) * coefficient.xreplace(names)).expand()))
    return frozenset(keys)
