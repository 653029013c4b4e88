"""Commands that pages show with their output print that output, and the page of the command line has every command."""

import re
import shutil

import jax
import pytest
import typer
from shown_pages import ROOT, alike, shown_commands
from typer.testing import CliRunner

from duat_jax.cli import application
from experiments import smollm2
from experiments.command_line import commands

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND_LINE = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
COMMANDS = "\n".join(
    path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs/reference/commands").glob("*.md"))
)
QUICK = "derive", "audit"
"""Commands that run no network."""

ROUNDING = re.compile(r"\d\.\de-1\d")
"""A number that is a rounding error: machines differ."""


def shown():
    """Yield every block of commands with its page."""
    for page in PAGES:
        for session in shown_commands(page.read_text(encoding="utf-8")):
            (first, *_), _ = session[0]
            if first == "serve":  # goes on until it is ended; tests/cli/test_serve.py runs it
                continue
            where = f"{page.stem}, {first}"
            yield pytest.param(session, id=where, marks=[] if first in QUICK else [pytest.mark.slow])


def without_noise(line, command):
    """Return a line without what differs between machines: rounding errors, and how long a method took."""
    if command == "faithfulness":
        line = re.sub(r"\s[\d.]+$", "", line)
    return ROUNDING.sub("", line).rstrip()


@pytest.mark.parametrize("session", list(shown()))
def test_a_shown_command_prints_what_is_shown(session, tmp_path, monkeypatch):
    shutil.copy(ROOT / "LICENSE", tmp_path)
    if any(smollm2.FILE in arguments for arguments, _ in session):
        (tmp_path / smollm2.FILE).symlink_to(smollm2.path())
    monkeypatch.chdir(tmp_path)
    for arguments, expected in session:
        with jax.enable_x64(arguments[0] == "verify"), jax.numpy_dtype_promotion("standard"):
            result = CliRunner().invoke(application, arguments)
        assert result.exit_code == 0, result.output
        printed = [without_noise(line, arguments[0]) for line in result.stdout.strip().splitlines()]
        check_lines(printed, [without_noise(line, arguments[0]) for line in expected])


def check_lines(printed, expected):
    """Check that lines are those that are shown; dots stand for any number of lines."""
    place, skipping = 0, False
    for line in expected:
        if line == "…":
            skipping = True
            continue
        if skipping:
            place = next((i for i in range(place, len(printed)) if alike(printed[i], line)), place)
        assert place < len(printed) and alike(printed[place], line), (printed[place:][:1], line)
        place, skipping = place + 1, False
    assert skipping or place == len(printed)


def test_dots_stand_for_lines_and_nothing_else_does():
    check_lines(["a", "b", "c"], ["a", "…", "c"])
    check_lines(["a", "b", "c"], ["…"])
    for wrong in (["a", "c"], ["a", "b"], ["a", "…", "b"], ["a", "b", "c", "d"]):
        with pytest.raises(AssertionError):
            check_lines(["a", "b", "c"], wrong)


EVERY = dict(commands(typer.main.get_command(application)))


@pytest.mark.parametrize("name", EVERY)
def test_every_command_is_listed_shown_and_has_its_options_on_a_page_of_commands(name):
    table = COMMAND_LINE.partition("\n## ")[0]
    assert re.search(rf"`duat {name}[ `]", table), "the table at the top lists it"
    assert any(" ".join(arguments).startswith(name) for s in shown_commands(COMMANDS) for arguments, _ in s)
    assert f"<!-- command_line: {name} -->" in COMMANDS, "`make pages` fills its options in"


def test_every_option_has_its_meaning_on_the_page_of_its_command_or_among_common_options():
    common = set(re.findall(r"^\| `([^`]+)` \|", COMMAND_LINE.partition("## Common options")[2], re.MULTILINE))
    for name, command in EVERY.items():
        (section,) = re.findall(rf"<!-- command_line: {name} -->(.*?)<!-- end -->", COMMANDS, re.DOTALL)
        options = {
            parameter.opts[0] for parameter in command.params if not parameter.hidden and parameter.name != "help"
        } - {"--help"}
        own = set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))
        named = set(re.findall("`(--[^`]+)`", section.partition("| common |")[2]))
        assert {option for option in options if option.startswith("--")} <= own | named, name
        assert named <= common, name
