"""Training learns, resumes where it stopped, and writes a checkpoint that the loader reads."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import duat_jax as duat
from duat_jax.models.transformer import Transformer
from training import corpus, export, train


def test_the_split_depends_on_names_only():
    texts = {f"module{i}.py": "x" * i for i in range(200)}
    training, held_out = corpus.split(texts)
    assert training.keys() | held_out.keys() == texts.keys()
    assert not training.keys() & held_out.keys()
    assert 0 < len(held_out) < 30
    assert corpus.split(dict.fromkeys(texts, ""))[1].keys() == held_out.keys()
    assert corpus.fingerprint(training) != corpus.fingerprint(held_out)


@pytest.fixture
def tiny(monkeypatch):
    """A model and batch small enough to train in a test."""
    block = dataclasses.replace(train.CONFIG.blocks[0], features=8, heads=2, neurons=16)
    head = dataclasses.replace(train.CONFIG.head, outputs=300)
    config = dataclasses.replace(train.CONFIG, blocks=(block,) * 2, vocab=300, positions=16, head=head)
    monkeypatch.setattr(train, "CONFIG", config)
    monkeypatch.setattr(train, "BATCH", 4)
    return config


@pytest.mark.slow
def test_held_out_files_that_stand_in_training_files_are_left_out():
    line, other = "a line that is longer than twenty characters", "another line that no file was trained on"
    training = {"a": f"    {line}\n"}
    held_out = {"known": f"{line}\n", "new": f"{other}\n", "little": f"{other}\n" * 20 + line, "short": "x = 1\n"}
    assert corpus.known_lines(held_out["little"], {line}) == pytest.approx(44 / (20 * 40 + 44))
    assert list(corpus.unseen(training, held_out)) == ["new", "little", "short"]


def test_training_learns_and_resumes(tiny, tmp_path):
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        stream = np.tile(np.arange(50, dtype=np.uint16), 40)
        straight = train.train(stream, 12, tmp_path / "straight", 6)
        train.train(stream, 12, tmp_path / "stopped", 6, stop_after=6)
        resumed = train.train(stream, 12, tmp_path / "stopped", 6)
        for a, b in zip(jax.tree.leaves(straight), jax.tree.leaves(resumed), strict=True):
            np.testing.assert_array_equal(a, b)
        windows = next(train.batches(stream, 0))
        untrained = train.loss_of(Transformer(tiny, rngs=nnx.Rngs(0)), windows)
        assert train.loss_of(straight, windows) < untrained - 0.05


def test_batches_resume_where_they_stopped(tiny):
    stream = np.arange(900, dtype=np.uint16)
    from_start = train.batches(stream, 0)
    skipped = [next(from_start) for _ in range(40)]
    np.testing.assert_array_equal(next(train.batches(stream, 39)), skipped[39])
    assert skipped[0].shape == (4, 17)


def test_an_exported_model_loads_to_the_same_model(tiny, tmp_path):
    model = Transformer(tiny, dtype=jnp.float32, rngs=nnx.Rngs(3))
    tokenizer = train.train_tokenizer(["def f(self):\n    return self.x\n"] * 3)
    export.write_gpt2(model, tokenizer, tmp_path / "out")
    loaded = duat.load(tmp_path / "out")
    assert loaded.config == tiny
    for a, b in zip(jax.tree.leaves(model), jax.tree.leaves(loaded), strict=True):
        np.testing.assert_array_equal(np.asarray(a, np.float16), np.asarray(b, np.float16))
    ids = tokenizer.encode("return self.x").ids
    assert duat.load_tokenizer(tmp_path / "out").decode(ids) == "return self.x"
