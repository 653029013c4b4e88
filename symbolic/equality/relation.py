"""Use relations between parameters, such as `H 1 = 1` and `Qᵀ Q = I`, as rules that make products shorter."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from sympy import Expr, MatrixExpr, S, Symbol

from symbolic.equality.definition import Bounds, Definition, nonnegative, unmatched
from symbolic.equality.form import NormalForm, Summand
from symbolic.equality.linear_atoms import KroneckerAtom, ParameterAtom, TransposeAtom, kronecker, times
from symbolic.equality.word import Atom, Word
from symbolic.errors import SymbolicError

_ENDLESS = 1000  # replacements in one expression

Form = Callable[[MatrixExpr], NormalForm]


class Rule(NamedTuple):
    """A relation, read from its longer side to its shorter one.

    Args:
        pattern: the factors that are replaced.
        right: what they are replaced by.
        relation: the relation.
    """

    pattern: tuple[Atom, ...]
    right: MatrixExpr
    relation: Definition


def rules_of(relation: Definition, form: Form) -> Iterator[Rule]:
    """Yield a relation as a rule, and its transpose as another one."""
    for left, right in ((relation.left, relation.right), (relation.right, relation.left)):
        pattern = _pattern(form(left))
        if pattern and _is_shorter(form(right), pattern):
            transposed = _pattern(form(left.T))
            yield Rule(pattern, right, relation)
            if transposed and transposed != pattern and len(pattern) > 1:
                yield Rule(transposed, right.T, relation)
            return
    raise SymbolicError(
        f"{relation.left} = {relation.right} can't be used as a relation: give a product of parameters on one side and"
        " something with fewer factors on the other, as in Qᵀ Q = I, H 1 = 1, or S = Sᵀ"
    )


def _pattern(form: NormalForm) -> tuple[Atom, ...]:
    """Return the factors of a form that is one product; none if it isn't."""
    ((word, coefficient),) = form.summands if len(form.words) == 1 else ((Word((), form.shape), S.Zero),)
    return word.atoms if coefficient == 1 and not word.scalars else ()


def _is_shorter(form: NormalForm, pattern: tuple[Atom, ...]) -> bool:
    if len(pattern) == 1 and isinstance(pattern[0], TransposeAtom):
        return _pattern(form) == (pattern[0].inner,)
    return all(len(word.atoms) < len(pattern) for word in form.words)


def _agree(pattern: Atom, atom: Atom, variables: tuple[Symbol, ...], values: dict[Symbol, Expr]) -> bool:
    """Tell whether an atom is one of a pattern, and note the values of the pattern's variables."""
    match pattern, atom:
        case TransposeAtom(), TransposeAtom():
            return _agree(pattern.inner, atom.inner, variables, values)
        case ParameterAtom(), ParameterAtom() if variables and pattern.shape == atom.shape:
            zero = unmatched(pattern.parameter, atom.parameter, variables, values)
            return zero is not None and not any(zero)
    return pattern == atom


def _replaced(word: Word, rules: Iterable[Rule], bounds: Bounds, form: Form) -> tuple[list[Summand], Rule] | None:
    """Return what a word becomes by the first rule that applies to it, and the rule."""
    for rule in rules:
        length = len(rule.pattern)
        for start in range(len(word.atoms) - length + 1):
            values: dict[Symbol, Expr] = {}
            met = zip(rule.pattern, word.atoms[start : start + length], strict=True)
            if all(_agree(p, a, rule.relation.variables, values) for p, a in met) and all(
                nonnegative(value, bounds) for value in values.values()
            ):
                right = form(rule.right.xreplace(values))
                before = Word(word.atoms[:start], (word.shape[0], right.shape[0]), word.scalars)
                after = Word(word.atoms[start + length :], (right.shape[1], word.shape[1]))
                return [(times(times(before, w), after), c) for w, c in right.words.items()], rule
    for k, atom in enumerate(word.atoms):
        if isinstance(atom, KroneckerAtom):
            for side, other in ((atom.left, atom.right), (atom.right, atom.left)):
                if (replacement := _replaced(side, rules, bounds, form)) is not None:
                    parts, rule = replacement
                    before = Word(word.atoms[:k], (word.shape[0], atom.shape[0]), word.scalars)
                    after = Word(word.atoms[k + 1 :], (atom.shape[1], word.shape[1]))
                    pairs = ((kronecker(w, other) if side is atom.left else kronecker(other, w), c) for w, c in parts)
                    return [(times(times(before, pair), after), c) for pair, c in pairs], rule
    return None


def rewritten(
    whole: NormalForm, rules: Iterable[Rule], bounds: Bounds, form: Form
) -> tuple[NormalForm, tuple[Definition, ...]]:
    """Return a form with rules applied wherever they apply, and the relations that were used."""
    used: dict[Definition, None] = {}
    done: list[Summand] = []
    waiting = whole.summands
    for _ in range(_ENDLESS):
        if not waiting:
            return (NormalForm(whole.shape, done) if used else whole), tuple(used)
        word, coefficient = waiting.pop()
        if (replacement := _replaced(word, rules, bounds, form)) is None:
            done.append((word, coefficient))
        else:
            used[replacement[1].relation] = None
            waiting += [(w, c * coefficient) for w, c in replacement[0]]
    raise SymbolicError("the relations replace one another without end: give fewer of them")
