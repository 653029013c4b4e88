"""Every method's scores are those of a forward pass that is written out by hand."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close

import duat_jax as duat
from duat_jax.attribution.units import METHODS as UNIT_METHODS
from duat_jax.evaluation.circuits import METHODS
from duat_jax.models.config import Head
from duat_jax.nn import MLP, BlockConfig, Experts, GatedMLP

TOKENS, FEATURES, HEADS, NEURONS, VOCAB = 4, 6, 2, 5, 11
CLEAN, CORRUPTED = jnp.array([1, 7, 3, 4]), jnp.array([1, 5, 3, 4])
RIGHT, WRONG = jnp.array(2), jnp.array(9)


def with_noise(module):
    """Return a module in double precision with noise on every weight."""
    draw = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf) + 0.5 * draw.normal(size=leaf.shape)), module)


def make_model(layers=2, *, final_norm=True, **changed):
    """Return a random gated language model in double precision."""
    switches = {"arrangement": "pre-norm", "mlp": "gated", "mlp_bias": False, "activation": "silu", "norm": "rms"}
    block = BlockConfig(features=FEATURES, heads=HEADS, neurons=NEURONS, **(switches | changed))
    config = duat.models.Config(
        family="llama",
        blocks=(block,) * layers,
        vocab=VOCAB,
        positions=TOKENS,
        final_norm=final_norm,
        head=Head(kind="next token", outputs=VOCAB),
    )
    return with_noise(duat.models.Transformer(config, rngs=None))


def scores_of(name, model, clean=CLEAN, corrupted=CORRUPTED):
    return jax.jit(METHODS[name])(model, clean, corrupted, RIGHT, WRONG)


class Units(NamedTuple):
    """Something of all units."""

    neurons: jax.Array
    heads: jax.Array
    streams: jax.Array


def zeros(layers=2):
    return Units(
        jnp.zeros((layers, TOKENS, NEURONS)),
        jnp.zeros((layers, TOKENS, HEADS, FEATURES // HEADS)),
        jnp.zeros((layers + 1, TOKENS, FEATURES)),
    )


@partial(jax.jit, static_argnames="rule")
def by_hand(model, x, added, rule="all flow", given=None, mask=None):
    """Return the logit difference and all units' values; what a rule holds has no gradient.

    The given neurons, or what the given heads mix, replace what is computed, but for the share of it in the mask.
    """

    def held(value):
        return value if rule == "all flow" else jax.lax.stop_gradient(value)

    def replaced(kind, i, computed):
        """Return the given values of a layer's units in the place of the computed ones, as far as the mask says."""
        values = given and getattr(given, kind)
        if values is None:
            return computed
        live = getattr(mask, kind)[i] if mask else 0
        return values[i] + live * (computed - values[i])

    def normalised(x, norm):
        return x * held(1 / jnp.sqrt((x**2).mean(-1, keepdims=True) + norm.epsilon)) * norm.scale[...]

    def linear(x, part):
        return x @ part.kernel[...] + part.bias[...] if part.bias is not None else x @ part.kernel[...]

    neurons, heads, streams = [], [], [x + added.streams[0]]
    for i, block in enumerate(model.stack.blocks):
        x, attention, mlp = streams[-1], block.attention, block.mlp
        y = normalised(x, block.norm_1)
        query, key, value = (
            linear(y, part).reshape(TOKENS, HEADS, -1) for part in (attention.query, attention.key, attention.value)
        )
        scores = jnp.einsum("qhd,khd->hqk", query, key) / np.sqrt(FEATURES / HEADS)
        pattern = held(jax.nn.softmax(jnp.where(np.tri(TOKENS, dtype=bool), scores, -jnp.inf)))
        mixed = jnp.einsum("hqk,khd->qhd", pattern, value) + added.heads[i]
        heads.append(replaced("heads", i, mixed))
        x = x + linear(heads[-1].reshape(TOKENS, -1), attention.output)
        y = normalised(x, block.norm_2)
        gate, factor = linear(y, mlp.input), linear(y, mlp.factor)
        sigmoid = 1 / (1 + jnp.exp(-gate))
        product = gate * sigmoid * factor
        if rule == "terms held":
            product = held(product)
        if rule == "halves":
            product = (held(factor * sigmoid) * gate + held(gate * sigmoid) * factor) / 2
        neurons.append(replaced("neurons", i, product + added.neurons[i]))
        streams.append(x + linear(neurons[-1], mlp.output) + added.streams[i + 1])
    x = streams[-1] if model.final_norm is None else normalised(streams[-1], model.final_norm)
    logits = x[-1] @ model.head.unembedding[...].T
    return logits[RIGHT] - logits[WRONG], Units(*(jnp.stack(values) for values in (neurons, heads, streams)))


@pytest.fixture(scope="module")
def case():
    """Return a model, the embeddings of both texts, and the values of their units."""
    model = make_model()
    x, y = model.embed(CLEAN), model.embed(CORRUPTED)
    return model, x, y, by_hand(model, x, zeros())[1], by_hand(model, y, zeros())[1]


@partial(jax.jit, static_argnames="rule")
def derivative(model, x, rule="all flow"):
    return jax.grad(lambda added: by_hand(model, x, added, rule)[0])(zeros())


def along(steps):
    return (np.arange(steps) + 0.5) / steps


def together(units):
    return Units(units.neurons, units.heads.sum(-1), units.streams.sum(-1))


def expected(name, model, x, y, clean, corrupted):
    change = jax.tree.map(jnp.subtract, clean, corrupted)
    if name.startswith("integrated gradients,"):
        steps = int(name.split()[2])
        found = [derivative(model, y + t * (x - y)) for t in along(steps)]
        return together(jax.tree.map(lambda d, *gs: d * sum(gs) / steps, change, *found))
    rule, values = {
        "gradient x change": ("all flow", change),
        "collapse x change": ("halves", change),
        "contributions": ("terms held", clean),
        "contributions x change": ("terms held", change),
    }[name]
    return together(jax.tree.map(jnp.multiply, derivative(model, x, rule), values))


@pytest.mark.parametrize(
    "name",
    [
        "gradient x change",
        "collapse x change",
        "contributions x change",
        pytest.param("contributions", marks=pytest.mark.slow),
        pytest.param("integrated gradients, 2 steps", marks=pytest.mark.slow),
        pytest.param("integrated gradients, 5 steps", marks=pytest.mark.slow),
        pytest.param("integrated gradients, 10 steps", marks=pytest.mark.slow),
    ],
)
def test_scores_are_those_of_the_pass_by_hand(name, case):
    jax.tree.map(
        lambda a, b: close(a, b),
        *map(tuple, (scores_of(name, case[0]), expected(name, *case))),
    )


@pytest.mark.slow
def test_all_units_of_a_kind_move_together(case):
    model, x, y, clean, corrupted = case
    found = scores_of("integrated gradients, all layers together", model)
    for kind in ("neurons", "heads"):
        a, b = getattr(clean, kind), getattr(corrupted, kind)

        @jax.jit
        @jax.grad
        def derivative(values, t, kind=kind):
            given = Units(None, None, None)._replace(**{kind: values})
            return by_hand(model, y + t * (x - y), zeros(), given=given)[0]

        carried = sum(derivative(b + t * (a - b), t) for t in along(10)) / 10 * (a - b)
        carried = carried if kind == "neurons" else carried.sum(-1)
        close(getattr(found, kind), carried)
    assert found.streams is None


@pytest.mark.slow
def test_layer_by_layer_the_units_of_one_layer_move_and_the_text_is_clean(case):
    model, x, _, clean, corrupted = case
    found = scores_of("integrated gradients, layer by layer", model)
    for kind in ("neurons", "heads", "streams"):
        a, b = getattr(clean, kind), getattr(corrupted, kind)

        @jax.jit
        @jax.grad
        def derivative(added, kind=kind):
            return by_hand(model, x, zeros()._replace(**{kind: added}))[0]

        for layer in range(len(a)):
            # What is added moves this layer's units from their clean values, and nothing before them.
            moved = [jnp.zeros_like(a).at[layer].set((t - 1) * (a - b)[layer]) for t in along(5)]
            carried = sum(derivative(added)[layer] for added in moved) / 5 * (a - b)[layer]
            carried = carried if kind == "neurons" else carried.sum(-1)
            close(getattr(found, kind)[layer], carried)


def test_the_norm_is_that_of_what_a_units_change_adds(case):
    model, _, _, clean, corrupted = case
    found = scores_of("norm of change x W_out", model)
    for i, block in enumerate(model.stack.blocks):
        for n in range(NEURONS):
            added = (clean.neurons - corrupted.neurons)[i, :, n, None] * block.mlp.output.kernel[n]
            close(found.neurons[i, :, n], np.linalg.norm(added, axis=-1))
        for h in range(HEADS):
            rows = slice(h * FEATURES // HEADS, (h + 1) * FEATURES // HEADS)
            added = (clean.heads - corrupted.heads)[i, :, h] @ block.attention.output.kernel[rows]
            close(found.heads[i, :, h], np.linalg.norm(added, axis=-1))
    close(found.streams, np.linalg.norm(clean.streams - corrupted.streams, axis=-1))


@pytest.mark.parametrize("name", ["secant", pytest.param("secant, two half-steps", marks=pytest.mark.slow)])
def test_every_stream_of_the_secant_sums_to_the_difference(name, case):
    model, x, y, *_ = case
    difference = by_hand(model, x, zeros())[0] - by_hand(model, y, zeros())[0]
    close(scores_of(name, model).streams.sum(-1), difference)


@pytest.mark.parametrize("patterns_held", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_secant_of_one_layer_by_hand(patterns_held):
    """The last layer's units reach the read-out through one norm and one gated product."""
    model = make_model(1, final_norm=False)
    read = np.asarray(model.head.unembedding[RIGHT] - model.head.unembedding[WRONG])
    block = model.stack.blocks[0]
    kernels = {name: np.asarray(getattr(block.mlp, name).kernel) for name in ("input", "factor", "output")}
    biases = np.asarray(block.attention.output.bias)
    weight = np.asarray(block.norm_2.scale)

    def at_last(ids):
        units = jax.tree.map(lambda v: np.asarray(v)[0, -1], by_hand(model, model.embed(ids), zeros(1))[1])
        x = units.streams + units.heads.reshape(-1) @ np.asarray(block.attention.output.kernel) + biases
        square = (x**2).mean() + block.norm_2.epsilon
        y = x / np.sqrt(square) * weight
        return units, x, square, y @ kernels["input"], y @ kernels["factor"]

    (clean, *here), (corrupted, *there) = at_last(CLEAN), at_last(CORRUPTED)
    square, gate = here[1:3]
    middles = [(a + b) / 2 for a, b in zip(here, there)]
    silu = [g / (1 + np.exp(-g)) for g in (gate, there[2])]
    on_neurons = kernels["output"] @ read
    secant = (silu[0] - silu[1]) / (gate - there[2])
    on_gate, on_factor = on_neurons * middles[3] * secant, on_neurons * (silu[0] + silu[1]) / 2
    on_y = kernels["input"] @ on_gate + kernels["factor"] @ on_factor
    scale, other_scale = square**-0.5, there[1] ** -0.5
    on_x = read + on_y * weight * (scale + other_scale) / 2
    if not patterns_held:
        on_square = (on_y * weight * middles[0]).sum() * (scale - other_scale) / (square - there[1])
        on_x = on_x + on_square * 2 * middles[0] / FEATURES
    on_heads = np.asarray(block.attention.output.kernel) @ on_x

    found = scores_of("secant, patterns held" if patterns_held else "secant", model)
    close(found.neurons[0, -1], on_neurons * (clean.neurons - corrupted.neurons))
    by_head = (on_heads.reshape(HEADS, -1) * (clean.heads - corrupted.heads)).sum(-1)
    close(found.heads[0, -1], by_head)
    assert not np.any(found.neurons[0, :-1])
    assert not np.any(found.heads[0, :-1])


@pytest.mark.parametrize(
    "mlp",
    [
        MLP(FEATURES, NEURONS, "gelu", rngs=None),
        GatedMLP(FEATURES, NEURONS, "silu", rngs=None),
        Experts(FEATURES, NEURONS, "silu", experts=1, chosen=1, rngs=None),
    ],
    ids=lambda mlp: type(mlp).__name__,
)
def test_neurons_are_what_the_output_matrix_reads(mlp):
    mlp = with_noise(mlp)
    recording = duat.record(mlp)(jnp.linspace(-1, 1, TOKENS * FEATURES).reshape(TOKENS, FEATURES))
    neurons = recording.dynamics.points["mlp.neurons"]
    read = neurons @ mlp.output[0] if isinstance(mlp, Experts) else neurons @ mlp.output.kernel + mlp.output.bias
    close(read, recording.value)


def test_random_numbers_differ_between_pairs_and_units():
    model = make_model()
    first, again = (scores_of("random", model) for _ in range(2))
    other = scores_of("random", model, corrupted=CORRUPTED.at[0].set(2))
    for a, b, c in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert len(np.unique(np.concatenate([a, c]))) == a.size + c.size
    assert [scores.shape for scores in first] == [(2, TOKENS, NEURONS), (2, TOKENS, HEADS), (3, TOKENS)]


def test_integrated_gradients_are_means_on_the_way_from_the_reference():
    """Of `Σ (x + n)²` with neurons `n = x³`, whose derivative by `n` is `2 (x + n)`."""

    def read(x):
        x = duat.stream(x, "layer")
        heads = duat.point(jnp.zeros_like(x)[:, None], "attention.mixed")
        return ((x + heads[:, 0] + duat.point(x**3, "mlp.neurons")) ** 2).sum()

    x, y = jnp.array([[0.5, -1.0], [2.0, 0.3]]), jnp.array([[-0.2, 0.4], [1.0, 0.9]])
    found = UNIT_METHODS["integrated gradients, 2 steps"].rule(make_model(), read, x, y, jnp.ones(2, bool))
    derivatives = [2 * (z + z**3) for z in (y + t * (x - y) for t in along(2))]
    close(found.neurons[0], sum(derivatives) / 2 * (x**3 - y**3))
