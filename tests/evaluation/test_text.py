"""Running text in windows, what a model loses on it, and the journal of long work."""

import dataclasses
import json
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import pre_tokenizers

import duat_jax as duat
from duat_jax.errors import NotFinite
from duat_jax.evaluation import deletion_study
from duat_jax.evaluation.journal import Journal, fingerprint
from duat_jax.evaluation.running_text import mean_loss, read_texts, stream, windows
from duat_jax.models.pooling import Pooling


def test_windows_are_the_text_without_overlap():
    tokens = np.arange(11, dtype=np.int32)
    assert (windows(tokens, None, 4) == [[0, 1, 2, 3], [4, 5, 6, 7]]).all()
    drawn = windows(tokens, 2, 3, seed=1)
    assert {row[0] % 3 for row in drawn} == {0} and (np.diff(drawn) == 1).all()
    assert (drawn == windows(tokens, 2, 3, seed=1)).all()


@pytest.mark.parametrize(("count", "length"), [(3, 4), (1, 12), (None, 12)])
def test_too_little_text_is_said(count, length):
    with pytest.raises(duat.InvalidInput, match="has 11 tokens"):
        windows(np.arange(11, dtype=np.int32), count, length)


def test_every_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "latin").write_bytes(b"\xe9")
    with pytest.raises(duat.InvalidInput, match=r"missing can't be read.*latin isn't UTF-8.*empty is empty"):
        read_texts([tmp_path / name for name in ("missing", "latin", "empty")])
    with pytest.raises(duat.InvalidInput, match="no text"):
        read_texts([])


def test_empty_pieces_are_refused():
    with pytest.raises(duat.InvalidInput, match="pieces of 0 tokens"):
        windows(np.arange(11, dtype=np.int32), None, 0)


def test_mean_loss_is_that_of_each_text_alone():
    model, tokenizer = duat.load(), duat.load_tokenizer()
    ids = windows(stream(tokenizer, ["def f(x):\n    return x + 1\n" * 20]), 5, 12)
    alone = []
    for row in ids:
        logits = np.asarray(model(jnp.asarray(row[:-1])), np.float64)
        alone += [np.log(np.exp(z).sum()) - z[token] for z, token in zip(logits, row[1:])]
    assert mean_loss(model, ids, batch=3) == pytest.approx(np.mean(alone), rel=1e-5)


def test_a_finished_piece_is_not_computed_again(tmp_path):
    path, computed = tmp_path / "work", []

    def piece(number):
        return lambda: computed.append(number) or {"found": number}

    for _ in range(2):
        journal = Journal(path, {"seed": 0, "sizes": (1, 2)})
        assert [journal.once(str(i), piece(i)) for i in range(3)] == [{"found": i} for i in range(3)]
    assert computed == [0, 1, 2]
    assert "2" in journal and "3" not in journal


@pytest.mark.parametrize("cut", [1, 5, 20, 40])
def test_half_a_line_is_computed_again(tmp_path, cut):
    path = tmp_path / "work"
    journal = Journal(path, {"seed": 0})
    for i in range(3):
        journal.once(str(i), lambda i=i: i)
    path.write_bytes(path.read_bytes()[:-cut])
    again = Journal(path, {"seed": 0})
    assert [again.once(str(i), lambda i=i: i) for i in range(3)] == [0, 1, 2]
    lines = [json.loads(line) for line in path.read_text().splitlines()][1:]
    assert [(line["name"], line["found"]) for line in lines] == [(str(i), i) for i in range(3)]


def test_other_work_is_refused(tmp_path):
    Journal(tmp_path / "work", {"seed": 0})
    with pytest.raises(duat.InvalidInput, match="holds other work"):
        Journal(tmp_path / "work", {"seed": 1})
    (tmp_path / "other").write_text("hello\n")
    with pytest.raises(duat.InvalidInput, match="isn't a journal"):
        Journal(tmp_path / "other", {"seed": 1})
    for own in ("my notes, no newline", '{"important": "results"}'):
        (tmp_path / "own").write_text(own)
        with pytest.raises(duat.InvalidInput):
            Journal(tmp_path / "own", {"seed": 1})
        assert (tmp_path / "own").read_text() == own


def test_what_is_no_number_is_not_kept(tmp_path):
    journal = Journal(tmp_path / "work", {})
    with pytest.raises(NotFinite, match="the loss has numbers that are NaN"):
        journal.once("the loss", lambda: float("nan"))
    assert (tmp_path / "work").read_text() == "{}\n"


def test_a_killed_run_goes_on(tmp_path):
    program = f"""
import os, sys
from pathlib import Path
from duat_jax.evaluation import deletion_study
from duat_jax.evaluation.journal import Journal, fingerprint
journal = Journal(Path({str(tmp_path / "work")!r}), {{}})
def piece(i):
    if i == int(sys.argv[1]):
        os.kill(os.getpid(), 9)
    return i * i
print([journal.once(str(i), lambda: piece(i)) for i in range(5)])
"""
    for at in (2, 4):
        assert subprocess.run([sys.executable, "-c", program, str(at)]).returncode == -9
    done = subprocess.run([sys.executable, "-c", program, "-1"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[0, 1, 4, 9, 16]"


def test_a_model_with_another_configuration_or_tokenizer_has_another_fingerprint():
    model, tokenizer = duat.load(), duat.load_tokenizer()
    others = [duat.load() for _ in range(2)]
    first, *rest = model.config.blocks
    for other, change in zip(others, ({"epsilon": 1e-3}, {"activation": "gelu"}), strict=True):
        changed = dataclasses.replace(first, **change)
        assert changed != first
        other.config = dataclasses.replace(model.config, blocks=(changed, *rest))
    split = duat.load_tokenizer()
    split.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    prints = [fingerprint(each, each.config, tokenizer.to_str()) for each in (model, *others)]
    prints.append(fingerprint(model, model.config, split.to_str()))
    assert len(set(prints)) == 4
    again = duat.load()
    assert fingerprint(again, again.config, duat.load_tokenizer().to_str()) == prints[0]


@pytest.mark.parametrize("other", [np.zeros((3, 2)), np.zeros(6), np.zeros((2, 3), np.int64), np.ones((2, 3))])
def test_arrays_of_another_shape_dtype_or_content_have_another_fingerprint(other):
    assert fingerprint(np.zeros((2, 3))) == fingerprint(np.zeros((2, 3))) != fingerprint(other)


def test_what_faithfulness_keeps_depends_on_the_tokenizer_and_the_configuration(monkeypatch):
    class Kept(Exception):
        """What the work is."""

    def keep(path, work):
        raise Kept(work)

    monkeypatch.setattr(deletion_study, "questions_of", lambda *_, **__: [])
    monkeypatch.setattr(deletion_study, "drawn_texts", lambda *_, **__: [])
    monkeypatch.setattr(deletion_study, "Journal", keep)

    def work(model, tokenizer):
        with pytest.raises(Kept) as told:
            deletion_study.study(model, tokenizer, ["a"], count=2, longest=4)
        return told.value.args[0]

    model, tokenizer = duat.load(), duat.load_tokenizer()
    first = work(model, tokenizer)
    assert work(duat.load(), duat.load_tokenizer()) == first
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    assert work(model, tokenizer) != first
    config = model.config
    for pooling in (Pooling(("first",)), Pooling(("mean", "max"))):
        model.config = dataclasses.replace(config, pooling=pooling)
        assert work(model, duat.load_tokenizer()) != first
    model.config = dataclasses.replace(config, positions=config.positions - 1)
    assert work(model, duat.load_tokenizer()) != first
