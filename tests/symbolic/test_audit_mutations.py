"""The audit decides the formulas that it prints: a change of any formula in one place is noticed."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from symbolic.audit.audit import CLAIMS
from symbolic.errors import SymbolicError

LETTER = r"(?:\\Delta )?(?:\\mathbf\{[A-Za-z]\}|\\mathrm\{UAT\}\^\{R\})'?(?:_\{[^{}]*\})?(?:\^\{(?:\(\w\+?\d?\)|T)\})?"

FACTOR = re.compile(rf"\({LETTER}\)\^\{{T\}}|{LETTER}")

SCRIPT = re.compile(r"[_^]\{([^{}]*)\}")

WORDS = re.compile(r"\\text\{[^{}]*\}|\\operatorname\{\w+\}|\\(?:begin|end)\{\w+\}(?:\{\w+\})?|\\left|\\right")


def blanked(latex):
    """Return a formula with everything that is no formula, and all indices, as spaces of the same length."""
    without_words = WORDS.sub(lambda m: " " * len(m.group()), latex)
    return re.sub(r"[_^]\{(?:[^{}]|\{[^{}]*\})*\}", lambda m: " " * len(m.group()), without_words)


def swapped(latex):
    """Yield the formula with two neighbouring factors exchanged; `x ⋄ W` is `W ⋄ x` by definition, and stays."""
    found = list(FACTOR.finditer(latex))
    for one, two in pairwise(found):
        between = latex[one.end() : two.start()]
        of_a_vector = between and re.search(r"\{[xy]\}", one.group() + two.group())
        if between.strip() in ("", r"\diamond") and not of_a_vector and one.group() != two.group():
            yield latex[: one.start()] + two.group() + between + one.group() + latex[two.end() :]


def shifted(latex):
    """Yield the formula with one index, or one bound of a sum, greater by one."""
    for script in SCRIPT.finditer(latex):
        for place in re.finditer(r"(?<![A-Za-z])(?:[a-z](?![a-z]))(?!\+\d|\=)|\d+", script.group(1)):
            text = place.group()
            more = str(int(text) + 1) if text.isdigit() else f"{text}+1"
            start = script.start(1) + place.start()
            yield latex[:start] + more + latex[start + len(text) :]


def signs(latex):
    """Yield the formula with one + for −, or the other way round."""
    for place in re.finditer(r"[+-]", blanked(latex)):
        other = "-" if place.group() == "+" else "+"
        yield latex[: place.start()] + other + latex[place.end() :]


def dropped(latex):
    """Yield the formula without one of its later summands."""
    bare = blanked(latex).replace(r"\{", " {").replace(r"\}", " }")
    for place in re.finditer(r"[+-]", bare):
        depth, end = 0, place.end()
        while end < len(bare):
            depth += (bare[end] in "([{") - (bare[end] in ")]}")
            if depth < 0 or (depth == 0 and (bare[end] in "+-=<>,;&" or bare.startswith((r"\\", r"\to"), end))):
                break
            end += 1
        if bare[end - 1 : end + 1] == " }":
            end -= 1
        yield latex[: place.start()] + latex[end:]


def numbers(latex):
    """Yield the formula with one number changed."""
    for place in re.finditer(r"(?<!,)\b\d+", blanked(latex)):
        yield latex[: place.start()] + str(int(place.group()) + 1) + latex[place.end() :]


def transposed(latex):
    """Yield the formula without one of its transposes."""
    for place in re.finditer(r"\^\{(?:T|\\mathrm\{T\})\}", latex):
        yield latex[: place.start()] + latex[place.end() :]


RELATIONS = {
    "=": r"\le ",
    "<": r"\le ",
    ">": r"\ge ",
    r"\le": "<",
    r"\ge": ">",
    r"\to": "=",
    r"\mapsto": "=",
    r"\in": "=",
}

RELATION = re.compile(r"[=<>]|\\(?:le|ge|to|rightarrow|mapsto|in)(?![a-z])")


def relations(latex):
    """Yield the formula with one relation changed: an equation into an inequality, `<` into `≤`, an arrow into `=`."""
    for place in RELATION.finditer(blanked(latex)):
        text = place.group()
        other = RELATIONS.get(text, "=")
        yield latex[: place.start()] + other + latex[place.end() :]
        if text == "=":
            yield latex[: place.start()] + r"\mapsto " + latex[place.end() :]


def unprimed(latex):
    """Yield the formula without one of its primes."""
    for place in re.finditer("'", latex):
        yield latex[: place.start()] + latex[place.end() :]


def primed(latex):
    """Yield the formula with one prime that isn't there."""
    for place in re.finditer(r"(?:\\mathbf\{[A-Za-z]\}|\\mathrm\{UAT\}\^\{R\})(?!['}])", latex):
        yield latex[: place.end()] + "'" + latex[place.end() :]


KINDS = (swapped, shifted, signs, dropped, numbers, transposed, relations, unprimed, primed)


def mutants(latex):
    """Return the formulas that differ from one in one place, each once."""
    return [m for m in dict.fromkeys(m for kind in KINDS for m in kind(latex)) if m != latex]


def changed_claims(claim):
    """Yield a claim with what it prints changed in one place: the formula, or its correction."""
    for printed in mutants(claim.printed):
        yield printed, replace(claim, printed=printed)
    if isinstance(claim.correct, str):
        for correct in mutants(claim.correct):
            yield correct, replace(claim, correct=correct)
        return
    for number, (misprint, right) in enumerate(claim.correct):
        for other in mutants(right):
            pairs = (*claim.correct[:number], (misprint, other), *claim.correct[number + 1 :])
            changed = replace(claim, correct=pairs)
            if not restored(changed, claim):
                yield other, changed


def restored(changed, claim):
    """Return whether a later replacement makes the correction what it was, such as one that puts a prime back."""
    try:
        return changed.corrected == claim.corrected
    except SymbolicError:
        return False


def result(claim):
    """Return what is noticed of a claim: its verdict, whether its correction is proved, or that it can't be read."""
    try:
        finding = claim.decide()
    except SymbolicError:
        return "it isn't what is decided"
    return finding.verdict, "isn't proved" in finding.check


# Statements in words alone, whose corrections are formulas where they need one.
PROSE = {
    ("a single term", "000"),
    ("pruning of layers", "000"),
    ("LoRA layer by layer", "000"),
    ("covariance", "000"),
    ("one function", "000"),
    ("similar outputs", "000"),
    ("diamond not associative", "001"),
    ("diamond not distributive", "001"),
}

# H ⊗ I and I ⊗ W_V commute, which is what this claim says; so the exchanged factors are the same.
EQUIVALENT = {
    r"[\mathbf{W}'_{Vi}\mathbf{H}'_{i}]^{T}\mathbf{x}'_{i}=(\mathbf{H}'_{i})^{T}[(\mathbf{W}'_{Vi})^{T}\mathbf{x}'_{i}]"
}

DISTINCT = list({(c.printed, c.correct, c.notation): c for c in reversed(CLAIMS)}.values())[::-1]


def test_only_prose_has_no_formula_to_change():
    assert {(c.equation, c.source) for c in CLAIMS if not mutants(c.printed)} == PROSE


QUICK = 4
"""One claim in so many is changed in `make test`, but for the update rules; all are in `make slow`."""

CHANGED = [
    pytest.param(
        claim,
        id=f"{claim.source}-{claim.equation}",
        marks=[pytest.mark.slow] * bool(number % QUICK or "update rules" in claim.equation),
    )
    for number, claim in enumerate(DISTINCT)
]


@pytest.mark.parametrize("claim", CHANGED)
def test_a_change_in_one_place_of_what_is_printed_is_noticed(claim):
    expected = result(claim)
    assert not expected[1], "its correction isn't proved"
    unnoticed = [text for text, changed in changed_claims(claim) if result(changed) == expected]
    assert set(unnoticed) <= EQUIVALENT


def test_there_are_mutants_of_every_kind():
    kinds = {kind.__name__: sum(len(list(kind(c.printed))) for c in CLAIMS) for kind in KINDS}
    assert min(kinds.values()) > 10, kinds
    assert min(kinds["relations"], kinds["unprimed"], kinds["primed"]) > 250, kinds
