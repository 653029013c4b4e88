r"""Typeset derivations as theorems with proofs in prose, for `\input` into a paper."""

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from itertools import groupby
from typing import NamedTuple

from sympy import Basic, MatrixBase

from symbolic.expressions.latex import escaped, typeset
from symbolic.expressions.parameter import GREEK, Parameter, i
from symbolic.proof.derivation import LEFT, Derivation, equation_rows, explanation
from symbolic.proof.hypotheses import Condition, in_latex, listed, symbolic_sizes
from symbolic.proof.legend import undefined_letters
from symbolic.proof.line_breaks import breakable, width
from symbolic.proof.shared_sum import with_shared_sum_named
from symbolic.proof.step import Step

LINE = 345.0
"""The width of a line in points: that of LaTeX's `article` in one column, at a type size of 10."""

NARROWEST = 200.0
"""The width in points below which equations can't be broken into lines that fit."""

_NUMBER, _GAP, _END = 30.0, 12.0, 4.0  # points: of an equation's number, between two definitions, of a comma

_ALIKE = 0.15  # of a line: left sides that are aligned differ by no more

_IN_A_SENTENCE = 1.3  # lines that an equation takes at most in a sentence

_ENDLESS = 1e6  # points

_MATRIX = re.compile(r"\\left\(\\begin\{matrix\}.*?\\end\{matrix\}\\right\)", re.DOTALL)

_LETTER = re.compile(r"(?<![\\a-zA-Z{_^,])(?:\\[a-zA-Z]+|[a-zA-Z])'*(?![a-zA-Z])")

_SOURCE = r"``Eq.'' with a number refers to Wang \& Li, arXiv:2407.00958."

Chain = tuple[Step, ...]
"""An equation with the lines that continue it."""


class _Place(NamedTuple):
    """The width of a line in points, the labels of the equations that have a number, and the letters of matrices."""

    line: float
    labels: Mapping[Chain, str]
    bold: Mapping[str, str]

    def references(self, chains: Sequence[Chain]) -> str:
        """Return references to equations, those in a row as a range."""
        labels = [rf"\eqref{{{self.labels[chain]}}}" for chain in chains]
        ordered = list(self.labels)
        places = [ordered.index(chain) for chain in chains]
        if len(chains) > 2 and places == list(range(places[0], places[0] + len(places))):
            return f"{labels[0]}--{labels[-1]}"
        return listed(labels)

    def prose(self, words: str) -> str:
        """Return words as LaTeX, with the letters in them as equations have them."""
        text = escaped(words).replace("$ = $", " = ").replace(r"$ $\le $ $", r" \le ")
        text = re.sub(r"\$ = (\d+)", r" = \1$", text).replace("Eq. ", "Eq.~")
        return re.sub(r"\$[^$]*\$", lambda formula: _LETTER.sub(self._letter, formula[0]), text)

    def _letter(self, match: re.Match) -> str:
        return self.bold.get(match[0], match[0])


def _chains(steps: Iterable[Step]) -> list[Chain]:
    """Return equations, each with the lines that continue it."""
    chains: list[Chain] = []
    for step in steps:
        chains = [*chains[:-1], (*chains[-1], step)] if step.left is None and chains else [*chains, (step,)]
    return chains


def _fitted(row: str, room: float) -> str:
    """Return a row with its explicit matrices made small enough for a line."""
    rest = room - _GAP - width(_MATRIX.sub("", row).replace("&", ""))

    def smaller(match: re.Match) -> str:
        matrix = match[0]
        return rf"\resizebox{{{rest:.0f}pt}}{{!}}{{$\displaystyle {matrix}$}}" if width(matrix) > rest else matrix

    return _MATRIX.sub(smaller, row)


def _rows(chain: Chain, room: float) -> list[str]:
    """Return the rows of an equation; an explicit matrix isn't broken, but made small enough."""
    rows = []
    for step in chain:
        line = room - _END - (_left(chain, room) if step.left is None else 0.0)
        whole = equation_rows(step, _ENDLESS if isinstance(step.right, MatrixBase) else line)
        rows += [_fitted(row, line) for row in whole]
    return rows


def _left(chain: Chain, room: float) -> float:
    """Return the width of an equation's left side, if it stands beside the right one."""
    own = width(typeset(chain[0].left))
    return own if own <= LEFT * (room - _END) else 0.0


def _display(chains: Sequence[Chain], place: _Place) -> str:
    """Return equations that stand together, with the numbers that they have, aligned if their left sides are alike."""
    rooms = [place.line - (_NUMBER if chain in place.labels else 0.0) for chain in chains]
    lefts = list(map(_left, chains, rooms))
    widest = max(lefts)
    alike = widest - min(lefts) <= _ALIKE * place.line
    equations = []
    for chain, room, left in zip(chains, rooms, lefts, strict=True):
        *rows, last = _rows(chain, room - (widest - left if alike else 0.0))
        last += "." if chain is chains[-1] else ","
        end = rf" \label{{{place.labels[chain]}}}" if chain in place.labels else r" \notag"
        if alike:
            equations.append(" \\\\\n".join([*(rf"{row} \notag" for row in rows), last + end]))
        else:
            equations.append("\\begin{aligned}\n" + " \\\\\n".join([*rows, last]) + "\n\\end{aligned}" + end)
    name = "align" if alike else "gather"
    return f"\\begin{{{name}}}\n" + " \\\\\n".join(equations) + f"\n\\end{{{name}}}\n"


def _definitions(steps: Iterable[Step], line: float) -> str:
    """Return definitions, as many in a line as fit."""
    rows: list[list[str]] = []
    used = line
    for step in steps:
        where = step.rule.partition(", for ")[2]
        text = f"{typeset(step.left)} := {typeset(step.right)}" + (rf"\ (\text{{{escaped(where)}}})" if where else "")
        size = width(text) + _END
        if size > line or isinstance(step.right, MatrixBase):
            text, size = "\\begin{aligned}\n" + " \\\\\n".join(_rows((step,), line)), line
        fits = used + _GAP + size <= line
        rows = [*rows[:-1], [*rows[-1], text]] if fits else [*rows, [text]]
        used = used + _GAP + size if fits else size
    ends = [*[","] * (len(rows) - 1), "."]
    closed = [
        r", \quad ".join(row) + end + ("\n\\end{aligned}" if row[0].startswith(r"\begin{aligned}") else "")
        for row, end in zip(rows, ends, strict=True)
    ]
    return "\\begin{gather*}\n" + " \\\\\n".join(closed) + "\n\\end{gather*}\n"


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _put(derivation: Derivation, place: _Place) -> str:
    """Return the definitions of a theorem; one that speaks for other letters too has its rule before it."""
    parts: list[str] = []
    steps = [step for step in (*derivation.given, *derivation.steps) if step.relation == ":="]
    for rule, group in groupby(steps, key=lambda step: step.rule if step.states else ""):
        opening = f"{_capital(place.prose(rule))}:\n" if rule else "Put, moreover,\n" if parts else "Put\n"
        parts.append(opening + _definitions(group, place.line))
    return "".join(parts)


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


def _setting(derivation: Derivation, place: _Place, stated: set[tuple[str, str]]) -> str:
    """Return what a theorem assumes, and the letters in it, but for what is stated before."""
    sentences = []
    for each in derivation.hypotheses:
        if isinstance(each, Step):
            steps = with_shared_sum_named(each)
            numbered = place._replace(labels={steps[-1:]: place.labels[(each,)]})
            sentences.append(f"{place.prose(each.rule)}:\n{_display([(step,) for step in steps], numbered)}")
        elif ("", each) not in stated:
            sentences.append(f"{place.prose(each)}\n")
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
        value = step.left.lower[0]
        for claim in claims:
            if (claim[0].left.xreplace({i: value}), claim[0].right.xreplace({i: value})) == (step.left, step.right):
                return claim, value
    return None


def _inductions(derivation: Derivation) -> list[Chain]:
    return [(step,) for step in derivation.inductions]


def _others(derivation: Derivation) -> list[Chain]:
    """Return the claims that no induction proves: of a derivation with one, those behind its last step."""
    inductions = _inductions(derivation)
    proved = [chain for chain in _chains(derivation.steps) if chain[0].proved and chain[0].relation != ":="]
    last = max((n for n, chain in enumerate(proved, 1) if _instance(chain[0], inductions)), default=0)
    return proved[last:]


def _labels(derivation: Derivation) -> dict[Chain, str]:
    """Return the labels of the equations that have numbers: hypotheses, assumptions and claims."""
    hypotheses = [(each,) for each in derivation.hypotheses if isinstance(each, Step)]
    assumed = [(step,) for step in derivation.steps if step.assumed]
    numbered = [*hypotheses, *assumed, *_inductions(derivation), *_others(derivation)]
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


def _theorem(derivation: Derivation, place: _Place) -> str:
    """Return the statement: definitions, assumptions, the claims for every `i`, and the others, by their conditions."""
    conditions = dict(zip(derivation.steps, derivation.conditions, strict=True))
    assumed, others = [(step,) for step in derivation.steps if step.assumed], _others(derivation)
    claims: dict[tuple[Condition, ...], list[Chain]] = {}
    for chain in others:
        claims.setdefault(tuple(dict.fromkeys(c for step in chain for c in conditions[step])), []).append(chain)
    text = _put(derivation, place)
    if assumed:
        text += f"Assume\n{_display(assumed, place)}{_where(assumed, place)}"
    opening = "Then" if text else ""
    if derivation.inductions:
        own = {step for chain in others for step in chain}
        needed = dict.fromkeys(c for step, each in conditions.items() if step not in own for c in each)
        where = f" where {in_latex(needed)}," if needed else ""
        text += f"Then,{where} for every $i\\ge0$,\n{_display(_inductions(derivation), place)}"
        opening = "Moreover,"
    for under, chains in sorted(claims.items(), key=lambda item: len(item[0])):
        text += (f"Where {in_latex(under)},\n" if under else f"{opening}\n") + _display(chains, place)
    name = _name(derivation)
    return f"\\begin{{theorem}}[{{{place.prose(derivation.title)}}}]\\label{{thm:{name}}}\n{text}\\end{{theorem}}\n"


def _rules(chain: Chain, place: _Place) -> str:
    """Return the rules of an equation and of the lines that continue it."""
    rules = list(filter(None, dict.fromkeys(map(explanation, chain))))
    return place.prose((listed if all(rule.startswith("by ") for rule in rules) else "; ".join)(rules))


def _where(chains: Sequence[Chain], place: _Place) -> str:
    """Return the rules of equations by their numbers."""
    rules = groupby(chains, key=lambda chain: _rules(chain, place).removeprefix("assumption: "))
    parts = [f"{place.references(list(group))}: {rule}" for rule, group in rules]
    return f"Here {'; '.join(parts)}.\n"


def _reasons(chains: Sequence[Chain], place: _Place) -> str:
    """Return the reasons for claims by their numbers."""
    decided = [chain for chain in chains if chain[0].relation == "=" and not chain[0].rule.startswith("by ")]
    opening = f"Multiply out both sides of {place.references(decided)}: they have the same terms.\n" if decided else ""
    return opening + _where(chains, place) if chains else ""


def _proof(derivation: Derivation, place: _Place) -> str:
    """Return the proof in sentences: an equation that is an instance of a claim is named by the claim's number."""
    inductions, others = _inductions(derivation), _others(derivation)
    known = {(step.left, step.right): chain for chain in place.labels if chain not in others for step in chain}
    text = "By induction over $i$.\n" if inductions else ""
    for chain in _chains(step for step in derivation.steps if step.relation != ":=" and not step.assumed):
        step = chain[0]
        if found := _instance(step, inductions):
            text += _about(step, place.references([found[0]]), found[1], place)
        elif (step.left, step.right) in known:
            text += f"{_capital(place.prose(step.rule))}: this is {place.references([known[step.left, step.right]])}.\n"
        elif chain not in others:
            text += _explained(chain, place)
    return text + _reasons(others, place)


def _about(step: Step, claim: str, value: object, place: _Place) -> str:
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
    return sentence + (f": {place.prose(detail)}.\n" if detail else ".\n")


def _explained(chain: Chain, place: _Place) -> str:
    """Return an equation with its rules before it, in the sentence if it is short."""
    opening = _capital(_rules(chain, place)) + ("," if chain[0].rule.startswith("by ") else ":")
    formula = breakable(" ".join(row.replace("&", "").replace(r"\qquad", "") for row in _rows(chain, _ENDLESS)))
    inline = width(formula) <= _IN_A_SENTENCE * place.line and r"\begin" not in formula
    return f"{opening}\n" + (f"${formula}$.\n" if inline else _display([chain], place))


def theorem(derivation: Derivation, line: float = LINE, stated: Iterable[tuple[str, str]] = ()) -> str:
    """Return a derivation as LaTeX: its setting, and a theorem with its proof; its equations, if they aren't proved.

    Args:
        derivation: the derivation.
        line: the width of a line in points.
        stated: what stands before it and needs no second statement, of `stated_in`.
    """
    place = _Place(line, _labels(derivation), _bold(derivation))
    text = _setting(derivation, place, set(stated))
    if derivation.proved:
        text += f"\n{_theorem(derivation, place)}\\begin{{proof}}\n{_proof(derivation, place)}\\end{{proof}}\n"
    else:
        equations = _chains(step for step in derivation.steps if step.relation != ":=")
        text += f"\n\\paragraph{{{place.prose(derivation.title)}.}}\n{_put(derivation, place)}"
        text += "".join(f"{_capital(_rules(chain, place))}:\n{_display([chain], place)}" for chain in equations)
        text += f"\\emph{{{derivation.verdict}.}}\n"
    text += f"{place.prose(derivation.remark)}\n" if derivation.remark else ""
    sides = [side for step in derivation.steps for side in (step.left, step.right) if isinstance(side, Basic)]
    sizes = ", ".join(symbolic_sizes(sides)) or "none"
    return f"{text}% verified: duat-jax {version('duat-jax')}, {derivation.verdict}; symbolic sizes: {sizes}\n"
