"""The command line: its output, its JSON, its files, and its errors."""

import json
import subprocess
import sys

import numpy as np
import pytest
from test_models import ENCODER, GOLDEN
from typer.testing import CliRunner

from duat_jax.cli import application

TEXT = "w5 w17 w3"


def run(*arguments):
    return CliRunner().invoke(application, list(map(str, arguments)))


def test_help_does_not_import_jax():
    code = (
        "import sys\n"
        "from duat_jax.cli import application\n"
        "try:\n    application(['--help'])\nexcept SystemExit: pass\n"
        "assert not {'jax', 'flax', 'numpy', 'matplotlib'} & set(sys.modules), 'heavy imports'\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "explain" in result.stdout


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_json_of_a_language_model(dtype):
    result = run(
        "explain", TEXT, "--model", GOLDEN / "gpt2", "--target", "w7", "--json", "-", "--dtype", dtype, "--top", 4
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["family"] == "gpt2"
    assert found["tokens"] == ["w5", "w17", "w3"]
    assert found["dtype"] == dtype
    assert np.shape(found["parts"]["mlp"]) == (3, 3)
    total = sum(found["parts"]["embedding"]) + np.sum(found["parts"]["mlp"]) + found["parts"]["bias"]
    assert abs(total - found["value"]) <= found["tolerance"]
    assert abs(found["sum"] - found["value"] - found["error"]) <= found["tolerance"]
    np.testing.assert_allclose(sum(found["biases"].values()), found["parts"]["bias"], atol=1e-6)
    assert abs(sum(found["input_tokens"]) + found["input_bias"] - found["value"]) <= 10 * found["tolerance"]
    assert len(found["top"]) == 4
    assert set(found["top"][0]) == {"layer", "token_index", "neuron", "value"}


def test_json_of_the_real_encoder():
    texts = (
        "Heat pumps move warmth from the cold air outside into the house.",
        "A refrigerator run backwards can heat a room.",
    )
    result = run("explain", texts[0], "--against", texts[1], "--model", ENCODER, "--json", "-")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert round(found["value"], 5) == 0.47553
    assert abs(found["error"]) <= found["tolerance"]


def test_the_table_and_the_files(tmp_path):
    plot, file = tmp_path / "picture.png", tmp_path / "table.json"
    result = run("explain", TEXT, "--model", GOLDEN / "gpt2", "--plot", plot, "--json", file, "--contrast", "w9")
    assert result.exit_code == 0, result.output
    for words in ("The model says next", "biggest terms", "Layer × token", "sum of all parts", "tolerance"):
        assert words in result.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert json.loads(file.read_text())["model"].endswith("gpt2")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["picture.png", "table.json"]


BAD = {
    "empty text": (["explain", ""], "the text is empty"),
    "unknown target": (["explain", TEXT, "--target", "two words"], "'two words' is not one token but 2"),
    "too long": (["explain", "w3 " * 17], "17 tokens, but the model's context is 16: shorten it"),
    "position": (["explain", TEXT, "--position", "3"], "position 3 is outside"),
    "no such model": (["explain", TEXT, "--model", "nowhere"], "nowhere is not a directory"),
    "no such folder": (["explain", TEXT, "--json", "nowhere/a.json"], "nowhere is not a directory"),
    "json is a folder": (["explain", TEXT, "--json", "."], "'.' is a directory"),
    "json has no name": (["explain", TEXT, "--json", ""], "is a directory"),
    "not UTF-8": (["explain", "w3 \udcff"], "not UTF-8"),
    "not a picture": (["explain", TEXT, "--plot", "a.txt"], "must end in .png"),
    "against": (["explain", TEXT, "--against", "w4"], "no encoder"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_are_one_line_with_status_2(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, message = BAD[case]
    extra = [] if "--model" in arguments else ["--model", str(GOLDEN / "gpt2")]
    writes = [] if {"--plot", "--json"} & set(arguments) else ["--plot", "a.png", "--json", "a.json"]
    result = run(*arguments, *extra, *writes)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_text_of_nothing_is_empty_for_an_encoder_too():
    for arguments in (["   "], [TEXT, "--against", ""]):
        result = run("explain", "--model", GOLDEN / "bert", "--against", "w3", *arguments)
        assert result.exit_code == 2
        assert "is empty" in result.stderr


def test_a_link_keeps_pointing_where_it_did(tmp_path):
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    assert run("explain", TEXT, "--model", GOLDEN / "gpt2", "--json", link).exit_code == 0
    assert link.is_symlink()
    assert json.loads(target.read_text())["family"] == "gpt2"


def test_an_encoder_without_a_second_text_is_an_error():
    result = run("explain", TEXT, "--model", GOLDEN / "bert")
    assert result.exit_code == 2
    assert "--against" in result.stderr


def test_derive_prints_text_latex_and_a_document():
    text = run("derive", "--depth", 2)
    assert text.exit_code == 0, text.output
    assert "P₂ x′₀ + q₂ + UAT₂" in text.stdout
    latex = run("derive", "--what", "attention", "--format", "latex")
    assert latex.exit_code == 0, latex.output
    assert latex.stdout.count(r"\begin{aligned}") == 1
    document = run("derive", "--proof", "--block", "post-norm", "--format", "document")
    assert document.exit_code == 0, document.output
    assert document.stdout.startswith(r"\documentclass")
    assert document.stdout.rstrip().endswith(r"\end{document}")
    assert "9 of 9 steps verified" in document.stdout


def test_derive_names_every_derivation_and_block_in_its_help():
    from symbolic.derive import WHAT
    from symbolic.transformer import BLOCKS

    text = " ".join(run("derive", "--help").stdout.replace("\u2502", " ").split())
    assert all(name in text for name in (*WHAT, *BLOCKS))


def test_the_proof_covers_every_block():
    result = run("derive", "--proof")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("9 of 9 steps verified") == 13
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
    assert run("audit", "--equation", 31, "--json", tmp_path / "audit.json").exit_code == 0
    found = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert [f["equation"] for f in found] == ["31"]
    everything = json.loads(run("audit", "--json", "-").stdout)
    assert {f["source"] for f in everything} == {"000", "001", "003"}
    assert set(everything[0]) == {"equation", "source", "printed", "verdict", "reason", "corrected", "check"}


def test_verify_prints_a_table_and_json():
    result = run("verify", "--depth", 2, "--block", "parallel")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("holds") == 3
    (found,) = json.loads(run("verify", "--model", GOLDEN / "bert", "--json", "-").stdout)
    assert found["holds"]
    assert {d["with"] for d in found["differences"]} >= {"forward pass"}
    assert all(d["largest"] <= d["tolerance"] for d in found["differences"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("derive", "--depth", "0"), "depth is 0"),
        (("derive", "--depth", "-3"), "depth is -3"),
        (("derive", "--block", "mamba"), "no block 'mamba'"),
        (("derive", "--what", "nothing"), "no derivation 'nothing'"),
        (("derive", "--proof", "--depth", "2"), "ask for different derivations: give one of them"),
        (("derive", "--what", "lora", "--block", "paper"), "the same for every block"),
        (("audit", "--equation", "0"), "no equation '0'"),
        (("audit", "--json", "no/such/folder/x.json"), "is not a directory"),
        (("verify", "--depth", "0"), "depth is 0"),
        (("verify", "--block", "mamba"), "no block 'mamba'"),
        (("verify", "--model", "nowhere"), "nowhere"),
    ],
)
def test_the_symbolic_commands_answer_mistakes_in_one_line(arguments, words):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert words in result.stderr
