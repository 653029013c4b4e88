"""The study of budgets of bits: its scores by other ways, its intervals on known cases, its verdicts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import near, relative

import duat_jax as duat
from duat_jax.evaluation.running_text import mean_loss, token_losses
from duat_jax.weights.rounded import rounded, sizes_of_matrices
from duat_jax.weights.units import parameters_of
from experiments.bits import report, run, scores
from experiments.bits.outputs import squares_of_outputs

IDS = np.random.default_rng(0).integers(300, 4000, (3, 9))


@pytest.fixture(scope="module")
def models():
    model = duat.load()
    return model, rounded(model, 3)


def test_errors_of_outputs_are_those_of_dense_algebra(models):
    before, after = models
    found = squares_of_outputs(before, after, jnp.asarray(IDS[0]))
    assert found.keys() == sizes_of_matrices(before).keys()
    block = before.stack.blocks[0]
    x = block.norm_1(before.first(before.embed(jnp.asarray(IDS[0]))))
    for name, inputs in (("query", x), ("value", x)):
        old, new = (np.asarray(getattr(model.stack.blocks[0].attention, name).kernel[...]) for model in models)
        expected = [((inputs @ (new - old)) ** 2).sum(), ((inputs @ old) ** 2).sum()]
        relative(found[f"layers.0.attention.{name}.kernel"], np.array(expected), 1e-4)


@pytest.mark.slow
def test_scores_are_those_of_other_ways(models):
    before, after = models
    found = scores.scores_of(before, 3, IDS, 2)
    assert found.keys() == set(scores.SCORES)
    diff = duat.diff(after, [list(map(int, row)) for row in IDS], reference=before, top=0)
    for name in sizes_of_matrices(before):
        near(found[scores.EXACT + scores.SIGNED][name], diff.parts[name], within=1e-5)
        near(found[scores.EXACT + scores.MEAN_SIZE][name], np.abs(diff.parameters[name]).mean(), within=1e-5)
        near(found[scores.START + scores.SIGNED][name], diff.first_order[name].mean(), within=1e-5)
    name = "layers.2.mlp.input.kernel"
    old, new = (np.asarray(parameters_of(model)[name]) for model in models)
    slope = jax.jit(jax.grad(lambda model, row: token_losses(model, row[None]).mean()))
    gradients = [np.asarray(parameters_of(slope(before, jnp.asarray(row)))[name]) for row in IDS]
    fisher = np.mean([((g * (new - old)) ** 2).sum() for g in gradients])
    near(found[scores.FISHER][name], fisher, within=1e-3 * fisher)
    near(found[scores.ERROR][name], ((new - old) ** 2).sum(), within=1e-4)
    alone = mean_loss(_with_matrix(before, after), IDS[:2]) - mean_loss(before, IDS[:2])
    near(found[scores.ALONE][name], alone, within=1e-5)
    back = mean_loss(after, IDS[:2]) - mean_loss(rounded(before, 3, [name]), IDS[:2])
    near(found[scores.SET_BACK][name], back, within=1e-5)


def _with_matrix(before, after):
    """Return a model with one matrix of another one."""
    model = jax.tree.map(lambda leaf: leaf, before)
    model.stack.blocks[2].mlp.input.kernel = after.stack.blocks[2].mlp.input.kernel
    return model


def test_an_interval_covers_draws_texts_and_models():
    same = np.full((3, 4), 0.25)
    near(report.estimate([same, same]), [0.25] * 3, within=1e-12)
    draws = np.linspace(-1, 1, 3)[:, None] * np.ones((1, 4))
    texts = np.linspace(-1, 1, 4)[None] * np.ones((3, 1))
    for shares in (draws, texts):
        low, high = report.estimate([shares, shares])[1:]
        assert low < -0.2 and high > 0.2
    low, high = report.estimate([same, -same])[1:]
    near([low, high], [-0.25, 0.25], within=1e-12)


@pytest.mark.parametrize(
    ("lead", "expected"),
    [
        ((0.01, 0.005, 0.015), "level"),
        ((0.03, 0.01, 0.05), "ahead"),
        ((0.015, 0.001, 0.03), "ahead by less than stated"),
        ((-0.03, -0.05, -0.01), "behind"),
        ((0.01, -0.03, 0.05), "undecided"),
    ],
)
def test_verdicts_follow_the_stated_bounds(lead, expected):
    assert report.verdict(report.IntervalEstimate(*lead)) == expected


def test_what_costs_too_little_is_not_judged():
    flat = {"3": [2.0, 2.0], "8": [1.98, 1.98], "original": [1.97, 1.97]}
    results = {"pieces": {"m, references": flat}, "draws": 0, "settings": {"m": None}}
    assert report.taken_back(results, "m", 3, 0.1) is None


def test_tables_name_what_takes_most_back():
    random = np.random.default_rng(0)
    pieces = {}
    for name in ("one", "another"):
        pieces[f"{name}, references"] = {"3": [4.0, 4.2], "4": [3.0, 3.2], "8": [2.0, 2.2], "original": [2.0, 2.2]}
        for bits, low in ((3, 4.1), (4, 3.1)):
            for draw in range(2):
                loss = {score: [low - 0.1, low + 0.1] for score in (*scores.SCORES, report.AT_RANDOM)}
                loss[report.OURS] = [2.0, 2.2]
                of = {score: random.random(5).tolist() for score in scores.SCORES}
                of[scores.EXACT + scores.SIGNED] = [1.0, -2.0, 3.0, 0.0, 0.0]
                of[scores.ALONE] = of[scores.SET_BACK] = [2.0, -1.0, 4.0, 1.0, 1.0]
                pieces[f"{name}, {bits} bits, draw {draw}"] = {"losses": {"0.1": loss}, "scores": of}
    asked = {"settings": {"one": None, "another": None}, "bits": [3, 4], "shares": [0.1], "draws": 2}
    found = report.fields({"pieces": pieces, **asked})
    assert found[f"The loss that is taken back / {report.OURS} / all"] == "1.000"
    assert found[f"Leads of {report.OURS} / {scores.ERROR} / verdict"] == "ahead"
    assert found[f"Agreement with {report.OURS} / {report.OURS} / one"] == "+1.00"
    row = "Parts of the loss by rounding / one, 3 bits"
    assert found[f"{row} / exact parts, their sum"].startswith("+2.000")
    assert found[f"{row} / sizes of parts by their sum"].startswith("3.00")
    assert found[f"{row} / of rounded alone and set back"].startswith("1.00")


def test_fresh_texts_are_in_no_draw():
    for name in (run.EMBEDDED, run.ANOTHER):
        draws, fresh = run.texts_of(name)
        rows = [tuple(row) for row in [*draws.reshape(-1, draws.shape[-1]), *fresh]]
        assert len(set(rows)) == len(rows)
