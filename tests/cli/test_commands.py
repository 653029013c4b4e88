"""Behaviour that all commands share: help, version, interruption, full disks; and `intervene` and `steer`."""

import errno
import json
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np
import pytest
import typer
from cases import ENCODER, GOLDEN
from command import run
from helpers import close
from typer.testing import CliRunner

import duat_jax as duat
from duat_jax.cli import application, command, output, progress
from duat_jax.cli.command import EXAMPLES
from duat_jax.cli.errors import (
    DOES_NOT_HOLD,
    INTERRUPTED,
    MISTAKE,
    NOT_WRITTEN,
    DoesNotHold,
    one_line_errors,
)
from duat_jax.cli.progress import Compiling
from tests.cli.test_cli import commands

TEXT = "def get(self, key, default=None): return self.data.get(key,"
WORDS, SMALL = "w5 w17 w3 w44 w17 w20 w9 w12", GOLDEN / "gpt2"
EVERY = dict(commands(typer.main.get_command(application)))


def options_of(name):
    return {option for parameter in EVERY[name].params for option in parameter.opts}


def test_every_command_has_two_examples():
    assert EXAMPLES.keys() == EVERY.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_help_shows_the_examples_and_their_options_exist(name):
    shown = run(*name.split(), "--help").stdout
    assert len(EXAMPLES[name]) == 2
    options = options_of(name)
    for example in EXAMPLES[name]:
        assert example in shown
        words = shlex.split(example.partition(" > ")[0])
        assert " ".join(words[1:]).startswith(name)
        assert {word for word in words if word.startswith("--")} <= options


WRITTEN = {"--out", "--output", "--html", "--plot", "--json", "--csv", "--save", "--work", "--viewer", "--graphml"}
WRITTEN |= {"--parquet"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_a_command_write_to_different_places(name):
    words = [word for example in EXAMPLES[name] for word in shlex.split(example)]
    places = [place for option, place in pairwise(words) if option in WRITTEN and place != "-"]
    assert len(set(places)) == len(places)


OWN = {"--plot": "png pdf svg", "--html": "html", "--viewer": "json", "--graphml": "graphml", "--parquet": "parquet"}
"""Options of files with one of these endings."""

BARE = {"--csv": "csv", "--json": "json", "--save": "safetensors", "--work": "json safetensors"}
"""Options of files with one of these endings, or none."""

FORMATS = {"png", "pdf", "svg", "html", "json", "csv", "graphml", "jpg", "gguf", "npz", "parquet", "safetensors"}


@pytest.mark.parametrize("name", EVERY)
def test_another_ending_is_refused(name, monkeypatch, capsys):
    monkeypatch.setattr(EVERY[name], "callback", lambda **given: None)
    options = options_of(name)
    required = [each for each in EVERY[name].params if each.required]
    asked = [word for each in required for word in (*(each.opts if each.opts[0][0] == "-" else ()), "1")]
    for option in options & (OWN | BARE).keys():
        for ending in (*FORMATS, "xyz", "1-5b"):  # the last is that of a name such as qwen2-1.5b
            EVERY[name]([*asked, option, f"a.{ending.upper()}"], standalone_mode=False)
            refused, known = capsys.readouterr().err, (OWN | BARE)[option].split()
            assert bool(refused) == (ending not in known and (option in OWN or ending != "1-5b"))
            assert refused.count("\n") == bool(refused) and set(re.findall("--[a-z]+", refused)) <= options


SAID_BY = {
    "evaluation/circuit_table.py": ["circuit"],
    "json_record.py": ["explain"],
    "survey/executors.py": ["survey"],
    "verification/networks.py": ["verify"],
}
"""Modules outside of the commands that name options, and the commands that print what they say."""


def named_options(text):
    return set(re.findall(r"(?<![\w-])--[a-z-]+", text))


def test_texts_of_the_library_name_options_of_the_commands_that_print_them():
    package = Path(duat.__file__).parent
    for file in sorted(set(package.rglob("*.py")) - set(package.glob("cli/**/*"))):
        module = str(file.relative_to(package))
        for text in re.findall(r'"[^"\n]*"', file.read_text(encoding="utf-8")):
            # An option in parentheses is left out by commands that lack it; a named command's own is right.
            others = r"\(--[^()]*\)|duat \w+ --[a-z-]+|gguf-split --merge|dask worker \S+ --nthreads|^\"--\S+\"$"
            others += r"|XLA_FLAGS=--\w+"
            named = named_options(re.sub(others, "", text))
            assert not named or all(named <= options_of(name) for name in SAID_BY[module])


FOREIGN = [
    ("graph", "w1 w2"),
    ("attention", "w1 w2", "--layer", "0", "--head", "99", "--key", "0"),
    ("intervene", "w1 w2", "--edit", "head 0:0 set 0"),
    ("steer", "w1 w2", "--towards", "w1", "--away", "w2", "--layers", "1"),
    ("in-context", "w1", "--demonstration", "w2", "--answer", "w3"),
    ("circuit", "--task", "parameter"),
    ("explain", "w1 w2"),
    ("contrast", "w1 w2", "--reference", "w1"),
    ("intervene", "w1 w2", "--edit", "head 0:0 set reference", "--reference", "w1"),
    ("lora diff", "adapter", "w1 w2"),
    ("diff", "MODEL", "w1 w2", "--bits", "4"),
]
"""What models of other kinds are asked."""


@pytest.mark.parametrize("asked", FOREIGN, ids=" ".join)
@pytest.mark.parametrize("model", [ENCODER, GOLDEN / "vit"], ids=["encoder", "vit"])
def test_an_error_names_options_of_the_command_that_runs(asked, model):
    name, *rest = asked
    place = [] if name == "diff" else ["--model", str(model)]
    result = run(*name.split(), *(str(model) if word == "MODEL" else word for word in rest), *place)
    assert result.exit_code == 2 and named_options(result.stderr) <= options_of(name), result.stderr


@pytest.mark.parametrize("name", ["", *EVERY])
def test_every_command_has_the_short_option_for_help(name):
    assert run(*name.split(), "-h").stdout == run(*name.split(), "--help").stdout


@pytest.mark.parametrize("name", EVERY)
def test_a_line_of_usage_has_the_arguments_that_help_explains(name):
    usage, _, _ = run(*name.split(), "--help").stdout.partition("\n\n")
    arguments = [each for each in EVERY[name].params if each.param_type_name == "argument" and not each.hidden]
    shown = usage.partition(f" {name} ")[2].split()
    assert [word.strip("[]{}.") for word in shown] == ["OPTIONS", *(each.name for each in arguments)]


def test_a_closed_standard_output_is_one_line():
    closed = ["bash", "-c", '"$0" -m duat_jax "$@" >&-', sys.executable]
    for arguments in (["derive", "--depth", "2"], ["explain", TEXT, "--json", "-"]):
        ended = subprocess.run([*closed, *arguments], stderr=subprocess.PIPE, text=True)
        assert ended.returncode == NOT_WRITTEN and ended.stderr.count("\n") == 1
        assert "standard output is closed" in ended.stderr


def test_the_list_of_commands_cuts_no_summary():
    shown = run("--help").stdout
    assert "..." not in shown.partition("Commands:")[2]
    for name in ("intervene", "steer", "lora"):
        assert f"\n  {name} " in shown


def test_the_version_and_the_module():
    assert run("--version").stdout.startswith("duat-jax 0.")
    command = [sys.executable, "-m", "duat_jax", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == run("--version").stdout
    assert "--show-completion" in run("--help").stdout


def test_an_interrupted_run_says_what_is_kept(tmp_path, capsys):
    cases = (
        (None, False, "nothing is kept"),
        (None, True, "with --work"),
        (tmp_path / "w", True, "the same command continues"),
    )
    for work, resumable, says in cases:
        for error, status in ((KeyboardInterrupt, INTERRUPTED), (DoesNotHold("it does not hold"), DOES_NOT_HOLD)):
            with pytest.raises(typer.Exit) as ended, one_line_errors(work, resumable=resumable):
                raise error
            said = capsys.readouterr().err
            assert ended.value.exit_code == status and said.count("\n") == 1
            assert (says in said) == (resumable or status == INTERRUPTED)


@pytest.mark.parametrize("name", EVERY)
def test_every_command_with_work_names_it_when_it_fails(name, monkeypatch, capsys):
    """The option is known to the message of every command that has it."""

    def fail(values):
        raise DoesNotHold("it does not hold")

    monkeypatch.setattr(command, "check_texts", fail)
    required = [each for each in EVERY[name].params if each.required]
    asked = [word for each in required for word in (*(each.opts if each.opts[0][0] == "-" else ()), "1")]
    assert EVERY[name](asked, standalone_mode=False) == DOES_NOT_HOLD
    # The directory of a survey keeps its work.
    says = "finished results are kept in 1" if name == "survey" else "with --work"
    assert (says in capsys.readouterr().err) == (name == "survey" or "--work" in options_of(name))


@pytest.mark.parametrize(
    "arguments",
    [
        ["audit", "--equation", "31"],
        ["audit", "--json", "-"],
        ["derive"],
        ["--help"],
        ["explain", "--help"],
        ["--version"],
    ],
)
def test_a_full_standard_output_is_one_line(arguments):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "duat_jax", *arguments]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == NOT_WRITTEN
    assert ended.stderr == "duat: standard output couldn't be written: No space left on device\n"


def test_a_reader_that_has_seen_enough_is_no_error():
    command = [sys.executable, "-m", "duat_jax", "audit", "--json", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.close()
        assert running.stderr.read() == b""


@pytest.mark.parametrize("option", ["--json", "--plot", "--html"])
def test_a_full_disk_names_the_file_and_keeps_the_result(tmp_path, monkeypatch, option):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(output, "write", full)
    file = tmp_path / f"out.{option[2:].replace('plot', 'png')}"
    result = run("explain", "x = 1", option, file)
    assert result.exit_code == NOT_WRITTEN
    assert f"{file} couldn't be written: No space left" in result.stderr and "sum of all parts" in result.stdout


def test_a_full_disk_has_its_status_wherever_it_is_met():
    for number, status in ((errno.ENOSPC, NOT_WRITTEN), (errno.EDQUOT, NOT_WRITTEN), (errno.EACCES, MISTAKE)):
        with pytest.raises(typer.Exit) as ended, one_line_errors():
            raise OSError(number, "no", "a file")
        assert ended.value.exit_code == status


@pytest.mark.parametrize("command", ["intervene", "steer"])
def test_a_text_that_is_not_utf_8_is_refused(command):
    options = {"intervene": ("--edit", "head 0:0 set 0"), "steer": ("--towards", "a", "--away", "b", "--layers", 1)}
    result = run(command, "a\udce8", *options[command])
    assert result.exit_code == MISTAKE and "is not UTF-8" in result.stderr


def test_progress_without_a_terminal_is_a_line_a_minute(monkeypatch, capsys):
    now = iter([0.0, 10.0, 61.0, 70.0, 130.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with progress.progress_bar("Pruning", "models") as report:
        for done in range(1, 5):
            report(done, 10)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "Pruning: 2 of 10 models, 1 min elapsed, about 4 min left",
        "Pruning: 4 of 10 models, 2 min elapsed, about 3 min left",
    ]


def test_progress_with_a_rate_counts_from_what_was_done_before(monkeypatch, capsys):
    now = iter([0.0, 0.0, 30.0, 60.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with progress.progress_bar("Surveying", "parts", rate=(6000, "tokens")) as report:
        for done in (4, 5, 6):
            report(done, 10)
    assert capsys.readouterr().err == "Surveying: 6 of 10 parts, 200 tokens/s, 1 min elapsed, about 2 min left\n"


@pytest.mark.parametrize("reference", [(), ("--reference", "y = 1")])
def test_a_page_is_written_and_its_size_said(tmp_path, reference):
    file = tmp_path / "page.html"
    result = run("explain", "x = 1", *reference, "--html", file)
    assert result.exit_code == 0 and f"{file} is going to have 0.1" in result.stderr
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_pair_and_one_token_twice_are_refused():
    assert "leave --pair out" in run("explain", "a", "--pair", "b").stderr
    result = run("explain", TEXT, "--target", " as", "--contrast", " as")
    assert result.exit_code == MISTAKE and "the same token" in result.stderr


def test_intervene_is_the_function():
    model = duat.load(SMALL)
    tokenizer = model.tokenizer
    changes = [
        duat.edits.Heads(2, 1, tokens=[-1]).set(0),
        duat.edits.Neurons(2, [7, 20]).scale(-0.5),
        duat.edits.Stream(1, tokens=[1, 2]).scale(2),
    ]
    expected = duat.intervene(model, WORDS, changes, "w7", contrast="w9", tokenizer=tokenizer)
    written = "heads 2:1@-1 set 0", "neuron 2:7,20 scale -0.5", "stream 1@1,2 scale 2"
    options = [part for change in written for part in ("--edit", change)]
    result = run(*("intervene", WORDS, "--model", SMALL, *options, "--target", "w7", "--contrast", "w9", "--json", "-"))
    found = json.loads(result.stdout)
    close(found["difference"], expected.difference)
    assert [effect["change"] for effect in found["effects"]] == [effect.edit for effect in expected.effects]


def test_a_patch_from_another_text_is_the_function_beside_the_contrast():
    model = duat.load(SMALL)
    tokenizer = model.tokenizer
    other = WORDS.replace("w44", "w8")
    known = {"contrast": "w9", "tokenizer": tokenizer}
    there = duat.record(model.hidden)(model.embed(np.array(tokenizer.encode(other).ids)))
    points = there.dynamics.points
    changes = [
        duat.edits.Heads(2, [2, 1], tokens=-1).set(points["layers.2.attention.mixed"][-1, [2, 1]]),
        duat.edits.Neurons(2, [7, 20]).set(points["layers.2.mlp.neurons"][:, [7, 20]]),
        duat.edits.Stream(1, tokens=[6, 7]).set(there.at(there.streams[1])[np.array([6, 7])]),
        duat.edits.Heads(1, 0).set(0),
    ]
    expected = duat.intervene(model, WORDS, changes, "w7", **known)
    written = (
        "heads 2:2,1@-1 set reference",
        "neurons 2:7,20 set reference",
        "stream 1@6,7 set reference",
        "head 1:0 set 0",
    )
    options = [part for change in written for part in ("--edit", change)]
    asked = ("intervene", WORDS, "--model", SMALL, "--reference", other, *options, "--target", "w7", "--contrast", "w9")
    found = json.loads(run(*asked, "--json", "-").stdout)
    for effect, same in zip(found["effects"], expected.effects, strict=True):
        close(np.array(effect["secant"]), same.secant)
    split = duat.contrast(model, WORDS, other, "w7", **known)
    parts = split.heads["layers.2.attention.mixed"][-1, [2, 1]], split.neurons["layers.2.mlp.neurons"][:, [7, 20]]
    shown, patched = run(*asked).stdout, found["effects"][:3]
    for effect, part in zip(patched, (*parts, split.flow[1][[6, 7]]), strict=True):
        close(effect["contrast"], -part.sum())
        assert f" {-part.sum():+.4f} " in shown
    assert found["effects"][3]["contrast"] is None


def test_a_patch_needs_another_text_and_another_text_a_patch():
    for change, reference, says in (
        ("head 1:0 set reference", (), "give both, or neither"),
        ("head 1:0 set 0", ("--reference", "a c"), "give both, or neither"),
        ("head 1:0 set reference", ("--reference", "a b c"), "the text has 2 tokens and the other text 3"),
        ("head 1:0 set reference", ("--reference", "a b"), "the same for the model"),
        ("head 1:0 scale reference", ("--reference", "a c"), "is no edit"),
    ):
        result = run("intervene", "a b", "--edit", change, *reference)
        assert result.exit_code == MISTAKE and says in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize("change", ["head 5", "heads 5:3", "stream 5:3 set 0", "neuron 1:2 set x", "layer 3 set 0"])
def test_a_change_that_is_none_says_how_to_write_one(change):
    result = run("intervene", TEXT, "--edit", change)
    assert result.exit_code == MISTAKE and "LAYER:UNITS@TOKENS" in result.stderr


@pytest.mark.slow
def test_steer_adds_the_difference_of_two_streams():
    model = duat.load()
    tokenizer = model.tokenizer
    texts = "import os", "class Box:"
    towards, away = (
        duat.record(model.hidden)(model.embed(np.array(tokenizer.encode(text).ids))).dynamics.streams["layer[2]"][-1]
        for text in texts
    )
    change = duat.edits.Stream(2).steer(3 * (np.asarray(towards, float) - np.asarray(away, float)))
    expected = duat.intervene(model, TEXT, change, tokenizer=tokenizer)
    options = "--towards", texts[0], "--away", texts[1], "--layers", 2, "--strength", 3
    found = json.loads(run("steer", TEXT, *options, "--json", "-").stdout)
    assert abs(found["difference"] - expected.difference) < 1e-3 * abs(expected.difference)
    assert "stream 99 isn't there" in run("steer", TEXT, *options[:4], "--layers", 99).stderr


def test_the_result_of_a_command_needs_no_terminal():
    result = CliRunner().invoke(application, ["explain", "x = 1"], env={"NO_COLOR": "1", "TERM": "dumb"})
    assert result.exit_code == 0 and "\x1b" not in result.stdout


MISTAKES = {
    "intervene, changes": (
        ["intervene", "a b", "--edit", "head", "--edit", "neuron 1:2 times 3"],
        ["'head' is no edit", "'neuron 1:2 times 3' is no edit"],
    ),
    "intervene, places": (
        ["intervene", "a b", "--edit", "head 9:0 set 0", "--edit", "head 1:99 set 0", "--position", "77"],
        ["edit 0", "edit 1", "position 77 is outside"],
    ),
    "intervene, a target": (["intervene", "a b", "--edit", "head 1:0 set 0", "--target", "a b c"], ["not one token"]),
    "steer, a layer and a text": (
        ["steer", "a b", "--towards", "a", "--away", "", "--layers", "9"],
        ["stream 9 isn't there before what is read: give 0 to 6", "the text away"],
    ),
    "steer, a strength": (
        ["steer", "a b", "--towards", "a", "--away", "b", "--layers", "1", "--strength", "nan"],
        ["the strength nan isn't finite"],
    ),
    "graph": (
        ["graph", "a b", "--target", "a b c", "--position", "77"],
        ["not one token"],
    ),
    "graph, files": (
        ["graph", "a b", "--viewer", "a.html", "--graphml", "a.xml"],
        ["--viewer a.html must end in .json", "--graphml a.xml must end in .graphml"],
    ),
    "attention": (
        ["attention", "a b", "--layer", "9", "--head", "9", "--key", "9"],
        ["layer 9", "head 9", "key: position 9"],
    ),
    "circuit, a model": (["circuit", "--task", "parameter", "--model", ENCODER], ["this one's head is 'hidden'"]),
    "in-context, options": (
        ["in-context", "--control", "exchanged"],
        ["give a question or a --task", "--control requires a --task", "there are no demonstrations"],
    ),
    "in-context, a model": (
        ["in-context", "a =", "--demonstration", "b = 1", "--answer", " 2", "--model", ENCODER],
        ["needs a causal language model"],
    ),
    "diff": (["diff", "embedded", "--reference", "embedded"], ["give a TEXT, or files with --text"]),
    "diff, models": (
        ["diff", ENCODER, "a b", "--reference", "embedded"],
        ["the two models aren't one function of weights of one shape", "more. Compare a model"],
    ),
    "lora diff, a target": (["lora", "diff", "nowhere", "a b", "--target", "a b c"], ["not one token"]),
    "lora diff, a position": (["lora", "diff", "nowhere", "a b", "--position", "77"], ["position 77 is outside"]),
    "lora diff, adapters": (["lora", "diff", "nowhere", "a b"], ["nowhere has no adapter_config.json"]),
    "lora merge": (["lora", "merge", "nowhere", "--output", "new"], ["nowhere has no adapter_config.json"]),
    "prune": (
        ["prune", "--text", __file__, "--fraction", "2", "--method", "guess", "--layer", "9"],
        ["2", "'guess'", "there is no layer 9"],
    ),
    "prune, a model": (
        ["prune", "--text", __file__, "--fraction", "0.1", "--model", ENCODER],
        ["pruning needs a model that predicts the next token"],
    ),
    "faithfulness, a method": (["faithfulness", "--method", "guess"], ["the model has no method 'guess'"]),
    "faithfulness, texts": (["faithfulness", "--text", __file__, "--texts", "9999"], ["9999 are requested"]),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_found_before_a_model_is_loaded_and_at_once(case, monkeypatch, tmp_path):
    def load(*arguments, **options):
        raise AssertionError("a model is loaded")

    monkeypatch.setattr("duat_jax.models.loader.load", load)
    monkeypatch.chdir(tmp_path)
    arguments, messages = MISTAKES[case]
    result = CliRunner().invoke(application, list(map(str, arguments)))
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stderr.count("\n") == 1
    for message in messages:
        assert message in result.stderr, result.stderr


def test_a_display_says_what_is_compiled():
    compiling, seen = Compiling("Working"), []
    jax.monitoring.register_event_duration_secs_listener(lambda *event, **more: seen.append(str(compiling.__rich__())))

    @jax.jit
    def _twice_it(x):
        return 2 * x + 3

    _twice_it(jax.numpy.ones(7))
    assert "Working, compiling 'twice it'" in seen and str(compiling.__rich__()) == "Working"
