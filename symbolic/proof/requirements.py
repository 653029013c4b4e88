"""Say what the steps of a derivation ask of activation functions, sizes, numbers and the order of entries."""

from collections.abc import Iterable, Mapping

from sympy import Basic, Expr, MatrixBase, Pow, Symbol, sstr

from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import Index
from symbolic.expressions.parameter import Ones, Parameter
from symbolic.expressions.vec import Vec
from symbolic.proof.step import Step

FUNCTIONS = "An activation function is any function of one number, applied entry by entry."

VEC = "vec puts the rows of a matrix under one another, so that vec(A B C) = (A ⊗ C^T) vec(B)."


def requirements(steps: Iterable[Step], words: Mapping[str, str]) -> tuple[str, ...]:
    """Return sentences on what equations ask of what stands in them.

    Steps between matrices that are written out entry by entry name their sizes themselves.

    Args:
        steps: the equations.
        words: the meanings of letters and functions that are known, of which nothing is asked.
    """
    sides = [
        side
        for step in steps
        if not any(isinstance(side, MatrixBase) for side in (step.left, step.right))
        for side in (step.left, step.right)
        if isinstance(side, Basic)
    ]
    activations = {part for side in sides for part in side.atoms(Activation)}
    functions = {part.function for part in activations} - words.keys()
    own = sorted({part.function for part in activations if part.indices})
    return tuple(
        filter(
            None,
            (
                FUNCTIONS if functions else "",
                f"Every layer has its own {_listed(own)}." if own else "",
                VEC if any(side.has(Vec) for side in sides) else "",
                _sizes(sides),
                _numbers(sides),
            ),
        )
    )


def _sizes(sides: Iterable[Basic]) -> str:
    """Return the sentence on sizes: those that are symbols, and those that are numbers with what they belong to."""
    symbols: set[Symbol] = set()
    numbers: dict[tuple[Expr, Expr], dict[str, None]] = {}
    for side in sides:
        symbols |= {s for s in side.free_symbols if s.is_integer and s.is_positive and not isinstance(s, Index)}
        for parameter in sorted(side.atoms(Parameter) - side.atoms(Ones), key=str):
            rows, columns = parameter.shape
            symbols |= rows.free_symbols | columns.free_symbols
            if rows.is_Integer or (columns.is_Integer and columns != 1):
                letter = parameter.func(parameter.letter, parameter.lower[1:], rows, columns)
                numbers.setdefault((rows, columns), {})[sstr(letter)] = None
    parts = []
    if symbols:
        names = sorted(map(str, symbols))
        parts.append(f"{_listed(names)} {'are any positive integers' if len(names) > 1 else 'is any positive integer'}")
    for (rows, columns), letters in sorted(numbers.items(), key=str):
        parts.append(f"{_listed(list(letters))} {'are' if len(letters) > 1 else 'is'} {rows} × {columns}")
    return f"Sizes: {'; '.join(parts)}." if parts else ""


def _numbers(sides: Iterable[Basic]) -> str:
    """Return the sentence on the numbers that are divided by, or of which a root is taken."""
    conditions: dict[str, None] = {}
    for power in sorted({power for side in sides for power in side.atoms(Pow)}, key=str):
        if condition := _condition(power):
            conditions[condition] = None
    return f"{_listed(list(conditions))}." if conditions else ""


def _condition(power: Pow) -> str:
    """Return what a power asks of its base; nothing if the symbols' declarations say so already."""
    base, exponent = power.as_base_exp()
    if exponent.is_Integer:
        return "" if exponent > 0 or base.is_nonzero else f"{sstr(base)} ≠ 0"
    if exponent.is_positive:
        return "" if base.is_nonnegative else f"{sstr(base)} ≥ 0"
    return "" if base.is_positive else f"{sstr(base)} > 0"


def _listed(names: list[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
