"""Sources of an attention score that are replaced, and the study of them, on a small model."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from flax import nnx
from helpers import close, near
from scipy.stats import spearmanr

import duat_jax as duat
from duat_jax.models.config import Head
from duat_jax.nn import BlockConfig
from duat_jax.verification.networks import randomised
from experiments.attends import run, tables
from experiments.attends.replaced import FREE, MOVING, RESAMPLED, ZERO, Place, Sources, runs, written
from experiments.attends.run import Parts, Settings, attentions_of, controls_of, drawn_place, parts_of
from experiments.estimate import Estimate, Method
from experiments.findings import tables_of
from experiments.markdown import cells
from experiments.significant import significant
from experiments.verdict import Verdict

LAYERS, LAYER, FEATURES, VOCAB, TOKENS = 4, 3, 6, 11, 8
IDS, OTHER = np.array(jax.random.randint(jax.random.key(5), (2, TOKENS), 0, VOCAB), np.int32)
PLACE = Place(head=1, query=6, key=4, contrast=2)
# The embedding of the query's token, MLPs of several layers at tokens that are compared and at others.
SOURCES = Sources(np.array([0, 1, 2, 3, 1, 2, 3]), np.array([6, 4, 6, 2, 1, 0, 6]))


@cache
def model():
    block = BlockConfig(
        arrangement="pre-norm", features=FEATURES, heads=2, key_value_heads=1, neurons=9, activation="gelu_tanh"
    )
    head = Head(kind="next token", outputs=VOCAB, tied=True)
    sizes = {"family": "gpt2", "vocab": VOCAB, "positions": 128, "head": head, "final_norm": True}
    config = duat.models.Config(blocks=(block,) * LAYERS, **sizes)
    return randomised(duat.models.Transformer(config, dtype=jnp.float64, rngs=nnx.Rngs(0)), 0)


def vectors(ids):
    return np.asarray(written(model(), jnp.asarray(ids), LAYER)[0])


@cache
def found():
    values = vectors(OTHER)[SOURCES.parts, SOURCES.tokens]
    return runs(model(), jnp.asarray(IDS), LAYER, PLACE, SOURCES, values)


@cache
def score():
    place = PLACE._asdict()
    return duat.explain_attention(model(), IDS.tolist(), layer=LAYER, **place)


def by_hand(source, token, new, moving=FREE):
    """Return the change of the difference of scores when a source is replaced, from the blocks alone."""
    norms, attention, mlps = MOVING[moving]
    assert norms
    before = vectors(IDS)
    after = before.copy()
    after[source, token] = new

    def attended(block, x, pattern):
        if attention:
            return block.attention(x)
        values = block.attention.value(x)
        return block.attention.output(jnp.concatenate([of_head @ values for of_head in pattern], -1))

    def difference(written):
        x = model().embed(IDS) + (written - before)[0]
        for layer, block in enumerate(model().stack.blocks[:LAYER]):
            x = x + attended(block, block.norm_1(x), patterns()[layer])
            held = written[layer + 1] + block.mlp.output.bias[...]
            added = block.mlp(block.norm_2(x)) if mlps else held
            x = x + (added.at[token].set(held[token]) if source == layer + 1 else added)
        block = model().stack.blocks[LAYER]
        normed = block.norm_1(x)
        queries, keys = (part(normed).reshape(TOKENS, -1, 3) for part in (block.attention.query, block.attention.key))
        return queries[PLACE.query, PLACE.head] @ (keys[PLACE.key, 0] - keys[PLACE.contrast, 0]) / np.sqrt(3)

    return difference(after) - difference(before)


@cache
def patterns():
    return [written(model(), jnp.asarray(IDS), layer)[1] for layer in range(LAYER)]


def test_with_everything_held_the_model_run_again_is_the_prediction():
    close(found().resampled[list(MOVING).index("nothing")], found().predicted[0], LAYERS)


def test_the_prediction_for_zero_is_the_part_of_the_explanation():
    parts = parts_of(score())
    wholes = dict(zip(zip(*map(np.ndarray.tolist, parts.sources), strict=True), parts.whole, strict=True))
    close(
        found().predicted[1],
        [-wholes.get(at, 0.0) for at in zip(*map(np.ndarray.tolist, SOURCES), strict=True)],
        LAYERS,
    )


@pytest.mark.parametrize("i", [0, 1, 4, 6])
def test_the_model_run_again_is_the_one_computed_by_hand(i):
    source, token = SOURCES.parts[i], SOURCES.tokens[i]
    for moving in ("norms", "norms and attention", FREE):
        measured = found().resampled[list(MOVING).index(moving), i]
        close(measured, by_hand(source, token, vectors(OTHER)[source, token], moving), LAYERS)
    close(found().zero[i], by_hand(source, token, np.zeros(FEATURES)), LAYERS)


def test_a_replaced_embedding_is_another_token():
    changed = np.where(np.arange(TOKENS) == 6, OTHER, IDS)
    other = duat.explain_attention(model(), changed.tolist(), layer=LAYER, **PLACE._asdict())
    close(found().resampled[list(MOVING).index(FREE), 0], other.value - score().value, LAYERS)


def test_the_last_mlp_before_the_head_is_predicted_but_for_the_norm():
    # No attention and no MLP reads it before the head does.
    free = found().resampled[list(MOVING).index(FREE)]
    close(found().resampled[list(MOVING).index("norms"), [3, 6]], free[jnp.array([3, 6])], LAYERS)


def test_the_gradient_is_the_change_of_a_small_replacement():
    at, step = (SOURCES.parts, SOURCES.tokens), 1e-5
    before, other = vectors(IDS)[at], vectors(OTHER)[at]
    little = runs(model(), jnp.asarray(IDS), LAYER, PLACE, SOURCES, before + step * (other - before))
    near(
        little.resampled[-1] / step,
        np.asarray(found().gradient[0]),
        within=1e-3 * float(np.abs(found().gradient).max()),
    )


def test_a_control_is_the_same_part_elsewhere_as_long_and_with_little_to_say():
    sources = Sources(np.array([1, 1, 1, 1, 2]), np.array([0, 1, 2, 3, 1]))
    parts = Parts(sources, np.zeros(5), np.zeros(5), np.array([4.0, 0.5, -0.9, 2.0, 0.1]))
    norms = np.array([1.0, 3.0, 1.5, 1.0, 1.0])
    assert controls_of(parts, norms, [0, 3, 4]) == [(0, 2)]  # token 1 is too long, of token 3 too much is said
    assert controls_of(parts, np.ones(5), [0]) == [(0, 1)]


def test_a_place_is_drawn_among_heads_that_attend():
    pattern = np.full((2, 4, 4), 0.01)
    pattern[:, :, 0] = 0.9
    pattern[1, 3, 2] = 0.6
    drawn = {drawn_place(pattern, np.random.default_rng(seed)) for seed in range(20)}
    assert drawn == {Place(1, 3, 2, 1), Place(1, 3, 2, 3)}


@pytest.fixture(scope="module")
def sources():
    pieces = np.array(jax.random.randint(jax.random.key(7), (8, TOKENS), 0, VOCAB), np.int32)
    found = list(attentions_of(model(), pieces, Settings((2, 3), 2, TOKENS)))
    assert [piece.keys["number"] for piece in found] == [0, 1, 2, 3]
    return pd.DataFrame(
        [{"model": "embedded", **piece.keys, **row} for piece in found for row in significant(piece.compute())]
    )


def attentions(sources):
    return [of for _, of in sources.groupby("number")]


@pytest.mark.slow
def test_attentions_have_the_largest_parts_those_drawn_by_lot_and_controls(sources):
    assert len(attentions(sources)) == 4
    for of in attentions(sources):
        assert of.error.max() < 1e-12 and of.explained.max() < 1e-12
        assert of.drawn.sum() == 12 and 5 <= of.largest.sum() <= 10
        assert not of.duplicated(["written by", "token"]).any() and (of["written by"] <= of.layer).all()
        assert (of.token <= of["query"]).all()
        assert sorted(of.lot) == list(range(len(of)))
        sizes = of.set_index(["written by", "token"]).part.abs()
        for source in of.dropna(subset=["control"]).to_dict("records"):
            assert sizes[source["written by"], source["control"]] <= 0.25 * abs(source["part"]) + 1e-4
        close(of[f"predicted, {ZERO}"].to_numpy(), -of.part.to_numpy())


@pytest.mark.slow
def test_the_table_has_the_mean_rank_correlation_of_every_ranking(sources):
    shown = cells(
        "\n".join(f"# {title}\n" + "\n".join(of) for title, of in tables_of(run.STUDY, frames(sources)).items())
    )

    drawn = [of[of.drawn] for of in attentions(sources)]
    expected = [spearmanr(of[f"predicted, {RESAMPLED}"].abs(), of[f"measured, {FREE} moving"].abs())[0] for of in drawn]
    ranked = float(shown[f"Ranks / {tables.PREDICTED} / embedded: drawn at random / value"])
    near(ranked, np.mean(expected), within=0.006)
    near(run.ranked("embedded", tables.PREDICTED, frames(sources)), expected, within=1e-12)
    rival = run.ranked("embedded", tables.CHANGE, frames(sources))
    near(run.lead("embedded", tables.CHANGE, frames(sources)), expected - rival, within=1e-12)
    assert shown["Left of the miss / nothing / embedded, of the miss, in %"] == "100"
    assert shown["Left of the miss / everything / embedded, of the miss, in %"] == "0"
    assert shown["Attentions / embedded / attentions"] == "4"


def frames(sources):
    return {"sources": sources}


@pytest.mark.slow
def test_sources_elsewhere_are_at_none_of_the_three_tokens(sources):
    for of in attentions(sources):
        three = set(of[["query", "key", "contrast"]].iloc[0])
        elsewhere = tables.of_set(of, tables.ELSEWHERE)
        assert elsewhere.index.tolist() == [i for i in of.index if of.drawn[i] and of.token[i] not in three]
        assert tables.correlation(elsewhere, tables.NEAR).tolist() == [0]
        sizes = elsewhere[[f"measured, {FREE} moving", f"predicted, {RESAMPLED}"]].abs()
        found = tables.correlation(elsewhere, tables.PREDICTED)
        near(found.to_numpy(), [spearmanr(*sizes.to_numpy().T)[0]], within=1e-12)


@pytest.mark.slow
def test_saying_less_every_time_is_right_as_often_as_attention_falls(sources):
    """And a source at the query's token in the first layer comes before all others by the rule without explanation."""
    largest = sources[sources.largest]
    changes, predicted = largest[f"measured, {FREE} moving"], largest[f"predicted, {RESAMPLED}"]
    shown = cells("# Direction\n" + "\n".join(tables_of(run.STUDY, frames(sources))["Direction and size"]))
    fell, right = (changes[changes != 0] < 0).mean(), (changes * predicted > 0).sum() / (changes * predicted != 0).sum()
    of_largest = "Direction / embedded, the largest"
    assert shown[f"{of_largest} / less every time, in % / value"] == f"{100 * fell:.0f}"
    assert shown[f"{of_largest} / same direction, in % / value"] == f"{100 * right:.0f}"
    near(run.same_direction("embedded", frames(sources)).value, 100 * right, within=1e-9)
    for of in attentions(sources):
        three = set(of[["query", "key", "contrast"]].iloc[0])
        order = np.argsort(-tables.size(of, tables.EARLY).to_numpy(), kind="stable")
        by_rule = of.assign(away=~of.token.isin(three)).sort_values(["away", "written by"], kind="stable")
        assert of["written by"].iloc[order].tolist() == by_rule["written by"].tolist()
        assert of.token.iloc[order].isin(three).tolist() == (~by_rule.away).tolist()


@pytest.mark.slow
def test_sources_are_compared_with_their_controls(sources):
    wins = pairs = 0
    for of in attentions(sources):
        moved = of.set_index(["written by", "token"])[f"measured, {FREE} moving"].abs()
        for source in of.dropna(subset=["control"]).to_dict("records"):
            wins += moved[source["written by"], source["token"]] > moved[source["written by"], source["control"]]
            pairs += 1
    assert pairs > 0
    near(run.more_than_controls("embedded", frames(sources)).value, 100 * wins / pairs, within=1e-9)


def test_verdicts_follow_their_bounds():
    leads, direction, controls = (of.decide for of in run.STUDY.predictions)

    def between(low, high):
        return Estimate((low + high) / 2, low, high, 60, Method.BOOTSTRAP)

    assert len(run.STUDY.predictions[0].measures) == 2 * len(tables.RIVALS)
    ahead, behind = between(0.1, 0.2), between(-0.2, -0.1)
    assert leads(*8 * [ahead]) == Verdict.CONFIRMED and leads(*8 * [behind]) == Verdict.REFUTED
    assert leads(*7 * [ahead], between(-0.1, 0.2)) == Verdict.UNDECIDED
    assert leads(*7 * [ahead], behind) == Verdict.MIXED
    for decide in (direction, controls):
        assert decide(between(51, 60), between(60, 70)) == Verdict.CONFIRMED
        assert decide(between(49, 60), between(60, 70)) == Verdict.UNDECIDED
        assert decide(between(30, 40), between(40, 49)) == Verdict.REFUTED
