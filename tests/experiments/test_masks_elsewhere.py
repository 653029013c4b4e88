"""The study of scores over masks elsewhere: its scores beside the package's, its runs by hand, its rules on numbers."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import near

import duat_jax as duat
from duat_jax.evaluation.circuit_curve import FRACTIONS
from duat_jax.evaluation.circuits import METHODS, UNITS, run, scores_of, top, values
from duat_jax.inputs.batching import row
from duat_jax.inputs.prompts import draw
from experiments.masks import elsewhere as study
from experiments.masks import elsewhere_tables as tables
from experiments.masks.elsewhere_scores import GRADIENTS, OPTIMISED

COUNT, OTHERS = 2, 3


@pytest.fixture(scope="module")
def case():
    """Return the embedded model with its tokenizer, and prompts of its task."""
    model, tokenizer = duat.load(), duat.load_tokenizer()
    return model, tokenizer, draw(model, "parameter", COUNT + OTHERS, seed=study.SEED).prompts


@pytest.mark.parametrize("kind", [study.NEURONS, study.HEADS])
@pytest.mark.parametrize("name", sorted(METHODS.keys() & study.METHODS.keys()))
def test_scores_told_the_own_texts_values_are_those_of_the_package(case, kind, name):
    model, _, prompts = case
    units, prompt = UNITS[kind], row(prompts, 0)
    (given,) = scores_of(METHODS[name], model, row(prompts, slice(1)), (units,))
    scores, _ = study.METHODS[name]
    found = study.scored(scores, model, prompt, units, values(model, prompt.corrupted, units))
    near(found, given[0], within=1e-4 * float(jnp.abs(given).max()))


def test_with_means_units_are_told_and_given_the_means_of_other_prompts(case, monkeypatch):
    model, tokenizer, prompts = case
    monkeypatch.setattr(study, "OTHERS", OTHERS)
    chosen = {study.FIRST: study.METHODS[study.FIRST], "gradient x change": study.METHODS["gradient x change"]}
    monkeypatch.setattr(study, "METHODS", chosen)
    setting = study.Setting(study.EMBEDDED, ("parameter",), study.NEURONS, COUNT, means=True)
    found, units = study.piece(model, tokenizer, "parameter", setting), UNITS[study.NEURONS]
    means = jnp.stack([values(model, ids, units) for ids in prompts.corrupted[COUNT:]]).mean(0)
    prompt = row(prompts, 1)
    near(found["empty"][1], run(model, prompt, units, jnp.zeros((1, *means.shape), bool), means)[0], within=1e-3)
    # A gradient's coefficients are the same whatever is told: only the change is.
    own = values(model, prompt.corrupted, units)
    (scores,) = scores_of(METHODS["gradient x change"], model, row(prompts, slice(1, 2)), (units,))
    clean = values(model, prompt.clean, units)
    moved = np.asarray(jnp.abs(clean - own) > 0.01)
    told = study.scored(chosen["gradient x change"][0], model, prompt, units, means)
    near(
        np.asarray(told)[moved],
        np.asarray(scores[0] / (clean - own) * (clean - means))[moved],
        within=1e-3 * float(jnp.abs(told).max()),
    )
    live = jnp.asarray(top(np.asarray(told)))
    for runs, given in (("runs", means), ("crossed", own)):
        near(found[runs]["gradient x change"][1], run(model, prompt, units, live, given), within=1e-3)


def kept(by_method, tasks=6, noise=0.001, **more):
    """Return measurements on tasks in which every method's circuits keep a share of the effect, alike at every size."""
    random = np.random.default_rng(0)

    def task():
        shares = {name: share + noise * random.normal() for name, share in by_method.items()}
        runs = {name: [[share * 4 - 2] * len(FRACTIONS)] * 2 for name, share in shares.items()}
        return {"clean": [2.0, 2.0], "corrupted": [-2.0, -2.0], "runs": runs, **more}

    return {str(i): task() for i in range(tasks)}


def shares(first=0.8, gradients=0.8, texts=0.7):
    return {study.FIRST: first, **dict.fromkeys(GRADIENTS, gradients), **dict.fromkeys(tables.TEXTS, texts)}


@pytest.mark.parametrize(
    ("given", "noise", "verdict"),
    [
        (shares(texts=0.7), 0.001, "confirmed"),
        (shares(texts=0.78), 0.001, "smaller than stated"),
        (shares(texts=0.82), 0.001, "refuted"),
        (shares(texts=0.79), 0.05, "undecided"),
        # Beyond the model itself logf grows, and the second statistic falls.
        (shares(first=1.3, texts=1.0), 0.001, "refuted"),
    ],
)
def test_the_prediction_is_decided_by_both_statistics(given, noise, verdict):
    assert tables.of_masks(kept(given, noise=noise)) == verdict


@pytest.mark.parametrize(
    ("gradients", "noise", "verdict"),
    [(0.7, 0.001, "ahead"), (0.9, 0.001, "behind"), (0.8, 0.001, "level"), (0.8, 0.1, "undecided")],
)
def test_the_secant_is_decided_beside_each_gradient(gradients, noise, verdict):
    tasks = kept(shares(gradients=gradients), noise=noise)
    assert [tables.of_the_secant(tasks, name) for name in GRADIENTS] == [verdict] * 2


@pytest.mark.parametrize(
    ("told", "crossed", "verdict"),
    [(0.7, 0.7, "refuted"), (0.7, 0.8, "confirmed"), (0.7, 0.9, "confirmed"), (0.9, 0.7, "undecided")],
)
def test_knowing_the_test_is_a_lead_that_is_gone_where_scores_are_not_told(told, crossed, verdict):
    tasks, others = kept(shares(texts=told)), kept(shares(texts=crossed))
    both = {name: task | {"crossed": others[name]["runs"], "empty": task["corrupted"]} for name, task in tasks.items()}
    assert tables.of_knowing(both) == verdict


def test_with_means_nothing_kept_counts_as_zero_and_crossed_runs_begin_at_the_corrupted_text():
    (task,) = kept(shares(), tasks=1, noise=0, empty=[0.0, 0.0]).values()
    task["crossed"] = task["runs"]
    near(tables.statistic(task, study.FIRST, tables.PLAIN), (0.8 * 4 - 2) / 2, within=1e-9)
    near(tables.statistic(task, study.FIRST, tables.PLAIN, "crossed"), 0.8, within=1e-9)


def test_tasks_of_little_effect_are_told():
    found = kept(shares(), tasks=2, empty=[-1.0, -1.0]) | {
        "little": {"clean": [2.0], "corrupted": [-2.0], "empty": [1.0]}
    }
    assert list(tables.far_apart(found)) == ["0", "1"]


def test_the_page_has_every_table_of_small_pieces():
    own = kept(shares(), empty=[-1.0, -1.0])
    means = {name: task | {"crossed": task["runs"]} for name, task in own.items()}
    one = {
        name: {
            "clean": [2.0],
            "corrupted": [-2.0],
            "runs": {study.FIRST: [[0.0] * 9], "secant": [[1.0] * 9], "optimised": [[-1.0] * 9]},
        }
        for name in "ab"
    }
    found = {"heads": kept(shares()), "means": means, "known tasks": kept(shares()), "code, neurons": kept(shares(), 1)}
    text = tables.tables_of(found | {OPTIMISED: one}, kept(shares(), 8))
    assert "| masks, heads | confirmed |" in text and "| knowing the test | refuted |" in text
    # The better of start and end: here the start.
    assert "| mean | 0.500 | 0.750 | 0.500 |" in text
