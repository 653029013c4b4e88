"""Compute a normal form of matrix expressions, which decides whether two of them are equal.

An expression becomes a sum of words with every product distributed over every sum. If two have the same words, but for
names of indices, they are equal for all matrices, all sizes and every activation; no floating point is involved.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any

from sympy import Add, Dummy, Expr, Identity, KroneckerDelta, MatrixExpr, Mul, S, ZeroMatrix
from sympy.matrices.expressions import HadamardProduct, KroneckerProduct, MatAdd, MatMul, MatPow, Trace, Transpose
from sympy.matrices.expressions.matexpr import MatrixElement

from symbolic.equality.atoms import ActivationAtom, EntryAtom, PowerAtom, TraceAtom, diagonal, hadamard, summed
from symbolic.equality.definition import Bounds, Definition, applicable, nonnegative
from symbolic.equality.form import NormalForm, Summand
from symbolic.equality.linear_atoms import ParameterAtom, kronecker, times
from symbolic.equality.relation import rewritten, rules_of
from symbolic.equality.word import Atom, Word, expanded, indices_of
from symbolic.errors import ShapeMismatch, SymbolicError
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import IndexedSum, bound_index
from symbolic.expressions.matrix import MatrixProduct, check_product, check_sum
from symbolic.expressions.operations import Diagonal, Vec
from symbolic.expressions.parameter import Parameter
from symbolic.expressions.scalar import exact, scalars_in

Monomial = tuple[tuple[Word, ...], Expr]  # scalars, multiplied, with their coefficient

_ENDLESS = 150  # definitions put in one another


def _word(atom: Atom) -> Word:
    return Word((atom,), atom.shape)


def _as_monomials(form: NormalForm) -> list[Monomial]:
    """Return a 1 × 1 form as a sum of products of scalars."""
    return [(word.as_scalars(), coefficient) for word, coefficient in form.words.items()]


class Normaliser:
    """Normal forms under the same definitions, which share what they have in common.

    Args:
        definitions: definitions of parameters, and hypotheses, tried in this order.
    """

    def __init__(self, definitions: Iterable[Definition] = ()) -> None:
        definitions = tuple(definitions)
        self.definitions = tuple(definition for definition in definitions if not definition.is_relation)
        relations = [definition for definition in definitions if definition.is_relation]
        self.rules = [rule for relation in relations for rule in rules_of(relation, self._plain.form)]
        self.used: dict[Definition, None] = {}  # the definitions and relations that were applied, in order
        self.seen: dict[Any, NormalForm] = {}
        self.open: set[Parameter] = set()  # whose definitions are being put in
        self.shapes: dict[tuple[Any, ...], Parameter] = {}

    def form(self, expression: MatrixExpr, bounds: Bounds | None = None) -> NormalForm:
        """Return the normal form of an expression."""
        bounds = bounds or {}
        key = (expression, tuple(bounds.items()))
        if key not in self.seen:
            form = self._form(expression, bounds)
            if self.rules:
                form, used = rewritten(form, self.rules, bounds, lambda right: self.form(right, bounds))
                self.used |= dict.fromkeys(used)
            self.seen[key] = form
        return self.seen[key]

    def _form(self, expression: MatrixExpr, bounds: Bounds) -> NormalForm:
        match expression:
            case Parameter():
                return self._parameter(expression, bounds)
            case Identity():
                return NormalForm(expression.shape, [(Word((), expanded(expression.shape)), S.One)])
            case ZeroMatrix():
                return NormalForm(expression.shape, [])
            case MatAdd():
                return self._sum([self.form(argument, bounds) for argument in expression.args], expression.args)
            case MatMul():
                return self._product(expression, bounds)
            case MatPow() if expression.exp.is_Integer and expression.exp > 0:
                return self.form(MatrixProduct(*[expression.base] * int(expression.exp)), bounds)
            case Transpose():
                return self.form(expression.arg, bounds).transposed()
            case Activation():
                inner = self.form(expression.argument, bounds)
                function = expression.order, expression.function, expression.indices
                atom = ActivationAtom.shared(inner.shape, inner, *function)
                return NormalForm(inner.shape, [(_word(atom), S.One)])
            case Diagonal():
                vector = self.form(expression.vector, bounds)
                return NormalForm(expression.shape, ((diagonal(word), c) for word, c in vector.words.items()))
            case HadamardProduct():
                left, *rest = expression.args
                right = rest[0] if len(rest) == 1 else HadamardProduct(*rest)
                return self._hadamard(left, right, bounds)
            case KroneckerProduct():
                left, *rest = expression.args
                right = rest[0] if len(rest) == 1 else KroneckerProduct(*rest)
                pairs = _pairs(self.form(left, bounds).summands, self.form(right, bounds).summands)
                return NormalForm(expression.shape, ((kronecker(l, r), c) for l, r, c in pairs))
            case Vec():
                return self.form(expression.matrix, bounds).vec()
            case IndexedSum():
                return self._indexed_sum(expression, bounds)
        raise SymbolicError(
            f"{expression} ({type(expression).__name__}) has no normal form: build it from parameters, sums, products,"
            " transposes, Kronecker products, products entry by entry, vec, diag, activations and indexed sums"
        )

    @cached_property
    def _plain(self) -> "Normaliser":
        """The normal forms without definitions."""
        return Normaliser()

    def _parameter(self, parameter: Parameter, bounds: Bounds) -> NormalForm:
        key = (parameter.of_layer, parameter.letter, parameter.lower, parameter.upper)
        first = self.shapes.setdefault(key, parameter)
        if first.shape != parameter.shape:
            raise ShapeMismatch(
                f"{parameter} is used with two shapes, {first.shape[0]} × {first.shape[1]} and {parameter.shape[0]} ×"
                f" {parameter.shape[1]}: give one of them another letter or index"
            )
        definition_and_meaning = applicable(parameter, self.definitions, bounds)
        if definition_and_meaning is None:
            return NormalForm(parameter.shape, [(_word(ParameterAtom.shared(parameter.shape, parameter)), S.One)])
        definition, meaning = definition_and_meaning
        self.used[definition] = None
        check_sum(parameter, meaning)
        if parameter in self.open or len(self.open) > _ENDLESS:
            raise SymbolicError(f"{parameter} is defined by itself: define it by parameters of earlier layers only")
        self.open.add(parameter)
        try:
            return self.form(meaning, bounds)
        finally:
            self.open.remove(parameter)

    @staticmethod
    def _sum(forms: list[NormalForm], expressions: tuple[MatrixExpr, ...]) -> NormalForm:
        for expression in expressions:
            check_sum(expressions[0], expression)
        return NormalForm(forms[0].shape, (pair for form in forms for pair in form.words.items()))

    def _product(self, expression: MatMul, bounds: Bounds) -> NormalForm:
        coefficient, factors = expression.as_coeff_matrices()
        for left, right in pairwise(factors):
            check_product(left, right)
        *before, last = (self.form(factor, bounds) for factor in factors)
        monomials = self._monomials(coefficient, bounds)
        product = [(word.scaled(scalars), c * d) for scalars, c in monomials for word, d in last.words.items()]
        for form in reversed(before):
            product = [(times(left, right), c) for left, right, c in _pairs(form.summands, product)]
        return NormalForm((factors[0].shape[0], last.shape[1]), product)

    def _monomials(self, coefficient: Expr, bounds: Bounds) -> list[Monomial]:
        """Return a coefficient as a sum of products of scalars, each with a number."""
        names = {part: Dummy() for part in scalars_in(coefficient)}
        if not names:
            return [((), exact(coefficient))]
        known = {name: part for part, name in names.items()}
        total = []
        for term in Add.make_args(exact(coefficient.xreplace(names)).expand()):
            monomials: list[Monomial] = [((), S.One)]
            for factor in Mul.make_args(term):
                of_factor = self._power(factor, known, bounds)
                monomials = [((*a, *b), c * d) for a, c in monomials for b, d in of_factor]
            total += monomials
        return total

    def _power(self, factor: Expr, known: dict[Expr, Expr], bounds: Bounds) -> list[Monomial]:
        """Return one factor of a coefficient, in which scalars have names."""
        if not factor.free_symbols & known.keys():
            return [((), factor)]
        base, exponent = factor.as_base_exp()
        if exponent != 1 or base not in known:
            if not factor.is_Pow or exponent.free_symbols & known.keys() or indices_of(exponent):
                raise SymbolicError(
                    f"{factor.xreplace(known)} has no normal form: of scalars there are sums, products and powers;"
                    " name what it is, scalar('a'), or held_scalar('a') where it moves with the input"
                )
            number = self.form(MatrixProduct(base.xreplace(known), Identity(1)), bounds)
            if exponent.is_Integer and exponent > 0:
                power: list[Monomial] = [((), S.One)]
                for _ in range(int(exponent)):
                    power = [((*a, *b), c * d) for a, c in power for b, d in _as_monomials(number)]
                return power
            return [((_word(PowerAtom.to_the(number, exponent)),), S.One)]
        match known[base]:
            case MatrixElement(parent=matrix, i=row, j=column):
                return self._entry(self.form(matrix, bounds), row, column)
            case Trace(arg=matrix):
                words = self.form(matrix, bounds).words.items()
                return [((*w.scalars, _word(TraceAtom.shared((S.One, S.One), w.alone()))), c) for w, c in words]
        raise SymbolicError(f"{known[base]} has no normal form: of scalars there are entries and traces")

    @staticmethod
    def _entry(form: "NormalForm", row: Expr, column: Expr) -> list[Monomial]:
        if form.shape == (1, 1):
            return _as_monomials(form)
        monomials: list[Monomial] = []
        for word, coefficient in form.words.items():
            if word.atoms:
                monomials.append(
                    ((*word.scalars, _word(EntryAtom.shared((S.One, S.One), word.alone(), row, column))), coefficient)
                )
            else:
                monomials.append((word.scalars, coefficient * KroneckerDelta(row, column)))
        return monomials

    def _hadamard(self, left: MatrixExpr, right: MatrixExpr, bounds: Bounds) -> NormalForm:
        check_sum(left, right)
        if left.shape[1] == 1:
            return self.form(MatMul(Diagonal(left), right), bounds)
        pairs = _pairs(self.form(left, bounds).summands, self.form(right, bounds).summands)
        return NormalForm(left.shape, ((hadamard(l, r), c) for l, r, c in pairs))

    def _indexed_sum(self, total: IndexedSum, bounds: Bounds) -> NormalForm:
        # Multiplied out, and a summand at a time: each has an offset of its own.
        body = self._plain.form(total.body, {**bounds, total.index: (total.first, total.last)})
        if not body.words:
            return body
        parts = tuple(total.func(MatrixProduct(c, w.expression()), *total.args[1:]) for w, c in body.words.items())
        if len(parts) > 1:
            return self._sum([self.form(part, bounds) for part in parts], parts)
        (total,) = parts
        # The index counts such that the highest one in the summand is the index itself: later ones may not be defined.
        shift = _offset(total)
        first, last = (total.first + shift).expand(), (total.last + shift).expand()

        def written_out(start: Expr, stop: Expr) -> list[Summand]:
            """Return the terms from `start + 1` to `stop`, or minus those from `stop + 1` to `start`."""
            count = int(stop - start)
            ks, sign = (range(1, count + 1), 1) if count > 0 else (range(count + 1, 1), -1)
            forms = (self.form(total.at((start + k - shift).expand()), bounds) for k in ks)
            return [(word, sign * c) for form in forms for word, c in form.words.items()]

        def up_to(end: Expr) -> list[Summand] | None:
            """Return the terms from 1 to `end`, those beyond a symbol written out."""
            constant, base = end.as_coeff_Add()
            if not constant.is_Integer or not nonnegative(base, bounds):
                return None
            whole = [] if base == 0 else self._from_to(total, shift, S.One, base, bounds)
            return whole + written_out(base, end)

        if (last - first).is_Integer:
            return NormalForm(total.shape, written_out(first - 1, last) if last - first >= 0 else ())
        if nonnegative(last - first + 1, bounds):
            after, before = up_to(last), up_to(first - 1)
            if after is not None and before is not None:
                return NormalForm(total.shape, [*after, *((word, -c) for word, c in before)])
        return NormalForm(total.shape, self._from_to(total, shift, first, last, bounds))

    def _from_to(self, total: IndexedSum, shift: Expr, first: Expr, last: Expr, bounds: Bounds) -> list[Summand]:
        """Return the sum over the summand from a first to a last value of its index, which stays a symbol."""
        index = bound_index(len(bounds), total.index.name)
        body = self.form(total.at((index - shift).expand()), {**bounds, index: (first, last)})
        if len(body.words) > 1:
            parts = [total.func(MatrixProduct(c, w.expression()), index, first, last) for w, c in body.words.items()]
            return self._sum([self.form(part, bounds) for part in parts], tuple(parts)).summands
        if any(coefficient.has(index) for coefficient in body.words.values()):
            raise SymbolicError(f"{total} has a coefficient in its index: put it in a parameter of its own")
        length = last - first + 1
        alike = nonnegative(length, bounds)  # a summand without the index comes so many times
        return [
            (word, length * c) if alike and index not in word.free else (summed(word, index, first, last), c)
            for word, c in body.words.items()
        ]


def _offset(total: IndexedSum) -> Expr:
    """Return the highest offset that is added to the index in the summand; 0 if there is no highest."""
    added = {
        offset
        for part in total.body.atoms(Parameter, Activation)
        for k in part.indices
        if k.has(total.index) and not (offset := (k - total.index).expand()).has(total.index)
    }
    for highest in added:
        if all((highest - offset).is_Integer and nonnegative(highest - offset) for offset in added):
            return highest
    return S.Zero


def _pairs(left: list[Summand], right: list[Summand]) -> Iterator[tuple[Word, Word, Expr]]:
    """Yield all pairs of words of two sums, with the product of their coefficients."""
    for r, b in right:
        for l, a in left:
            yield l, r, a * b
