"""Every table at every width: no number is cut, and each shown row sums to what it says."""

import functools
import io
import re

import numpy as np
import pytest
from rich.console import Console
from rich.text import Text

import duat_jax as duat
from duat_jax.display.colours import NEGATIVE, POSITIVE
from duat_jax.display.tables import NumberTable, number
from duat_jax.edits import Neurons
from duat_jax.lora import lora_change, new_adapters

WIDTHS = (40, 60, 80, 120, 200)
TEXT = "def get(self, key, default=None): return self.data.get(key,"
OTHER = TEXT.replace("default", "missing")
WIDE = 'print("你好, Grüße, e\u0301 🙂 — naïve")'


def lines_of(table, width):
    """Return the lines of a table in a terminal of a width."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table)
    return console.file.getvalue().splitlines()


@functools.cache
def table(name):
    """Return a table by its name."""
    model = duat.load()
    tokenizer = model.tokenizer
    known = {"tokenizer": tokenizer}
    if name == "explanation":
        return duat.explain(model, TEXT, **known).table()
    if name == "wide characters":
        return duat.explain(model, WIDE, **known).table()
    if name == "contrast":
        return duat.contrast(model, TEXT, OTHER, **known).table()
    if name == "attribution":
        return duat.attribute(model, TEXT, OTHER, unit="neuron", **known).table()
    if name == "intervention":
        return duat.intervene(model, TEXT, Neurons(3, [1, 2]).set(0), **known).table()
    if name == "attention":
        return duat.explain_attention(model, TEXT, layer=3, head=1, key=5, **known).table()
    adapters = new_adapters(model, rank=2, seed=0)
    return lora_change(model, adapters, tokenizer.encode(TEXT).ids, **known).table()


SLOW = "contrast", "attribution", "intervention", "attention", "adapters"
NAMES = ("explanation", "wide characters", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_no_number_is_cut(name, width):
    lines = lines_of(table(name), width)
    assert all(Text(line).cell_len <= width for line in lines)
    text = "\n".join(lines)
    assert not re.search(r"\d…|\d\.\s*$", text, re.MULTILINE)
    # Numbers with a sign are parts of four digits, errors, or the widest form of these.
    for written in re.findall(r"(?<![\w.])[+-]\d[\w.+-]*", text):
        assert re.fullmatch(r"[+-]\d+\.\d{4,}|[+-]\d\.\de[+-]\d+|[+-]\d+\.\d{6}", written.rstrip(".,:)")), written


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_the_rows_of_the_flow_sum(width):
    lines = lines_of(table("contrast"), width)
    # Where it is narrow, a row's numbers stand in several blocks.
    rows = {}
    for line in lines:
        if label := re.match(r"(embedding|layer \d) +[+-]", line):
            rows.setdefault(label[1], []).extend(re.findall(r"[+-]\d+\.\d{4}", line))
    sums = [np.array(row, float) for row in rows.values() if len(row) > 2]
    assert sums
    for row in sums:
        assert abs(row[:-1].sum() - row[-1]) < 1e-3


def test_narrow_tables_stand_in_blocks_with_their_labels():
    narrow = NumberTable()
    narrow.add_column("")
    for i in range(4):
        narrow.add_column(f"column {i}", justify="right")
    narrow.add_row("row", *(f"+{i}.2345" for i in range(4)))
    lines = lines_of(narrow, 26)
    assert [line.split()[0] for line in lines if "2345" in line] == ["row", "row"]
    assert "+0.2345" in "".join(lines) and "+3.2345" in "".join(lines)


@pytest.mark.parametrize("width", [24, 30, 40, 60])
def test_numbers_and_titles_of_several_words_are_not_cut(width):
    narrow = NumberTable()
    narrow.add_column("")
    cells = [f"0.{i}07 [0.{i}96, 0.{i}19]" for i in range(3)]
    for i in range(3):
        narrow.add_column(f"units in this layer {i}", justify="right")
    narrow.add_row("a method of many words", *cells)
    text = "\n".join(lines_of(narrow, width))
    assert all(cell in text for cell in cells) and text.count("units in this") == 3


def test_one_colour_is_one_sign():
    assert (number(1.0).style, number(-1.0).style, number(4e-5).style) == (POSITIVE, NEGATIVE, "")


@pytest.mark.parametrize("colour", [POSITIVE, NEGATIVE])
def test_the_colours_of_signs_can_be_read_on_dark_and_on_light(colour):
    levels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [level / 12.92 if level <= 0.03928 else ((level + 0.055) / 1.055) ** 2.4 for level in levels]
    luminance = np.dot([0.2126, 0.7152, 0.0722], linear)
    assert 1.05 / (luminance + 0.05) >= 4.5 and (luminance + 0.05) / 0.05 >= 4.5
