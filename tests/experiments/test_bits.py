"""The study of budgets of bits: its scores by other ways, its intervals on known cases, its verdicts."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from helpers import near, relative

import duat_jax as duat
from duat_jax.evaluation.running_text import mean_loss, token_losses
from duat_jax.weights.rounded import rounded, sizes_of_matrices
from duat_jax.weights.units import parameters_of
from experiments.bits import run, scores
from experiments.bits.outputs import squares_of_outputs
from experiments.estimate import estimate
from experiments.table import render

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


@pytest.mark.parametrize(
    ("leads", "level", "ahead"),
    [
        ([0.01, 0.011, 0.012], "confirmed", "refuted"),
        ([0.03, 0.031, 0.032], "refuted", "confirmed"),
        ([-0.03, -0.031, -0.032], "refuted", "refuted"),
        ([0.01, -0.03, 0.05], "undecided", "undecided"),
    ],
)
def test_verdicts_follow_the_stated_bounds(leads, level, ahead):
    found = estimate(leads)
    assert run.is_level(found) == level
    assert run.all_ahead(found, found) == ahead


def test_leads_together_are_mixed_where_some_are_ahead_and_others_not():
    ahead, small, wide = map(estimate, ([0.03, 0.031], [0.01, 0.011], [-0.1, 0.2]))
    assert run.all_ahead(ahead, small) == "mixed" and run.all_ahead(ahead, wide) == "undecided"


def test_what_one_matrix_does_alone_is_enough_unless_exact_parts_are_ahead_of_both_ways():
    ahead, level, wide = map(estimate, ([0.03, 0.031], [0.01, 0.011], [-0.1, 0.2]))
    assert run.alone_is_enough(ahead, ahead) == "refuted"
    assert run.alone_is_enough(wide, level) == "confirmed"
    assert run.alone_is_enough(ahead, wide) == "undecided"
    assert run.level_or_ahead(level) == "confirmed" and run.level_or_ahead(wide) == "undecided"
    assert run.level_or_ahead(estimate([-0.03, -0.031])) == "refuted"


def rows(model, bits, draw, few, eight, losses):
    keys = {"model": model, "bits": bits, "draw": draw, "share": 0.1, "in_few_bits": few, "in_eight_bits": eight}
    return [{**keys, "score": score, "losses": of} for score, of in losses.items()]


def test_what_costs_too_little_is_not_judged():
    assert not len(run.taken_back(pd.DataFrame(rows("m", 3, 0, 2.0, 1.98, {"a": [1.99]}))))
    found = run.taken_back(pd.DataFrame(rows("m", 3, 0, 2.0, 1.0, {"a": [1.5, 1.0]})))
    near(found.taken.to_numpy(), [0.75], within=1e-12)


def test_tables_name_what_takes_most_back():
    losses = []
    for name in (run.EMBEDDED, run.SMOLLM2):
        for bits, few in ((3, 4.1), (4, 3.1)):
            for draw in range(2):
                taken = {score: [few - 0.1, few + 0.1] for score in (*scores.SCORES, run.AT_RANDOM)}
                losses += rows(name, bits, draw, few, 2.1, taken | {run.OURS: [2.0, 2.2]})
    frames = {"losses": pd.DataFrame(losses)}
    found = {title: "\n".join(render(of, frames)) for title, of in run.STUDY.tables.items()}
    assert found["The loss that is taken back"].splitlines()[2].startswith(f"| {run.OURS} | 1.000 |")
    near(run.lead_over(scores.ERROR).estimate(frames).value, 1, within=1e-12)


def test_fresh_texts_are_in_no_draw():
    for name in (run.EMBEDDED, run.ANOTHER):
        draws, fresh = run.texts_of(name)
        rows = [tuple(row) for row in [*draws.reshape(-1, draws.shape[-1]), *fresh]]
        assert len(set(rows)) == len(rows)
