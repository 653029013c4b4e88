"""The symbolic layer's commands: what they print, their JSON, and their errors."""

import json

import jax.numpy as jnp
import pytest
from cases import GOLDEN
from command import run
from helpers import near

from duat_jax.verification.compare import _difference


def test_derive_prints_text_latex_and_a_document():
    text = run("derive", "--depth", 2)
    assert text.exit_code == 0, text.output
    assert "P₂ x′₀ + q₂ + UAT₂" in text.stdout
    latex = run("derive", "--what", "attention", "--format", "latex")
    assert latex.exit_code == 0, latex.output
    assert latex.stdout.startswith("% To be read by") and latex.stdout.count(r"\begin{theorem}") == 1
    assert "lines of 345pt" in latex.stdout
    narrow = run("derive", "--what", "attention", "--format", "latex", "--width", "246pt").stdout
    assert "lines of 246pt" in narrow and narrow.count("\n") > latex.stdout.count("\n")
    document = run("derive", "--proof", "--block", "post-norm", "--format", "document")
    assert document.exit_code == 0, document.output
    assert document.stdout.startswith(r"\documentclass")
    assert document.stdout.rstrip().endswith(r"\end{document}")
    assert "8 of 8 checks hold, by induction, with 14 definitions" in document.stdout
    assert document.stdout.count("for any function of one number, applied entry by entry") == 1
    theirs = run("derive", "--proof", "--block", "post-norm", "--symbols", "papers", "--format", "latex")
    assert theirs.exit_code == 0, theirs.output
    assert r"\widehat{\mathbf{W}}'_{i,1} \mathbf{x}'_{0}" in theirs.stdout
    assert r"\mathbf{P}" not in theirs.stdout and "$P" not in theirs.stdout


def test_derive_names_every_derivation_and_block_in_its_help():
    from symbolic.blocks.transformer import BLOCKS
    from symbolic.catalogue import WHAT

    text = " ".join(run("derive", "--help").stdout.replace("\u2502", " ").split())
    assert all(name in text for name in (*WHAT, *BLOCKS))


def test_a_block_is_printed_alone_with_or_without_a_gate():
    for name in ("pre-norm", "pre-norm-gated"):
        for asked in (("--proof",), (), ("--depth", 1), ("--what", "difference")):
            result = run("derive", "--block", name, *asked)
            assert result.exit_code == 0, result.output
            assert ("gated MLP" in result.stdout) == ("gated" in name), asked
            assert result.stdout.count("Every layer is the") <= 1


def test_the_proof_covers_every_block():
    result = run("derive", "--proof")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("8 of 8 checks hold, by induction, with 9 definitions") == 13
    assert "✗" not in result.stdout


def test_audit_prints_a_table_one_equation_and_json(tmp_path):
    table = run("audit")
    assert table.exit_code == 0, table.output
    assert "does not hold" in table.stdout
    assert sum(line.split()[:2] == ["31", "000"] for line in table.stdout.splitlines()) == 1
    one = run("audit", "--equation", 31)
    assert one.exit_code == 0, one.output
    assert "Equation 31, version 000: does not hold" in one.stdout
    assert "corrected" in one.stdout
    chosen = run("audit", "--verdict", "does not hold", "--version", "001").stdout
    assert "\n4 does not hold\n" in chosen and chosen.count("\n13 ") == 1
    assert run("audit", "--equation", 31, "--json", tmp_path / "audit.json").exit_code == 0
    found = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))["findings"]
    assert [f["equation"] for f in found] == ["31"]
    everything = json.loads(run("audit", "--json", "-").stdout)["findings"]
    assert {f["source"] for f in everything} == {"000", "001", "003"}
    assert set(everything[0]) == {"equation", "source", "printed", "verdict", "reason", "corrected", "check"}


def test_audit_prints_a_figure_as_text_and_as_latex():
    text = run("audit", "--figure", 2)
    assert text.exit_code == 0, text.output
    assert "W′₃,₁ W′₂,₁ W′₁,₁" in text.stdout
    latex = run("audit", "--figure", 2, "--format", "latex")
    assert latex.stdout.startswith("\\begin{array}")


def test_a_route_whose_numbers_are_off_does_not_hold():
    sizes, numbers = {"x/1": 2.0}, {"x/1": jnp.array([1.0, 2.0])}
    off = {"x/1": jnp.array([1.0, 2.0 + 1e-6])}
    assert _difference("the same", numbers, numbers, sizes, 1).holds
    found = _difference("another", numbers, off, sizes, 1)
    near(found.largest, 1e-6, within=1e-12)
    assert not found.holds


def test_verify_prints_a_table_and_json(monkeypatch):
    monkeypatch.setattr("duat_jax.cli.progress.MINUTE", 1e-9)
    result = run("verify", "--depth", 2, "--block", "parallel")
    assert result.exit_code == 0, result.output
    assert "Comparing: 1 of 1 networks" in result.stderr
    head, *rows = result.stdout.splitlines()
    assert head.split()[0] == "network" and head.split()[-1] == "verdict"
    assert [row.split()[-1] for row in rows] == ["holds"] * 3
    (found,) = json.loads(run("verify", "--model", GOLDEN / "bert", "--json", "-").stdout)["networks"]
    assert found["holds"]
    assert {d["route"] for d in found["differences"]} >= {"forward pass"}
    assert all(d["largest"] <= d["tolerance"] for d in found["differences"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("derive", "--depth", "0"), "depth is 0"),
        (("derive", "--depth", "-3"), "depth is -3"),
        (("derive", "--block", "mamba"), "no block 'mamba': choose one of paper, paper-gated, paper-residual"),
        (("derive", "--what", "nothing"), "no derivation 'nothing'"),
        (("derive", "--proof", "--depth", "2"), "ask for different derivations: give one of them"),
        (("derive", "--what", "lora", "--block", "paper"), "the same for every block"),
        (("derive", "--format", "latex", "--width", "2in"), "--width is '2in': give points from 200pt on"),
        (("derive", "--format", "document", "--width", "100"), "--width is '100': give points from 200pt on"),
        (("derive", "--what", "mlp", "--symbols", "papers"), "changes no letter of mlp: leave --symbols out"),
        (("derive", "--what", "streams", "--symbols", "papers"), "changes no letter of streams: leave --symbols out"),
        (("derive", "--streams", "7"), "the number of streams is 7: give a number from 1 to 6"),
        (("derive", "--terms", "2", "--what", "lora"), "--terms and --what ask for different derivations"),
        (("derive", "--width", "246pt"), "--width is for LaTeX: add --format latex"),
        (("audit", "--equation", "0"), "no equation '0'"),
        (("audit", "--json", "no/such/folder/x.json"), "is not a directory"),
        (("audit", "--figure", "3"), "nothing to compute in figure 3: give 2"),
        (("audit", "--figure", "2", "--equation", "3"), "can't be combined: give one of them"),
        (("audit", "--format", "latex"), "--format is for a figure"),
        (("audit", "--verdict", "wrong"), "no verdict 'wrong': give one of 'proved'"),
        (("audit", "--version", "2"), "no version '2': give one of '000', '001', '003'"),
        (("audit", "--figure", "2", "--verdict", "proved"), "--figure and --verdict can't be combined"),
        (("verify", "--depth", "0"), "depth is 0"),
        (("verify", "--block", "mamba"), "no block is called 'mamba'"),
        (("verify", "--model", "nowhere"), "nowhere"),
    ],
)
def test_the_symbolic_commands_answer_mistakes_in_one_line(arguments, words):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert words in result.stderr
