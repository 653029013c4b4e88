"""State the hypotheses of theorems, in words and as equations."""

from collections.abc import Iterable, Mapping, Sequence

from sympy import Basic, Expr, MatrixBase, Pow, Symbol, sstr

from symbolic.equality.definition import Definition
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import Index
from symbolic.expressions.latex import escaped, typeset
from symbolic.expressions.operations import Vec
from symbolic.expressions.parameter import Ones, Parameter, i
from symbolic.proof.step import Equation, Hypothesis, Step

HELD = (
    "A parameter that the network computes from its input (an attention pattern, a norm's scale, a gate) is held: it is"
    " treated as a constant, at its value on this input."
)

NOTHING_HELD = "Nothing is held: at the other input every parameter may have another value."


def residual_layers(layer: Definition) -> Step:
    """Return the hypothesis that every layer is a residual term."""
    return Step(layer.left, layer.right, f"Every layer is the residual term of {equation_20(layer)}", None)


def equation_20(layer: Definition) -> str:
    """Return the name of Eq. 20, for layers of one term, or of its extension to more."""
    return "Eq. 20, extended to several terms" if len(layer.right.atoms(Activation)) > 1 else "Eq. 20"


def of_a_held_stack(layer: Definition) -> tuple[Hypothesis, ...]:
    """Return the hypotheses of the closed form: layers that are residual terms, with their parameters held."""
    return residual_layers(layer), HELD


def moving_parameters(held: Iterable[Parameter], weights: Iterable[Parameter]) -> str:
    """Return the hypothesis on the parameters of a layer at two inputs."""
    moving, still = ", ".join(map(str, held)), ", ".join(map(str, weights))
    moves = f"Nothing is held: at the other input {moving} may have other values." if moving else "Nothing is held."
    return moves + (f" The same at both inputs: {still}." if still else "")


def held_parameters(held: Iterable[Parameter]) -> str:
    """Return the hypothesis that some parameters are held, or that none depends on the input."""
    names = ", ".join(map(str, held))
    if not names:
        return "No parameter of a layer depends on the input."
    return f"Held, that is, treated as constants, at their values on this input: {names}."


FUNCTIONS = "An activation function is any function of one number, applied entry by entry."

VEC = "vec puts the rows of a matrix under one another, so that vec(A B C) = (A ⊗ C^T) vec(B)."


def requirements(steps: Iterable[Step], words: Mapping[str, str], counts: str) -> tuple[str, ...]:
    """Return sentences on what equations ask of what stands in them."""
    sides = _sides(steps)
    functions = {part.function for side in sides for part in side.atoms(Activation)} - words.keys()
    every, vec, numbers = _conventions(sides)
    return tuple(filter(None, (FUNCTIONS if functions else "", every, vec, _sizes(sides, counts), numbers)))


def conventions(steps: Iterable[Step]) -> tuple[str, ...]:
    """Return those of the sentences that letters with their spaces and meanings don't say."""
    return tuple(filter(None, _conventions(_sides(steps))))


def _conventions(sides: Sequence[Basic]) -> tuple[str, str, str]:
    own = sorted({part.function for side in sides for part in side.atoms(Activation) if part.indices})
    every = f"Every layer has its own {listed(own)}." if own else ""
    return every, VEC if any(side.has(Vec) for side in sides) else "", _numbers(sides)


def _sides(steps: Iterable[Step]) -> list[Basic]:
    # Steps between matrices that are written out entry by entry name their sizes themselves.
    pairs = ((step.left, step.right) for step in steps)
    pairs = (pair for pair in pairs if not any(isinstance(side, MatrixBase) for side in pair))
    return [side for pair in pairs for side in pair if isinstance(side, Basic)]


def symbolic_sizes(sides: Iterable[Basic]) -> list[str]:
    """Return the names of the sizes that are symbols."""
    parts = {part for side in sides for part in side.atoms(Parameter, Symbol)}
    shapes = (
        size for part in parts if isinstance(part, Parameter) and not isinstance(part, Ones) for size in part.shape
    )
    symbols = {part for part in parts if isinstance(part, Symbol)}.union(*(size.free_symbols for size in shapes))
    sizes = (each for each in symbols if each.is_integer and each.is_positive and not isinstance(each, Index))
    return sorted(map(str, sizes))


def _sizes(sides: Sequence[Basic], counts: str) -> str:
    """Return the sentence on sizes: those that are symbols, and those that are numbers with what they belong to."""
    numbers: dict[tuple[Expr, Expr], dict[str, None]] = {}
    for side in sides:
        numbered = [
            parameter
            for parameter in side.atoms(Parameter) - side.atoms(Ones)
            if parameter.shape[0].is_Integer or (parameter.shape[1].is_Integer and parameter.shape[1] != 1)
        ]
        for parameter in sorted(numbered, key=str):
            letter = parameter.func(parameter.letter, parameter.lower[1:], *parameter.shape)
            numbers.setdefault(parameter.shape, {})[sstr(letter)] = None
    parts = []
    if names := symbolic_sizes(sides):
        parts.append(f"{listed(names)} {'are any positive integers' if len(names) > 1 else 'is any positive integer'}")
    for (rows, columns), letters in sorted(numbers.items(), key=str):
        parts.append(f"{listed(list(letters))} {'are' if len(letters) > 1 else 'is'} {rows} × {columns}")
    every = f"{'in' if counts == 'layer' else 'at'} every {counts}"
    same = f", the same {every}" if any(side.has(i) for side in sides) else ""
    return f"Sizes{same}: {'; '.join(parts)}." if parts else ""


def _numbers(sides: Iterable[Basic]) -> str:
    """Return the sentence on the numbers that are divided by, or of which a root is taken."""
    conditions: dict[str, None] = {}
    for power in sorted({power for side in sides for power in side.atoms(Pow)}, key=str):
        if condition := _condition(power):
            conditions[condition] = None
    return f"{listed(list(conditions))}." if conditions else ""


def _condition(power: Pow) -> str:
    """Return what a power asks of its base; nothing if the symbols' declarations say so already."""
    base, exponent = power.as_base_exp()
    if exponent.is_Integer:
        return "" if exponent > 0 or base.is_nonzero else f"{sstr(base)} ≠ 0"
    if exponent.is_positive:
        return "" if base.is_nonnegative else f"{sstr(base)} ≥ 0"
    return "" if base.is_positive else f"{sstr(base)} > 0"


Condition = Equation | str
"""An equation between parameters, or a sentence."""


def conditions_of(
    steps: Iterable[Step], before: Iterable[Step], known: Iterable[Equation]
) -> tuple[tuple[Condition, ...], ...]:
    """Return the conditions of every step: the equations that it used and that stand nowhere before it."""
    # A definition may stand anywhere. What rests on an equation with conditions has these too.
    steps = tuple(steps)
    definitions = (step for step in steps if step.relation == ":=")
    stated: dict[Equation, tuple[Condition, ...]] = dict.fromkeys(known, ())
    for step in (*before, *definitions):
        stated |= dict.fromkeys((Equation(step.left, step.right), *step.states), ())
    left, conditions = None, []
    for step in steps:
        left = left if step.left is None else step.left
        under: dict[Condition, None] = {}
        for used in step.using:
            if used.left != used.right:
                under |= dict.fromkeys(stated.get(used, stated.get(Equation(used.right, used.left), (used,))))
        for function in sorted({part.function for part in _activations(step) if part.order}):
            under[f"{function} has a derivative"] = None
        conditions.append(tuple(under))
        if step.verified is not False and step.relation in ("=", ":="):
            for equation in (Equation(left, step.right), *step.states):
                stated.setdefault(equation, tuple(under))
    return tuple(conditions)


def _activations(step: Step) -> Iterable[Activation]:
    return (part for side in (step.left, step.right) if isinstance(side, Basic) for part in side.atoms(Activation))


def in_latex(conditions: Iterable[Condition]) -> str:
    """Return conditions as words and formulas of a sentence in LaTeX."""
    return listed(
        [escaped(c) if isinstance(c, str) else f"${typeset(c.left)} = {typeset(c.right)}$" for c in conditions]
    )


def in_words(conditions: Iterable[Condition]) -> str:
    """Return conditions as words of a sentence."""
    return listed([c if isinstance(c, str) else f"{sstr(c.left)} = {sstr(c.right)}" for c in conditions])


def listed(words: list[str]) -> str:
    """Return words as a list in a sentence."""
    *first, last = words or [""]
    return f"{', '.join(first)} and {last}" if first else last
