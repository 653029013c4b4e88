"""What pages show of commands and code, compared with what these print."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
WITH_OUTPUT = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(?!\$ )(.*?)```)?", re.DOTALL)
NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def blocks(language, page=README):
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def shown_code(page):
    """Return every Python block of a page with the output that follows it; empty where none is shown."""
    return WITH_OUTPUT.findall(page)


def like(line):
    """Return a line without its numbers and the width of its columns."""
    return re.sub(r"\s+", " ", NUMBER.sub("#", line)).strip()


def alike(actual, shown):
    """Return whether a line says what is shown: words, signs, and digits to five of the last one's units.

    Of numbers with one or two decimals, to one of these: rounding moves them no further.

    Rounding differs between machines, and an error's size more than its last digits.
    """
    if " error " in shown:
        return " error " in actual and actual.split(" ")[-1] == shown.split(" ")[-1]
    pairs = zip(NUMBER.findall(actual), NUMBER.findall(shown))
    return like(actual) == like(shown) and all(
        abs(float(number) - float(expected)) <= allowed(expected) * last_digit(expected) for number, expected in pairs
    )


def allowed(number):
    """Return by how many units of its last digit a written number may differ."""
    return 1.01 if "e" not in number and 0 < len(number.partition(".")[2]) < 3 else 5.01


def shown_commands(page):
    """Return the blocks of a page that show commands and their output, each as pairs of arguments and lines."""
    for block in blocks("text", page):
        if block.startswith("$ duat"):
            parts = re.split(r"^\$ duat ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]
            shown = [part.rstrip().splitlines() for part in parts]
            yield [(shlex.split(command, comments=True), expected) for command, *expected in shown]


def last_digit(number):
    """Return the size of a written number's last digit, 0 of an integer's."""
    mantissa, _, exponent = number.partition("e")
    _, point, decimals = mantissa.partition(".")
    return 10.0 ** (int(exponent or 0) - len(decimals)) if point else 0.0
