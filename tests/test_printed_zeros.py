"""A number that rounds to zero is printed without a minus: the format of every number with decimal places says so."""

import re
from pathlib import Path

import duat_jax
from duat_jax.display.tables import number
from duat_jax.evaluation.statistics import IntervalEstimate

FORMAT = re.compile(r":([-+, ]*z?)\.(?:[1-9]|\{\w+\})f\}(?! MB)")
"""The format of a number with decimal places in an f-string, but for sizes of files."""


def test_every_format_of_decimal_places_has_no_negative_zero():
    package = Path(duat_jax.__file__).parent
    formats = [match[1] for file in package.rglob("*.py") for match in FORMAT.finditer(file.read_text("utf-8"))]
    assert len(formats) > 40 and all(each.endswith("z") for each in formats)


def test_a_part_that_rounds_to_zero_has_no_minus_and_no_colour():
    assert number(-4e-5).plain == "+0.0000" and not number(-4e-5).style
    assert number(-6e-5).plain == "-0.0001" and number(-6e-5).style
    assert IntervalEstimate(-4e-4, -0.2, 0.1).written(2) == "0.00 [-0.20, 0.10]"
