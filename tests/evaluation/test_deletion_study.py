"""Which method finds the tokens that matter: the study and the command, which go on where they were stopped."""

import json
import os
import signal
import subprocess
import sys
import time

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import close, near
from test_deletion import NAMES, TEXTS, VOCAB, model_of, tokenizer_of
from tokenizers import Tokenizer
from typer.testing import CliRunner

import duat_jax as duat
from duat_jax.cli import application
from duat_jax.errors import NotFinite
from duat_jax.evaluation import deletion_study
from duat_jax.evaluation.deletion import (
    REMOVALS,
    curves,
    leave_one_out,
    pin_targets,
    questions_of,
    scores_of,
)
from duat_jax.evaluation.deletion_study import manual, study
from duat_jax.models.config import Head


@pytest.fixture(scope="module")
def small():
    return model_of(), tokenizer_of(), TEXTS, NAMES


@pytest.fixture(scope="module")
def whole(small):
    return study(*small, count=5, longest=8)


def same(one, other):
    """Whether two studies found the same, whatever time they took."""
    one, other = (json.loads(json.dumps(found.as_dict() | {"costs": 0, "seconds": 0})) for found in (one, other))
    return one == other


@pytest.mark.slow
def test_a_killed_study_goes_on_and_a_larger_one_too(small, whole, tmp_path, monkeypatch):
    def killed(done, total):
        raise KeyboardInterrupt

    path = tmp_path / "work"
    with pytest.raises(KeyboardInterrupt):
        study(*small, count=5, longest=8, work=path, progress=killed)
    finished = path.read_text().splitlines()
    assert len(finished) == 2
    reported = []
    assert same(study(*small, count=5, longest=8, work=path, progress=lambda *said: reported.append(said)), whole)
    assert reported == [(4, 5), (5, 5)] and path.read_text().splitlines()[:2] == finished
    # Four texts, and one more.
    monkeypatch.setattr(deletion_study, "SORTED", 4)
    study(*small, count=4, longest=8, work=tmp_path / "larger")
    ended = (tmp_path / "larger").read_text().splitlines()
    assert same(study(*small, count=5, longest=8, work=tmp_path / "larger"), whole)
    names = [json.loads(line).get("name") for line in (tmp_path / "larger").read_text().splitlines()]
    assert len(ended) == 3 and len(names) == 4 and names[-1] == "texts [4]"
    monkeypatch.undo()
    # All is there: nothing is computed.
    monkeypatch.setattr(deletion_study, "_evaluated", None)
    assert same(study(*small, count=5, longest=8, work=path), whole)
    with pytest.raises(duat.InvalidInput, match="holds other work"):
        study(*small, count=5, longest=7, work=path)


def test_a_study_is_its_texts_one_by_one(small, whole):
    model, tokenizer, *_ = small
    values, areas = [], []
    for question in questions_of(model, tokenizer, TEXTS, 5, longest=8):
        (value,), asked = pin_targets(model, [question])
        alone = leave_one_out(model, asked, np.array([value]), "removed")
        ((most_first, least_first),) = curves(model, asked, {"alone": alone}, "removed")["alone"]
        values.append(value)
        areas.append((most_first.mean(), least_first.mean()))
    row = whole.tables["removed"]["leave-one-out, removed"]
    close([whole.value, row.deletion.value, row.insertion.value], [np.mean(values), *np.mean(areas, 0)])
    assert row.spearman.value == row.kendall.value == 1
    assert whole.tables["masked"]["leave-one-out, removed"].spearman.value < 1
    assert whole.texts == 5 and whole.tokens == np.mean([len(text.split()) for text in TEXTS])
    assert whole.costs["random"] == 0 and whole.costs["gradient x input"] > 0 and whole.seconds > 0


def test_what_cannot_be_measured_is_said(small):
    model, tokenizer, *_ = small
    with pytest.raises(duat.InvalidInput, match="no method 'guess': choose among secant, mean"):
        study(model, tokenizer, TEXTS, ["guess"], count=2, longest=8)
    with pytest.raises(duat.InvalidInput, match="there are 1 texts of at least 5 tokens .*, and 2 are requested"):
        study(model, tokenizer, ["a b c", TEXTS[0]], count=2, longest=8)
    classes = duat.models.Config(
        family="test",
        blocks=model.config.blocks,
        vocab=VOCAB,
        positions=16,
        head=Head(kind="classes", outputs=2, pool="last"),
    )
    with pytest.raises(duat.InvalidInput, match="this model's head is 'classes'"):
        study(duat.models.Transformer(classes, rngs=nnx.Rngs(0)), tokenizer, TEXTS, count=2, longest=8)


@pytest.mark.slow
def test_scores_that_are_not_finite_are_refused(small, tmp_path):
    _, tokenizer, *_ = small
    broken = model_of()
    broken.final_norm.scale[...] = jnp.full(8, jnp.nan)
    model, *_ = small
    questions = questions_of(model, tokenizer, TEXTS, 2, longest=8)
    with pytest.raises(NotFinite, match="'lost' gives scores that aren't finite"):
        scores_of("lost", lambda model, asked: asked.x.sum(-1) * jnp.nan, model, questions)
    for work in (None, tmp_path / "work"):
        with pytest.raises(NotFinite, match="the metric of a text"):
            study(broken, tokenizer, TEXTS, ["random"], count=2, longest=8, work=work)


def test_tokens_that_are_special_make_no_text(small):
    model, tokenizer, *_ = small
    tokenizer = Tokenizer.from_str(tokenizer.to_str())
    tokenizer.add_special_tokens(["[UNK]"])
    with pytest.raises(duat.InvalidInput, match="there are 1 texts of at least 5 tokens that aren't special"):
        study(model, tokenizer, [TEXTS[0], "[UNK] " * 6 + "a"], count=2, longest=8)


def test_the_manual_has_sentences():
    sentences = manual()
    assert len(sentences) > 200 and all(8 <= len(one.split()) <= 30 and one.endswith(".") for one in sentences)


def command(*arguments):
    return CliRunner().invoke(application, ["faithfulness", *map(str, arguments)])


def test_the_command_names_what_is_wrong(tmp_path):
    assert command("--plot", tmp_path / "curves.gif").stderr.endswith("must end in .png, .pdf or .svg\n")
    assert "is not a directory" in command("--work", tmp_path / "no" / "work").stderr
    assert "isn't a regular file" in command("--work", "/dev/null").stderr
    assert "give two files" in command("--work", tmp_path / "a", "--json", tmp_path / "a").stderr
    missing = command("--text", tmp_path / "no")
    assert missing.exit_code == 2 and "can't be read" in missing.stderr and missing.stderr.count("\n") == 1
    assert command("--texts", 1).exit_code == command("--seed", -1).exit_code == command("--tokens", 4).exit_code == 2
    (tmp_path / "few").write_text("def f(x): return x\n\ndef g(x): return x\n")
    few = command("--text", tmp_path / "few", "--texts", 3, "--method", "random")
    assert few.exit_code == 2 and "2 texts of at least 5 tokens" in few.stderr and ", and 3 are requested" in few.stderr


@pytest.mark.slow
def test_the_command_shows_and_writes_what_it_measured(tmp_path):
    picture, file = tmp_path / "curves.png", tmp_path / "curves.json"
    asked = "--texts", 3, "--tokens", 12, "--method", "gradient x input", "--method", "random"
    result = command(*asked, "--plot", picture, "--json", file)
    assert result.exit_code == 0, result.output
    for said in ("Log-probability of the model's next token", "on 3 texts of 12.0 tokens", "Tokens really removed"):
        assert said in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    found, model = json.loads(file.read_text()), duat.load()
    assert duat.schemas.read(file.read_text()).version == 2 and found["target"]["kind"] == "LogProbability"
    assert found["target"]["headline"] == "log-probability of the model's next token"
    expected = study(model, duat.load_tokenizer(), manual(), asked[5::2], count=3, longest=12).as_dict()
    for removal in REMOVALS:
        for method, row in expected["tables"][removal].items():
            near(found["tables"][removal][method]["most_first"], row["most_first"], within=1e-4)


@pytest.mark.slow
def test_the_command_killed_at_any_moment_goes_on(tmp_path):
    program = "import duat_jax.cli as cli; cli.application()"
    asked = "--texts", "8", "--tokens", "8", "--method", "leave-one-out, masked", "--method", "random"

    def start(work, file):
        line = [sys.executable, "-c", program, "faithfulness", *asked, "--work", str(work), "--json", str(file)]
        return subprocess.Popen(line, stdout=subprocess.DEVNULL, env=os.environ | {"JAX_PLATFORMS": "cpu"})

    work = tmp_path / "work"
    process = start(work, tmp_path / "killed.json")
    while process.poll() is None and not (work.exists() and b"texts [" in work.read_bytes()):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed.json").exists()
    finished = work.read_bytes()
    assert start(work, tmp_path / "on.json").wait() == 0 and work.read_bytes().startswith(finished)
    assert start(tmp_path / "other", tmp_path / "whole.json").wait() == 0
    found, expected = (json.loads((tmp_path / name).read_text()) for name in ("on.json", "whole.json"))
    assert found["tables"] == expected["tables"]
