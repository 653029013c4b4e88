"""Behaviour that all commands share: help, version, interruption, full disks; and `intervene` and `steer`."""

import errno
import json
import shlex
import subprocess
import sys

import numpy as np
import pytest
import typer
from command import run
from helpers import close
from typer.testing import CliRunner

import duat_jax as duat
from duat_jax.cli import application, output, progress
from duat_jax.cli.commands import EXAMPLES
from duat_jax.cli.output import INTERRUPTED, MISTAKE, NOT_WRITTEN, one_line_errors
from duat_jax.inputs.labels import readable
from duat_jax.inputs.token_bytes import as_text, bytes_of
from tests.cli.test_cli import commands

TEXT = "def get(self, key, default=None): return self.data.get(key,"
EVERY = dict(commands(typer.main.get_command(application)))


def test_every_command_has_two_examples():
    assert EXAMPLES.keys() == EVERY.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_help_shows_the_examples_and_their_options_exist(name):
    shown = run(*name.split(), "--help").stdout
    assert len(EXAMPLES[name]) == 2
    options = {option for parameter in EVERY[name].params for option in parameter.opts}
    for example in EXAMPLES[name]:
        assert example in shown
        words = shlex.split(example.partition(" > ")[0])
        assert " ".join(words[1:]).startswith(name)
        assert {word for word in words if word.startswith("--")} <= options


def test_the_list_of_commands_cuts_no_summary():
    shown = run("--help").stdout
    assert "..." not in shown.partition("Commands:")[2]
    for command in ("intervene", "steer", "lora"):
        assert f"\n  {command} " in shown


def test_the_version_and_the_module():
    assert run("--version").stdout.startswith("duat-jax 0.")
    command = [sys.executable, "-m", "duat_jax", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == run("--version").stdout
    assert "--show-completion" in run("--help").stdout


def test_an_interrupted_run_says_what_is_kept(tmp_path, capsys):
    for work, says in ((None, "nothing is kept"), (tmp_path / "w", "the same command goes on")):
        with pytest.raises(typer.Exit) as ended, one_line_errors(work):
            raise KeyboardInterrupt
        assert ended.value.exit_code == INTERRUPTED and says in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--json", "--plot"])
def test_a_full_disk_names_the_file_and_keeps_the_result(tmp_path, monkeypatch, option):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(output, "write", full)
    file = tmp_path / "out.png"
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
    options = {"intervene": ("--change", "head 0:0 set 0"), "steer": ("--towards", "a", "--away", "b", "--layers", 1)}
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
        "Pruning: 2 of 10 models, 1 min elapsed, about 4 left",
        "Pruning: 4 of 10 models, 2 min elapsed, about 3 left",
    ]


def test_a_pair_and_one_token_twice_are_refused():
    assert "leave --pair out" in run("explain", "a", "--pair", "b").stderr
    result = run("explain", TEXT, "--target", " as", "--contrast", " as")
    assert result.exit_code == MISTAKE and "the same token" in result.stderr


def test_intervene_is_the_function():
    model, tokenizer = duat.load(tokenizer=True)
    changes = [
        duat.edits.Heads(5, 3, tokens=[-1]).set(0),
        duat.edits.Neurons(2, [7, 20]).scale(-0.5),
        duat.edits.Stream(3, tokens=[1, 2]).scale(2),
    ]
    expected = duat.intervene(model, TEXT, changes, " default", contrast=" missing", tokenizer=tokenizer)
    written = "heads 5:3@-1 set 0", "neuron 2:7,20 scale -0.5", "stream 3@1,2 scale 2"
    options = [part for change in written for part in ("--change", change)]
    result = run(*("intervene", TEXT, *options, "--target", " default", "--contrast", " missing", "--json", "-"))
    found = json.loads(result.stdout)
    close(found["difference"], expected.difference)
    assert [effect["change"] for effect in found["effects"]] == [effect.change for effect in expected.effects]


@pytest.mark.parametrize("change", ["head 5", "heads 5:3", "stream 5:3 set 0", "neuron 1:2 set x", "layer 3 set 0"])
def test_a_change_that_is_none_says_how_to_write_one(change):
    result = run("intervene", TEXT, "--change", change)
    assert result.exit_code == MISTAKE and "LAYER:UNITS@TOKENS" in result.stderr


@pytest.mark.slow
def test_steer_adds_the_difference_of_two_streams():
    model, tokenizer = duat.load(tokenizer=True)
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
    assert "more than the model's" in run("steer", TEXT, *options[:4], "--layers", 99).stderr


@pytest.mark.parametrize("text", ["你好", "naïve 🙂", "e\u0301"])
def test_bytes_of_split_characters_are_shown_as_bytes(text):
    tokenizer = duat.load_tokenizer()
    names = readable(tokenizer, tokenizer.encode(text).ids)
    assert "\ufffd" not in "".join(names)
    assert any(character in "".join(names) for character in text)
    byte = next(i for i in range(256) if tokenizer.id_to_token(i) == "è")
    assert readable(tokenizer, [byte]) == ("<E8>",)


def test_bytes_as_text():
    assert as_text(b"a\xe4\xbd") == "a<E4><BD>" and as_text("é".encode()) == "é"
    assert bytes_of("Ġa") == b" a" and bytes_of("<0x0A>") == b"\n" and bytes_of("日") is None


def test_the_result_of_a_command_needs_no_terminal():
    result = CliRunner().invoke(application, ["explain", "x = 1"], env={"NO_COLOR": "1", "TERM": "dumb"})
    assert result.exit_code == 0 and "\x1b" not in result.stdout
