r"""Typeset derivations as theorems with proofs in prose, for `\input` into a paper."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from itertools import groupby

from sympy import Basic

from symbolic.expressions.activation import Activation
from symbolic.expressions.latex import escaped, typeset
from symbolic.expressions.parameter import GREEK, Parameter
from symbolic.proof.derivation import Derivation
from symbolic.proof.displays import (
    CITING,
    LINE,
    Chain,
    Place,
    chained,
    definitions,
    display,
    range_of,
)
from symbolic.proof.hypotheses import Condition, in_latex, listed, symbolic_sizes
from symbolic.proof.layer_index import from_the_layer_before
from symbolic.proof.legend import undefined_letters
from symbolic.proof.prose import capital, other_claims, proof, reason, reasons
from symbolic.proof.step import Equation, Hypothesis, Step

_SOURCE = r" of Wang \& Li (arXiv:2407.00958)"


def _defined(derivation: Derivation) -> list[Chain]:
    """Return the definitions, a recursion with its initial value as one."""
    chains: dict[object, Chain] = {}
    for step in (*derivation.given, *derivation.steps):
        if step.relation == ":=":
            own = isinstance(step.left, Parameter) and not step.states
            key = (step.left.letter, step.left.lower[1:]) if own else step
            chains[key] = (step, *chains.get(key, ()))
    return list(chains.values())


def _likewise(chain: Chain) -> str:
    """Return the rule of a definition that speaks for other letters too."""
    return chain[0].rule.partition(", for ")[0] if "likewise" in chain[0].rule else ""


def _groups(derivation: Derivation) -> list[list[Chain]]:
    """Return the definitions, those together that one sentence puts."""
    return [list(group) for _, group in groupby(_defined(derivation), key=_likewise)]


def _cited(group: Iterable[Chain], derivation: Derivation) -> bool:
    """Return whether a step cites definitions."""
    used = {each for step in derivation.steps if CITING.search(step.rule) for each in step.using}
    return any(Equation(d.left, d.right) in used and not d.states for chain in group for d in chain)


def _opening(*words: str) -> str:
    """Return the words before a display, with commas between them and behind them, but for a single word."""
    text = ", ".join(filter(None, words))
    return f"{text},\n" if " " in text else f"{text}\n"


def _put(derivation: Derivation, place: Place) -> str:
    """Return the definitions of a theorem."""
    text = ""
    for group in _groups(derivation):
        ranges = Counter(range_of(step) for chain in group for step in chain if range_of(step).startswith("i"))
        common = max(ranges, key=ranges.__getitem__, default="")
        rule = place.prose(_likewise(group[0])) or ("moreover" if text else "")
        text += _opening("Put", rule, f"for every ${common}$" if common else "") + definitions(group, place, common)
    return text


def stated_in(derivation: Derivation) -> set[tuple[str, str]]:
    """Return what needs no second statement: conventions, the source of the equations' numbers, and letters."""
    return {(each, "") for each in (derivation.source, *derivation.conventions)} | {*_letters(derivation)}


def _letters(derivation: Derivation) -> list[tuple[str, str]]:
    """Return the meanings of the letters that no definition explains, each with the letters, in their spaces."""
    spaces: dict[str, dict[str, list[str]]] = {}
    for latex, shape, meaning in undefined_letters(derivation):
        words, _, _ = meaning.partition(": ")  # the equations say the rest
        size = shape.removesuffix(r" \times 1")
        space = rf"\in\mathbb{{R}}^{{{size}}}".removesuffix("^{1}") if shape else ""
        spaces.setdefault(words, {}).setdefault(space, []).append(latex)
    return [
        (words, listed([f"${'$, $'.join(sorted(letters))}{space}$" for space, letters in of.items()]))
        for words, of in spaces.items()
    ]


def _stated(hypotheses: Iterable[Hypothesis]) -> list[tuple[str, list[Step]]]:
    """Return hypotheses in words, each with its equations: one without words goes on with those before it."""
    stated: list[tuple[str, list[Step]]] = []
    for each in hypotheses:
        if isinstance(each, str):
            stated.append((each, []))
        elif each.rule:
            stated.append((each.rule, [each]))
        else:
            stated[-1][1].append(each)
    return stated


def _setting(derivation: Derivation, place: Place, stated: set[tuple[str, str]]) -> str:
    """Return what a theorem assumes, and the letters in it, but for what is stated before."""
    sentences = [
        place.prose(words) + (f":\n{display([(step,) for step in equations], place)}" if equations else "\n")
        for words, equations in _stated(derivation.premises)
    ]
    sentences += [f"{escaped(each)}\n" for each in derivation.conventions if (each, "") not in stated]
    letters = [
        f"{names} for {place.prose(words)}" for words, names in _letters(derivation) if (words, names) not in stated
    ]
    sentences += [f"Write {'; '.join(letters)}.\n"] if letters else []
    return f"\\paragraph{{Setting.}}\n{''.join(sentences)}" if sentences else ""


def _inductions(derivation: Derivation) -> list[Chain]:
    return [(step,) for step in derivation.inductions]


def _labels(derivation: Derivation) -> dict[Chain, str]:
    """Return the labels of the equations that have numbers: hypotheses, cited definitions, assumptions and claims."""
    hypotheses = [each for each in derivation.premises if isinstance(each, Step) and each.relation != ":="]
    groups = [group for group in _groups(derivation) if _cited(group, derivation)]
    assumed = [step for step in derivation.steps if step.assumed]

    def single(steps: Iterable[Step]) -> list[list[Chain]]:
        return [[(step,)] for step in steps]

    others = [[chain] for chain in other_claims(derivation)]
    numbered = [*single(hypotheses), *groups, *single(assumed), *single(derivation.inductions), *others]
    return {chain: f"eq:{_name(derivation)}:{n}" for n, chains in enumerate(numbered, 1) for chain in chains}


def _bold(derivation: Derivation) -> dict[str, str]:
    """Return the letters of a derivation's matrices, as words and as equations have them."""
    sides = (side for step in (*derivation.given, *derivation.steps) for side in (step.left, step.right))
    parameters = {part for side in sides if isinstance(side, Basic) for part in side.atoms(Parameter)}
    plain = {
        parameter.func(parameter.parts.bare, (), *parameter.shape): parameter.parts.primes for parameter in parameters
    }
    return {"I": r"\mathbf{I}"} | {
        (rf"\{p.letter}" if p.letter in GREEK else p.letter) + primes: typeset(p) + primes
        for p, primes in plain.items()
    }


def _name(derivation: Derivation) -> str:
    return "-".join(re.findall("[a-z0-9]+", derivation.title.lower()))


def _theorem(derivation: Derivation, place: Place) -> str:
    """Return the statement: definitions, assumptions, the claims for every `i`, and the others, by their conditions."""
    conditions = dict(zip(derivation.steps, derivation.conditions, strict=True))
    assumed, others = [(step,) for step in derivation.steps if step.assumed], other_claims(derivation)
    claims: dict[tuple[tuple[Condition, ...], str], list[Chain]] = {}
    for chain in others:
        needs = tuple(dict.fromkeys(c for step in chain for c in conditions[step]))
        where_it_holds = dict.fromkeys(f"${each}$" for each in map(range_of, chain) if each)
        claims.setdefault((needs, listed(list(where_it_holds))), []).append(chain)
    text = _put(derivation, place) + (_assumptions(assumed, place) if assumed else "")
    opening = "Then" if text else ""
    if derivation.inductions:
        own = {step for chain in others for step in chain}
        needed = dict.fromkeys(c for step, each in conditions.items() if step not in own for c in each)
        text += _opening("Then", f"where {in_latex(needed)}" if needed else "", r"for every $i\ge0$")
        text += display(_inductions(derivation), place)
        opening = "Moreover"
    for (under, ranges), chains in sorted(claims.items(), key=lambda item: len(item[0][0])):
        where = f"Where {in_latex(under)}" if under else opening
        text += _opening(where, f"for {ranges}" if ranges else "") + display(chains, place)
    name = _name(derivation)
    return f"\\begin{{theorem}}[{{{place.prose(derivation.title)}}}]\\label{{thm:{name}}}\n{text}\\end{{theorem}}\n"


def _assumptions(assumed: Sequence[Chain], place: Place) -> str:
    """Return assumptions; a letter that always exists is let be, with the reason behind its equation."""
    rule = assumed[0][0].rule
    if rule.startswith("let "):
        opening, _, why = map(capital, map(place.prose, rule.partition("; ")))
        return f"{opening},\n{display(assumed, place)}{why}.\n"
    return f"Assume\n{display(assumed, place)}{reasons(assumed, place)}"


def theorem(derivation: Derivation, line: float = LINE, stated: Iterable[tuple[str, str]] = ()) -> str:
    """Return a derivation as LaTeX: its setting, and a theorem with its proof; its equations, if they aren't proved.

    Args:
        derivation: the derivation.
        line: the width of a line in points.
        stated: what stands before it and needs no second statement, of `stated_in`.
    """
    derivation = from_the_layer_before(derivation)
    place = Place(line, _labels(derivation), _bold(derivation))
    before, (verified, comment) = {*stated}, _verified(derivation)
    if derivation.proved:
        text = f"\n{_theorem(derivation, place)}\\begin{{proof}}\n{proof(derivation, place)}{verified}\\end{{proof}}\n"
    else:
        equations = chained(step for step in derivation.steps if step.relation != ":=")
        text = f"\n\\paragraph{{{place.prose(derivation.title)}.}}\n{_put(derivation, place)}"
        text += "".join(f"{capital(reason(chain, place))}:\n{display([chain], place)}" for chain in equations)
        text += f"\\emph{{{derivation.verdict}.}}\n"
    remark = f"{place.prose(derivation.remark)}\n" if derivation.remark else ""
    text = f"{_setting(derivation, place, before)}{text}{remark}"
    if (derivation.source, "") not in before:
        text = re.sub(r"Eq\.~\d+", lambda equation: equation[0] + _SOURCE, text, count=1)
    return text + comment


def _verified(derivation: Derivation) -> tuple[str, str]:
    """Return the sentence on what was verified, and a comment with the number of checks."""
    equations = (*derivation.given, *derivation.steps)
    sides = [side for step in equations for side in (step.left, step.right) if isinstance(side, Basic)]
    sizes, program = symbolic_sizes(sides), f"duat-jax {version('duat-jax')}"
    functions = {part.function for side in sides for part in side.atoms(Activation)} - derivation.words.keys()
    letters = ", ".join([f"${size}$" for size in sizes] + list(map(escaped, sorted(functions))))
    scope = f" for all {letters}" if letters else ""
    return f"Verified symbolically by {program}{scope}.\n", (
        f"% {program}: {derivation.verdict}; a check multiplies out both sides of one equation and compares;"
        f" sizes that are symbols: {', '.join(sizes) or 'none'}\n"
    )
