"""Texts of invented languages, their references, what is decided from them; and layers without a residual path."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from helpers import close, near, relative
from studies import filled_tables, run_small

import duat_jax as duat
from duat_jax.verification.networks import randomised
from experiments.estimate import Estimate, Method
from experiments.generalization import invented, residual
from experiments.generalization.invented import LANGUAGES, LATE, LENGTH, LETTERS, PERIOD, PRIOR, learned
from experiments.generalization.networks import TRANSFORMER, WITHOUT_RESIDUAL, Chain, drawn
from experiments.generalization.tasks import Demonstrated

KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def as_optax_promotes():
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def embedded():
    model = duat.load()
    return model, model.tokenizer


def texts(language, number=400):
    return [LANGUAGES[language](np.random.default_rng(seed)) for seed in range(number)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_references_are_ordered(language):
    """Nothing loses less than the entropy in the mean, and Bayes' rule loses less than the simpler language."""
    drawn_texts = texts(language)
    mean_entropy = np.mean([text.entropy for text in drawn_texts])
    bayes, simpler = (
        np.mean([of(text)[-LATE:].mean() for text in drawn_texts])
        for of in (lambda text: text.bayes, lambda text: text.simpler)
    )
    assert mean_entropy - 0.02 < bayes < simpler
    for text in drawn_texts[:5]:
        assert text.letters.shape == text.other.shape == text.bayes.shape == text.simpler.shape == (LENGTH,)
        assert set(text.letters) | set(text.other) <= set(range(LETTERS))


def test_order_alone_is_destroyed_in_pairs_and_repetition():
    for language in ("pairs", "repetition"):
        for text in texts(language, 5):
            before, other = text.letters[:-LATE], text.other[:-LATE]
            assert sorted(before) == sorted(other) and (before != other).any()
            assert (text.letters[-LATE:] == text.other[-LATE:]).all()
    near(np.mean([(text.other[:-LATE] == 0).mean() for text in texts("frequencies", 100)]), 1 / LETTERS, within=0.01)


def test_repetition_repeats():
    text = texts("repetition", 1)[0]
    assert (text.letters[PERIOD:] == text.letters[:-PERIOD]).all()
    counts = np.bincount(text.letters[-PERIOD:], minlength=LETTERS) / PERIOD
    relative(text.simpler[-LATE:].mean(), -(counts[counts > 0] * np.log(counts[counts > 0])).sum(), within=1e-9)


def test_entropy_of_pairs_is_that_of_a_long_text():
    """By the frequencies of pairs in a text from the same chain, counted."""
    draw = np.random.default_rng(0)
    p = draw.dirichlet(np.full(LETTERS, PRIOR), LETTERS)
    text = LANGUAGES["pairs"](np.random.default_rng(0))
    letters = [0]
    for _ in range(20000):
        letters.append(int(draw.choice(LETTERS, p=p[letters[-1]])))
    near(text.entropy, np.mean([-np.log(p[a, b]) for a, b in pairwise(letters)]), within=0.03)


def test_bayes_rule_by_hand():
    """The third letter after one that was followed by another letter once."""
    letters = np.array([0, 1, 0, 1])
    losses = invented._bayes(letters, np.array([2, 0, 1, 0]))
    total = LETTERS * PRIOR
    close(losses, -np.log([1 / LETTERS, 1 / LETTERS, 1 / LETTERS, (PRIOR + 1) / (total + 1)]))


def between(low, high):
    return Estimate((low + high) / 2, low, high, 64, Method.BOOTSTRAP)


def test_verdicts_need_both():
    below, above, open_ = between(-2, -0.5), between(0.5, 2), between(-1, 1)
    assert learned(below, above) == "confirmed"
    assert learned(above, above) == learned(below, below) == "refuted"
    assert learned(open_, above) == learned(below, open_) == "undecided"


@pytest.mark.parametrize(
    ("best", "worst", "papers", "opposite"),
    [
        (-1.0, -0.5, "refuted", "confirmed"),
        (1.0, 2.0, "confirmed", "refuted"),
        (-1.0, 1.0, "mixed", "mixed"),
        (0.0, 1.0, "undecided", "undecided"),
    ],
)
def test_predictions_are_about_all_cases(best, worst, papers, opposite):
    """The best case and the worst one by their losses less the simpler language's; each gain is above zero."""
    draw = np.random.default_rng(0)
    rows = [
        {"model": "a model", "language": language, "loss": 3 + difference + noise, "simpler": 3.0, "without": 9.0}
        for language, difference in (("pairs", (best + worst) / 2), ("repetition", worst), ("frequencies", best))
        for noise in draw.normal(0, 0.1, 40)
    ]
    frames = {"texts": pd.DataFrame(rows)}
    assert [of.verdict(frames) for of in invented.STUDY.predictions] == [papers, opposite]
    near(invented.STUDY.outcome.estimate(frames).value, best, within=0.05)
    near(invented.STUDY.control.estimate(frames).value, worst, within=0.05)


@pytest.mark.slow
def test_the_embedded_model_is_measured(embedded, monkeypatch):
    monkeypatch.setattr(invented, "TEXTS", 3)
    for language in ("pairs", "repetition"):
        rows = invented.measured(*embedded, language)
        assert [row["text"] for row in rows] == [0, 1, 2]
        assert set(rows[0]) == {"text", "loss", "simpler", "entropy", "Bayes", "recent", "without"}
        assert all(np.isfinite(list(row.values())).all() for row in rows)


def test_letters_are_tokens_of_their_own(embedded):
    _, tokenizer = embedded
    ids = invented.alphabet(tokenizer)
    assert len(set(ids.tolist())) == 26
    assert tokenizer.encode(" a z").ids == [ids[0], ids[25]]


def test_layers_without_a_residual_path_are_functions_of_functions():
    task = Demonstrated(family="linear", demonstrations=5)
    sizes = residual.sizes_of(WITHOUT_RESIDUAL, 2, norms=True)
    network = randomised(drawn(sizes, task, KEY), 3, scale=0.3)
    inputs = task.draw(KEY, 1).inputs[0]
    x = network.embed(inputs)
    for block in network.stack.blocks:
        assert isinstance(block, Chain)
        x = block.mlp(block.norm_2(block.attention(block.norm_1(x), None)))
    close(network(inputs, None), network.read(x), layers=4)
    with_path = drawn(residual.sizes_of(TRANSFORMER, 2, norms=True), task, KEY)
    assert sum(leaf.size for leaf in jax.tree.leaves(network)) == sum(leaf.size for leaf in jax.tree.leaves(with_path))
    # Of layers that write nothing nothing is left, where a residual path leaves the input.
    silent, passed = (
        of.stack(x) for of in (jax.tree.map(jnp.zeros_like, network), jax.tree.map(jnp.zeros_like, with_path))
    )
    near(silent, jnp.zeros_like(x), within=0)
    close(passed, x)


@pytest.mark.slow
def test_errors_with_and_without_the_residual_path(monkeypatch, tmp_path):
    """A whole small study, in this process."""
    for name, value in {"STEPS": 4, "DEPTHS": (1,), "WIDTH": 8, "TESTED": 64}.items():
        monkeypatch.setattr(residual, name, value)
    frames = run_small(residual.STUDY, tmp_path, monkeypatch)
    filled_tables(residual.STUDY, frames)
    networks = frames["networks"]
    assert len(networks) == 2 * 2 * residual.SEEDS and networks.trained.notna().all()
    assert (networks.new.notna() == (networks.task == residual.POOL)).all()
    for (_, rows), choice in zip(
        networks.groupby(["task", "layers", "network"], sort=False),
        [of.loc[of.error.idxmin()] for _, of in frames["tuning"].groupby(["task", "layers", "network"], sort=False)],
        strict=True,
    ):
        assert set(zip(rows.norms, rows.rate, strict=True)) == {(choice.norms, choice.rate)}


def of_depth(layers, new, trained):
    """Return results in which errors without the residual path are these numbers of times those with it, .05."""
    return [
        {"task": task, "layers": layers, "network": kind, "new": 0.05 * times[0] * f, "trained": 0.05 * times[1] * f}
        for task in residual.TASKS
        for kind, times in ((TRANSFORMER, (1, 1)), (WITHOUT_RESIDUAL, (new, trained)))
        for f in (0.99, 1.0, 1.01)
    ]


@pytest.mark.parametrize(
    ("shallow", "deep", "papers", "opposite"),
    [
        ((3, 1), (3, 1), "confirmed", "refuted"),
        ((1, 1), (3, 3), "refuted", "confirmed"),
        ((1, 1), (3, 1), "refuted", "refuted"),
        ((1.6, 1.6), (3, 3), "undecided", "undecided"),
        # Without the path the deep network learns nothing: errors of functions of training say nothing.
        ((1, 1), (20, 20), "refuted", "undecided"),
    ],
)
def test_verdicts_on_the_residual_path(shallow, deep, papers, opposite):
    frames = {"networks": pd.DataFrame(of_depth(2, *shallow) + of_depth(6, *deep))}
    assert [of.verdict(frames) for of in residual.STUDY.predictions] == [papers, opposite]
