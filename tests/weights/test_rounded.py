"""Rounding of a model's matrices, and the command that compares a model with its rounded one."""

import jax
import numpy as np
import pytest
from helpers import near
from typer.testing import CliRunner

import duat_jax as duat
from duat_jax.cli import application
from duat_jax.models.layer_parts import scanned
from duat_jax.weights.rounded import rounded
from duat_jax.weights.units import parameters_of

TEXT = "for i in range(10"


@pytest.mark.parametrize("bits", [2, 4, 8, 16])
def test_every_matrix_of_a_layer_is_rounded_output_by_output(bits):
    model = duat.load()
    for of in (model, scanned(model)):
        before, after = parameters_of(model), parameters_of(rounded(of, bits))
        for name, kernel in before.items():
            kernel, found = np.asarray(kernel, np.float64), np.asarray(after[name], np.float64)
            if name.startswith("layers.") and kernel.ndim > 1:
                step = np.abs(kernel).max(0) / (2 ** (bits - 1) - 1)
                near(found / step, np.round(found / step), 2.0 ** (bits - 20))  # which of two a tie becomes is open
                assert (np.abs(found - kernel) <= 0.5 * step * (1 + 2.0 ** (bits - 20))).all()
            else:
                near(found, kernel, 0)


def test_the_command_rounds_the_first_model():
    arguments = ["diff", "embedded", TEXT, "--bits", "4", "--largest", "1", "--json", "-"]
    run = CliRunner().invoke(application, arguments)
    assert run.exit_code == 0, run.output
    record = duat.records.read(run.stdout)
    model, tokenizer = duat.load(tokenizer=True)
    found = duat.diff(model, rounded(model, 4), TEXT, largest=0, tokenizer=tokenizer)
    near([record.before, record.after], [found.before, found.after], 1e-5)
    assert record.other == "embedded in 4 bits"
    assert not any(part for name, part in record.parts.items() if not name.startswith("layers."))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["embedded", "embedded", TEXT, "--bits", "4"], "--bits makes the second model of the first one"),
        (["embedded", TEXT, "--bits", "1"], "Invalid value for '--bits': Input should be greater than or equal to 2"),
        (["embedded"], "give a second model, or --bits"),
    ],
)
def test_what_cannot_be_rounded_is_named(arguments, message):
    run = CliRunner().invoke(application, ["diff", *arguments])
    assert run.exit_code != 0
    assert message in " ".join(run.output.replace("│", " ").split())


def test_bits_out_of_range_are_refused():
    with pytest.raises(duat.DuatError, match="from 2 to 16"):
        rounded(duat.load(), 1)


def test_the_model_stays_as_it_is():
    model = duat.load()
    before = [np.array(leaf) for leaf in jax.tree.leaves(model)]
    rounded(model, 3)
    assert all((a == b).all() for a, b in zip(before, jax.tree.leaves(model), strict=True))
