"""The study of heads on a small model: measures of what they read, interactions of pairs, predictions and tables."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from flax import nnx
from helpers import close, near
from scipy.stats import ortho_group, spearmanr

import duat_jax as duat
from duat_jax.edits import Edit
from duat_jax.inputs.prompts import Prompt, logit_difference
from duat_jax.models.config import Head
from duat_jax.models.sites import heads as site
from duat_jax.nn import BlockConfig
from duat_jax.verification.networks import randomised
from experiments.estimate import Estimate, Method
from experiments.heads import pairs as of_pairs
from experiments.heads import reading as of_reading
from experiments.heads import run, tables
from experiments.heads.pairs import GRADIENT, SHARES, Heads
from experiments.heads.reading import COMPONENTS, HEADS, SPLITS, TOGETHER, WRITES
from experiments.table import render
from experiments.verdict import Verdict

FEATURES, VOCAB, TOKENS = 6, 11, 8
DRAW = np.random.default_rng(0)


def model_of(layers, heads=2):
    block = BlockConfig(arrangement="pre-norm", features=FEATURES, heads=heads, neurons=9, activation="gelu_tanh")
    head = Head(kind="next token", outputs=VOCAB, tied=True)
    sizes = {"family": "gpt2", "vocab": VOCAB, "positions": 128, "head": head, "final_norm": True}
    config = duat.models.Config(blocks=(block,) * layers, **sizes)
    return randomised(duat.models.Transformer(config, dtype=jnp.float64, rngs=nnx.Rngs(0)), 0)


model = cache(lambda: model_of(3))


def prompts_of(seed, count, tokens=TOKENS):
    keys = jax.random.split(jax.random.key(seed), 2)
    ids = jax.random.randint(keys[0], (2, count, tokens), 0, VOCAB, jnp.int32)
    right = jax.random.randint(keys[1], (count,), 0, VOCAB, jnp.int32)
    return Prompt(*ids, right, (right + 1) % VOCAB)


PROMPT = jax.tree.map(lambda leaf: leaf[0], prompts_of(1, 1))


# What heads read


def test_effective_rank_is_the_number_of_equal_directions_whatever_the_basis():
    for rank in (1, 3, 5):
        factor = ortho_group.rvs(8, random_state=rank)[:, :rank]
        close(of_reading.effective_rank(2 * factor), rank)


def test_overlap_is_the_kernel_alignment_of_what_two_heads_make_of_the_stream():
    x, weights = DRAW.normal(size=(50, 8)), DRAW.normal(size=(2, 8, 3))
    x -= x.mean(0)
    a, b = (x @ of_head @ (x @ of_head).T for of_head in weights)
    alignment = (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())
    root = of_reading.root(x.T @ x / len(x))
    close(of_reading.overlap(root @ weights), alignment, 9)


def test_overlap_of_the_same_heads_is_one_and_of_orthogonal_ones_zero():
    basis = ortho_group.rvs(8, random_state=0).T.reshape(4, 2, 8).swapaxes(1, 2)
    near(of_reading.overlap(basis), 0.0, within=1e-12)
    turned = np.stack([basis[0] @ ortho_group.rvs(2, random_state=seed) for seed in range(3)])
    close(of_reading.overlap(turned), 1.0, 3)


def test_unrelated_overlap_is_the_mean_over_random_signs_of_components():
    x, weights = DRAW.normal(size=(50, 5)) * np.arange(1, 6), DRAW.normal(size=(2, 5, 2))
    covariance = x.T @ x / 50
    _, components = np.linalg.eigh(covariance)
    signs = np.array(np.meshgrid(*[[-1, 1]] * 5)).reshape(5, -1).T
    flipped = [np.stack([weights[0], components @ (sign[:, None] * (components.T @ weights[1]))]) for sign in signs]
    root = of_reading.root(covariance)
    expected = np.mean([of_reading.overlap(root @ both) for both in flipped])
    close(of_reading.unrelated_overlap(root @ weights), expected, 9)


def test_recovered_is_the_share_of_a_regression():
    x, weights = DRAW.normal(size=(60, 6)), DRAW.normal(size=(6, 2))
    x -= x.mean(0)
    fit = np.linalg.lstsq(x @ weights, x, rcond=None)[0]
    explained = 1 - ((x - x @ weights @ fit) ** 2).sum() / (x**2).sum()
    covariance = x.T @ x / 60
    close(of_reading.recovered(weights, covariance), explained, 9)
    close(of_reading.recovered(np.eye(6), covariance), 1.0, 9)


def test_a_root_has_a_principal_component_in_each_row():
    x = DRAW.normal(size=(60, 4)) * [1, 2, 3, 4]
    covariance = x.T @ x / 60
    root = of_reading.root(covariance)
    close(root.T @ root, covariance, 9)
    close(root @ root.T, np.diag(np.linalg.eigvalsh(covariance)), 90)


def test_rotated_heads_have_the_same_products_of_columns_and_other_directions():
    heads = DRAW.normal(size=(3, 8, 2))
    turned = of_reading.rotated(np.random.default_rng(0), heads)
    close(np.swapaxes(turned, 1, 2) @ turned, np.swapaxes(heads, 1, 2) @ heads, 9)
    # Many of them have no direction in common with the first but by chance.
    many = of_reading.rotated(np.random.default_rng(0), np.repeat(heads[:1], 4000, 0))
    near(many.mean(0), np.zeros((8, 2)), within=0.1)


def test_a_word_is_kept_if_the_nearest_token_of_another_window_is_the_same():
    words = of_reading.Words(np.array([[1, 2, 3], [1, 2, 4]]))
    assert len(words) == 2  # the others are in one window alone
    code = np.eye(5)[[1, 2, 3, 1, 2, 4]]
    assert words.kept(code) == 1.0
    code[1] = code[0]  # 2 reads like 1 in the first window, and like nothing of it in the second
    assert words.kept(code) == 0.5
    assert words.kept(np.arange(6.0)[:, None]) == 0.25


def test_measurements_of_a_layer_are_those_of_its_values():
    ids = np.array(jax.random.randint(jax.random.key(3), (6, TOKENS), 0, VOCAB), np.int32)
    streams, mixed = of_reading.streams_and_mixed(model(), ids)
    block = model().stack.blocks[1]
    rows = of_reading.layer_rows(
        block, streams[1].reshape(-1, FEATURES), mixed[1].reshape(48, 2, 3), of_reading.Words(ids), 0
    )
    found = {(row["part"], row["group"]): row for row in rows}
    x = block.norm_1(model().stream(model().embed(jnp.asarray(ids)), 1)).reshape(-1, FEATURES)
    queries = np.asarray(x @ block.attention.query.kernel[...]).reshape(48, 2, 3)
    written = np.asarray(
        jnp.einsum("thw,hwf->htf", mixed[1].reshape(48, 2, 3), block.attention.output.kernel[...].reshape(2, 3, -1))
    )

    def alignment(a, b):
        return (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())

    a, b = np.moveaxis(queries - queries.mean(0), 1, 0)
    close(found["queries", HEADS]["overlap"], alignment(a @ a.T, b @ b.T), 9)
    a, b = written - written.mean(1, keepdims=True)
    close(found[WRITES, HEADS]["overlap"], alignment(a.T @ a, b.T @ b), 9)
    # Together two heads of three features read all six.
    close(found["values", TOGETHER]["recovered"], 1.0, 9)
    assert found["queries", SPLITS]["overlap"] != 0
    assert set(found["queries", COMPONENTS]) == {"part", "group", "overlap"}


# Pairs of heads


def by_hand(of_model, prompt, corrupted):
    """Return the difference of logits with some heads corrupted, `(layer, head)` each, from the blocks alone."""
    mixed = np.asarray(of_pairs.values(of_model, prompt.corrupted, of_pairs.UNIT))

    def edits():
        for layer in {layer for layer, _ in corrupted}:
            live = np.array([(layer, head) not in corrupted for head in range(2)], float)[:, None]
            yield site(layer), Edit(kept=live, added=(1 - live) * mixed[layer])

    def read(x):
        return logit_difference(of_model, x, prompt.right, prompt.wrong)

    return float(duat.edit(read, dict(edits()))(of_model.embed(prompt.clean)))


def test_interactions_are_those_of_the_model_run_again():
    every = of_pairs.all_heads(model())
    names = list(zip(*map(np.ndarray.tolist, every), strict=True))
    runs = of_pairs.corrupted(model(), PROMPT, every, of_pairs.singles_and_pairs(6))
    effects, measured = of_pairs.interactions(runs, 6)
    whole = by_hand(model(), PROMPT, [])
    alone = [by_hand(model(), PROMPT, [name]) for name in names]
    close(effects, whole - np.array(alone), 9)
    expected = [
        by_hand(model(), PROMPT, [names[a], names[b]]) - alone[a] - alone[b] + whole
        for a, b in zip(*np.triu_indices(6, 1), strict=True)
    ]
    close(measured, expected, 30)
    close(run.effects(model(), PROMPT), effects, 9)


def test_with_two_heads_in_the_model_shares_are_the_interaction():
    # Then only one head moves on each line, and its part is all of the difference.
    small = model_of(1)
    every = of_pairs.all_heads(small)
    runs = of_pairs.corrupted(small, PROMPT, every, of_pairs.singles_and_pairs(2))
    _, measured = of_pairs.interactions(runs, 2)
    table = of_pairs.predicted(small, PROMPT, *every)[SHARES]
    close(table[0, 1], measured[0], 30)


def test_predictions_are_symmetric_and_slopes_those_of_small_steps():
    heads = Heads(np.array([2, 0]), np.array([1, 0]))
    tables = of_pairs.predicted(model(), PROMPT, *heads)
    for table in tables.values():
        close(table, table.T)
    step, mixed = 1e-5, [of_pairs.values(model(), ids, of_pairs.UNIT) for ids in (PROMPT.clean, PROMPT.corrupted)]
    assert mixed[0].shape == (3, TOKENS, 2, 3)

    def slope(head, without):
        """Return the slope of one head's mask, with another head corrupted."""

        def number(mask):
            edits = {site(i): Edit(mask[i][:, None], (1 - mask[i])[:, None] * mixed[1][i]) for i in range(3)}
            read = duat.edit(lambda x: logit_difference(model(), x, PROMPT.right, PROMPT.wrong), edits)
            return float(read(model().embed(PROMPT.clean)))

        at = np.ones((3, 2))
        at[tuple(without)] = 0 if without else 1
        up, down = at.copy(), at.copy()
        up[head] += step
        down[head] -= step
        return (number(up) - number(down)) / (2 * step)

    a, b = (2, 1), (0, 0)
    expected = (slope(a, ()) - slope(a, b) + slope(b, ()) - slope(b, a)) / 2
    near(float(tables[GRADIENT][0, 1]), expected, within=1e-6)


def test_heads_that_write_the_same_are_alike():
    every = of_pairs.all_heads(model())
    alike = of_pairs.similarities(model(), PROMPT, *every)
    for table in alike.values():
        close(np.diag(table), np.ones(6), 9)
        close(table, table.T, 9)
        assert (np.abs(table) <= 1 + 1e-12).all()


def test_chosen_heads_are_the_largest_and_others(monkeypatch):
    monkeypatch.setattr(run, "TOP", 2)
    sizes = np.array([0.0, 3, 1, 5, 2, 0])
    for seed in range(5):
        which = run.chosen(sizes, 2, seed)
        assert which[:2] == [3, 1] and len(set(which)) == 4
    assert sorted(run.chosen(sizes, None, 0)) == list(range(6))


# The study


@pytest.fixture(scope="module")
def frames():
    """The study on a small model, with two top heads and two others on two tasks of three prompts."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        for module in (run, tables):
            patch.setattr(module, "TOP", 2)
        ids = np.array(jax.random.randint(jax.random.key(3), (6, TOKENS), 0, VOCAB), np.int32)
        drawn = {"a": prompts_of(1, 5), "b": prompts_of(2, 5)}
        for pieces in (
            run.reading_of(model(), ids, tables.TRAINED),
            run.reading_of(run.untrained(model()), ids, tables.UNTRAINED),
            run.pairs_of(model(), drawn, 2),
        ):
            for piece in pieces:
                rows = piece.compute()
                rows = [rows] if isinstance(rows, dict) else rows
                found.setdefault(piece.frame, []).extend({"model": "small", **piece.keys, **row} for row in rows)
        frames = {name: pd.DataFrame(rows) for name, rows in found.items()}
        shown = {title: render(table, frames) for title, table in tables.TABLES.items()}
        assert all(len(lines) > 2 for lines in shown.values())
        yield frames | {"amounts": tables.amounts(frames["prompts"])}


@pytest.mark.slow
def test_the_table_of_pairs_has_the_shares_of_effects(frames):
    amounts = frames["amounts"].set_index(["pairs", "task"])
    for task, prompts in frames["prompts"].groupby("task"):
        less = total = size = smaller = top = of_top = 0
        for prompt in prompts.to_dict("records"):
            assert len(prompt["layers"]) == 4
            effects = np.array(prompt["effects"])
            for (a, b), interaction in zip(zip(*np.triu_indices(4, 1), strict=True), prompt["measured"], strict=True):
                less += max(0, interaction * np.sign(effects[a] + effects[b]))
                total += abs(effects[a]) + abs(effects[b])
                size, smaller = size + abs(interaction), smaller + min(abs(effects[[a, b]]))
            top, of_top = top + abs(prompt["measured"][0]), of_top + np.abs(effects[:2]).sum()
            # Two heads are the top of each task, so the sum of their effects minus what both do is their interaction.
            close(effects[:2].sum() - prompt["together"], prompt["measured"][0], 30)
        close(amounts.less["all", task], less / total)
        close(amounts.smaller["all", task], size / smaller)
        close(amounts.interaction[tables.BOTH, task], top / of_top)


@pytest.mark.slow
def test_the_table_of_predictions_has_rank_correlations(frames):
    found = tables.correlations(frames["prompts"]).set_index(["task", "prompt", "interaction ranked by", "of"])
    for prompt in frames["prompts"].to_dict("records"):
        for ranking in (SHARES, GRADIENT):
            for of, change in (("sizes", np.abs), ("with signs", np.array)):
                expected = spearmanr(change(prompt[ranking]), change(prompt["measured"]))[0]
                close(found.correlation[prompt["task"], prompt["prompt"], ranking, f"small: {of}"], expected)


@pytest.mark.slow
def test_the_tables_of_reading_are_of_every_layer(frames):
    layers = frames["layers"]
    trained = layers[layers.weights == tables.TRAINED]
    keys = trained[(trained.part == "keys") & (trained.group == HEADS)].words.to_numpy()
    whole = trained[trained.group == of_reading.STREAM].words.to_numpy()
    found = tables.readings(layers)
    close(found[found["read"] == "one head's keys"].words.to_numpy(), keys)
    close(found[found["read"] == "one head's keys"].stream.to_numpy(), whole)
    close(run.words_kept("small", "one head's keys", frames).value, 100 * keys.mean() / whole.mean())
    overlaps = tables.overlaps(layers).set_index(["part", "layer"])
    queries = trained[trained.part == "queries"].set_index(["layer", "group"]).overlap
    for layer in range(3):
        difference = queries[layer, HEADS] - queries[layer, COMPONENTS]
        close(overlaps[f"{HEADS} − {COMPONENTS}"]["queries", layer], difference)


def test_verdicts_follow_their_bounds():
    word, together, encodings, share, redundant, shares = (of.decide for of in run.STUDY.predictions)

    def between(low, high):
        return Estimate((low + high) / 2, low, high, 6, Method.STUDENT)

    for decide in (word, together):
        assert decide(between(91, 95), between(92, 120)) == Verdict.CONFIRMED
        assert decide(between(80, 89), between(70, 85)) == Verdict.REFUTED
        assert decide(between(89, 95), between(92, 120)) == Verdict.UNDECIDED
    for decide in (share, redundant, shares):
        assert decide(between(1, 2), between(1, 3)) == Verdict.CONFIRMED
        assert decide(between(1, 2), between(-3, -1)) == Verdict.MIXED
    assert encodings(between(-2, -1), between(-3, -1)) == Verdict.CONFIRMED
    assert encodings(between(-2, 1), between(-3, -1)) == Verdict.UNDECIDED


def test_untrained_models_have_the_shape_but_other_weights():
    fresh = run.untrained(model())
    for a, b in zip(*(jax.tree.leaves(nnx.state(of, nnx.Param)) for of in (model(), fresh)), strict=True):
        assert a.shape == b.shape
    a, b = (np.asarray(of.embedding.token[...]) for of in (fresh, model()))
    assert (a != b).any()
