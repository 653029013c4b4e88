"""A training on pieces of text and what it did to another text, as a run and as the command `duat train-ledger`."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
from cases import GOLDEN
from command import run
from containers import same
from flax import nnx
from helpers import near
from tokenizer_layouts import LAYOUTS
from tokenizers import processors

import duat_jax as duat
from duat_jax import schemas
from duat_jax.errors import InvalidInput
from duat_jax.evaluation.running_text import lines, stream, token_losses, windows
from duat_jax.training import influence, train
from duat_jax.training.next_token import TrainingSettings, next_token_run, parts_of_pieces, rows_of_step
from duat_jax.training.pieces import extremes, piece_of

TEXT = "w5 w17 w3 w44"
SMALL = "--steps", 5, "--batch", 2, "--tokens", 4, "--model", GOLDEN / "gpt2"


@pytest.fixture
def corpus(tmp_path):
    words = np.random.default_rng(0).integers(3, 50, 41)
    (tmp_path / "corpus.txt").write_text("\n".join(f"w{word}" for word in words))
    return tmp_path / "corpus.txt"


@pytest.fixture(autouse=True)
def _as_optax_needs_it():
    with jax.numpy_dtype_promotion("standard"):
        yield


def test_parts_of_pieces_sum_to_the_change_by_examples(tmp_path):
    model, settings = duat.load(GOLDEN / "gpt2"), TrainingSettings(steps=7, batch=2, rate=1e-2)
    ids = np.random.default_rng(1).integers(3, 50, (5, 6))
    text = jnp.array([[5, 17, 3, 44]])
    kept = train(next_token_run(ids, settings), model, tmp_path)
    found = influence(kept, lambda model: token_losses(model, text).mean())
    parts, reads = parts_of_pieces(found, len(ids), settings)
    near(parts.sum(), found.parts["examples"], within=1e-6)
    near(found.difference, token_losses(kept.last, text).mean() - token_losses(model, text).mean(), within=1e-5)
    read = [rows_of_step(step, len(ids), settings) for step in range(settings.steps)]
    assert reads.tolist() == [sum((rows == piece).sum() for rows in read) for piece in range(len(ids))]
    for piece in range(len(ids)):
        near(
            parts[piece], sum(found.examples[step][rows == piece].sum(0) for step, rows in enumerate(read)), within=1e-6
        )


@pytest.mark.parametrize("pieces", [9, 10])
def test_a_pass_reads_each_piece_at_most_once(pieces):
    settings = TrainingSettings(steps=9, batch=3, seed=2)
    for start in (0, 3, 6):
        rows = np.concatenate([rows_of_step(step, pieces, settings) for step in range(start, start + 3)])
        assert len(rows) == len(set(rows.tolist())) == 9


def test_pieces_that_moved_nothing_are_no_extremes():
    assert extremes(np.array([0.0, -2.0, 3.0, 0.0]), 3).tolist() == [1, 2]
    assert extremes(np.array([0.5, 2.0, -1.0, -3.0]), 1).tolist() == [3, 1]


def test_a_step_needs_its_pieces():
    with pytest.raises(InvalidInput, match="a step needs 8 texts, and there are 2"):
        next_token_run(np.zeros((2, 4), int), TrainingSettings())


def test_the_command_explains_and_keeps_a_training(corpus, tmp_path):
    files = tmp_path / "kept", tmp_path / "table.csv", tmp_path / "out.json", tmp_path / "out.png"
    options = zip(("--save", "--csv", "--json", "--plot"), files, strict=True)
    asked = "train-ledger", TEXT, "--text", corpus, *SMALL, "--work", tmp_path / "states"
    output = "--output", tmp_path / "trained"
    ran = run(*asked, *output, *(word for option in options for word in option))
    assert ran.exit_code == 0 and f"{output[1]}: the trained model" in ran.stdout, ran.output
    check_written(output[1], GOLDEN / "gpt2", corpus, tmp_path / "states", TrainingSettings(steps=5, batch=2))
    refused = run(*asked, *output)
    assert refused.exit_code == 2 and "trained is there already" in refused.stderr
    record = schemas.read(files[2].read_text())
    assert isinstance(record, schemas.TrainLedgerRecord) and record.steps == 5
    near(sum(record.influence.parts.values()), record.influence.difference, within=1e-4)
    assert [piece.part for piece in record.pieces] == sorted(piece.part for piece in record.pieces)
    assert record.places == [f"{corpus}:{4 * piece + 1}" for piece in range(10)]  # a word is a token and a line
    assert all(piece.place == record.places[piece.piece] for piece in record.pieces)
    opened = duat.open(files[0])
    assert isinstance(opened, duat.training.Influence)
    assert len(pd.read_csv(files[1])) == len(opened.to_dataframe())
    assert files[3].read_bytes().startswith(b"\x89PNG")
    shown = ran.stdout
    for words in ("begins at", "all other pieces", "together", "layers.0.", "holds"):
        assert words in shown
    states = sorted(path.name for path in (tmp_path / "states").iterdir())
    (tmp_path / "states" / states[-1]).unlink()  # as if it had been interrupted
    again = run(*asked, "--json", "-")
    assert json.loads(again.stdout) == json.loads(files[2].read_text())
    near(sum(record.parts), record.influence.parts["examples"], within=1e-6)
    other = tmp_path / "other.txt"
    other.write_text(corpus.read_text()[::-1].replace("w", " w"))
    refused = run("train-ledger", TEXT, "--text", other, *SMALL, "--work", tmp_path / "states")
    assert refused.exit_code == 2 and "is of another run" in refused.stderr


def check_written(output, model, corpus, states, settings):
    """Check that a written model is the base model after the command's last step, which its own states hold."""
    before = duat.load(model)
    tokenizer = before.tokenizer
    pieces = windows(stream(tokenizer, [corpus.read_text()]), None, 4)
    trained = train(next_token_run(pieces, settings), before, states).last
    again = duat.load(output)
    its_tokenizer = again.tokenizer
    assert again.config == before.config and same(again, trained) and not same(again, before)
    assert its_tokenizer.to_str() == tokenizer.to_str()
    assert jnp.array_equal(again(pieces), trained(pieces))


@pytest.mark.slow
def test_the_embedded_model_is_trained_and_written(corpus, tmp_path):
    options = "--steps", 2, "--batch", 2, "--tokens", 4, "--work", tmp_path / "states", "--output", tmp_path / "trained"
    ran = run("train-ledger", TEXT, "--text", corpus, *options)
    assert ran.exit_code == 0, ran.output
    check_written(tmp_path / "trained", None, corpus, tmp_path / "states", TrainingSettings(steps=2, batch=2))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_token_has_the_line_where_it_begins(layout):
    texts = ["a b\nc\n\n\n  d x\n", "h\n\t1"]
    at = {
        character: (i, text[:place].count("\n") + 1)
        for i, text in enumerate(texts)
        for place, character in enumerate(text)
    }
    tokenizer = LAYOUTS[layout].make()
    if layout == "gpt_neox":  # whose offsets leave white space out
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    ids, places = stream(tokenizer, texts).tolist(), [tuple(place) for place in lines(tokenizer, texts).tolist()]
    assert len(places) == len(ids) and places == sorted(places)
    for character in "abcdxh1":
        assert {place for i, place in zip(ids, places) if character == tokenizer.decode([i]).strip()} == {at[character]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--text", "absent.txt"), "absent.txt can't be read"),
        (("--rate", "0"), "--rate 0.0: give a positive number"),
        (("--tokens", "900"), "the model's context is"),
        (("--batch", "100"), "a step needs 100 texts, and there are 10"),
        (("--model", str(GOLDEN / "bert")), "doesn't predict the next token"),
        (("--work", "corpus.txt"), "corpus.txt isn't a directory"),
    ],
)
def test_mistakes_are_named(corpus, arguments, message, monkeypatch):
    monkeypatch.chdir(corpus.parent)
    ran = run("train-ledger", TEXT, "--text", corpus, *SMALL, *arguments)
    assert ran.exit_code == 2 and message in ran.stderr


def test_routers_choices_are_among_the_parts(tmp_path):
    words = np.random.default_rng(0).integers(3, 61, 60)
    (tmp_path / "a.txt").write_text(" ".join(f"w{word}" for word in words))
    asked = "--steps", 9, "--batch", 2, "--tokens", 4, "--rate", "1e-2", "--model", GOLDEN / "mixtral"
    text = "w5 w17 w3 w44 w9 w30 w21 w12 w50 w8"
    ran = run("train-ledger", text, "--text", tmp_path / "a.txt", *asked, "--json", "-")
    assert ran.exit_code == 0, ran.output
    record = schemas.read(ran.stdout)
    assert abs(record.influence.parts["discontinuities"]) > 1e-3
    near(sum(record.influence.parts.values()), record.influence.difference, within=1e-4)


def test_spaces_between_tokens_stay():
    model = duat.load()
    tokenizer = model.tokenizer
    ids = np.array(tokenizer.encode("for key in self.data: print(key)").ids)
    parts = np.zeros(len(ids) - 1)
    parts[3] = -1.0
    shown = piece_of(0, ids, parts, 1, tokenizer, "a:1").text
    assert shown.replace("»", "").replace("«", "").replace("·", " ") in "for key in self.data: print(key)"
    llama = duat.load_tokenizer(GOLDEN / "llama")
    ids = np.array(llama.encode("w5 w17 w3 w44").ids)
    shown = piece_of(0, ids, np.eye(len(ids) - 1)[1], 1, llama, "a:1").text
    assert shown.replace("»", "").replace("«", "").replace("·", " ").split() == llama.decode(ids.tolist()).split()


def test_a_text_of_one_token_is_refused(corpus):
    ran = run("train-ledger", "w5", "--text", corpus, *SMALL)
    assert ran.exit_code == 2 and "the text has 1 tokens" in ran.stderr


def test_modules_are_weights_too(tmp_path):
    module = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
    losses = lambda module, batch: (module(batch) - 1.0) ** 2  # noqa: E731
    kept = train(duat.training.Run(losses, optax.sgd(0.1), jnp.ones((2, 3, 2)), steps=2), module, tmp_path)
    found = influence(kept, lambda module: module(jnp.ones(2)).sum())
    assert found.completeness.verdict == "holds"
