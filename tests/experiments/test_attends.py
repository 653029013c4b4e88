"""Sources of an attention score that are replaced, and the study of them, on a small model."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import close, near
from scipy.stats import spearmanr

import duat_jax as duat
from duat_jax.evaluation.journal import Journal
from duat_jax.models.config import Head
from duat_jax.nn import BlockConfig
from duat_jax.verification.networks import randomised
from experiments.attends import report
from experiments.attends.replaced import FREE, MOVING, RESAMPLED, ZERO, Place, Sources, runs, written
from experiments.attends.run import Parts, Settings, controls_of, drawn_place, measure, parts_of
from experiments.markdown import cells

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
def units():
    pieces = np.array(jax.random.randint(jax.random.key(7), (8, TOKENS), 0, VOCAB), np.int32)
    return list(measure(model(), pieces, Settings((2, 3), 2, TOKENS), Journal(None, {})))


def test_units_have_the_largest_parts_those_drawn_by_lot_and_controls(units):
    for unit in units:
        assert unit["error"] < 1e-12 and unit["explained"] < 1e-12
        assert len(unit["drawn"]) == 12 and 5 <= len(unit["named"]) <= 10
        at = set(zip(unit["parts"], unit["tokens"], strict=True))
        assert len(at) == len(unit["parts"]) and max(unit["parts"]) <= unit["layer"]
        assert all(token <= unit["query"] for token in unit["tokens"])
        sizes = np.abs(unit["part"])
        assert all(sizes[control] <= 0.25 * sizes[source] for source, control in unit["controls"])
        close(np.array(unit["predicted"][ZERO]), -np.array(unit["part"]))


def test_the_table_has_the_mean_rank_correlation_of_every_ranking(units):
    results = {"embedded": {"units": units}}
    fields = report.numbers(results)
    table = cells("# Ranks\n" + report.decisive(results))

    def ranks(of):
        return np.argsort(np.argsort(np.abs(of)))

    expected = [
        np.corrcoef(
            *(ranks(np.array(of)[unit["drawn"]]) for of in (unit["predicted"][RESAMPLED], unit["measured"][FREE]))
        )[0, 1]
        for unit in units
    ]
    near(
        float(table[f"Ranks / {report.PREDICTED} / embedded: drawn at random / value"]), np.mean(expected), within=0.006
    )
    assert fields["embedded / nothing moving / of the miss"] == "100 %"
    assert fields["embedded / everything moving / of the miss"] == "0 %"
    assert fields["embedded / units"] == "4"


def test_sources_elsewhere_are_at_none_of_the_three_tokens(units):
    for unit in units:
        three = unit["query"], unit["key"], unit["contrast"]
        elsewhere = [i for i in unit["drawn"] if unit["tokens"][i] not in three]
        assert report.correlations([unit], report.NEAR, "elsewhere") == [0]
        moved, predicted = (
            np.abs(np.array(of)[elsewhere]) for of in (unit["measured"][FREE], unit["predicted"][RESAMPLED])
        )
        near(report.correlations([unit], report.PREDICTED, "elsewhere"), [spearmanr(moved, predicted)[0]], within=1e-12)


def test_saying_less_every_time_is_right_as_often_as_attention_falls(units):
    """And a source at the query's token in the first layer comes before all others by the rule without explanation."""
    fields = report.numbers({"embedded": {"units": units}})
    changes = np.concatenate([np.array(unit["measured"][FREE])[unit["named"]] for unit in units])
    fell = changes[changes != 0] < 0
    assert fields["embedded / named / resampled / less every time"].startswith(f"{100 * fell.mean():.0f} [")
    for unit in units:
        three = {unit["query"], unit["key"], unit["contrast"]}
        order = np.argsort(-report._scores(unit, RESAMPLED)[report.EARLY], kind="stable")
        expected = sorted(range(len(order)), key=lambda i, u=unit, t=three: (u["tokens"][i] not in t, u["parts"][i]))
        assert [unit["parts"][i] for i in order] == [unit["parts"][i] for i in expected]
        assert [unit["tokens"][i] in three for i in order] == [unit["tokens"][i] in three for i in expected]
