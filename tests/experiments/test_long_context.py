"""Long context: what is read at a distance in SmolLM2's study, on small models, against dense and written-out runs."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from flax import nnx
from helpers import close, far, near

from duat_jax.evaluation.running_text import token_losses
from duat_jax.in_context import measure_reach
from duat_jax.verification.networks import randomised
from experiments.findings import tables_of
from experiments.long_context import reading, replacing, run, tables
from experiments.long_context.networks import FULL, Sizes, network
from experiments.markdown import cells
from experiments.significant import significant

SMALL = Sizes(kind=FULL, layers=2, features=16, neurons=12, tokens=1024, vocab=40)


def random_ids(tokens, key=0):
    return np.random.default_rng(key).integers(0, SMALL.vocab, tokens)


@pytest.fixture(scope="module")
def model():
    small = randomised(network(SMALL, nnx.Rngs(0)), 0, scale=0.4)
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float64), small)


@pytest.mark.parametrize("tokens", [64, 640])
def test_reading_a_few_positions_is_the_whole_pattern_at_these(model, tokens, monkeypatch):
    """Where no pattern is stored, in blocks, it is that of the text's whole pattern, which is stored for this."""
    ids = random_ids(tokens)
    read, states = reading.measure_reading(model, ids)
    for module in ("duat_jax.nn.attention", "duat_jax.in_context.reach"):
        monkeypatch.setattr(f"{module}.LONGEST_STORED", tokens)
    jax.clear_caches()
    whole = measure_reach(model, jnp.asarray(ids))
    places = reading.late_places(tokens)
    shares = whole.shares[:, places]
    close(states, model.states(model.embed(ids)))
    close(read.tokens, whole.tokens_read[:, places].mean(1))
    close(read.distance, whole.distance[:, places].mean(1))
    norms = whole.norms[:, places] / whole.norms[:, places].sum(-1, keepdims=True)
    for measure, of in zip(reading.MEASURES, (norms, shares, whole.along[:, places]), strict=True):
        close(read.shares[measure].sum(1), 1)
        close(read.rest[measure].sum(1), 1 - of[..., 0].mean(1))
        close(read.shares[measure][:, 0], of[:, np.arange(len(places)), places].mean(1))
    close(read.shares[reading.SQUARES][:, 3:].sum(1), whole.beyond(16)[:, places].mean(1))
    own = np.arange(tokens) == places[:, None]
    close(read.largest, np.where(own | (np.arange(tokens) == 0), 0, shares).max(-1).mean(1))
    distances, rest = places[:, None] - np.arange(tokens), shares * (np.arange(tokens) > 0)
    close(read.distance_rest, ((rest * distances).sum(-1) / rest.sum(-1)).mean(1))
    jax.clear_caches()


def test_equal_shares_are_counted():
    read = reading.equal_shares(8)
    assert reading.late_places(8).tolist() == [4, 5, 6, 7]
    for measure in reading.MEASURES:
        close(read.shares[measure][0], np.mean([[1 / n, 3 / n, (n - 4) / n] for n in (5, 6, 7, 8)], 0))
        close(read.rest[measure][0], np.mean([[1 / n, 3 / n, (n - 5) / n] for n in (5, 6, 7, 8)], 0))
    close(read.tokens, [6.5])
    close(read.distance, [np.mean([2, 2.5, 3, 3.5])])
    close(read.distance_rest, [np.mean([1.5, 2, 2.5, 3])])
    close(read.largest, [np.mean([1 / 5, 1 / 6, 1 / 7, 1 / 8])])


def test_every_distance_has_its_bin():
    for base in (2, 4):
        for distance in (1, 2, 3, 4, 15, 16, 255, 256, 8191):
            number = reading.bins(np.array([distance]), base)[0]
            assert base ** (number - 1) <= distance < base**number
    assert reading.label(7) == "4,096 to 16,383"


@pytest.mark.parametrize("tokens", [40, 256])
def test_divergence_and_losses_are_those_of_all_logits(model, tokens):
    ids, begin = random_ids(tokens), 8
    changed = replacing.replaced(ids, random_ids(tokens, 1), begin)
    states = [replacing.states(model, jnp.asarray(text)) for text in (ids, changed)]
    p, q = (np.asarray(jax.nn.log_softmax(model(jnp.asarray(text)))) for text in (ids, changed))
    change = replacing.compare(model, *states, jnp.asarray(ids))
    rows = np.arange(tokens - 1)
    close(change.divergence, (np.exp(p) * (p - q)).sum(-1))
    close(change.loss[:-1], (p - q)[rows, ids[1:]])
    close(replacing.losses(model, states[0], jnp.asarray(ids)), token_losses(model, jnp.asarray(ids)[None])[0])
    close(change.divergence[:begin], np.zeros(begin))
    assert far(change.divergence[begin + 16 :], 0)


def test_only_the_span_is_replaced():
    ids, other = np.arange(40), np.arange(100, 140)
    text = replacing.replaced(ids, other, 10)
    assert (text != ids).nonzero()[0].tolist() == list(range(10, 26)) and set(text[10:26]) == set(range(110, 126))


def test_texts_differ_in_what_their_names_say(monkeypatch):
    ids, other = np.arange(64), np.arange(100, 164)
    monkeypatch.setattr(run, "ORDERED", (64,))
    texts = run.changed_texts(ids, other)
    changed = {name: (text != ids).nonzero()[0].tolist() for name, (text, *_) in texts.items()}
    assert changed[run.EIGHTH] == list(range(8, 24)) and changed[run.FIRST] == list(range(16))
    assert changed[run.SECOND] == list(range(1, 16))
    assert sorted(texts[run.ORDER][0]) == list(ids) and set(changed[run.ORDER]) <= set(range(8, 24))
    assert len(changed[run.ORDER]) > 8
    assert changed[run.FAR] == list(range(1, 48))


def test_means_over_distances_are_written_out():
    change = replacing.Change(np.arange(30.0) / 1000, -np.arange(30.0))
    found = replacing.by_distance(change, 2)
    near(found["divergence"], [0.019, np.arange(21, 29).mean() / 1000], within=1e-12)
    near(found["loss"], [-19, -np.arange(21, 29).mean()], within=1e-12)
    assert found["above"] == [1.0, 1.0]


def test_parts_of_replaced_tokens_sum_to_the_two_runs(model):
    ids, other = random_ids(96), random_ids(96, 1)
    other[-replacing.KEPT :] = ids[-replacing.KEPT :]
    parts, difference = replacing.parts(model, jnp.asarray(ids), jnp.asarray(other))
    losses = [
        -jax.nn.log_softmax(model(jnp.asarray(text)))[-17:-1][np.arange(16), ids[-16:]].mean() for text in (ids, other)
    ]
    close(difference, losses[1] - losses[0])
    close(parts.sum(), losses[1] - losses[0])
    assert not far(parts[-replacing.KEPT :], 0, by=0) and far(parts[: -replacing.KEPT], 0)


def test_groups_of_tokens_are_all_that_is_replaced():
    for tokens in (64, 128, 512):
        every = np.concatenate(list(replacing.groups(tokens).values()))
        assert sorted(every) == list(range(tokens - replacing.KEPT))


def test_shuffled_text_keeps_its_first_token_and_gets_shuffled_tokens(model, monkeypatch):
    ids, other, seen = random_ids(128), random_ids(128, 1), []

    def seeing(function):
        def seen_by(model, text):
            seen.append(text)
            return function(model, text)

        return seen_by

    monkeypatch.setattr(run, "states", seeing(replacing.states))
    monkeypatch.setattr(run, "measure_reading", seeing(reading.measure_reading))
    monkeypatch.setattr(run, "_model", lambda scanned: model)
    monkeypatch.setattr(run, "_untrained", lambda: model)
    of_weights = {
        piece.keys["weights"]: piece.compute for piece in run.pieces_of({}, ids, other) if piece.frame == "read"
    }
    for compute in of_weights.values():
        compute()
    own, read, natural = (np.asarray(each) for each in seen)
    assert [*of_weights] == [run.MODEL, run.SHUFFLED_TEXT, run.UNTRAINED]
    assert (own == ids).all() and (natural == ids).all()
    run.changes(model, ids, other)
    text, after = (np.asarray(each) for each in seen[-2:])
    assert (read == text).all() and text[0] == ids[0] and (np.sort(text) == np.sort(ids)).all()
    assert (text != ids).sum() > 64
    span = slice(16, 16 + replacing.SPAN)
    outside = np.delete(np.arange(128), span)
    assert (after[outside] == text[outside]).all()
    assert (after[span] == run.shuffled(other, 1, 128)[span]).all() and (after[span] != other[span]).any()


def invented(far=0.2, squares=None, difference=2e-3, gain=0.1, beyond=0.2, spread=0.01):
    """Return measurements of six texts, which differ by the spread, a share of every number."""
    frames = {"read": [], "losses": [], "replaced": []}
    for text in range(6):
        factor = 1 + spread * (text - 2.5)
        shares = {
            f"{column}_rest": [0.5 - far * factor, 0, 0, 0, 0, 0, far * factor, 0] for column in ("norms", "along")
        }
        of_squares = far * factor if squares is None else squares
        shares["squares_rest"] = [0.5 - of_squares, 0, 0, 0, 0, 0, of_squares, 0]
        frames["read"].append({"text": text, "tokens": 8192, "weights": run.MODEL, **shares})
        losses = {512: 3.0, 2048: 3.0 - (beyond - gain) * factor, 8192: 3.0 - beyond * factor}
        for tokens, loss in losses.items():
            frames["losses"].append({"text": text, "tokens": tokens, "losses": [loss] * 1024})
        for place, number in ((run.EIGHTH, 1e-2 + difference * factor), (run.SHUFFLED, 1e-2)):
            found = {"replaced": place, "divergence": [0.0] * 5 + [number, 0.0]}
            frames["replaced"].append({"text": text, "tokens": 2048, **found})
    return {name: pd.DataFrame(rows) for name, rows in frames.items()}


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({}, ["confirmed", "confirmed", "confirmed", "refuted"]),
        ({"far": 0.02, "gain": 0.0, "beyond": 0.02}, ["refuted", "confirmed", "undecided", "confirmed"]),
        ({"squares": 0.01}, ["mixed", "confirmed", "confirmed", "refuted"]),
        ({"difference": 5e-4, "gain": -0.01}, ["confirmed", "refuted", "refuted", "refuted"]),
        # One of the six texts has the other sign here, though the intervals of differences are above zero.
        ({"far": 0.05, "beyond": 0.05, "spread": 0.5}, ["undecided", "undecided", "undecided", "undecided"]),
    ],
)
def test_predictions_follow_their_bounds(numbers, expected):
    frames = invented(**numbers)
    assert [prediction.verdict(frames) for prediction in run.PREDICTIONS] == expected


def test_a_piece_is_measured_and_written(model, monkeypatch):
    """The whole of the study on one text, taken for one of every length, and the tables that are written of it."""
    monkeypatch.setattr(tables, "FROM", 16)
    monkeypatch.setattr(run, "_model", lambda scanned: model)
    monkeypatch.setattr(run, "_untrained", lambda: network(replace(SMALL), nnx.Rngs(1)))
    ids, other = random_ids(128), random_ids(128, 1)
    of_text = [(piece.frame, piece.keys, significant(piece.compute())) for piece in run.pieces_of({}, ids, other)]
    frames = {}
    for frame, keys, rows in of_text:
        for text in ("manual 0", "manual 1"):
            for tokens in run.LENGTHS:
                for row in rows if isinstance(rows, list) else [rows]:
                    frames.setdefault(frame, []).append({"text": text, "tokens": tokens, **keys, **row})
    frames = {name: pd.DataFrame(rows) for name, rows in frames.items()}
    shown = tables_of(run.STUDY, frames)
    fields = cells("\n".join(line for title, lines in shown.items() for line in (f"## {title}", "", *lines, "")))
    split = frames["split"][(frames["split"].text == "manual 0") & (frames["split"].tokens == 128)]
    split = split.set_index("distance")
    near(split.part["all"], split.again["all"], within=1e-5)
    near(split.part.sum(), 2 * split.part["all"], within=1e-5)
    assert fields["Parts by distance / 128, all / part by the secant"] == f"{split.part['all']:+.3f}"
    losses = token_losses(model, jnp.asarray(ids)[None])[0]
    near(frames["losses"].losses[0], losses, within=1e-4)
    near(frames["losses"].by_position[0], [losses.mean()], within=1e-4)
    assert fields["Loss at the end, by length / the last 64 / 128"] == f"{losses[-run.LAST :].mean():.3f}"
    assert fields["What is read, by norms / 128, equal shares / itself"] == "1.1"
    changed = {run.EIGHTH, run.ORDER, run.FIRST, run.SECOND, run.FAR, run.SHUFFLED}
    assert set(frames["replaced"].replaced) == changed
    assert run.PREDICTIONS[2].verdict(frames) == "undecided", "texts of all lengths are the same"
