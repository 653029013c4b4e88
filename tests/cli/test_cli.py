"""The command line: its output, its JSON, its files, and its errors."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pandas as pd
import pytest
import typer
from adapters import random_adapters
from cases import ENCODER, GOLDEN
from command import run
from damaged import change_tokenizer, copy_checkpoint, damage
from helpers import near, relative

import duat_jax as duat
from duat_jax.cli import application, compiled
from duat_jax.cli.errors import DoesNotHold
from duat_jax.cli.output import to_json
from duat_jax.lora import save_adapters, save_merged

TEXT = "w5 w17 w3"


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
    contributions, completeness = found["contributions"], found["completeness"]
    assert list(contributions["terms"]) == [f"layers.{i}.mlp" for i in range(3)]
    assert all(len(row) == 3 for row in contributions["terms"].values())
    total = sum(contributions["embedding"]) + sum(map(sum, contributions["terms"].values()))
    total += sum(contributions["biases"].values())
    assert abs(total - found["value"]) <= completeness["tolerance"]
    assert completeness["verdict"] == "holds"
    assert abs(completeness["sum"] - found["value"] - completeness["error"]) <= completeness["tolerance"]
    collapse = found["collapse"]
    assert abs(sum(collapse["tokens"]) + collapse["bias"] - found["value"]) <= collapse["completeness"]["tolerance"]
    assert len(found["top"]) == 4
    factors = {"coefficient", "activation"}
    assert set(found["top"][0]) == {"term", "token_index", "neuron", "contribution", *factors}


def test_json_of_the_real_encoder():
    texts = (
        "Heat pumps move warmth from the cold air outside into the house.",
        "A refrigerator run backwards can heat a room.",
    )
    result = run("explain", texts[0], "--against", texts[1], "--model", ENCODER, "--json", "-")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert round(found["value"], 5) == 0.47553
    assert found["completeness"]["verdict"] == found["collapse"]["completeness"]["verdict"] == "holds"


def test_the_table_and_the_files(tmp_path):
    plot, file = tmp_path / "picture.png", tmp_path / "table.json"
    result = run("explain", TEXT, "--model", GOLDEN / "gpt2", "--plot", plot, "--json", file, "--contrast", "w9")
    assert result.exit_code == 0, result.output
    for words in ("the model says", "largest neurons", "Every layer at every token", "sum of all parts", "tolerance"):
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
    "a kept result as a picture": (["explain", TEXT, "--save", "a.png"], "; --plot writes .png"),
    "a kept result as anything": (["explain", TEXT, "--save", "a.xyz"], "end in .safetensors or have no ending"),
    "no such folder": (["explain", TEXT, "--json", "nowhere/a.json"], "nowhere is not a directory"),
    "json is a folder": (["explain", TEXT, "--json", "."], "'.' is a directory"),
    "json has no name": (["explain", TEXT, "--json", ""], "is a directory"),
    "not UTF-8": (["explain", "w3 \udcff"], "not UTF-8"),
    "not a picture": (["explain", TEXT, "--plot", "a.txt"], "must end in .png"),
    "against": (["explain", TEXT, "--against", "w4"], "no encoder"),
    "a long name": (["explain", TEXT, "--json", "a" * 300], "File name too long"),
    "a null character": (["explain", TEXT, "--json", "a\0b"], "null"),
    "a file as a folder": (["explain", TEXT, "--json", str(Path(__file__) / "a.json")], "is not a directory"),
    "one file for two": (["explain", TEXT, "--json", "a", "--save", "./a"], "give two files"),
    "a huge position": (["explain", TEXT, "--position", "9" * 30], "is outside"),
    "everything at once": (["explain", TEXT, "--against", "w4", "--position", "7"], "no encoder: explain a target"),
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


def before_computing(monkeypatch):
    """Make every way to compute with a model fail."""
    for name in ("models.loader.load", "interpret.explain.compute.answer", "models.transformer.Transformer.__call__"):
        monkeypatch.setattr(f"duat_jax.{name}", None)


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_found_before_anything_is_computed(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before_computing(monkeypatch)
    arguments, message = BAD[case]
    extra = [] if "--model" in arguments else ["--model", str(GOLDEN / "gpt2")]
    result = run(*arguments, *extra)
    assert result.exit_code == 2
    assert message in result.stderr


WORDPIECE = {
    "type": "WordPiece",
    "unk_token": "[UNK]",
    "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 100,
    "vocab": {f"w{i}": i for i in range(61)},
}
HUGE = WORDPIECE | {"vocab": {"w5": 5, "huge": 2**32 - 1}}
BAD_TOKENIZERS = {
    "no unknown token": ({"model": WORDPIECE}, "w5 other", "the tokenizer can't split the text (WordPiece error"),
    "a huge token id": ({"model": HUGE}, "huge", "embeds 61 tokens, but its tokenizer has token id 4294967295"),
    "a panic": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        "w5",
        "tokenizer.json: not a tokenizer (Precompiled",
    ),
}


@pytest.mark.parametrize("case", BAD_TOKENIZERS)
def test_a_tokenizer_that_fails_is_one_line(case, tmp_path, capfd, monkeypatch):
    before_computing(monkeypatch)
    changes, text, message = BAD_TOKENIZERS[case]
    directory = copy_checkpoint(tmp_path)
    change_tokenizer(directory, **changes)
    result = run("explain", text, "--model", directory, "--json", tmp_path / "a.json")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert capfd.readouterr() == ("", "")
    assert [p.name for p in tmp_path.iterdir()] == ["gpt2"]


@pytest.mark.parametrize("length", [1, 251, 255])
def test_a_name_of_any_length_is_written(tmp_path, length):
    file = tmp_path / ("a" * length)
    result = run("explain", TEXT, "--model", GOLDEN / "gpt2", "--json", file)
    assert result.exit_code == 0, result.output
    assert list(tmp_path.iterdir()) == [file]
    assert json.loads(file.read_text())["family"] == "gpt2"


def test_a_device_is_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    read = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    result = run("explain", TEXT, "--model", GOLDEN / "gpt2", "--json", tmp_path / "pipe")
    assert result.exit_code == 0, result.output
    assert json.loads(os.read(read, 1 << 20))["family"] == "gpt2"
    os.close(read)


def test_a_folder_that_takes_no_files_is_found_before_anything_is_computed(monkeypatch):
    before_computing(monkeypatch)
    result = run("explain", TEXT, "--model", GOLDEN / "gpt2", "--json", "/proc/a.json")
    assert result.exit_code == 2
    assert "can't write '/proc/a.json'" in result.stderr


def test_a_result_that_is_not_finite_has_a_status_of_its_own(tmp_path):
    directory = copy_checkpoint(tmp_path)
    damage(directory, lambda t: t["transformer.h.1.mlp.c_fc.weight"].fill(3e38))
    for extra in ([], ["--json", "-"], ["--json", tmp_path / "a.json", "--plot", tmp_path / "a.png"]):
        result = run("explain", TEXT, "--model", directory, *extra)
        assert result.exit_code == 3
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
        assert "is nan on what was given: check the model's weights" in result.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["gpt2"]


def test_a_sum_that_misses_its_value_has_a_status_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr("duat_jax.forms.completeness.Completeness.verdict", "fails")
    result = run("explain", TEXT, "--model", GOLDEN / "gpt2", "--json", tmp_path / "a.json")
    assert result.exit_code == 3
    assert "the table is not certified, its completeness fails: value" in result.stderr
    assert "(--dtype float64)" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_log_probability():
    result = run("explain", TEXT, "--model", GOLDEN / "gpt2", "--target", "w7", "--log-probability", "--json", "-")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    ids = duat.load_tokenizer(GOLDEN / "gpt2").encode(TEXT).ids
    logs = jax.nn.log_softmax(duat.load(GOLDEN / "gpt2")(jnp.array(ids))[-1])
    assert said["target"]["headline"].startswith("log-probability of 'w7' at token ")
    relative(said["value"], logs[7], within=1e-4)
    relative(said["contributions"]["biases"]["entropy"], jnp.sum(jnp.exp(logs) * logs), within=1e-4)
    result = run("explain", TEXT, "--model", GOLDEN / "gpt2", "--log-probability", "--contrast", "w9")
    assert result.exit_code == 2
    assert "leave out --contrast" in result.stderr


def explain_in_a_process(cache):
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    for name in ("JAX_COMPILATION_CACHE_DIR", "TF_CPP_MIN_LOG_LEVEL"):  # JAX sets the second
        environment.pop(name, None)
    code = "from duat_jax.cli import application; application()"
    arguments = ["explain", TEXT, "--model", str(GOLDEN / "gpt2"), "--json", "-"]
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment)


@pytest.mark.slow
def test_compiled_programs_are_kept(tmp_path):
    first = explain_in_a_process(tmp_path)
    assert first.returncode == 0, first.stderr
    kept = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "duat-jax" / "compiled").iterdir()}
    assert len(kept) >= 3
    second = explain_in_a_process(tmp_path)
    assert (second.stdout, second.stderr) == (first.stdout, "")
    assert {p.name: p.stat().st_mtime_ns for p in (tmp_path / "duat-jax" / "compiled").iterdir()} == kept


@pytest.mark.slow
def test_without_a_place_to_keep_programs_nothing_fails(tmp_path):
    (tmp_path / "duat-jax").write_text("in the way")
    result = explain_in_a_process(tmp_path)
    assert (result.returncode, result.stderr) == (0, "")


def test_what_is_kept_is_bounded(tmp_path):
    for i in range(4):
        (tmp_path / str(i)).write_bytes(bytes(100))
        os.utime(tmp_path / str(i), (i, i))
    compiled._remove_oldest(tmp_path, 250)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["2", "3"]
    compiled._remove_oldest(tmp_path / "nowhere", 250)


def test_numbers_that_json_has_no_word_for_are_not_written():
    for bad in (float("nan"), float("inf")):
        with pytest.raises(DoesNotHold, match="NaN or infinite"):
            to_json({"value": [bad]})


def test_an_output_that_takes_no_unicode_is_one_line():
    command = ["-c", "from duat_jax.cli import application; application()", "explain", "w5", "--target", "w7"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONPATH": os.pathsep.join(sys.path)}
    environment["JAX_ENABLE_COMPILATION_CACHE"] = "0"
    found = subprocess.run(
        [sys.executable, *command, "--model", str(GOLDEN / "gpt2")], env=environment, capture_output=True, text=True
    )
    assert found.returncode == 2
    assert found.stderr.startswith("duat: ascii has no ")
    assert found.stderr.count("\n") == 1


def test_a_comparison_or_a_proof_that_fails_has_the_same_status(monkeypatch):
    monkeypatch.setattr("duat_jax.verification.compare.Verification.holds", False)
    assert run("verify", "--depth", 1, "--block", "paper").exit_code == 3
    monkeypatch.setattr("symbolic.proof.derivation.Derivation.verified", False)
    assert run("derive", "--depth", 1).exit_code == 3


def test_every_help_names_the_exit_statuses():
    for command in ((), ("explain",), ("derive",), ("audit",), ("verify",)):
        assert "3 if a result does not hold" in " ".join(run(*command, "--help").stdout.split())


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


GPT2 = "--model", GOLDEN / "gpt2"
METHOD = "norm of change x W_out"
IN_EVERY_DTYPE = {
    "explain": (("explain", TEXT, *GPT2), ("value",)),
    "contrast": (("contrast", TEXT, "--reference", "w5 w17 w4", *GPT2), ("difference",)),
    "attribute": (("attribute", TEXT, "--reference", "w5 w17 w4", *GPT2), ("difference",)),
    "graph": (("graph", TEXT, "--top-neurons", 2, *GPT2), ("value",)),
    "attention": (("attention", TEXT, "--layer", 1, "--head", 0, "--key", 0, *GPT2), ("value",)),
    "in-context": (
        ("in-context", "c =", "--demonstration", "a = 1", "--demonstration", "b = 1", "--answer", " 1"),
        ("difference",),
    ),
    "faithfulness": (
        ("faithfulness", "--texts", 2, "--tokens", 6, "--method", "gradient x input"),
        ("tables", "masked", "gradient x input", "deletion", "value"),
    ),
    "circuit": (
        ("circuit", "--task", "parameter", "--prompts", 2, "--method", METHOD, "--units", "head x position"),
        ("tasks", "parameter", "units", "head x position", METHOD, "logf", "value"),
    ),
    "lora diff": (("lora", "diff", "adapter", TEXT, *GPT2), ("difference",)),
    "diff": (("diff", "merged", TEXT, "--reference", GPT2[1], "--top", 1), ("difference",)),
    "intervene": (
        ("intervene", TEXT, "--edit", "head 1:0 set 0", *GPT2),
        ("difference",),
    ),
    "steer": (
        ("steer", TEXT, "--towards", "import os", "--away", "class A:", "--layers", 1, *GPT2),
        ("difference",),
    ),
}
"""Each command that takes `--dtype`, and where its number stands in the JSON."""


def test_every_command_that_computes_by_a_model_takes_a_dtype():
    """Training and pruning compute in float32, verifying in float64; merging adds to the weights as they are."""
    every = {
        name: command for name, command in commands(typer.main.get_command(application)) if takes(command, "model")
    }
    without = {name for name, command in every.items() if not takes(command, "dtype")}
    assert without == {"lora train", "lora merge", "train-ledger", "verify"}
    assert every.keys() - without - {"prune", "serve", "survey"} == IN_EVERY_DTYPE.keys()


def commands(command, name=()):
    for child in getattr(command, "commands", {}).values():
        yield from commands(child, (*name, child.name))
    if not hasattr(command, "commands"):
        yield " ".join(name), command


def takes(command, option):
    return any(parameter.name == option for parameter in command.params)


def with_files(asked, directory):
    """Yield a command's arguments, with an adapter and a model that has it merged where they are named."""
    model = duat.load(GOLDEN / "gpt2")
    adapters = random_adapters(model, ["c_fc"])
    for argument in asked:
        if argument == "adapter":
            save_adapters(directory / argument, adapters, model)
        if argument == "merged":
            save_merged(directory / argument, adapters, model, GOLDEN / "gpt2")
        yield directory / argument if argument in ("adapter", "merged") else argument


@pytest.mark.slow
@pytest.mark.parametrize("command", IN_EVERY_DTYPE)
def test_a_command_runs_in_every_dtype(command, tmp_path):
    asked, path = IN_EVERY_DTYPE[command]
    asked = list(with_files(asked, tmp_path))
    numbers = {}
    for dtype in ("float32", "float64", "bfloat16"):
        result = run(*asked, "--dtype", dtype, "--json", "-")
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        for name in path:
            found = found[name]
        numbers[dtype] = found
    near(numbers["float64"], numbers["float32"], within=1e-4)
    near(numbers["bfloat16"], numbers["float32"], within=0.1)


SAVED = [name for name in IN_EVERY_DTYPE if name not in ("faithfulness", "circuit")]
"""The commands that print one result."""


def test_every_command_that_prints_one_result_can_keep_it():
    every = dict(commands(typer.main.get_command(application)))
    for option in ("save", "csv"):
        found = {name for name, command in every.items() if takes(command, option)}
        assert found - {"circuit", "train-ledger"} == set(SAVED)


@pytest.mark.parametrize("command", SAVED)
def test_a_command_keeps_its_result_and_its_table(command, tmp_path):
    asked = with_files(IN_EVERY_DTYPE[command][0], tmp_path)
    result, table, file = tmp_path / "result", tmp_path / "table.csv", tmp_path / "result.json"
    ran = run(*asked, "--save", result, "--csv", table, "--json", file)
    assert ran.exit_code == 0, ran.output
    opened = duat.open(result)
    assert opened.as_dict().get("completeness") == json.loads(file.read_text()).get("completeness")
    expected = opened.to_dataframe()
    pd.testing.assert_frame_equal(
        pd.read_csv(table, dtype=str), pd.read_csv(io.StringIO(expected.to_csv(index=False)), dtype=str)
    )


def test_a_result_is_kept_in_a_regular_file_and_a_table_needs_pandas(monkeypatch):
    before_computing(monkeypatch)
    result = run("explain", TEXT, "--model", GOLDEN / "gpt2", "--save", "/dev/null")
    assert result.exit_code == 2 and "give a regular file" in result.stderr
    for option, package in {"--csv": "pandas", "--parquet": "pyarrow"}.items():
        monkeypatch.setitem(sys.modules, package, None)
        file = f"rows.{option[2:]}"
        result = run("explain", TEXT, "--model", GOLDEN / "gpt2", option, file)
        assert result.exit_code == 2 and f"{option} needs {package}, which" in result.stderr
        assert re.search(rf"pip install '{package}>=[\d.]+'$", result.stderr.strip())
        assert f"needs {package}." in " ".join(run("explain", "--help").output.split())
