"""Texts of invented languages, their references, what is decided from them; and layers without a residual path."""

import json
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close, near, relative

import duat_jax as duat
from duat_jax.evaluation.statistics import IntervalEstimate
from duat_jax.verification.networks import randomised
from experiments.generalization import invented, residual
from experiments.generalization.invented import LANGUAGES, LATE, LENGTH, LETTERS, PERIOD, PRIOR, verdict
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


def test_verdicts_need_both():
    below, above, open_ = IntervalEstimate(-1, -2, -0.5), IntervalEstimate(1, 0.5, 2), IntervalEstimate(0, -1, 1)
    assert verdict(below, above) == "learned"
    assert verdict(above, above) == verdict(below, below) == "not learned"
    assert verdict(open_, above) == verdict(below, open_) == "open"


@pytest.mark.slow
def test_the_embedded_model_is_measured(embedded, monkeypatch):
    monkeypatch.setattr(invented, "TEXTS", 3)
    languages = {language: invented.measured(*embedded, language) for language in ("pairs", "repetition")}
    found = languages["repetition"]
    assert len(found["late"]["loss"]) == 3 and len(found["by letter"]["loss"]) == LENGTH - 1
    fields = invented.fields({"models": {"a model": json.loads(json.dumps(languages))}})
    loss = fields["Invented languages / a model, repetition / loss / value"]
    near(float(loss), np.mean(found["late"]["loss"]), within=0.006)


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
def test_errors_with_and_without_the_residual_path(monkeypatch):
    """A whole small study, in this process."""
    monkeypatch.setattr(residual, "STEPS", 4)
    monkeypatch.setattr(residual, "DEPTHS", (1,))
    monkeypatch.setattr(residual, "WIDTH", 8)
    monkeypatch.setattr(residual, "TESTED", 64)
    tuned = {name: compute(*given) for name, compute, given in residual.tuning()}
    networks = {name: compute(*given) for name, compute, given in residual.networks(tuned)}
    fields = residual.fields(json.loads(json.dumps({"networks": networks})))
    name = f"{residual.POOL}, 1, {WITHOUT_RESIDUAL} / new functions / value"
    seeds = networks[f"{residual.POOL}; 1; {WITHOUT_RESIDUAL}"]["seeds"]
    written = float(fields[f"Errors with and without the residual path / {name}"])
    near(written, np.mean([seed["new"] for seed in seeds]), within=0.001)


def of_depth(layers, new, trained):
    """Return results in which errors without the residual path are these numbers of times those with it, .05."""
    found = {}
    for task in residual.TASKS:
        for kind, times in ((TRANSFORMER, (1, 1)), (WITHOUT_RESIDUAL, (new, trained))):
            seeds = [{"new": 0.05 * times[0] * f, "trained": 0.05 * times[1] * f} for f in (0.99, 1.0, 1.01)]
            found[f"{task}; {layers}; {kind}"] = {"seeds": seeds, "sizes": {"norms": True}, "rate": 0.01}
    return found


@pytest.mark.parametrize(
    ("shallow", "deep", "papers", "opposite"),
    [
        ((3, 1), (3, 1), "confirmed", "refuted"),
        ((1, 1), (3, 3), "refuted", "confirmed"),
        ((1, 1), (3, 1), "refuted", "refuted"),
        ((1.6, 1.6), (3, 3), "open", "open"),
        # Without the path the deep network learns nothing: errors of functions of training say nothing.
        ((1, 1), (20, 20), "refuted", "open"),
    ],
)
def test_verdicts_on_the_residual_path(shallow, deep, papers, opposite):
    fields = residual.fields({"networks": of_depth(2, *shallow) | of_depth(6, *deep)})
    assert fields["Verdicts on the residual path / the papers' prediction / verdict"] == papers
    assert fields["Verdicts on the residual path / the opposite view / verdict"] == opposite
