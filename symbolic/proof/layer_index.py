"""Write a derivation that goes from layer `i` to layer `i + 1` as one from layer `i − 1` to layer `i`, as papers do."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from sympy import Basic, MatrixBase

from symbolic.expressions.parameter import i
from symbolic.proof.derivation import Derivation
from symbolic.proof.displays import Chain, chained
from symbolic.proof.step import Equation, Hypothesis, Step

_NEXT = re.compile(r"\bi ?\+ ?1\b|ᵢ₊₁")
_UP_TO = re.compile(r"≤ i\b(?! ?\+)")
_THIS = re.compile(r"\bi\b(?! ?\+ ?1)")


def _goes_on(sides: Iterable[Any]) -> bool:
    return any(isinstance(side, Basic | MatrixBase) and side.has(i + 1) for side in sides)


def _has_i(side: Any) -> bool:
    return isinstance(side, Basic | MatrixBase) and side.has(i)


def _before(side: Any) -> Any:
    return side.xreplace({i: i - 1}) if isinstance(side, Basic | MatrixBase) else side


def _words(text: str) -> str:
    return _NEXT.sub(lambda match: match[0][0], _THIS.sub("i-1", _UP_TO.sub("< i + 1", text)))


def _equation(equation: Equation) -> Equation:
    return Equation(*map(_before, equation)) if _goes_on(equation) else equation


def _steps(chain: Chain) -> Iterator[Step]:
    """Yield the lines of an equation; one of layer `i + 1` is for i ≥ 1, any other for i ≥ 0."""
    goes_on = _goes_on(side for step in chain for side in (step.left, step.right))
    for step in chain:
        using, states = (tuple(map(_equation, each)) for each in (step.using, step.states))
        rule = (_words(step.rule) if goes_on else step.rule).replace("for 1 ≤ i", "for i ≥ 1")
        if ", for " not in rule and not step.by_induction and _has_i(step.left):
            rule += f", for i ≥ {int(goes_on)}"
        sides = (_before(step.left), _before(step.right)) if goes_on else (step.left, step.right)
        yield Step(*sides, rule, step.verified, step.relation, step.by_induction, step.sizes, using, states)


def _each(steps: Iterable[Step]) -> tuple[Step, ...]:
    return tuple(step for chain in chained(steps) for step in _steps(chain))


def from_the_layer_before(derivation: Derivation) -> Derivation:
    """Return a derivation whose equations for layer `i + 1` are for layer `i`, those of layer `i` alone as they are."""

    def sentence(words: str) -> str:
        return _words(words) if _NEXT.search(words) else words

    def premise(each: Hypothesis) -> Hypothesis:
        return sentence(each) if isinstance(each, str) else replace(next(_steps((each,))), rule=each.rule)

    return replace(
        derivation,
        steps=_each(derivation.steps),
        given=_each(derivation.given),
        premises=tuple(map(premise, derivation.premises)),
        known=tuple(map(_equation, derivation.known)),
        remark=sentence(derivation.remark),
    )
