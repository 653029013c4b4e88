"""Write the proof of a theorem in sentences: an equation that the theorem states is named by its number."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby, pairwise, product

from sympy import Integer

from symbolic.expressions.latex import typeset
from symbolic.expressions.parameter import Parameter, i
from symbolic.proof.derivation import Derivation, explanation
from symbolic.proof.displays import ENDLESS, Chain, Place, chained, display, rows_of
from symbolic.proof.hypotheses import listed
from symbolic.proof.line_breaks import breakable, width
from symbolic.proof.step import Equation, Step

_IN_A_SENTENCE = 1.3  # lines that an equation takes at most in a sentence
_TOGETHER = 3  # equations that one sentence has at most


def capital(text: str) -> str:
    """Return a text that begins with a capital letter."""
    return f"{text[:1].upper()}{text[1:]}"


def _instance(step: Step, derivation: Derivation) -> tuple[Step, object] | None:
    """Return the claim at every `i` that an equation is an instance of, and the `i` of it."""
    if isinstance(step.left, Parameter) and step.left.lower:
        for claim, value in product(derivation.inductions, (step.left.lower[0], Integer(0), i)):
            if (claim.left.xreplace({i: value}), claim.right.xreplace({i: value})) == (step.left, step.right):
                return claim, value
    return None


def other_claims(derivation: Derivation) -> list[Chain]:
    """Return the claims that no induction proves: of a derivation with one, those behind its last step."""
    proved = [chain for chain in chained(derivation.steps) if chain[0].proved and chain[0].relation != ":="]
    last = max((n for n, chain in enumerate(proved, 1) if _instance(chain[0], derivation)), default=0)
    return proved[last:]


def reason(steps: Iterable[Step], place: Place) -> str:
    """Return the rules of equations and of the lines that continue them, each once."""
    rules = dict.fromkeys(place.reason(step, explanation(step).partition(", for ")[0]) for step in steps if step.rule)
    if all(rule.startswith("by ") for rule in rules):
        by = [rule.removeprefix("by ") for rule in rules]
        return "by " + listed([each for each in by if not any(each in other for other in by if other != each)])
    return "; ".join(rules)


def reasons(chains: Sequence[Chain], place: Place) -> str:
    """Return the reasons for equations by their numbers."""
    rules: dict[str, list[Chain]] = {}
    for chain in chains:
        rules.setdefault(reason(chain, place).removeprefix("assumption: "), []).append(chain)
    parts = [f"{place.references(of_rule)}: {rule}" for rule, of_rule in rules.items()]
    return f"Here {'; '.join(parts)}.\n"


def proof(derivation: Derivation, place: Place) -> str:
    """Return the proof in sentences: equations in a row that have the same rule, or follow by something, in one."""
    others = other_claims(derivation)
    steps = (step for step in derivation.steps if step.relation != ":=" and not step.assumed)
    chains = [chain for chain in chained(steps) if chain not in others]
    known = {(step.left, step.right): chain for chain in place.labels if chain not in others for step in chain}

    def sentence(pairs: Sequence[tuple[Chain, Chain]], name: bool = True) -> str:
        """Return the sentence on equations that stand in the theorem or just before; nothing if they are new ones."""
        before, chain = pairs[0]
        step = chain[0]
        equation = step.left, step.right
        if found := _instance(step, derivation):
            claims = [(_instance(each[0], derivation) or found)[:1] for _, each in pairs] if name else []
            return _about(step, claims, found[1], place)
        if equation in known:
            return f"{capital(reason(chain, place))}: this is {place.references([known[equation]])}.\n"
        if before and equation == (before[0].left, before[0].right):
            return f"{capital(reason(chain, place))}: this is the last equation.\n"
        return ""

    def kind(pair: tuple[Chain, Chain]) -> str:
        rules = reason(pair[1], place)
        return sentence([pair], name=False) or ("by" if rules.startswith("by ") else rules)

    text = "By induction on $i$.\n" if derivation.inductions else ""
    for _, group in groupby(pairwise([(), *chains]), kind):
        pairs = list(group)
        text += sentence(pairs) or _explained([chain for _, chain in pairs], derivation, place)
    return text + (_decided(others, place) if others else "")


def _about(step: Step, claims: Sequence[Chain], value: object, place: Place) -> str:
    """Return the sentence on claims at one `i`, with the rule of one of them."""
    numbers = f"{place.references(claims)} hold{'' if claims[1:] else 's'}"
    if step.by_induction:
        sentence = f"Suppose {numbers} at $i-1$"
    elif value == i:
        sentence = f"So {numbers} at $i$"
    elif value:
        return f"At $i = {typeset(value)}$, {place.references(claims)} was also checked {place.prose(step.rule)}.\n"
    else:
        sentence = f"At $i = 0$, {numbers}"
    detail = step.rule.partition(", for ")[0].partition(": ")[2]
    between = " " if detail.startswith("by ") else ": "
    return sentence + (f"{between}{place.reason(step, detail)}.\n" if detail else ".\n")


def _explained(chains: Sequence[Chain], derivation: Derivation, place: Place) -> str:
    """Return equations with their rules before them, without those that only put the induction hypothesis in."""
    hypotheses = {Equation(step.left, step.right) for step in derivation.inductions}
    premises = {Equation(each.left, each.right) for each in derivation.premises if isinstance(each, Step)}
    shown: list[Chain] = []
    for chain in chains:
        lines = [step for step in chain if not hypotheses & {*step.using} or {*step.using} - hypotheses - premises]
        shown += [(replace(lines[0], left=chain[0].left), *lines[1:])] if lines else []
    rules = reason((step for chain in chains for step in chain), place)
    opening = capital(rules) + (",\n" if rules.startswith("by ") else ":\n")
    formulas = [
        breakable(" ".join(row.replace("&", "").replace(r"\qquad", "") for row in rows_of(chain, ENDLESS)))
        for chain in shown
    ]
    short = all(width(each) <= _IN_A_SENTENCE * place.line and r"\begin" not in each for each in formulas)
    if short and len(formulas) <= _TOGETHER:
        return opening + f"{listed([f'${each}$' for each in formulas])}.\n"
    return opening + display(shown, place)


def _decided(chains: Sequence[Chain], place: Place) -> str:
    """Return the reasons for claims that multiplying out decides, or that follow by something."""
    decided = [chain for chain in chains if chain[0].relation == "=" and not chain[0].rule.startswith("by ")]
    opening = f"Multiply out both sides of {place.references(decided)}: they have the same terms.\n" if decided else ""
    return opening + reasons(chains, place)
