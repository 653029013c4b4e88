"""Pruning against closed forms: sums of removed terms, scores by hand, means and refits that are exact, checkpoints."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import close, near

import duat_jax as duat
from duat_jax.models.config import Head
from duat_jax.nn import BlockConfig
from duat_jax.pruning import layers as of_layers
from duat_jax.pruning.budget import FRACTIONS, cheapest, equally, together
from duat_jax.pruning.calibration import WEIGHTS, Moments, losses, moments
from duat_jax.pruning.compensation import COMPENSATIONS, compensated
from duat_jax.pruning.pruner import keep_largest, prune, pruned, scores, silenced
from duat_jax.pruning.removal import Terms, measure_removal, without
from duat_jax.pruning.resizing import resized
from duat_jax.pruning.scores import METHODS
from duat_jax.verification.networks import randomised

LAYERS, FEATURES, NEURONS, VOCAB = 3, 6, 8, 11
IDS = np.array(jax.random.randint(jax.random.key(5), (6, 7), 0, VOCAB), np.int32)


def model_of(layers=LAYERS, *, final_norm=True, dtype=jnp.float64, **settings):
    sizes = {"arrangement": "pre-norm", "features": FEATURES, "heads": 2, "neurons": NEURONS, "activation": "gelu_tanh"}
    config = duat.models.Config(
        family="gpt2",
        blocks=(BlockConfig(**sizes | settings),) * layers,
        vocab=VOCAB,
        positions=8,
        head=Head(kind="next token", outputs=VOCAB, tied=True),
        final_norm=final_norm,
    )
    return randomised(duat.models.Transformer(config, dtype=dtype, rngs=nnx.Rngs(0)), 0)


GATED = {"mlp": "gated", "mlp_bias": False, "norm": "rms", "activation": "silu"}
BOTH = pytest.mark.parametrize("settings", [{}, pytest.param(GATED, marks=pytest.mark.slow)], ids=["plain", "gated"])


@jax.jit
def said(model, ids):
    """The plain forward pass."""
    return model(ids)


def mlp(model, layer):
    return model.stack.blocks[layer].mlp


# What removed terms add.


@jax.jit
def table(model, ids, readout):
    """The contributions to a read-out of all outputs."""
    return duat.contributions(duat.record(model.output)(model.embed(ids)), readout)


@jax.jit
def carried(model, ids, readout):
    """The streams after each layer, and what carries each to a read-out."""
    recording = duat.record(model.output)(model.embed(ids))
    covectors = [duat.linear_map(recording, step).T(readout) for step in recording.streams]
    return [recording.at(step) for step in recording.streams], covectors


def one_hot(token, output, tokens=IDS.shape[1]):
    return jnp.zeros((tokens, VOCAB)).at[token, output].set(1)


@BOTH
def test_what_removed_neurons_add_is_the_sum_of_their_contributions(settings):
    model, ids = model_of(**settings), jnp.asarray(IDS[0])
    gone = {1: [0, 3], 2: [5]}
    found = measure_removal(model, without(model, Terms(neurons=gone)), ids)
    close(found.whole, said(model, ids))
    for token, output in ((2, 4), (6, 0)):
        parts = table(model, ids, one_hot(token, output))
        by_table = sum(parts.terms[f"layers.{layer}.mlp"][:, n].sum() for layer, of in gone.items() for n in of)
        close(found.terms[token, output], by_table)


@pytest.mark.slow
@BOTH
def test_what_removed_heads_add_is_what_an_intervention_predicts(settings):
    model = model_of(**settings)
    found = measure_removal(model, without(model, Terms(heads={1: [1]})), jnp.asarray(IDS[0]))
    one = duat.intervene(model, IDS[0], duat.edits.Heads(1, 1).set(0), target=4, position=3)
    close(found.terms[3, 4], -one.effects[0].frozen.sum())
    close(found.anew[3, 4], one.after)


def test_a_whole_term_goes_and_its_linear_path_stays():
    model, ids = model_of(), jnp.asarray(IDS[0])
    found = measure_removal(model, without(model, Terms(terms=[1])), ids)

    @jax.jit
    def by_hand(model):
        x = model.first(model.embed(ids))
        for layer, block in enumerate(model.stack.blocks):
            x = x + block.attention(block.norm_1(x))
            x = x + (block.mlp.output.bias[...] if layer == 1 else block.mlp(block.norm_2(x)))
        return model.head.logits(model.final_norm(x), model.unembedding)

    close(found.anew, by_hand(model))
    parts = table(model, ids, one_hot(4, 3))
    close(found.terms[4, 3], parts.terms["layers.1.mlp"].sum())


@pytest.mark.slow
def test_a_layer_whose_linear_path_goes_too_is_not_there():
    model, ids = model_of(), jnp.asarray(IDS[0])
    rest = without(model, Terms(layers=[1]))
    found = measure_removal(model, rest, ids)
    smaller = of_layers.remove_layers(model, IDS, [1], compensation="none")
    close(found.anew, said(smaller, ids))
    # Held: what the layer added to the stream, carried on through the layers after it as they were.
    streams, covectors = carried(model, ids, one_hot(4, 3))
    close(found.terms[4, 3], jnp.vdot(covectors[2], streams[2] - streams[1]))


def test_where_parameters_really_are_held_the_sum_is_the_true_error():
    # What the last layer's terms add passes no pattern and no norm.
    model, ids = model_of(final_norm=False), jnp.asarray(IDS[0])
    last = LAYERS - 1
    for terms in (Terms(neurons={last: [1, 2, 6]}), Terms(terms=[last])):
        found = measure_removal(model, without(model, terms), ids)
        close(found.terms, found.change)
        assert jnp.abs(found.terms).max() > 0.1
    moved = measure_removal(model, without(model, Terms(terms=[0])), ids)
    assert jnp.abs(moved.terms - moved.change).max() > 1e-3


def test_what_is_not_there_cannot_be_removed():
    terms = Terms(neurons={0: [NEURONS], 7: [0]}, heads={1: [-1]}, layers=[LAYERS])
    with pytest.raises(duat.DuatError, match=r"no neuron 8.*layer 1 has no head -1.*no layer 3.*no layer 7"):
        without(model_of(), terms)
    with pytest.raises(duat.DuatError, match="nothing is removed"):
        without(model_of(), Terms(neurons={0: []}))


# What neurons are ranked by.


def weighted(weights, model, ids):
    return jax.jit(WEIGHTS[weights])(model, jnp.asarray(ids))


@BOTH
def test_gradients_are_those_of_the_loss_in_what_each_neuron_writes(settings):
    model = model_of(**settings)
    activations, found = weighted("gradient", model, IDS)
    ids = jnp.asarray(IDS)

    @jax.jit
    def by_hand(model, activations):
        """The last layer's neurons write into the stream that is normalised and read."""
        written = model.stack.blocks[-1].mlp.output.multiply
        before = model.stack(model.first(model.embed(ids[:, :-1]))) - written(activations)

        def loss(a):
            x = model.final_norm(before + written(a))
            return losses(model.head.logits(x, model.unembedding), ids[:, 1:]).sum()

        return jax.grad(loss)(activations)

    close(found[-1], by_hand(model, activations[-1]))


@BOTH
def test_contributions_are_those_of_the_table(settings):
    model, ids = model_of(**settings), IDS[:1]
    activations, found = weighted("contribution", model, ids)
    p = jax.nn.softmax(said(model, jnp.asarray(ids[0, :-1])))
    readout = p - jax.nn.one_hot(ids[0, 1:], VOCAB, dtype=p.dtype)
    parts = table(model, jnp.asarray(ids[0, :-1]), readout)
    for layer in range(LAYERS):
        close(activations[layer][0] * found[layer][0], parts.terms[f"layers.{layer}.mlp"])


@pytest.mark.slow
def test_moments_are_means_over_all_tokens_of_all_texts():
    model = model_of()
    activations, weights = weighted("gradient", model, IDS)
    for layer, found in enumerate(moments(model, IDS, "gradient")):
        a, w = (np.asarray(one[layer]).reshape(-1, NEURONS) for one in (activations, weights))
        close(found.mean, a.mean(0))
        close(found.products, a.T @ a / len(a))
        close(found.absolute, np.abs(w * a).mean(0))
        close(found.squares, [(w**2).mean(0), (w**2 * a).mean(0), (w**2 * a**2).mean(0)])


def test_scores_are_their_formulas():
    model = model_of()
    a, g = (np.asarray(one[1]).reshape(-1, NEURONS) for one in weighted("gradient", model, IDS))
    u = np.asarray(weighted("contribution", model, IDS)[1][1]).reshape(-1, NEURONS)
    inner, outer = (np.asarray(getattr(mlp(model, 1), name).kernel[...]) for name in ("input", "output"))
    expected = {
        "fisher": (g * (a - a.mean(0))) ** 2,
        "contributions": (u * (a - a.mean(0))) ** 2,
        "taylor": np.abs(g * a),
        "fluctuation": (a - a.mean(0)) ** 2 * np.linalg.norm(outer, axis=1) ** 2,
    }
    expected = {name: of_tokens.mean(0) for name, of_tokens in expected.items()} | {
        "wanda": np.sqrt((a**2).mean(0)) * np.abs(outer).sum(1),
        "magnitude": np.linalg.norm(np.concatenate([inner, outer.T]), axis=0),
        "random": np.random.default_rng(3).random((2, NEURONS))[1],
    }
    mean = expected["fluctuation"].sum() / NEURONS
    deviation = (((expected["fluctuation"] - mean) ** 2).sum() / NEURONS) ** 0.5
    expected["flap"] = (expected["fluctuation"] - mean) / deviation
    assert set(expected) == set(METHODS)
    for name, one in expected.items():
        found = moments(model, IDS, METHODS[name].weights)
        close(scores(model, found, name, "mean", layers=[0, 1], seed=3)[1], one)
    for name, w in (("fisher", g), ("contributions", u)):
        found = moments(model, IDS, METHODS[name].weights)
        close(scores(model, found, name, "none")[1], ((w * a) ** 2).mean(0))


# What takes the place of removed neurons.


@BOTH
@pytest.mark.parametrize("compensation", ["mean", "refit"])
def test_neurons_that_never_move_are_removed_exactly(settings, compensation):
    model = model_of(**settings | {"mlp_bias": True})
    for name in ("input", "factor"):
        if hasattr(mlp(model, 1), name):
            kernel = getattr(mlp(model, 1), name).kernel
            kernel.set_value(kernel[...].at[:, [2, 5]].set(0))
    found = moments(model, IDS, "gradient")
    ranked = scores(model, found, "fisher", compensation)
    smaller = pruned(model, found, ranked, {0: 0, 1: 2, 2: 0}, compensation)
    assert [block.neurons for block in smaller.config.blocks] == [8, 6, 8]
    ids = jnp.asarray(IDS)
    close(said(smaller, ids), said(model, ids), layers=50)  # means of squares, subtracted
    assert jnp.abs(said(pruned(model, found, ranked, {0: 0, 1: 2, 2: 0}, "none"), ids) - said(model, ids)).max() > 0.01


@BOTH
def test_twins_of_neurons_are_refitted_exactly(settings):
    model = model_of(**settings)
    for name in ("input", "factor"):
        if hasattr(mlp(model, 1), name):
            part = getattr(mlp(model, 1), name)
            part.kernel.set_value(part.kernel[...].at[:, [4, 6]].set(part.kernel[...][:, [0, 0]]))
            if part.bias is not None:
                part.bias.set_value(part.bias[...].at[jnp.array([4, 6])].set(part.bias[...][0]))
    found = moments(model, IDS, "gradient")
    kept = {1: np.array([i not in (4, 6) for i in range(NEURONS)])}
    smaller = resized(silenced(model, kept, found, "refit"), kept)
    # As exact as the ridge of the least squares, 1e-6 of the mean variance, lets it be.
    difference = jnp.abs(said(smaller, jnp.asarray(IDS)) - said(model, jnp.asarray(IDS))).max()
    assert difference < 1e-4
    by_mean = resized(silenced(model, kept, found, "mean"), kept)
    assert jnp.abs(said(by_mean, jnp.asarray(IDS)) - said(model, jnp.asarray(IDS))).max() > 100 * difference
    outer = mlp(model, 1).output.kernel[...]
    near(mlp(smaller, 1).output.kernel[0], outer[0] + outer[4] + outer[6], within=1e-3)


def test_the_refit_is_the_least_squares_of_numpy():
    random = np.random.default_rng(0)
    a, outer = random.normal(size=(40, 7)) @ random.normal(size=(7, 7)) + 1, random.normal(size=(7, 3))
    kept = np.array([True, False, True, True, False, True, True])
    found = Moments(a.mean(0), a.T @ a / 40, np.zeros(7), np.zeros((3, 7)), 40)
    weights, bias = compensated(outer, kept, found, "refit")
    design = np.column_stack([a[:, kept], np.ones(40)])
    expected = np.linalg.lstsq(design, a @ outer)[0]
    near(np.vstack([weights[kept], bias]), expected, within=1e-3)
    assert (weights[~kept] == 0).all()
    # Of few tokens least squares would tell the noise: what is carried over is smaller.
    few, _ = compensated(outer, kept, found._replace(tokens=19), "refit")
    assert np.abs(few - outer)[kept].max() < np.abs(weights - outer)[kept].max()


@BOTH
@pytest.mark.parametrize("compensation", COMPENSATIONS)
def test_a_smaller_model_says_what_the_one_with_silent_neurons_says(settings, compensation):
    model = model_of(**settings)
    found = moments(model, IDS, "contribution")
    kept = keep_largest(scores(model, found, "contributions", compensation), {0: 3, 1: NEURONS, 2: 0})
    silent = silenced(model, kept, found, compensation)
    smaller = resized(silent, kept)
    assert [block.neurons for block in smaller.config.blocks] == [5, 1, 8]
    assert smaller.config.problems() == []
    close(said(smaller, jnp.asarray(IDS)), said(silent, jnp.asarray(IDS)))
    if compensation == "none":
        gone = {layer: np.flatnonzero(~stays).tolist() for layer, stays in kept.items()}
        close(said(smaller, jnp.asarray(IDS)), said(without(model, Terms(neurons=gone)), jnp.asarray(IDS)))


def test_nothing_goes_where_the_fraction_is_zero_and_the_model_stays_as_it_was():
    model = model_of()
    before = jax.tree.map(jnp.copy, model)
    close(said(prune(model, IDS, 0.0), jnp.asarray(IDS)), said(model, jnp.asarray(IDS)))
    prune(model, IDS, 0.6)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, before, model))
    assert model.config == before.config


@pytest.mark.slow
def test_rounds_take_as_many_each_and_only_where_they_may():
    model = model_of()
    found = prune(model, IDS, 0.5, rounds=2, layers=[0, 2], budget="together")
    sizes = [block.neurons for block in found.config.blocks]
    assert sizes[1] == NEURONS and sizes[0] + sizes[2] == NEURONS
    once = prune(model, IDS, 0.25, layers=[0, 2], budget="together")
    twice = prune(once, IDS, 1 / 3, layers=[0, 2], budget="together")
    close(said(found, jnp.asarray(IDS)), said(twice, jnp.asarray(IDS)), layers=50)


# How many of each layer.


def test_budgets_of_scores():
    ranked = {0: np.array([1.0, 2.0, 3.0, 4.0]), 2: np.array([0.5, 0.6, 0.7, 9.0])}
    assert equally(ranked, 0.5) == {0: 2, 2: 2}
    assert together(ranked, 0.5) == {0: 1, 2: 3}
    kept = keep_largest(ranked, {0: 1, 2: 3})
    assert kept[0].tolist() == [False, True, True, True] and kept[2].tolist() == [False, False, False, True]


def test_the_cheapest_budget_is_that_of_all_budgets():
    costs = {0: np.array(FRACTIONS) ** 2, 1: 3 * np.array(FRACTIONS) ** 2}
    cost = {layer: np.interp(np.arange(21) / 20, FRACTIONS, of_layer) for layer, of_layer in costs.items()}
    found = cheapest(costs, {0: 20, 1: 20}, 0.4)
    best = min(((cost[0][n] + cost[1][16 - n], n) for n in range(17)), key=lambda pair: pair[0])[1]
    assert found == {0: best, 1: 16 - best} and best == 12
    # A cost that rises at once and then hardly is a straight line to its end: its end alone can't be had.
    costs = {0: 0.4 * np.array(FRACTIONS), 1: 0.5 * np.sqrt(FRACTIONS)}
    assert cheapest(costs, {0: 20, 1: 20}, 0.25) == {0: 10, 1: 0}
