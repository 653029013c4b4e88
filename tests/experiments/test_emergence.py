"""The study of a training that is followed: its texts by other ways, its measures on known cases, its verdicts."""

import itertools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import near
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import duat_jax as duat
from duat_jax.evaluation.running_text import token_losses
from duat_jax.evaluation.statistics import IntervalEstimate
from experiments.emergence import ledgers, longer, moving, report, run, seeds, texts, training, verdicts
from experiments.emergence.counted import losses_of_counts
from experiments.emergence.own_texts import own_texts
from experiments.kept_results import kept

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


def test_verdicts_follow_the_stated_bounds():
    for values, bound, below, verdict in (
        ((0.6, 0.55, 0.65), 0.5, False, "confirmed"),
        ((0.3, 0.2, 0.4), 0.5, False, "refuted"),
        ((0.5, 0.4, 0.6), 0.5, False, "undecided"),
        ((0.05, 0.02, 0.08), 0.1, True, "confirmed"),
        ((0.3, 0.2, 0.4), 0.1, True, "refuted"),
    ):
        assert verdicts.side(IntervalEstimate(*values), bound, below=below) == verdict


def test_a_part_hurts_if_it_raises_the_loss_in_every_seed_by_every_rule():
    names = ["stack.blocks.0.mlp.input.kernel", "final_norm.scale"]

    def of_seed(simpson):
        parts = {names[0]: [-1.0, -0.5], names[1]: [0.1, 0.1]}
        return {
            training.TRAINED_ON: {
                "values": [3.0, 2.0, 1.7],
                "parts": parts,
                "double": parts,
                "simpson": parts | {names[1]: [simpson, 0.0]},
            }
        }

    assert seeds.hurting([of_seed(0.2), of_seed(0.1)]) == "final_norm"
    assert seeds.hurting([of_seed(0.2), of_seed(-0.1)]) is None


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


def test_kept_parts_sum_to_the_kept_changes():
    """Over weights, over longer segments, and over tokens: to the six digits that are kept and the rounding stated."""
    pieces = kept("emergence")["pieces"]
    for name in [name for name in pieces if name.endswith("segments")]:
        for of in pieces[name].values():
            values = np.array(of["values"])
            single, double = (sum(map(np.array, of[rule].values())) for rule in ("parts", "double"))
            near(single, np.diff(values), within=2e-5)
            near(double, values[2::2] - values[:-1:2], within=2e-5)
    for of in kept("emergence_longer")["pieces"]["seed 5, segments"].values():  # its double segments are in no table
        near(sum(map(np.array, of["parts"].values())), np.diff(of["values"]), within=2e-5)
    for number in (training.REPETITION, training.HELD_OUT):
        values = pieces["seed 5, segments"][number]["values"]
        near(sum(pieces["seed 5, tokens"][number]["parts"].values()), values[-1] - values[0], within=2e-5)


def test_a_crossing_is_the_last_one():
    values, numbers = np.array([4.0, 1.0, 3.0, 1.0, 0.0]), np.arange(5) * 10.0
    assert seeds.last_crossing(values, numbers, 0.5) == 25.0


@pytest.mark.slow
def test_the_whole_study_runs_small_and_goes_on(tmp_path):
    found = run.measure_all(SMALL, (1, 2), tmp_path)
    tables = report.fields(found)["tables"]
    assert "| half help |" in tables.replace("barely half help", "half help")
    journal = (tmp_path / "journal").read_bytes()
    assert run.measure_all(SMALL, (1, 2), tmp_path)["pieces"] == found["pieces"]
    assert (tmp_path / "journal").read_bytes() == journal
    segments = found["pieces"]["seed 1, segments"]
    for of in segments.values():
        fall = of["values"][-1] - of["values"][0]
        sums = [sum(np.sum(part) for part in of[rule].values()) for rule in seeds.RULES]
        near(sums[:2], fall, within=2e-5)
        assert abs(sums[2] - fall) < 0.02 * abs(fall) + 1e-4


@pytest.mark.parametrize(
    ("rest", "ends", "abrupt"),
    [(0.001, "confirmed", "abrupt"), (0.05, "undecided", "no verdict"), (0.1, "refuted", "no verdict")],
)
def test_a_training_that_goes_on_ends_if_little_comes_in_its_second_half(rest, ends, abrupt):
    """Repetition falls by one between the third and the fifth of 33 states, and by `rest` in every fourth after."""
    numbers = np.arange(33)
    repetition = -np.interp(numbers, [2, 4], [0, 1]) - rest * np.maximum(numbers - 16, 0) / 4
    held_out = 8 - 4 * np.arange(33) / 32
    segments = {
        name: {
            rule: {"stack.blocks.0.attention.query.kernel": 0.7 * np.diff(of), "final_norm.scale": 0.3 * np.diff(of)}
            for rule in ("parts", "simpson")
        }
        for name, of in ((training.REPETITION, repetition), (training.HELD_OUT, held_out))
    }
    segments[training.HELD_OUT] = {
        rule: dict(zip(of, list(of.values())[::-1], strict=True)) for rule, of in segments[training.HELD_OUT].items()
    }
    states = {"numbers": {training.REPETITION: repetition, training.HELD_OUT: held_out}}
    found = longer.Longer(
        {
            "sizes": texts.Sizes(steps=32, every=1)._asdict(),
            "seed": 5,
            longer.EMBEDDED: {},
            "pieces": {"seed 5, states": states, "seed 5, segments": segments},
        }
    )
    verdict = {claim: of for claim, of, _ in found.verdicts()}
    assert verdict["ends"] == ends and verdict["abrupt"] == abrupt
    assert verdict["by attention, in the second half"] == "confirmed"
