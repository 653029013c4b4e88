r"""Typeset derivations as theorems with proofs in prose, for `\input` into a paper."""

import re
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from itertools import groupby, product

from sympy import Basic, Integer

from symbolic.expressions.activation import Activation
from symbolic.expressions.latex import escaped, typeset
from symbolic.expressions.parameter import GREEK, Parameter, i
from symbolic.proof.derivation import Derivation, explanation
from symbolic.proof.displays import (
    CITING,
    ENDLESS,
    LINE,
    Chain,
    Place,
    chained,
    definitions,
    display,
    range_of,
    rows_of,
)
from symbolic.proof.hypotheses import Condition, in_latex, listed, symbolic_sizes
from symbolic.proof.legend import undefined_letters
from symbolic.proof.line_breaks import breakable, width
from symbolic.proof.step import Equation, Hypothesis, Step

_IN_A_SENTENCE = 1.3  # lines that an equation takes at most in a sentence

_SOURCE = r"``Eq.'' with a number refers to Wang \& Li, arXiv:2407.00958."


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _defined(derivation: Derivation) -> list[Chain]:
    """Return the definitions, a recursion with its initial value as one."""
    chains: dict[object, Chain] = {}
    for step in (*derivation.given, *derivation.steps):
        if step.relation == ":=":
            own = isinstance(step.left, Parameter) and not step.states
            key = (step.left.letter, step.left.lower[1:]) if own else step
            chains[key] = (step, *chains.get(key, ()))
    return list(chains.values())


def _recursions(derivation: Derivation) -> list[Chain]:
    """Return the definitions that a step cites."""
    used = {each for step in derivation.steps if CITING.search(step.rule) for each in step.using}
    return [
        chain
        for chain in _defined(derivation)
        if any(Equation(d.left, d.right) in used and not d.states for d in chain)
    ]


def _put(derivation: Derivation, place: Place) -> str:
    """Return the definitions of a theorem; one that speaks for other letters too has its rule before it."""
    text = ""
    for (numbered, rule), group in groupby(
        _defined(derivation), key=lambda chain: (chain in place.labels, chain[0].rule if chain[0].states else "")
    ):
        chains = list(group)
        every = r", for every $i\ge0$," if any(step.left.has(i) for chain in chains for step in chain) else ""
        opening = f"Put, {place.prose(rule)}," if rule else f"Put, moreover,{every[1:]}" if text else f"Put{every}"
        steps = [step for chain in chains for step in reversed(chain)]
        text += f"{opening}\n" + (display(chains, place) if numbered else definitions(steps, place.line))
    return text


def stated_in(derivation: Derivation) -> set[tuple[str, str]]:
    """Return what needs no second statement: conventions, the source of the equations' numbers, and letters."""
    conventions = derivation.hypotheses[len(derivation.premises) :]
    return {("", derivation.source), *(("", str(each)) for each in conventions), *_letters(derivation)}


def _letters(derivation: Derivation) -> list[tuple[str, str]]:
    """Return the letters that no definition explains, each in its space, with their meanings."""

    def space(shape: str) -> str:
        size = shape.removesuffix(r" \times 1")
        return r"\in\mathbb{R}" + (f"^{{{size}}}" if size != "1" else "") if shape else ""

    return [(f"${latex}{space(shape)}$", words) for latex, shape, words in undefined_letters(derivation)]


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
    sentences = []
    for words, equations in _stated(derivation.hypotheses):
        if equations:
            sentences.append(f"{place.prose(words)}:\n{display([(step,) for step in equations], place)}")
        elif ("", words) not in stated:
            sentences.append(f"{place.prose(words)}\n")
    letters: dict[str, list[str]] = {}
    for letter, words in _letters(derivation):
        if (letter, words) not in stated:
            letters.setdefault(words, []).append(letter)
    meanings = "; ".join(f"{listed(names)} for {place.prose(words)}" for words, names in letters.items())
    sentences += [f"Write {meanings}.\n"] if letters else []
    sentences += [f"{_SOURCE}\n"] if derivation.source and ("", derivation.source) not in stated else []
    return f"\\paragraph{{Setting.}}\n{''.join(sentences)}" if sentences else ""


def _instance(step: Step, claims: Iterable[Chain]) -> tuple[Chain, object] | None:
    """Return the claim at every `i` that an equation is an instance of, and the `i` of it."""
    if isinstance(step.left, Parameter) and step.left.lower:
        for claim, value in product(claims, (step.left.lower[0], Integer(0), i, i + 1)):
            if (claim[0].left.xreplace({i: value}), claim[0].right.xreplace({i: value})) == (step.left, step.right):
                return claim, value
    return None


def _inductions(derivation: Derivation) -> list[Chain]:
    return [(step,) for step in derivation.inductions]


def _others(derivation: Derivation) -> list[Chain]:
    """Return the claims that no induction proves: of a derivation with one, those behind its last step."""
    inductions = _inductions(derivation)
    proved = [chain for chain in chained(derivation.steps) if chain[0].proved and chain[0].relation != ":="]
    last = max((n for n, chain in enumerate(proved, 1) if _instance(chain[0], inductions)), default=0)
    return proved[last:]


def _labels(derivation: Derivation) -> dict[Chain, str]:
    """Return the labels of the equations that have numbers: hypotheses, assumptions and claims."""
    hypotheses = [(each,) for each in derivation.hypotheses if isinstance(each, Step) and each.relation != ":="]
    assumed = [(step,) for step in derivation.steps if step.assumed]
    numbered = [*hypotheses, *_recursions(derivation), *assumed, *_inductions(derivation), *_others(derivation)]
    return {chain: f"eq:{_name(derivation)}:{number}" for number, chain in enumerate(numbered, 1)}


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
    assumed, others = [(step,) for step in derivation.steps if step.assumed], _others(derivation)
    claims: dict[tuple[Condition, ...], list[Chain]] = {}
    for chain in others:
        claims.setdefault(tuple(dict.fromkeys(c for step in chain for c in conditions[step])), []).append(chain)
    text = _put(derivation, place)
    if assumed:
        text += _assumptions(assumed, place)
    opening = "Then" if text else ""
    if derivation.inductions:
        own = {step for chain in others for step in chain}
        needed = dict.fromkeys(c for step, each in conditions.items() if step not in own for c in each)
        where = f" where {in_latex(needed)}," if needed else ""
        text += f"Then,{where} for every $i\\ge0$,\n{display(_inductions(derivation), place)}"
        opening = "Moreover"
    for under, chains in sorted(claims.items(), key=lambda item: len(item[0])):
        ranges = listed(
            [f"${each}$" for each in dict.fromkeys(map(range_of, (step for c in chains for step in c))) if each]
        )
        where = f"Where {in_latex(under)}" if under else opening
        text += (
            ", for ".join(filter(None, (where, ranges)))
            + (",\n" if under or ranges or opening == "Moreover" else "\n")
            + display(chains, place)
        )
    name = _name(derivation)
    return f"\\begin{{theorem}}[{{{place.prose(derivation.title)}}}]\\label{{thm:{name}}}\n{text}\\end{{theorem}}\n"


def _assumptions(assumed: Sequence[Chain], place: Place) -> str:
    """Return assumptions; a letter that always exists is let be, with the reason behind its equation."""
    rule = assumed[0][0].rule
    if rule.startswith("let "):
        opening, _, reason = map(_capital, map(place.prose, rule.partition("; ")))
        return f"{opening},\n{display(assumed, place)}{reason}.\n"
    return f"Assume\n{display(assumed, place)}{_where(assumed, place)}"


def _rules(chain: Chain, place: Place) -> str:
    """Return the rules of an equation and of the lines that continue it."""
    rules = dict.fromkeys(place.reason(step, explanation(step).partition(", for ")[0]) for step in chain if step.rule)
    return (listed if all(rule.startswith("by ") for rule in rules) else "; ".join)(list(rules))


def _where(chains: Sequence[Chain], place: Place) -> str:
    """Return the rules of equations by their numbers."""
    rules = groupby(chains, key=lambda chain: _rules(chain, place).removeprefix("assumption: "))
    parts = [f"{place.references(list(group))}: {rule}" for rule, group in rules]
    return f"Here {'; '.join(parts)}.\n"


def _reasons(chains: Sequence[Chain], place: Place) -> str:
    """Return the reasons for claims by their numbers."""
    decided = [chain for chain in chains if chain[0].relation == "=" and not chain[0].rule.startswith("by ")]
    opening = f"Multiply out both sides of {place.references(decided)}: they have the same terms.\n" if decided else ""
    return opening + _where(chains, place) if chains else ""


def _proof(derivation: Derivation, place: Place) -> str:
    """Return the proof in sentences: an equation that is an instance of a claim is named by the claim's number."""
    inductions, others = _inductions(derivation), _others(derivation)
    known = {(step.left, step.right): chain for chain in place.labels if chain not in others for step in chain}
    text = "By induction over $i$.\n" if inductions else ""
    before: Step | None = None
    for chain in chained(step for step in derivation.steps if step.relation != ":=" and not step.assumed):
        step = chain[0]
        if found := _instance(step, inductions):
            text += _about(step, place.references([found[0]]), found[1], place)
        elif (step.left, step.right) in known:
            text += f"{_capital(place.prose(step.rule))}: this is {place.references([known[step.left, step.right]])}.\n"
        elif before and (step.left, step.right) == (before.left, before.right):
            text += f"{_capital(_rules(chain, place))}: this is the last equation.\n"
        elif chain not in others:
            text += _explained(chain, place)
        before = step
    return text + _reasons(others, place)


def _about(step: Step, claim: str, value: object, place: Place) -> str:
    """Return the sentence on a claim at one `i`."""
    if step.by_induction:
        sentence = f"Suppose that {claim} holds at $i$"
    elif value == i + 1:
        sentence = f"So {claim} holds at $i + 1$"
    elif value:
        return f"At $i = {typeset(value)}$, {claim} was also checked {place.prose(step.rule)}.\n"
    else:
        sentence = f"At $i = 0$, {claim} holds"
    detail = step.rule.partition(": ")[2]
    return sentence + (f": {place.reason(step, detail)}.\n" if detail else ".\n")


def _explained(chain: Chain, place: Place) -> str:
    """Return an equation with its rules before it, in the sentence if it is short."""
    opening = _capital(_rules(chain, place)) + ("," if chain[0].rule.startswith("by ") else ":")
    formula = breakable(" ".join(row.replace("&", "").replace(r"\qquad", "") for row in rows_of(chain, ENDLESS)))
    inline = width(formula) <= _IN_A_SENTENCE * place.line and r"\begin" not in formula
    return f"{opening}\n" + (f"${formula}$.\n" if inline else display([chain], place))


def theorem(derivation: Derivation, line: float = LINE, stated: Iterable[tuple[str, str]] = ()) -> str:
    """Return a derivation as LaTeX: its setting, and a theorem with its proof; its equations, if they aren't proved.

    Args:
        derivation: the derivation.
        line: the width of a line in points.
        stated: what stands before it and needs no second statement, of `stated_in`.
    """
    place = Place(line, _labels(derivation), _bold(derivation))
    text = _setting(derivation, place, set(stated))
    if derivation.proved:
        text += f"\n{_theorem(derivation, place)}\\begin{{proof}}\n{_proof(derivation, place)}\\end{{proof}}\n"
    else:
        equations = chained(step for step in derivation.steps if step.relation != ":=")
        text += f"\n\\paragraph{{{place.prose(derivation.title)}.}}\n{_put(derivation, place)}"
        text += "".join(f"{_capital(_rules(chain, place))}:\n{display([chain], place)}" for chain in equations)
        text += f"\\emph{{{derivation.verdict}.}}\n"
    text += f"{place.prose(derivation.remark)}\n" if derivation.remark else ""
    return text + _verified(derivation)


def _verified(derivation: Derivation) -> str:
    """Return the sentence on what was verified, and a comment with the number of checks."""
    equations = (*derivation.given, *derivation.steps)
    sides = [side for step in equations for side in (step.left, step.right) if isinstance(side, Basic)]
    sizes, program = symbolic_sizes(sides), f"duat-jax {version('duat-jax')}"
    functions = {part.function for side in sides for part in side.atoms(Activation)} - derivation.words.keys()
    every = ([f"all ${', '.join(sizes)}$"] if sizes else []) + (
        [f"every function {escaped(listed(sorted(functions)))}"] if functions else []
    )
    scope = f", for {listed(every)}" if every else ""
    sentence = f"Every equation was verified symbolically by {program}{scope}.\n" if derivation.proved else ""
    return (
        f"{sentence}% {program}: {derivation.verdict}; a check multiplies out both sides of one equation and compares;"
        f" sizes that are symbols: {', '.join(sizes) or 'none'}\n"
    )
