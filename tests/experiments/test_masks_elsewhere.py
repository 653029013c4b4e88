"""The study of scores over masks elsewhere: its scores beside the package's, its runs by hand, its rules on numbers."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from helpers import near

import duat_jax as duat
from duat_jax.evaluation.circuit_curve import FRACTIONS
from duat_jax.evaluation.circuits import METHODS, UNITS, run, scores_of, top, values
from duat_jax.inputs.batching import row
from duat_jax.inputs.prompts import draw
from experiments.findings import tables_of
from experiments.masks import elsewhere as study
from experiments.masks.elsewhere_scores import GRADIENTS
from experiments.task_curves import KEPT, with_statistics

COUNT, OTHERS = 2, 3


@pytest.fixture(scope="module")
def case():
    """Return the embedded model and prompts of its task."""
    model = duat.load()
    return model, draw(model, "parameter", COUNT + OTHERS, seed=study.SEED).prompts


@pytest.mark.parametrize("kind", [study.NEURONS, study.HEADS])
@pytest.mark.parametrize("name", sorted(METHODS.keys() & study.METHODS.keys()))
def test_scores_told_the_own_texts_values_are_those_of_the_package(case, kind, name):
    model, prompts = case
    units, prompt = UNITS[kind], row(prompts, 0)
    (given,) = scores_of(METHODS[name], model, row(prompts, slice(1)), (units,))
    found = study.scored(study.METHODS[name], model, prompt, units, values(model, prompt.corrupted, units))
    near(found, given[0], within=1e-4 * float(jnp.abs(given).max()))


def test_with_means_units_are_told_and_given_the_means_of_other_prompts(case, monkeypatch):
    model, prompts = case
    monkeypatch.setattr(study, "OTHERS", OTHERS)
    chosen = {study.FIRST: study.METHODS[study.FIRST], "gradient x change": study.METHODS["gradient x change"]}
    monkeypatch.setattr(study, "METHODS", chosen)
    setting = study.Setting(study.EMBEDDED, ("parameter",), study.NEURONS, COUNT, means=True)
    rows, units = study.rows_on_task(model, "parameter", setting), UNITS[study.NEURONS]
    found = {(row["method"], row["test"]): row for row in rows}
    assert found.keys() == {(name, test) for name in chosen for test in (KEPT, study.CROSSED)}
    means = jnp.stack([values(model, ids, units) for ids in prompts.corrupted[COUNT:]]).mean(0)
    prompt = row(prompts, 1)
    empty = run(model, prompt, units, jnp.zeros((1, *means.shape), bool), means)[0]
    near(found["gradient x change", KEPT]["zero"][1], empty, within=1e-3)
    # Crossed runs begin at the corrupted text.
    assert abs(found["gradient x change", study.CROSSED]["zero"][1] - float(empty)) > 0.01
    # A gradient's coefficients are the same whatever is told: only the change is.
    own = values(model, prompt.corrupted, units)
    (scores,) = scores_of(METHODS["gradient x change"], model, row(prompts, slice(1, 2)), (units,))
    clean = values(model, prompt.clean, units)
    moved = np.asarray(jnp.abs(clean - own) > 0.01)
    told = study.scored(chosen["gradient x change"], model, prompt, units, means)
    near(
        np.asarray(told)[moved],
        np.asarray(scores[0] / (clean - own) * (clean - means))[moved],
        within=1e-3 * float(jnp.abs(told).max()),
    )
    live = jnp.asarray(top(np.asarray(told)))
    for test, given in ((KEPT, means), (study.CROSSED, own)):
        near(found["gradient x change", test]["runs"][1], run(model, prompt, units, live, given), within=1e-3)


def kept(by_method, tasks=6, noise=0.001, zero=-2.0, **keys):
    """Return circuits of every method on tasks, which keep a share of the effect, alike at every size."""
    random = np.random.default_rng(0)
    rows = [
        {
            "setting": "heads",
            "test": KEPT,
            **keys,
            "task": str(i),
            "method": name,
            "clean": [2.0, 2.0],
            "zero": 2 * [zero],
            "runs": 2 * [len(FRACTIONS) * [(share + noise * random.normal()) * 4 - 2]],
        }
        for i in range(tasks)
        for name, share in by_method.items()
    ]
    return pd.DataFrame(rows)


def shares(first=0.8, gradients=0.8, texts=0.7):
    return {study.FIRST: first, **dict.fromkeys(GRADIENTS, gradients), **dict.fromkeys(study.TEXTS, texts)}


def verdict(number, circuits):
    return study.STUDY.predictions[number].verdict({"circuits": circuits})


@pytest.mark.parametrize(
    ("given", "noise", "decided"),
    [
        (shares(texts=0.7), 0.001, "confirmed"),
        (shares(texts=0.78), 0.001, "mixed"),
        (shares(texts=0.82), 0.001, "refuted"),
        (shares(texts=0.79), 0.05, "undecided"),
        # Beyond the model itself logf grows, and the second statistic falls.
        (shares(first=1.3, texts=1.0), 0.001, "refuted"),
    ],
)
@pytest.mark.parametrize(("number", "setting"), [(0, "heads"), (1, "means")])
def test_the_prediction_is_decided_by_both_statistics(number, setting, given, noise, decided):
    assert verdict(number, kept(given, noise=noise, setting=setting)) == decided


@pytest.mark.parametrize(
    ("gradients", "noise", "decided"),
    [(0.7, 0.001, "refuted"), (0.9, 0.001, "confirmed"), (0.8, 0.001, "confirmed"), (0.8, 0.1, "undecided")],
)
@pytest.mark.parametrize(("number", "setting"), [(2, "heads"), (3, "means")])
def test_gradients_over_masks_do_as_well_where_the_secant_is_not_ahead(number, setting, gradients, noise, decided):
    assert verdict(number, kept(shares(gradients=gradients), noise=noise, setting=setting)) == decided


@pytest.mark.parametrize(
    ("told", "crossed", "decided"),
    [(0.7, 0.7, "refuted"), (0.7, 0.8, "confirmed"), (0.7, 0.9, "confirmed"), (0.9, 0.7, "undecided")],
)
def test_knowing_the_test_is_a_lead_that_is_gone_where_scores_are_not_told(told, crossed, decided):
    own = kept(shares(texts=told), setting="means")
    others = kept(shares(texts=crossed), setting="means", test=study.CROSSED)
    assert verdict(4, pd.concat([own, others])) == decided


def test_with_means_nothing_kept_counts_as_zero():
    told = with_statistics(kept(shares(), tasks=1, noise=0, zero=0.0))
    near(told.logf.iloc[0], (0.8 * 4 - 2) / 2, within=1e-9)
    near(with_statistics(kept(shares(), tasks=1, noise=0)).logf.iloc[0], 0.8, within=1e-9)


def with_means(zero):
    return [
        kept(shares(), 2, zero=of, setting="means", test=test) for of, test in ((zero, KEPT), (-2.0, study.CROSSED))
    ]


def test_tasks_of_little_effect_are_told():
    little = [of.assign(task=of.task.map("little {}".format)) for of in with_means(1.0)]
    assert study._far_apart(pd.concat([*with_means(-1.0), *little])) == {"0", "1"}


def test_every_table_is_made_of_small_pieces():
    settings = [kept(shares(), setting=name, tasks=2) for name in ("heads", "known tasks", "code, neurons")]
    tables = tables_of(study.STUDY, {"circuits": pd.concat([*settings, *with_means(-1.0)], ignore_index=True)})
    leads = "\n".join(tables[f"Leads of {study.FIRST}"])
    assert "| heads | 2 | 0.80" in leads and "| means, crossed | 2 |" in leads
