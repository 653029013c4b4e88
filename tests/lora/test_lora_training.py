"""Training adapters, the state that survives a kill, and the commands `duat lora train`, `diff` and `merge`."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from adapters import IDS, random_adapters, small_model
from cases import GOLDEN
from helpers import close, near
from typer.testing import CliRunner

import duat_jax as duat
from duat_jax import schemas
from duat_jax.cli import application
from duat_jax.lora import training
from duat_jax.lora.adapter import merge, new_adapters
from duat_jax.lora.peft import load_adapters, save_adapters
from duat_jax.lora.training import TrainingSettings, train

TEXTS = np.random.default_rng(0).integers(0, 11, (9, 6)).astype(np.int32)
SETTINGS = TrainingSettings(steps=6, batch=4, rate=0.05, seed=3)


@pytest.fixture(scope="module", autouse=True)
def _as_optax_promotes():
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def model():
    return small_model(layers=1)


@pytest.fixture(scope="module")
def adapters(model):
    return new_adapters(model, ["c_attn", "mlp.c_proj"], rank=2)


@pytest.fixture(scope="module")
def trained(model, adapters):
    return train(model, adapters, TEXTS, SETTINGS)


@pytest.mark.slow
def test_training_is_adam_on_the_merged_models_loss(model, adapters, trained):
    """The same steps written out: the gradient in `A` and `B` through the merged kernels, texts in the order drawn."""

    def loss_of(weights, ids):
        changed = {name: adapters[name]._replace(down=a, up=b) for name, (a, b) in weights.items()}
        logits = merge(model, changed)(ids[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, ids[:, 1:]).mean()

    gradient_of = jax.jit(jax.value_and_grad(loss_of))
    weights = {name: (one.down, one.up) for name, one in adapters.items()}
    first = second = jax.tree.map(jnp.zeros_like, weights)
    order = np.concatenate([np.random.default_rng([3, turn]).permutation(9)[:8] for turn in range(3)]).reshape(-1, 4)
    for step in range(6):
        loss, gradient = gradient_of(weights, jnp.asarray(TEXTS[order[step]]))
        close(loss, trained[1][step])
        shrunk = 1 / max(1.0, float(sum((leaf**2).sum() for leaf in jax.tree.leaves(gradient))) ** 0.5)
        rate = 0.05 * (1 + np.cos(np.pi * step / 6)) / 2 / (1 - 0.9 ** (step + 1))
        unbiased = 1 - 0.999 ** (step + 1)
        first = jax.tree.map(lambda m, g, by=shrunk: 0.9 * m + 0.1 * by * g, first, gradient)
        second = jax.tree.map(lambda v, g, by=shrunk: 0.999 * v + 0.001 * (by * g) ** 2, second, gradient)
        weights = jax.tree.map(
            lambda w, m, v, rate=rate, by=unbiased: w - rate * m / (jnp.sqrt(v / by) + 1e-8), weights, first, second
        )
    for name, (down, up) in weights.items():
        near(trained[0][name].down, down, within=1e-6 * np.abs(down).max())
        near(trained[0][name].up, up, within=1e-6 * np.abs(up).max())
        assert trained[0][name].scale == adapters[name].scale


class Killed(Exception):
    """An error that ends a training in the middle."""


def test_a_training_that_was_stopped_goes_on_and_ends_with_the_same_numbers(
    model, adapters, trained, tmp_path, monkeypatch
):
    monkeypatch.setattr(training, "SECONDS", 0.0)
    seen = []

    def stop_after(steps):
        def progress(done, total):
            seen.append(done)
            if done == steps:
                raise Killed

        return progress

    for steps in (2, 4):
        with pytest.raises(Killed):
            train(model, adapters, TEXTS, SETTINGS, work=tmp_path / "work", progress=stop_after(steps))
    found = train(model, adapters, TEXTS, SETTINGS, work=tmp_path / "work", progress=stop_after(None))
    # A step that was made and not kept is made again.
    assert seen == [1, 2, 2, 3, 4, 4, 5, 6]
    again = train(model, adapters, TEXTS, SETTINGS, work=tmp_path / "work", progress=stop_after(1))
    for one in (found, again):
        assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), one, trained))
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


def test_another_runs_state_is_refused(model, adapters, trained, tmp_path):
    work = tmp_path / "work"
    train(model, adapters, TEXTS, SETTINGS, work=work)
    moved = {name: one._replace(down=one.down + 1) for name, one in adapters.items()}
    others = (
        (model, adapters, TEXTS, SETTINGS._replace(rate=0.1)),
        (model, moved, TEXTS, SETTINGS),
        (model, adapters, TEXTS[::-1], SETTINGS),
        (merge(model, trained[0]), adapters, TEXTS, SETTINGS),
    )
    for other in others:
        with pytest.raises(duat.InvalidInput, match="is of another run: give another file"):
            train(*other, work=work)
    work.write_bytes(work.read_bytes()[:-8])
    with pytest.raises(duat.InvalidInput, match="is damaged"):
        train(model, adapters, TEXTS, SETTINGS, work=work)


def test_what_cant_be_trained_is_refused(model, adapters):
    with pytest.raises(duat.InvalidInput, match="a step needs 10 texts, and there are 9"):
        train(model, adapters, TEXTS, SETTINGS._replace(batch=10))
    encoder = duat.load(GOLDEN / "bert")
    with pytest.raises(duat.InvalidInput, match="doesn't predict the next token"):
        train(encoder, {}, TEXTS, SETTINGS)
    broken = {name: one._replace(down=one.down * jnp.inf) for name, one in adapters.items()}
    with pytest.raises(duat.NotFinite, match="lower learning rate"):
        train(model, broken, TEXTS, SETTINGS)


WORDS = " ".join(f"w{3 + i * i % 50}" for i in range(400))
TRAIN = ("--rank", "2", "--steps", "3", "--batch", "2", "--length", "8")
MODEL = ("--model", str(GOLDEN / "gpt2"))


def command(*arguments):
    return CliRunner().invoke(application, ["lora", *map(str, arguments)])


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(WORDS)
    return path


def test_adapters_are_trained_and_merged_by_the_commands(text, tmp_path):
    files = {name: tmp_path / name for name in ("adapter", "merged", "train.json", "loss.png")}
    outputs = ("--output", files["adapter"], "--json", files["train.json"], "--plot", files["loss.png"])
    ended = command("train", "--text", text, *MODEL, "--module", "c_attn", *TRAIN, *outputs)
    assert ended.exit_code == 0, ended.output
    told = json.loads(files["train.json"].read_text())
    assert told["adapters"] == [f"h.{i}.attn.c_attn" for i in range(3)]
    assert type(schemas.read(files["train.json"].read_text())) is schemas.LoraTrainingRecord
    assert told["pieces"] == {"trained_on": 45, "held_out": 5}
    assert len(told["losses"]) == 3
    model = duat.load(GOLDEN / "gpt2")
    adapters = load_adapters(files["adapter"], model)
    assert told["parameters"] == sum(one.down.size + one.up.size for one in adapters.values())

    ended = command("merge", files["adapter"], *MODEL, "--output", files["merged"])
    assert ended.exit_code == 0, ended.output
    assert files["loss.png"].read_bytes().startswith(b"\x89PNG")
    expected = merge(model, adapters)(IDS)
    near(duat.load(files["merged"])(IDS), expected, within=1e-4 * float(abs(expected).max()))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """An adapter of the GPT-2 whose commands these are."""
    model, path = duat.load(GOLDEN / "gpt2"), tmp_path_factory.mktemp("saved") / "adapter"
    save_adapters(path, random_adapters(model, ["c_fc"]), model)
    return path


@pytest.mark.slow
def test_what_an_adapter_changes_is_told_by_the_command(saved, tmp_path):
    files = tmp_path / "diff.json", tmp_path / "diff.png"
    ended = command(
        "diff",
        saved,
        "w5 w7 w9",
        *MODEL,
        "--target",
        "w4",
        "--json",
        files[0],
        "--plot",
        files[1],
    )
    assert ended.exit_code == 0, ended.output
    for part in (
        "Explained:  the change of the logit of 'w4' at token 2",
        "of first order",
        "every parameter of the closed form",
    ):
        assert part in ended.output
    diff = json.loads(files[0].read_text())
    model = duat.load(GOLDEN / "gpt2")
    adapters = load_adapters(saved, model)
    before, after = (one(jnp.array([5, 7, 9]))[-1, 4] for one in (model, merge(model, adapters)))
    assert abs(diff["difference"] - float(after - before)) < 1e-5
    assert diff["completeness"]["verdict"] == "holds"
    assert files[1].read_bytes().startswith(b"\x89PNG")


MISTAKES = {
    "no text": (("train", "--text", "absent.txt", "--output", "out", *MODEL), "can't be read"),
    "empty text": (("train", "--text", "empty.txt", "--output", "out", *MODEL), "is empty"),
    "short text": (("train", "--text", "text.txt", "--output", "out", *MODEL, "--length", "300"), "context is"),
    "few pieces": (
        ("train", "--text", "text.txt", "--output", "out", *MODEL, *TRAIN, "--batch", "46"),
        "50 pieces of 8 tokens",
    ),
    "no module": (
        ("train", "--text", "text.txt", "--output", "out", *MODEL, *TRAIN, "--module", "k"),
        "no linear layer 'k'",
    ),
    "rates": (
        ("train", "--text", "text.txt", "--output", "out", "--rate", "nan", "--alpha", "-1"),
        "--alpha -1.0, --rate",
    ),
    "full output": (("train", "--text", "text.txt", "--output", ".", *MODEL), "is there already"),
    "no place": (("train", "--text", "text.txt", "--output", "absent/out", *MODEL), "is not a directory"),
    "no picture": (("train", "--text", "text.txt", "--output", "out", "--plot", "a.txt"), "must end in .png"),
    "work of others": (
        ("train", "--text", "text.txt", "--output", "out", *MODEL, *TRAIN, "--work", "text.txt"),
        "is damaged (JSONDecodeError): give another file, or remove it",
    ),
    "encoder": (
        ("train", "--text", "text.txt", "--output", "out", "--model", str(GOLDEN / "bert"), *TRAIN),
        "doesn't predict the next token",
    ),
    "no adapter": (("diff", "absent", "w5", *MODEL), "has no adapter_config.json"),
    "another base": (
        ("diff", "adapter", "w5", "--model", str(GOLDEN / "llama")),
        "none of its tensors fits this llama model (the embedded one, if none is given): give the adapter's base",
    ),
    "no tokens": (("diff", "adapter", "", *MODEL), "the text is empty"),
    "no target": (("diff", "adapter", "w5", *MODEL, "--target", "w5 w6"), "is not one token"),
    "image": (("diff", "adapter", "w5", "--model", str(GOLDEN / "vit")), "reads images"),
    "merge to full": (("merge", "adapter", *MODEL, "--output", "."), "is there already"),
    "merge of nothing": (("merge", "absent", *MODEL, "--output", "out"), "has no adapter_config.json"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_one_line_and_leaves_nothing(mistake, text, saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text(" \n")
    shutil.copytree(saved, "adapter")
    arguments, said = MISTAKES[mistake]
    ended = command(*arguments)
    assert ended.exit_code == 2, ended.output
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"adapter", "empty.txt", "text.txt"}


@pytest.mark.slow
def test_a_killed_command_goes_on_and_writes_the_same_adapter(text, tmp_path):
    def start(name, *more):
        arguments = ("lora", "train", "--text", text, *MODEL, *TRAIN, "--steps", "4000", "--output", tmp_path / name)
        program = "from duat_jax.cli import application; application()"
        return subprocess.Popen(
            [sys.executable, "-c", program, *map(str, (*arguments, *more))], stdout=subprocess.DEVNULL
        )

    work = tmp_path / "work"
    one = start("killed", "--work", work)
    while not work.exists():
        assert one.poll() is None
        time.sleep(0.01)
    os.kill(one.pid, signal.SIGKILL)
    assert one.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed").exists()
    kept = work.read_bytes()
    assert start("killed", "--work", work).wait() == 0
    assert start("whole").wait() == 0
    files = [tmp_path / name / "adapter_model.safetensors" for name in ("killed", "whole")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert kept != work.read_bytes()
