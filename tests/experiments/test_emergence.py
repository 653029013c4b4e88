"""The study of a training that is followed: its texts by other ways, its measures on known cases, its verdicts."""

import itertools
import json
from collections import Counter
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from helpers import near
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import duat_jax as duat
from duat_jax.evaluation.running_text import token_losses
from experiments import run as framework
from experiments.emergence import courses, ledgers, longer, moving, run, texts, training
from experiments.emergence.counted import losses_of_counts
from experiments.emergence.own_texts import own_texts
from experiments.estimate import Estimate, Method
from experiments.verdict import Verdict

SMALL = texts.Sizes(layers=2, features=16, heads=2, tokens=24, batch=2, steps=8, every=2, measured=4, short=16)
IDS = arrays(np.int32, st.tuples(st.just(2), st.integers(3, 12)), elements=st.integers(0, 3))


@pytest.fixture(autouse=True)
def _as_optax_needs_it():
    with jax.numpy_dtype_promotion("standard"):
        yield


@given(IDS)
def test_tokens_that_stand_before_are_found_by_looking(ids):
    for length in (1, 2):
        found = texts.stands_before(ids, length)
        for row, of_row in zip(ids.tolist(), found.tolist(), strict=True):
            for t in range(1, len(row)):
                own = row[max(0, t - length + 1) : t + 1]
                earlier = [row[s - length + 1 : s + 1] for s in range(length - 1, t)]
                assert of_row[t - 1] == (len(own) == length and own in earlier)


@given(IDS)
def test_what_continues_follows_a_token_that_stood_before(ids):
    found, drawn = texts.continued(ids), texts.control(texts.continued(ids), 0)
    for row, of_row in zip(ids.tolist(), found.tolist(), strict=True):
        assert of_row == [row[t - 1] in row[: t - 1] for t in range(1, len(row))]
    assert (drawn.sum(-1) == found.sum(-1)).all()


def test_texts_are_read_once_and_copies_are_copies():
    drawn = texts.draw_texts(SMALL, 1)
    rows = {tuple(row) for row in drawn.training.reshape(-1, SMALL.tokens + 1).tolist()}
    assert len(rows) == SMALL.steps * SMALL.batch
    assert all(tuple(row) in rows for row in drawn.trained_on.tolist())
    assert not any(tuple(row) in rows for row in drawn.held_out.tolist())
    alone = {
        tuple(row) for step in range(texts.SINGLE, SMALL.steps, SMALL.every) for row in drawn.training[step].tolist()
    }
    assert not any(tuple(row) in alone for row in drawn.trained_on.tolist())
    length = SMALL.short
    for other in (drawn.shuffled, drawn.after_another):
        assert (drawn.copied[:, length:] == other[:, length:]).all() and (drawn.copied != other).any()
    assert (np.sort(drawn.copied[:, :length]) == np.sort(drawn.shuffled[:, :length])).all()


def test_own_texts_are_read_by_one_training_alone_and_in_their_stretch():
    read = [texts.draw_texts(SMALL, seed) for seed in (1, 2)]
    stretches = own_texts(read[0], read[1:])
    of_steps = np.split(read[0].training, len(stretches))
    other = {text.tobytes() for text in read[1].training.reshape(-1, SMALL.tokens + 1)}
    for own, steps in zip(stretches, of_steps, strict=True):
        here = {text.tobytes() for text in steps.reshape(-1, SMALL.tokens + 1)}
        assert all(text.tobytes() in here - other for text in own)


def test_counted_models_are_those_of_dictionaries():
    read = np.array([[0, 1, 2, 1, 0], [1, 1, 2, 0, 1]])
    choosing, measured = np.array([[0, 1, 1]]), np.array([[2, 1, 3, 0]])
    found = losses_of_counts(read, choosing, measured, 4)
    singles, pairs = Counter(read.ravel().tolist()), Counter()
    for row in read.tolist():
        pairs.update(itertools.pairwise(row))
    alone = {token: (singles[token] + 1) / (read.size + 4) for token in range(4)}
    firsts = Counter(a for row in read.tolist() for a in row[:-1])

    def loss(ids, k):
        steps = [itertools.pairwise(row) for row in ids.tolist()]
        return np.mean([-np.log((pairs[a, b] + k * alone[b]) / (firsts[a] + k)) for row in steps for a, b in row])

    near(found["single tokens"], np.mean([-np.log(alone[token]) for token in measured[0, 1:].tolist()]), within=1e-12)
    near(found["pairs"], loss(measured, found["counts"]), within=1e-12)
    assert loss(choosing, found["counts"]) == min(loss(choosing, k) for k in (1, 3, 10, 30, 100, 300, 1000))


def test_freezing_at_a_text_s_own_values_changes_nothing_and_at_others_does():
    model = duat.load()
    ids = jnp.array([[5, 17, 3, 44, 17, 3, 9, 2]])
    movement, losses = moving.moving(model, ids, ids)
    plain = token_losses(model, ids).mean()
    for loss in losses.values():
        near(loss, plain, within=1e-4)
    near([of for group in movement.values() for of in group], 0.0, within=1e-6)
    movement, losses = moving.moving(model, ids, ids[:, ::-1])
    assert all(abs(float(loss - plain)) > 1e-3 for group, loss in losses.items() if group != moving.NOTHING)
    two = jnp.concatenate([ids, ids[:, ::-1]])
    movement, _ = moving.moving(model, two, two)
    assert all(0 < float(of) < 1 for of in movement[moving.PATTERNS])


def test_parts_of_the_last_states_are_those_of_every_logit():
    """Read out by the state itself, a part is what `decompose` gives it."""
    model = duat.load()
    ids = jnp.array([[5, 17, 3, 44], [9, 2, 7, 300]])
    found = moving.parts_of_states(model, ids)
    shares = found[moving.SHARE]
    near(sum(of.sum() for of in shares.values()), 1.0, within=1e-5)
    expected = []
    for x in jax.vmap(model.embed)(ids):
        state = model.hidden(x)
        direction = state / (state**2).sum(-1, keepdims=True) / 8
        expected.append(duat.decompose(lambda x, of=direction: (model.hidden(x) * of).sum(), x, by_neuron=False))
    near(shares[moving.INPUT], sum(of.input.sum() for of in expected), within=1e-5)
    terms = [[term.sum() for term in of.terms.values()] for of in expected]
    near(shares[moving.TERMS], np.sum(terms, 0), within=1e-5)
    same = moving.parts_of_states(model, ids[:1].repeat(2, 0))[moving.MOVEMENT]
    assert all(float(of.max()) < 1e-3 for of in same.values())
    assert all(0.01 < float(of.min()) <= 1 for of in found[moving.MOVEMENT].values())


def test_attention_to_copies_is_read_off_the_patterns():
    model = duat.load()
    half = np.random.default_rng(0).integers(300, 4000, (2, 6))
    ids = jnp.asarray(np.concatenate([half, half], 1))
    found = moving.attention_to_copies(model, ids)
    held = [duat.record(model.output)(model.embed(row)).dynamics.held for row in ids]
    patterns = [[np.asarray(of) for key, of in values.items() if "pattern" in str(key)] for values in held]
    expected = [
        [np.mean([[of[head, t, t - 5] for t in range(6, 11)] for of in both]) for head in range(4)]
        for both in zip(*patterns, strict=True)
    ]
    near(found, np.array(expected), within=1e-5)


def test_shares_of_weights_that_help():
    parts = {"a": jnp.array([-2.0, 1.0, 0.0]), "b": jnp.array([[-1.0]])}
    found = ledgers.helping(parts)
    near([found["weights"], found["sizes"]], [2 / 3, 3 / 4], within=1e-6)


def test_simpsons_rule_is_exact_for_cubes():
    number = lambda w: w["a"] ** 3 + w["b"]  # noqa: E731
    before, after = {"a": jnp.array(1.0), "b": jnp.array(0.0)}, {"a": jnp.array(3.0), "b": jnp.array(2.0)}
    found = ledgers._simpson(number, after, before)
    near([found["a"], found["b"]], [26.0, 2.0], within=1e-5)


def test_the_number_of_repetition_is_zero_without_order():
    network, drawn = training.make_network(SMALL, 0), texts.draw_texts(SMALL, 0)
    numbers = training.numbers_of(network, drawn)
    model, length = network.model(network.weights), SMALL.short
    copied, shuffled = (
        token_losses(model, jnp.asarray(ids))[:, length:].mean() for ids in (drawn.copied, drawn.shuffled)
    )
    near(numbers[training.REPETITION](network.weights), copied - shuffled, within=1e-6)
    same = drawn._replace(shuffled=drawn.copied)
    near(training.numbers_of(network, same)[training.REPETITION](network.weights), 0.0, within=1e-6)


def estimate(value, low=None, high=None):
    return Estimate(value, value if low is None else low, value if high is None else high, 3, Method.STUDENT)


@pytest.mark.parametrize(
    ("prediction", "measured", "verdict"),
    [
        (0, [(0.6, 0.55, 0.65)], "confirmed"),
        (0, [(0.3, 0.2, 0.4)], "refuted"),
        (0, [(0.5, 0.4, 0.6)], "undecided"),
        (1, [(0.05, 0.02, 0.08)], "confirmed"),
        (1, [(0.3, 0.2, 0.4)], "refuted"),
        (2, [(0.7,), (0.4, 0.3, 0.49), (0.1,)], "confirmed"),
        (2, [(0.7,), (1.5, 1.1, 2.0), (0.1,)], "refuted"),
        (2, [(0.7,), (0.4, 0.3, 0.49), (0.11,)], "undecided"),
        (2, [(0.19,), (0.4, 0.3, 0.49), (0.1,)], "undecided"),
        (3, [(0.7,), (0.6, 0.51, 0.7), (0.1, 0.05, 0.2), (0.6, 0.51, 0.7), (0.1, 0.05, 0.2)], "confirmed"),
        (3, [(0.7,), (0.6, 0.51, 0.7), (0.1, 0.05, 0.2), (0.6, 0.51, 0.7), (0.1, -0.05, 0.2)], "undecided"),
        (3, [(0.7,), (0.4, 0.3, 0.49), (0.1, 0.05, 0.2), (0.4, 0.3, 0.49), (0.1, 0.05, 0.2)], "refuted"),
        (4, [(0.7,), (0.4,), (0.8,)], "confirmed"),
        (4, [(0.7,), (0.4,), (0.7,)], "undecided"),
        (4, [(0.7,), (0.8,), (0.8,)], "refuted"),
        (5, [(0.52, 0.51, 0.53)], "confirmed"),
        (5, [(0.6, 0.56, 0.65)], "refuted"),
        (5, [(0.52, 0.49, 0.53)], "undecided"),
    ],
)
def test_verdicts_follow_the_stated_bounds(prediction, measured, verdict):
    assert run.PREDICTIONS[prediction].decide(*(estimate(*of) for of in measured)) == verdict


def course(numbers, parts, every=1, smooth=np.asarray):
    """Return a training with given values of numbers, and with given parts by number, rule and part of the network."""
    frames = {
        "numbers": pd.DataFrame(
            {"seed": 5, "training": courses.FOLLOWED_TRAINING, "number": name, "every": every, "values": list(values)}
            for name, values in ({training.REPETITION: [1.0, 0.0, 0.0]} | numbers).items()
        ),
        "parts": pd.DataFrame(
            {"seed": 5, "number": number, "rule": rule, "part": part, "parts": list(values)}
            for number, of in parts.items()
            for rule in courses.RULES
            for part, values in of(rule).items()
        ),
    }
    return courses.Course(frames, 5, smooth)


def test_a_part_hurts_if_it_raises_the_loss_in_every_seed_by_every_rule():
    def of_seed(simpson):
        def of(rule):
            return {"layer 0 mlp": [-1.0, -0.5], "final_norm": [simpson if rule == courses.SIMPSON else 0.1, 0.0]}

        return course({training.TRAINED_ON: [3.0, 2.0, 1.7]}, {training.TRAINED_ON: of})

    assert courses.hurting([of_seed(0.2), of_seed(0.1)]) == "final_norm"
    assert courses.hurting([of_seed(0.2), of_seed(-0.1)]) is None


def test_frozen_arrays_stay_and_tokens_that_do_not_count_have_no_term():
    network, drawn = training.make_network(SMALL, 0), texts.draw_texts(SMALL, 0)
    counted = texts.continued(drawn.training)
    plan = training.make_run(network, drawn, counted, lambda name: "mlp" in name)
    terms = plan.terms(network.weights, plan.batch(3))
    assert ((np.asarray(terms) != 0) == counted[3]).all()
    moment = duat.training.run.Moment(network.weights, plan.optimiser.init(network.weights))
    for number in range(2):  # the first learning rate is zero
        moment = plan.step(number, moment, plan.batch(number)).following
    for (path, first), now in zip(
        jax.tree_util.tree_leaves_with_path(network.weights), jax.tree.leaves(moment.weights), strict=True
    ):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        if "mlp" in name or "kernel" in name:
            assert bool((first == now).all()) == ("mlp" in name)


@pytest.mark.parametrize("study", ["emergence", "emergence_longer"])
def test_kept_parts_sum_to_the_kept_changes(study):
    """Over weights, over longer segments, and over tokens: to the six digits that are kept and the rounding stated."""
    frames = framework.frames_of(study)
    for of in courses.courses(frames):
        for number in of.frames["parts"].number.unique():
            values = of.values(number)
            near(sum(of.parts(number).values()), np.diff(values), within=2e-5)
            if study == "emergence":  # the longer training's double segments are in no table
                near(sum(of.parts(number, courses.DOUBLE).values()), values[2::2] - values[:-1:2], within=2e-5)
    for _, ledger in frames.get("training ledger", pd.DataFrame()).iterrows():
        values = courses.courses(frames)[0].values(ledger.number)
        near(ledger.drop(["number", "agreement", "steps"]).sum(), values[-1] - values[0], within=2e-5)


def test_a_crossing_is_the_last_one():
    values, numbers = np.array([4.0, 1.0, 3.0, 1.0, 0.0]), np.arange(5) * 10.0
    assert courses.last_crossing(values, numbers, 0.5) == 25.0


@pytest.mark.slow
def test_the_whole_study_runs_small_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(framework, "FOLDER", tmp_path)
    small = replace(run.STUDY, measure=partial(run.measure, SMALL, (1, 2), tmp_path / "states"), settings={"small": 1})
    framework.run("emergence", small)
    frames, kept = framework.frames_of("emergence"), (tmp_path / "emergence.json").read_bytes()
    framework.run("emergence", small)
    assert (tmp_path / "emergence.json").read_bytes() == kept
    columns = {name: set(frame) for name, frame in framework_frames().items()}
    assert all(columns[name] <= set(frames[name]) for name in columns), "a new run has the columns of the kept one"
    for prediction in run.PREDICTIONS[5:]:
        assert prediction.verdict(frames) in set(Verdict)
    for of in courses.courses(frames):
        for number in training.FOLLOWED:
            fall = of.values(number)[-1] - of.values(number)[0]
            sums = [sum(parts.sum() for parts in of.parts(number, rule).values()) for rule in courses.RULES]
            near(sums[:2], [fall, fall], within=2e-5)
            assert abs(sums[2] - fall) < 0.02 * abs(fall) + 1e-4


def framework_frames():
    """Return the kept measurements, whose columns a new run has too."""
    return {
        name: pd.DataFrame(columns)
        for name, columns in json.loads((framework.ROOT / "experiments/results/emergence.json").read_text())[
            "frames"
        ].items()
    }


@pytest.mark.parametrize(
    ("rest", "ends", "abrupt"),
    [(0.001, "confirmed", "confirmed"), (0.05, "undecided", "undecided"), (0.1, "refuted", "undecided")],
)
def test_a_training_that_goes_on_ends_if_little_comes_in_its_second_half(rest, ends, abrupt):
    """Repetition falls by one between the third and the fifth of 33 states, and by `rest` in every fourth after."""
    states = np.arange(33)
    repetition = -np.interp(states, [2, 4], [0, 1]) - rest * np.maximum(states - 16, 0) / 4
    held_out = 8 - 4 * states / 32
    shares = {training.REPETITION: (0.7, 0.3), training.HELD_OUT: (0.3, 0.7)}
    values = {training.REPETITION: repetition, training.HELD_OUT: held_out}
    parts = {
        number: lambda rule, number=number: {
            part: share * np.diff(values[number])
            for part, share in zip(("layer 0 attention", "final_norm"), shares[number], strict=True)
        }
        for number in shares
    }
    frames = course(values, parts).frames
    verdicts = [prediction.verdict(frames) for prediction in longer.STUDY.predictions]
    assert verdicts == [ends, abrupt, "confirmed"]
