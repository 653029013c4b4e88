"""The audit: complete, computed, each verdict with its reason."""

import json
import re
from dataclasses import replace

import pytest
from audited import findings

import symbolic.audit.checks as checks
import symbolic.audit.counterexample as numbers
import symbolic.audit.figure as figure
from symbolic.audit.audit import CLAIMS, as_dicts, audit
from symbolic.audit.checks import both
from symbolic.audit.claim import CHECKED, CITED, DEFINED, FAILS, MISPRINTED, PROVED, READING, UNDECIDED, VERDICTS, Claim
from symbolic.audit.counterexample import Outcome, counterexample, identity
from symbolic.audit.figure import figure_2
from symbolic.audit.formula import read
from symbolic.audit.magnitude import EPSILON, S1, S2, F, follows
from symbolic.audit.notation import THEORY
from symbolic.audit.updates import READINGS, reach
from symbolic.equality.normal_form import equal
from symbolic.errors import SymbolicError
from symbolic.expressions.activation import Activation
from symbolic.expressions.parameter import Parameter
from symbolic.theorems.residual_stack import ResidualStack

FINDINGS = findings()
HOLDS = (PROVED, CHECKED, DEFINED, CITED)
BY_NAME = {(f.equation, f.source): f for f in FINDINGS}


def test_every_numbered_equation_of_the_newest_version_has_a_verdict():
    numbers = [int(f.equation) for f in FINDINGS if f.source == "000" and f.equation.isdigit()]
    assert numbers == list(range(1, 36))


def test_the_unnumbered_claims_and_earlier_versions_are_there():
    names = {f.equation for f in FINDINGS if not f.equation.isdigit()}
    for word in (
        "order of factors",
        "dense matrix",
        "update rules below 11",
        "update rules below 33",
        "definition of UAT",
    ):
        assert any(name.startswith(word) for name in names), word
    assert {f.source for f in FINDINGS} == {"000", "001", "003"}
    assert len(BY_NAME) == len(FINDINGS)


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda f: f"{f.source}-{f.equation}")
def test_a_finding_says_what_it_rests_on(finding):
    assert finding.verdict in (*HOLDS, MISPRINTED, READING, FAILS), "undecided"
    assert finding.printed
    assert finding.reason
    assert finding.check.startswith("as printed: ")
    assert "isn't proved" not in finding.check
    if finding.verdict == FAILS:
        evidence = ("counterexample", "can't be formed", "stated: ", "is proved: ")
        assert any(words in finding.check for words in evidence), "numbers that refute it are missing"
    assert not any("\t" in text for text in (finding.reason, finding.check, finding.printed, finding.corrected))
    assert not any(hole in finding.check for hole in ("{f", "{w", "{sorted"))
    if finding.verdict in HOLDS:
        assert not finding.corrected
    else:
        assert finding.corrected
        assert "corrected: " in finding.check
    if finding.verdict == READING:
        assert finding.reason.startswith("True when ")


# The verdicts that rest on a choice of words, each with the reason that it has to print.
JUDGED = {
    ("4", "000"): (DEFINED, "DUAT is Eq. 1 with parameters that are functions of the input"),
    ("20", "000"): (DEFINED, "is one with dynamic parameters"),
    ("4", "001"): (MISPRINTED, "It fits when W is square"),
    ("pruning of layers", "000"): (READING, "its linear path stays"),
    ("small share of the output", "000"): (READING, "with all else held"),
    ("dense head", "000"): (READING, "there is no mask"),
    ("dense matrix", "000"): (READING, "With a causal mask (N + 1)/(2 N)"),
    ("whole context", "000"): (READING, "sees preceding tokens only"),
    ("26", "000"): (READING, "symbols of index i are the updated ones"),
    ("27", "000"): (READING, "symbols of index i are the updated ones"),
    ("28", "000"): (PROVED, "in Eq. 30 the same matrix has the index i + 1"),
    ("29", "000"): (PROVED, "in Eq. 30 its parameters have the index i + 1"),
    ("update rules below 11", "000"): (FAILS, "B_2 is wrong already"),
    ("update rules below 33", "000"): (FAILS, "B_2 is wrong already"),
    ("definition of UAT in B.2", "000"): (FAILS, "one too low"),
    ("18", "000"): (FAILS, "then it is exact"),
    ("7", "000"): (DEFINED, "Ĥ_k of N × M/h"),
    ("caption in Appendix A", "000"): (READING, "stands for its transpose"),
    ("covariance", "000"): (READING, "a Gram form"),
    ("dynamic parameters", "000"): (READING, "W'_{1,3} is carried by later attention and changes too"),
    ("one function", "000"): (FAILS, "as a Transformer with fixed weights is"),
    ("similar outputs", "000"): (FAILS, "a matter of the weights"),
    ("correlated elements", "000"): (READING, "not independent"),
    ("dynamic parameters", "003"): (READING, "the symbols are the updated ones"),
}


@pytest.mark.parametrize("name", JUDGED, ids=" ".join)
def test_a_judged_verdict_prints_its_reason(name):
    verdict, words = JUDGED[name]
    assert BY_NAME[name].verdict == verdict
    assert words in BY_NAME[name].reason


def test_removing_a_layer_of_tiny_parameters_moves_the_output():
    check = BY_NAME["pruning of layers", "000"].check
    assert "it changes by 5.99999" in check
    tiny = 1e-6
    x1 = tiny * 3 + tiny + tiny * max(0, tiny * 3 + tiny)
    assert abs((3 + 3) - (x1 + max(0, x1))) == pytest.approx(5.99999, abs=1e-5)


def test_the_verdicts_are_counted():
    verdicts = [finding.verdict for finding in FINDINGS]
    assert [verdicts.count(v) for v in VERDICTS] == [22, 2, 8, 2, 2, 32, 16, 0]


def test_definitions_say_so():
    definitions = [c for c in CLAIMS if c.kind == DEFINED]
    assert all("A definition." in BY_NAME[c.equation, c.source].reason for c in definitions)
    assert {f.equation for f in FINDINGS if f.verdict == DEFINED} == {"1", "3", "4", "7", "8", "13", "17", "20"}


def test_what_is_cited_isnt_said_to_be_proved():
    assert {(f.equation, f.source) for f in FINDINGS if f.verdict == CITED} == {("2", "000"), ("2", "001")}
    assert all("not proved here" in f.check for f in FINDINGS if f.verdict == CITED)
    assert not any("cited" in f.check for f in FINDINGS if f.verdict == PROVED)


def test_a_prime_that_is_left_out_is_said():
    assert "Printed without a prime: W_{i,1}, x_{0}, b_{i,1}." in BY_NAME["32", "000"].reason
    assert "without a prime" not in BY_NAME["31", "000"].reason
    with pytest.raises(SymbolicError, match=r"W_1,1 stands for nothing"):
        read(r"\mathbf{W}_{1,1}\mathbf{x}'_{0}", THEORY)
    with pytest.raises(SymbolicError, match=r"declared: \['x_0'\]"):
        read(r"\mathbf{x}'_{0}", THEORY, ("x_0",))


def test_a_relation_that_isnt_decided_is_refused():
    (row,) = read(r"\mathbf{x}'_{1}\le\mathbf{x}'_{0}", THEORY)
    with pytest.raises(SymbolicError, match="isn't what is decided"):
        _ = row.equated
    assert row.related(r"\le") == row.sides


def test_a_verdict_is_computed_when_it_is_asked_for(monkeypatch):
    assert audit(21)[0].verdict == PROVED
    monkeypatch.setattr(checks, "identity", lambda *_: Outcome(False, "refused"))
    assert audit(21)[0].verdict == FAILS
    assert "refused" in audit(21)[0].check


def claim(literal, readings=(), **options):
    return Claim("x", "x", literal, readings=dict(readings), **options)


def no(_):
    return Outcome(False, "no")


def yes(_):
    return Outcome(True, "yes")


def perhaps(_):
    return Outcome(None, "perhaps")


def test_a_claim_takes_the_first_reading_that_holds_and_proves_its_correction():
    readings = (("first", no), ("second", yes), ("third", no))
    finding = claim(no, readings, correct="y", correction=no).decide()
    assert finding.verdict == READING
    assert "True when second." in finding.reason
    assert "the correction isn't proved: no" in finding.check
    assert claim(yes, readings).decide().verdict == PROVED
    assert claim(yes, readings, kind=DEFINED).decide().verdict == DEFINED
    assert claim(no, readings, kind=DEFINED).decide().verdict == MISPRINTED
    assert claim(no, readings[:1]).decide().verdict == FAILS


def test_what_is_neither_proved_nor_refuted_is_undecided():
    assert claim(perhaps).decide().verdict == UNDECIDED
    assert claim(perhaps, (("other", no),)).decide().verdict == UNDECIDED
    assert claim(no, (("other", perhaps),)).decide().verdict == UNDECIDED
    assert claim(perhaps, (("other", yes),)).decide().verdict == UNDECIDED


def test_what_is_checked_at_sizes_is_not_said_to_be_proved():
    def some(_):
        return Outcome(True, "yes", "N = 2")

    assert claim(some).decide().verdict == CHECKED
    assert claim(no, (("other", some),)).decide().verdict == READING
    for found in (claim(some).decide(), claim(no, (("other", some),)).decide()):
        assert "Checked at N = 2; not proved in general." in found.reason
    assert both(yes(0), some(0)).sizes == "N = 2"


@pytest.mark.parametrize(
    "claim", [c for c in CLAIMS if BY_NAME[c.equation, c.source].verdict == READING], ids=lambda c: c.equation
)
def test_what_is_said_to_be_false_as_printed_is_refuted(claim):
    as_printed = claim.run(claim.literal)
    assert as_printed.holds is not None and not as_printed.holds


def test_findings_are_chosen_by_verdict_and_version():
    refuted = audit(verdict=FAILS, version="001")
    assert refuted == tuple(f for f in FINDINGS if (f.verdict, f.source) == (FAILS, "001")) != ()
    assert audit(31, version="003") == ()
    with pytest.raises(SymbolicError, match="no verdict 'wrong': give one of 'proved'"):
        audit(verdict="wrong")
    with pytest.raises(SymbolicError, match="no version '002': give one of '000', '001', '003'"):
        audit(version="002")


def test_the_product_of_two_vectors_is_never_said_not_to_commute():
    x, y = (Parameter(letter, (), ResidualStack().width, 1) for letter in "xy")
    assert identity(x.T * y, y.T * x).holds is not False
    assert identity(x * y.T, y * x.T).holds is False


def test_different_normal_forms_alone_refute_nothing(monkeypatch):
    monkeypatch.setattr(numbers, "counterexample", lambda *_: None)
    a, b = (Parameter(letter, (), ResidualStack().width, ResidualStack().width) for letter in "AB")
    assert identity(a * b, b * a).holds is None


def test_what_has_no_shape_is_refuted():
    a, x = Parameter("A", (), 2, 3), Parameter("x", (), 2, 1)
    assert identity(a, x) == Outcome(False, identity(a, x).how)
    assert "can't be formed" in identity(a, x).how


def test_what_is_to_be_mended_has_to_be_printed():
    with pytest.raises(SymbolicError, match=r"z isn't in what is printed"):
        claim(no, correct=(("z", "y"),), correction=yes).decide()


def test_an_unknown_equation_is_named_with_those_there_are():
    with pytest.raises(SymbolicError, match=r"'36'.*1 to 35.*'dense matrix'"):
        audit(36)
    assert [f.source for f in audit("12")] == ["000", "001"]


def test_findings_as_json():
    found = json.loads(json.dumps(as_dicts(audit(31))))
    assert set(found[0]) == {"equation", "source", "printed", "verdict", "reason", "corrected", "check"}


def test_counterexamples_are_found_where_matrices_dont_commute():
    a, b = (Parameter(letter, (), ResidualStack().width, ResidualStack().width) for letter in "AB")
    assert "all sizes 2" in counterexample(a * b, b * a)
    assert counterexample(a * b, a * b) is None
    assert not identity(a * b, b * a).holds
    assert equal(a * b, a * b)


RULES = next(claim for claim in CLAIMS if claim.equation == "update rules below 33")


@pytest.mark.parametrize(
    ("reading", "depth"),
    [
        ("in order", 1),
        ("at once", 1),
        ("folded, in order", 1),
        ("folded, at once", 2),
        ("own and updated", 2),
        ("repeated", 1),
    ],
)
def test_the_printed_update_rules_reach_a_depth_in_every_reading(reading, depth):
    found = reach(RULES.says, reading)
    assert not found.holds
    assert found.how.startswith(f"right up to depth {depth}, wrong at depth {depth + 1}")


def test_the_corrected_update_rules_reach_every_tested_depth():
    assert reach(RULES.mended.says, "per layer").how == "right at depths 1 to 4"
    assert {"in order", "at once", "folded, in order", "folded, at once", "own and updated", "repeated"} == set(
        READINGS
    )


def test_both_defects_of_the_update_rules_have_to_be_mended():
    fold, *indices, weight, bias, recursions = RULES.correct
    for pairs in ((*indices, weight, bias, recursions), (fold, weight, bias, recursions)):
        assert "isn't proved" in replace(RULES, correct=pairs).decide().check
    # The fold, for layer 1 only, is wrong at depth 2 already.
    printed = next(found for found in FINDINGS if found.equation == RULES.equation)
    assert "as printed: right up to depth 1, wrong at depth 2" in printed.check
    assert "B_2 is wrong" in printed.reason


def test_a_formula_is_read_back_as_it_is_written():
    s = ResidualStack()
    (found,) = read(r"\mathbf{W}'_{2,3}\sigma\{\mathbf{W}'_{2,2}[\mathbf{x}'_{1}-\mathbf{x}'_{0}]\}", THEORY)
    assert found.sides[0] == s.W(2, 3) * Activation(s.W(2, 2) * (s.x(1) - s.x(0)))


@pytest.mark.parametrize(
    ("latex", "words"),
    [
        (r"\mathbf{W}'_{1,1", "comes nothing"),
        (r"(\mathbf{x}'_{0}", "expected"),
        (r"\mathbf{Z}_{1}", "Z_1 stands for nothing"),
        (r"\mathbf{W}'_{1,4}", "stands for nothing"),
        (r"\mathbf{P}'_{1}", "stands for nothing"),
        (r"\mathbf{x}'_{1}+\mathbf{W}'_{1,1}", "they don't add"),
        (r"G(\mathbf{x}_{1})", "the input is x"),
        (r"\mathbf{x}_{i*2}", "no index"),
    ],
)
def test_what_cant_be_read_is_named(latex, words):
    with pytest.raises(SymbolicError, match=re.escape(words)):
        read(latex, THEORY)


def test_inequalities_are_decided_by_signs_or_by_numbers():
    assert follows(abs(S1 - F), EPSILON + abs(S2)).holds
    assert follows(abs(S1 - F), EPSILON + abs(S2) / 2).holds is False
    assert follows(abs(S1 - F) - abs(S2), EPSILON).holds
    # True, and beyond what the signs on eight rays decide.
    assert follows(abs(S1 - F), EPSILON + abs(S2) + abs(S1 - F - 5 * S2)).holds is None


def test_the_parameters_of_figure_2_make_the_network():
    found = figure_2(3)
    assert found.verified
    assert [row.layer for row in found.rows] == [1] * 5 + [2] * 6 + [3] * 7
    values = {str(row.updated): str(row.value) for row in found.rows}
    assert values["B₂"] == "W′₂,₂ W′₂,₁ W′₁,₁"
    assert values["C₁⁽³⁾"] == "W′₃,₁ W′₂,₁ W′₁,₃"
    assert found.unicode().count("\n─") == 4
    assert found.latex().count(r"\hline") == 3


def test_figure_2_says_so_if_its_parameters_are_wrong(monkeypatch):
    monkeypatch.setattr(figure, "_recursions", lambda: ResidualStack().recursions)
    assert not figure_2(2).verified
    assert "is NOT the network" in str(figure_2(2))
