"""Layers that are removed, their rankings, and what decides, on a small model."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from flax import nnx
from helpers import close, near
from measured import frames_of
from scipy.stats import spearmanr

import duat_jax as duat
from duat_jax.evaluation.running_text import token_losses
from duat_jax.models.config import Head
from duat_jax.nn import BlockConfig
from duat_jax.nn.stack import Stack
from duat_jax.pruning.layers import remove_layers
from duat_jax.verification.networks import randomised
from experiments.pruning import layers, rankings
from experiments.pruning.draws import EMBEDDED, Draws
from experiments.pruning.layers import ALONE, ANGULAR, FIRST_KEPT, GREEDY, RANDOM, Case, Settings, quarter

LAYERS, FEATURES, NEURONS, VOCAB, TOKENS = 3, 4, 5, 7, 7
KEY = jax.random.key(5)
IDS = np.array(jax.random.randint(KEY, (4, TOKENS), 0, VOCAB), np.int32)


@cache
def model():
    block = BlockConfig(arrangement="pre-norm", features=FEATURES, heads=2, neurons=NEURONS, activation="gelu_tanh")
    head = Head(kind="next token", outputs=VOCAB, tied=True)
    sizes = {"family": "gpt2", "vocab": VOCAB, "positions": 128, "head": head, "final_norm": True}
    config = duat.models.Config(blocks=(block,) * LAYERS, **sizes)
    return randomised(duat.models.Transformer(config, dtype=jnp.float64, rngs=nnx.Rngs(0)), 0)


def with_blocks(blocks):
    rest = jax.tree.map(lambda leaf: leaf, model())
    rest.stack = Stack(blocks)
    return rest


def loss_of(smaller):
    return token_losses(smaller, jnp.asarray(IDS)).mean(-1)


@pytest.mark.parametrize("removed", [[0], [1, 2], pytest.param([0, 1, 2], marks=pytest.mark.slow)])
def test_a_removed_layer_is_one_that_isnt_there(removed):
    rest = [block for layer, block in enumerate(model().stack.blocks) if layer not in removed]
    close(rankings.by_removal(model(), IDS, "layers", removed, None), loss_of(with_blocks(rest)))


def test_means_in_the_place_of_layers_are_those_of_the_pruner():
    mean = rankings.mean_outputs(model(), IDS)
    by_removal = rankings.by_removal(model(), IDS, "layers", [1, 2], mean)
    close(by_removal, loss_of(remove_layers(model(), IDS, [1, 2], compensation="mean")), LAYERS)


def test_a_removed_mlp_leaves_its_attention():
    x = model().first(model().embed(IDS[:, :-1]))
    for layer, block in enumerate(model().stack.blocks):
        x = x + block.attention(block.norm_1(x))
        x = x if layer == 1 else x + block.mlp(block.norm_2(x))
    logits = model().head.logits(model().final_norm(x), model().unembedding)
    by_hand = -jnp.take_along_axis(jax.nn.log_softmax(logits), IDS[:, 1:, None], -1)[..., 0].mean(-1)
    close(rankings.by_removal(model(), IDS, "MLPs", [1], None), by_hand)


def test_a_model_whose_layers_add_something_else_is_refused():
    block = BlockConfig(arrangement="post-norm", features=FEATURES, heads=2, neurons=NEURONS, activation="gelu_tanh")
    other = randomised(
        duat.models.Transformer(
            duat.models.Config(family="gpt2", blocks=(block,), vocab=VOCAB, positions=8, head=model().config.head),
            dtype=jnp.float64,
            rngs=nnx.Rngs(0),
        ),
        0,
    )
    with pytest.raises(duat.DuatError, match="pre-norm"):
        rankings.by_removal(other, IDS, "layers", [], None)


def test_angles_of_streams_that_are_turned():
    # Every attention turns the stream by 10 degrees, every MLP by 20; lengths don't matter.
    degrees = np.deg2rad([0, 10, 30, 40, 60, 70, 90])
    x = jnp.stack([jnp.cos(degrees), jnp.sin(degrees)], -1)[:, None, None] * jnp.arange(1.0, 8)[:, None, None, None]
    close(rankings.block_influence(x, "layers"), [1 - np.cos(np.pi / 6)] * 3)
    close(rankings.block_influence(x, "MLPs"), [1 - np.cos(np.pi / 9)] * 3)
    close(rankings.angular_distance(x, 2), [1 / 3] * 2)


def test_sizes_are_norms_of_matrices():
    for layer, block in enumerate(model().stack.blocks):
        mlp = [block.mlp.input.kernel[...], block.mlp.output.kernel[...]]
        attention = [getattr(block.attention, name).kernel[...] for name in ("query", "key", "value", "output")]
        for kind, matrices in (("layers", mlp + attention), ("MLPs", mlp)):
            entries = np.concatenate([np.ravel(matrix) for matrix in matrices])
            close(rankings.size(model(), kind)[layer], np.linalg.norm(entries))


def test_norms_of_the_closed_forms_parameters_are_those_of_their_matrices():
    ids = jnp.asarray(IDS[:1, :3])
    found = jax.jit(jax.vmap(rankings.operator_squares, (None, None, 0)))(model(), ids, jax.random.split(KEY, 60))
    form = duat.unroll(lambda x: model().stream(x, LAYERS), model().embed(ids[0]))
    for name, of_form in (("‖W'2‖", form.inner_map), ("‖W'3‖", lambda j: form.outer_map(j, LAYERS))):
        exact = np.array([float((of_form(j).dense() ** 2).sum()) for j in range(1, LAYERS + 1)])
        standard_error = np.std(found[name], 0) / np.sqrt(60)
        assert (standard_error < 0.1 * exact).all()
        assert (np.abs(np.mean(found[name], 0) - exact) < 4 * standard_error + 1e-9 * exact).all()


def test_contributions_are_carried_to_the_most_probable_token(monkeypatch):
    monkeypatch.setattr(rankings, "EVERY", 3)
    ids = jnp.asarray(IDS[:2])
    found = rankings.contributions(model(), ids, rankings.streams(model(), ids))
    expected = {"layers": np.zeros(LAYERS), "MLPs": np.zeros(LAYERS)}
    for row in ids:
        recording = duat.record(model().output)(model().embed(row))
        for position in (2, 5):
            readout = jnp.zeros((TOKENS, VOCAB)).at[position, recording.value[position].argmax()].set(1)
            for layer, block in enumerate(model().stack.blocks):
                before, after = (recording.at(recording.streams[i]) for i in (layer, layer + 1))
                middle = before + block.attention(block.norm_1(before))
                covector = duat.linear_map(recording, recording.streams[layer + 1]).T(readout)
                expected["layers"][layer] += abs((covector * (after - before)).sum()) / 4
                expected["MLPs"][layer] += abs((covector * (after - middle)).sum()) / 4
    for kind, sizes in expected.items():
        close(found[kind], sizes, LAYERS)


@pytest.mark.parametrize("kind", ["layers", pytest.param("MLPs", marks=pytest.mark.slow)])
def test_parts_of_removal_sum_to_the_added_loss(kind):
    added = [rankings.by_removal(model(), IDS, kind, of, None).mean() for of in (range(LAYERS), [])]
    close(rankings.secant_of_removal(model(), jnp.asarray(IDS), kind, 0.0).sum(), added[0] - added[1], 10 * LAYERS)


SETTINGS = Settings(4, 4, {"layers": (1, 2), "MLPs": (1,)}, ("layers",), thorough=True)


@pytest.fixture(scope="module")
def case():
    tokens = np.array(jax.random.randint(jax.random.key(7), (20 * 128,), 0, VOCAB), np.int32)
    return Case(Draws(model(), tokens, tokens[-4 * 128 :].reshape(4, 128), 4), SETTINGS)


@pytest.fixture(scope="module")
def frames(case):
    return frames_of(layers.of_case(EMBEDDED, case))


@pytest.fixture(scope="module")
def known(frames):
    return {(row["kind"], row["ranking"], row["draw"]): row for row in frames["scores"].to_dict("records")}


def removed(known, ranking, count, draw):
    return layers.removed(LAYERS, "layers", ranking, count, draw, known)


@pytest.mark.slow
def test_removing_the_cheapest_layer_first_is_what_greedy_does(case, known):
    ids = case.draws.ids(1)

    def loss(removed):
        return rankings.by_removal(model(), ids, "layers", removed, None).mean()

    first = min(range(LAYERS), key=lambda layer: loss([layer]))
    second = min(set(range(LAYERS)) - {first}, key=lambda layer: loss([first, layer]))
    assert removed(known, ALONE, 1, 1) == removed(known, GREEDY, 1, 1) == (first,)
    assert removed(known, GREEDY, 2, 1) == tuple(sorted([first, second]))
    near(known["layers", ALONE, 1]["scores"], [loss([layer]) - loss([]) for layer in range(LAYERS)], within=1e-5)


@pytest.mark.slow
def test_neighbours_go_by_angular_distance_and_random_orders_keep_the_first_layer_if_told(case, known):
    start = removed(known, ANGULAR, 2, 0)[0]
    x = rankings.streams(model(), jnp.asarray(case.draws.ids(0)[:, :-1]))
    assert removed(known, ANGULAR, 2, 0) == (start, start + 1)
    assert rankings.angular_distance(x, 2).argmin() == start
    at_random = [removed(known, RANDOM + FIRST_KEPT, 2, draw) for draw in range(9)]
    assert all(order == (1, 2) for order in at_random)
    assert len({removed(known, RANDOM, 2, draw) for draw in range(9)}) > 2


@pytest.mark.slow
def test_every_ranking_has_what_it_adds(case, frames, known):
    of = frames["removals"]
    for (kind, ranking), rows in of[of["in their place"] == "none"].groupby(["kind", "ranking"]):
        assert len(rows) == len(SETTINGS.counts[kind]) * (10 if ranking.startswith(RANDOM) else 5)
        for row in rows.to_dict("records"):
            loss = rankings.by_removal(model(), case.draws.held_out, kind, row["layers"], None).mean()
            near(row["added"], loss - case.loss("layers", ()), within=1e-5)
            assert len(row["layers"]) == row["count"]
    alone = frames["alone"].set_index("kind").alone
    near(
        known["layers", "‖W‖", 0]["correlation"],
        spearmanr(known["layers", "‖W‖", 0]["scores"], alone["layers"]).statistic,
        within=1e-5,
    )
    refitted = of[of["in their place"] == "refit"]
    assert len(refitted) and not any(0 in gone for gone in refitted.layers)


@pytest.mark.slow
def test_a_ranking_without_finite_scores_removes_nothing(known):
    assert removed({**known, ("layers", "‖W'2‖", 0): {"scores": None}}, "‖W'2‖", 1, 0) is None


def test_a_quarter():
    assert [quarter(layers) for layers in (3, 6, 12, 30)] == [1, 2, 3, 8]


@pytest.mark.parametrize(
    ("by_size", "at_random", "said"),
    [
        (1.0, 3.0, ["confirmed", "confirmed"]),
        (3.0, 1.0, ["refuted", "refuted"]),
        (2.5, 2.5, ["refuted", "undecided"]),
        (1.5, 1.5, ["undecided", "undecided"]),
    ],
)
def test_a_ranking_by_size_is_compared_with_reading_text_and_with_chance(by_size, at_random, said):
    """Block influence costs 1.5."""
    rows = [
        {"model": of, "kind": "layers", "ranking": ranking, "draw": draw, "count": quarter(layers.LAYERS[of])}
        | {"in their place": "none", "added": cost + 0.1 * (-1) ** draw * (ranking != "block influence")}
        for of in layers.LAYERS
        for ranking, cost, draws in (("‖W‖", by_size, 6), ("block influence", 1.5, 6), (RANDOM, at_random, 10))
        for draw in range(draws)
    ]
    found = [of.verdict({"removals": pd.DataFrame(rows)}) for of in layers.predictions("‖W‖")]
    assert found == said
