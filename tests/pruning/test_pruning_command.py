"""`duat prune`, and pruned models as checkpoints."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from containers import same
from helpers import close, near
from safetensors.numpy import load_file
from test_pruning import IDS, said
from typer.testing import CliRunner

import duat_jax as duat
from duat_jax.cli import application
from duat_jax.evaluation.running_text import mean_loss, stream, windows
from duat_jax.pruning.checkpoint import FIELDS, require_writable, save_pruned
from duat_jax.pruning.layers import least_important, remove_layers
from duat_jax.pruning.plot import draw
from duat_jax.pruning.pruner import prune
from duat_jax.pruning.resizing import resized, with_biases
from duat_jax.pruning.study import Pruner

GOLDEN = Path(__file__).parents[1] / "golden"
TEXT = "def add(a, b):\n    return a + b\n\n\nclass Adder:\n    def __call__(self, x):\n        return self.y + x\n" * 6


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.py").write_text(TEXT)
    return tmp_path / "text.py"


def command(*arguments):
    return CliRunner().invoke(application, ["prune", *map(str, arguments)])


def small(text, *arguments):
    return command("--text", text, "--pieces", 3, "--tokens", 12, *arguments)


@pytest.mark.parametrize(
    ("family", "bias"), [("gpt2", True), pytest.param("llama", False, marks=pytest.mark.slow)], ids=["gpt2", "llama"]
)
def test_a_pruned_model_loads_like_any_other(tmp_path, family, bias):
    source = GOLDEN / family
    model = duat.load(source, dtype=jnp.float64)
    assert model.config.blocks[0].mlp_bias == bias
    fewer = prune(model, IDS, 0.4, method="fisher", budget="together", layers=[0])
    half = {layer: np.arange(block.neurons) % 2 == 0 for layer, block in enumerate(model.config.blocks)}
    for name, smaller, sizes in (("fewer", fewer, 2), ("half", resized(model, half), 1)):
        save_pruned(smaller, source, tmp_path / name, dtype=np.float64)
        again = duat.load(tmp_path / name, dtype=jnp.float64)
        assert again.config == smaller.config
        assert len({block.neurons for block in again.config.blocks}) == sizes
        close(said(again, jnp.asarray(IDS)), said(smaller, jnp.asarray(IDS)))
    two = remove_layers(fewer, IDS, [1], compensation="none")
    save_pruned(two, source, tmp_path / "two")
    again = duat.load(tmp_path / "two", dtype=jnp.float64)
    assert again.config.layers == model.config.layers - 1
    near(said(again, jnp.asarray(IDS)), said(two, jnp.asarray(IDS)), within=2e-2)


@pytest.mark.parametrize("family", FIELDS)
def test_layers_of_every_family_are_saved_with_as_many_neurons_as_each_has(tmp_path, family):
    model = duat.load(GOLDEN / family, dtype=jnp.float64)
    kept = {0: np.arange(model.config.blocks[0].neurons) % 3 != 0}
    smaller = resized(model, kept)
    assert len({block.neurons for block in smaller.config.blocks}) == 2
    save_pruned(smaller, GOLDEN / family, tmp_path / "saved", dtype=np.float64)
    again = duat.load(tmp_path / "saved", dtype=jnp.float64)
    assert again.config == smaller.config and same(again, smaller)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_pruned_model_is_stored_in_the_dtype_that_is_wanted(tmp_path, dtype):
    model = duat.load(GOLDEN / "gpt2")
    save_pruned(model, GOLDEN / "gpt2", tmp_path / "saved", dtype=jnp.dtype(dtype))
    expected = jax.tree.map(lambda leaf: leaf.astype(dtype).astype(jnp.float32), model)
    assert same(duat.load(tmp_path / "saved"), expected)
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["torch_dtype"] == dtype


def test_biases_that_a_configuration_cannot_say_are_named(tmp_path):
    model = duat.load(GOLDEN / "qwen2", dtype=jnp.float64)
    with pytest.raises(duat.BadCheckpoint, match="can't say that the MLPs have biases.*'none'"):
        save_pruned(with_biases(model), GOLDEN / "qwen2", tmp_path / "saved")
    assert not list(tmp_path.iterdir())
    require_writable(model)
    for compensation in ("mean", "refit"):
        with pytest.raises(duat.BadCheckpoint, match=f"'{compensation}' can't be saved.*choose compensation 'none'"):
            require_writable(model, compensation)
        for other in ("gpt2", "llama"):
            require_writable(duat.load(GOLDEN / other), compensation)


def test_what_cannot_be_saved_is_said_and_leaves_nothing(tmp_path):
    model = duat.load(GOLDEN / "gpt2", dtype=jnp.float64)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("")
    with pytest.raises(duat.BadCheckpoint, match="is there already"):
        save_pruned(model, GOLDEN / "gpt2", tmp_path / "there")
    output = model.stack.blocks[0].mlp.output.kernel
    output.set_value(output[...] * 1e9)
    with pytest.raises(
        duat.BadCheckpoint, match=r"h\.0\.mlp\.c_proj\.weight has numbers too large for float16: store float32"
    ):
        save_pruned(model, GOLDEN / "gpt2", tmp_path / "large")
    # As GPT-2 with scale_attn_by_inverse_layer_idx, one layer removed.
    first, *rest = model.config.blocks
    model.config = dataclasses.replace(model.config, blocks=(first, *(dataclasses.replace(b, scale=0.1) for b in rest)))
    output.set_value(output[...] / 1e9)
    with pytest.raises(duat.BadCheckpoint, match="depend on the layer.s number"):
        save_pruned(model, GOLDEN / "gpt2", tmp_path / "by number")
    with pytest.raises(duat.BadCheckpoint, match="family bert can't be saved"):
        save_pruned(duat.load(GOLDEN / "bert"), GOLDEN / "bert", tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_the_sizes_of_layers_are_checked(tmp_path):
    model = duat.load(GOLDEN / "gpt2")
    save_pruned(model, GOLDEN / "gpt2", tmp_path / "saved")
    file = tmp_path / "saved" / "config.json"
    settings = json.loads(file.read_text())
    for wrong in ([4], [4] * (model.config.layers - 1) + [0], [4] * (model.config.layers - 1) + ["4"]):
        file.write_text(json.dumps(settings | {"n_inner": wrong}))
        with pytest.raises(duat.BadCheckpoint, match="n_inner must be"):
            duat.load_config(tmp_path / "saved")


@pytest.mark.slow
def test_the_command_compares_pruners(text, tmp_path):
    asked = ("--fraction", 0.5, "--fraction", 0.2, "--method", "wanda", "--method", "random", "--compensate", "mean")
    result = small(text, *asked, "--json", tmp_path / "out.json", "--plot", tmp_path / "out.png")
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "out.json").read_text())
    rows = {(row["method"], row["fraction"]): row["loss"] for row in found["pruned"]}
    assert set(rows) == {(method, share) for method in ("wanda", "random") for share in (0.5, 0.2)}
    model, tokenizer = duat.load(), duat.load_tokenizer()
    drawn = windows(stream(tokenizer, [TEXT]), 6, 12, seed=0)
    smaller = prune(model, drawn[:3], 0.2, method="wanda", compensation="mean")
    assert rows["wanda", 0.2] == pytest.approx(mean_loss(smaller, drawn[3:]), rel=1e-5)
    assert found["whole"]["loss"] == pytest.approx(mean_loss(model, drawn[3:]), rel=1e-5)
    assert "the whole model" in result.stdout and len(set(rows.values())) == 4
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_saved_model_is_the_one_whose_loss_is_told(text, tmp_path):
    asked = ("--fraction", 0.5, "--compensate", "mean", "--output", tmp_path / "half", "--dtype", "float32")
    result = small(text, *asked, "--json", "-")
    assert result.exit_code == 0, result.output
    stored = load_file(tmp_path / "half" / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {np.dtype(np.float32)}
    (row,) = json.loads(result.stdout)["pruned"]
    again = duat.load(tmp_path / "half")
    assert row["neurons"] == [block.neurons for block in again.config.blocks] == [384] * 6
    ids = duat.load_tokenizer(tmp_path / "half").encode(TEXT).ids
    assert np.isfinite(again(jnp.array(ids[:20]))).all()


@pytest.mark.slow
def test_layers_go_whole(text, tmp_path):
    asked = ("--what", "layers", "--fraction", 0.34, "--fraction", 0.3, "--method", "block influence", "--compensate")
    compared = small(text, *asked, "mean", "--compensate", "none", "--json", "-")
    assert compared.exit_code == 0, compared.output
    rows = json.loads(compared.stdout)["pruned"]
    losses = {row["compensation"]: row["loss"] for row in rows}
    assert {row["fraction"] for row in rows} == {2 / 6} and len(rows) == 2
    saved = small(text, *asked[:4], *asked[6:], "mean", "--output", tmp_path / "shorter", "--json", "-")
    assert saved.exit_code == 0, saved.output
    (row,) = json.loads(saved.stdout)["pruned"]
    assert duat.load(tmp_path / "shorter").config.layers == 4
    drawn = windows(stream(duat.load_tokenizer(), [TEXT]), 6, 12, seed=0)
    removed = least_important(duat.load(), drawn[:3], 2, "block influence")
    expected = mean_loss(remove_layers(duat.load(), drawn[:3], removed, compensation="mean"), drawn[3:])
    # What is saved has the entries of the file: half precision.
    assert losses["mean"] == pytest.approx(expected, rel=1e-5) == pytest.approx(row["loss"], rel=1e-3)
    assert losses["none"] != losses["mean"]


@pytest.mark.slow
def test_a_killed_comparison_goes_on(text, tmp_path):
    arguments = ["--fraction", "0.5", "--method", "wanda", "--method", "flap", "--work", str(tmp_path / "work")]
    program = f"""
import os, sys
from duat_jax.pruning import study
from duat_jax.evaluation.running_text import mean_loss, stream, windows
from duat_jax.cli import application
run = study.mean_loss
def dying(*arguments):
    loss = run(*arguments)
    if sys.argv[1] == "dies" and os.path.getsize({str(tmp_path / "work")!r}) > {300}:
        os.kill(os.getpid(), 9)
    return loss
study.mean_loss = dying
application(["prune", "--text", {str(text)!r}, "--pieces", "3", "--tokens", "12", "--json", "-", *{arguments!r}])
"""
    assert subprocess.run([sys.executable, "-c", program, "dies"]).returncode == -9
    before = (tmp_path / "work").read_text()
    done = subprocess.run([sys.executable, "-c", program, "goes on"], capture_output=True, text=True, check=True)
    assert (tmp_path / "work").read_text().startswith(before)
    assert [row["method"] for row in json.loads(done.stdout)["pruned"]] == ["wanda", "flap"]


def test_a_picture_has_a_line_for_each_ranking_and_compensation():
    losses = {Pruner("wanda", how, share): 2 + share for how in ("mean", "refit") for share in (0.5, 0.2)}
    (axis,) = draw(2.0, losses).axes
    assert [line.get_label() for line in axis.lines[:2]] == ["wanda, mean", "wanda, refit"]
    assert axis.lines[0].get_xydata().tolist() == [[0, 2.0], [20, 2.2], [50, 2.5]]


@pytest.mark.slow
def test_the_python_of_the_page_on_pruning_runs(capsys):
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "pruning.md").read_text(encoding="utf-8")
    with jax.numpy_dtype_promotion("standard"):
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
            exec(block, {})
    assert "(4, 4096) (4, 4096)" in capsys.readouterr().out


def test_mistakes_are_one_line_and_leave_nothing(text, tmp_path):
    def says(*words, arguments):
        result = command(*arguments)
        assert result.exit_code == 2, result.output
        assert result.stdout == "" and result.stderr.count("\n") == 1
        assert all(word in result.stderr for word in words), result.stderr

    wrong = ("--fraction", 1.0, "--method", "guess", "--compensate", "hope", "--budget", "none", "--layer", 9)
    says(
        *("not 1.0", "no method 'guess'", "no compensation 'hope'", "no budget 'none'", "no layer 9"),
        arguments=("--text", text, *wrong),
    )
    layers = ("--what", "layers", "--method", "wanda", "--budget", "together")
    says("no method 'wanda'", "without a budget", arguments=("--text", text, "--fraction", 0.5, *layers))
    says("prunable part 'heads'", arguments=("--text", text, "--fraction", 0.5, "--what", "heads"))
    (tmp_path / "empty").write_text("\n")
    says("empty is empty", arguments=("--text", tmp_path / "empty", "--fraction", 0.5))
    says("and 128 pieces of 128 are requested", arguments=("--text", text, "--fraction", 0.5))
    says("is there already", arguments=("--text", text, "--fraction", 0.5, "--output", tmp_path))
    two = ("--fraction", 0.5, "--fraction", 0.6, "--output", tmp_path / "new")
    says("one pruned model is saved", arguments=("--text", text, *two))
    here = ("--output", tmp_path / "new", "--model", GOLDEN / "bert")
    says("reads out hidden", arguments=("--text", text, "--fraction", 0.5, *here))
    assert not (tmp_path / "new").exists()
