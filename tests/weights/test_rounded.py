"""Rounding of a model's matrices, and the command that compares a model with its rounded one."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import GOLDEN
from helpers import near
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import duat_jax as duat
from duat_jax.cli import application
from duat_jax.evaluation.running_text import mean_loss, stream, windows
from duat_jax.models.layer_parts import scanned
from duat_jax.weights.rounded import rounded, sizes_of_matrices, within_budget
from duat_jax.weights.units import parameters_of

TEXT, FILE = "for i in range(10", ("--text", "a.txt")


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


def test_the_command_rounds_the_model():
    arguments = ["diff", "embedded", TEXT, "--bits", "4", "--top", "1", "--json", "-"]
    run = CliRunner().invoke(application, arguments)
    assert run.exit_code == 0, run.output
    record = duat.schemas.read(run.stdout)
    model = duat.load()
    tokenizer = model.tokenizer
    found = duat.diff(rounded(model, 4), TEXT, reference=model, top=0, tokenizer=tokenizer)
    near([record.value, record.reference_value], [found.value, found.reference_value], 1e-5)
    assert (record.model, record.reference) == ("embedded in 4 bits", "embedded")
    assert not any(part for name, part in record.parts.items() if not name.startswith("layers."))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["embedded", "embedded", TEXT, "--bits", "4"], "give one MODEL and one TEXT"),
        (["embedded", TEXT, "--bits", "1"], "Invalid value for '--bits': Input should be greater than or equal to 2"),
        (["embedded"], "give the --reference that MODEL is compared with, or --bits"),
        (["embedded", TEXT, "--bits", "4", "--reference", "embedded"], "one of them"),
        (["embedded", TEXT, "--bits", "4", "--budget", "0.5"], "give --bits and --text"),
        (["embedded", "--bits", "4", *FILE, "--budget", "0.5", "--position", "1"], "leave --position out"),
        (["embedded", "--bits", "8", *FILE, "--budget", "0.5"], "a budget gives 8 bits to some matrices"),
        ([str(GOLDEN / "gpt2-classes"), "--bits", "3", *FILE, "--budget", "0.5"], "a budget is judged by the loss"),
        (["embedded", "--reference", "embedded", "--text", "a.txt", "--budget", "0.5"], "give --bits and --text"),
        (["embedded", "--bits", "4", "--text", "a.txt", "--budget", "1.5"], "give a share above 0 and below 1"),
    ],
)
def test_what_cannot_be_rounded_is_named(arguments, message):
    run = CliRunner().invoke(application, ["diff", *arguments])
    assert run.exit_code != 0
    assert message in " ".join(run.output.replace("│", " ").split())


def test_some_matrices_are_kept_finer():
    model = duat.load()
    names = list(sizes_of_matrices(model))[::3]
    found, coarse, fine = (
        parameters_of(each) for each in (rounded(model, 3, names), rounded(model, 3), rounded(model, 8))
    )
    for name, kernel in found.items():
        near(kernel, (fine if name in names else coarse)[name], 0)
    with pytest.raises(duat.DuatError, match=r"layers.9.mlp: no matrix"):
        rounded(model, 3, ["layers.9.mlp"])


def test_biases_of_experts_stay_and_narrow_weights_are_rounded_wide():
    model = duat.load(GOLDEN / "gpt_oss")
    assert not [name for name in sizes_of_matrices(model) if "bias" in name]
    before, after = (parameters_of(each) for each in (model, rounded(model, 3)))
    near(after["layers.0.mlp.input_bias"], before["layers.0.mlp.input_bias"], 0)
    narrow = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), duat.load())
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), narrow)
    found, expected = (parameters_of(rounded(each, 5)) for each in (narrow, wide))
    for name, kernel in expected.items():
        near(found[name], kernel.astype(jnp.bfloat16), 0)


SIZES = st.dictionaries(st.text("abc", min_size=1), st.tuples(st.floats(0, 10), st.integers(1, 9)), min_size=1)


@given(SIZES, st.floats(0.01, 0.99))
def test_a_budget_is_kept_and_nothing_that_fits_is_left(drawn, share):
    scores, sizes = ({name: pair[k] for name, pair in drawn.items()} for k in (0, 1))
    chosen = within_budget(scores, sizes, share)
    spent = sum(sizes[name] for name in chosen)
    assert spent <= share * sum(sizes.values())
    assert all(spent + sizes[name] > share * sum(sizes.values()) for name in sizes.keys() - set(chosen))


def test_the_command_spends_a_budget_and_judges_it_on_fresh_text(tmp_path):
    file = tmp_path / "code.py"
    file.write_text((Path(__file__).parents[2] / "duat_jax" / "weights" / "compute.py").read_text())
    asked = [
        "diff",
        "embedded",
        "--bits",
        "3",
        "--text",
        str(file),
        "--pieces",
        "4",
        "--tokens",
        "48",
        "--top",
        "0",
    ]
    ran = CliRunner().invoke(application, [*asked, "--budget", "0.25", "--json", "-"])
    assert ran.exit_code == 0, ran.output
    record = duat.schemas.read(ran.stdout)
    found = record.budget
    model = duat.load()
    tokenizer = model.tokenizer
    pieces = windows(stream(tokenizer, [file.read_text()]), 8, 48, seed=0)
    near(record.reference_value, mean_loss(model, pieces[:4]), 1e-5)
    fresh = [mean_loss(each, pieces[4:]) for each in (model, rounded(model, 3), rounded(model, 3, found.finer))]
    near([found.original, found.none, found.chosen], fresh, 1e-5)
    sizes = sizes_of_matrices(model)
    assert found.finer == within_budget({name: abs(record.parts[name]) for name in sizes}, sizes, 0.25)
    assert found.original < found.chosen < found.none


def test_bits_out_of_range_are_refused():
    with pytest.raises(duat.DuatError, match="from 2 to 16"):
        rounded(duat.load(), 1)


def test_the_model_stays_as_it_is():
    model = duat.load()
    before = [np.array(leaf) for leaf in jax.tree.leaves(model)]
    rounded(model, 3)
    assert all((a == b).all() for a, b in zip(before, jax.tree.leaves(model), strict=True))
