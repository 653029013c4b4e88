"""A prompt that selects a function: the networks, the parameters that it moves, and what each source does."""

import re
from dataclasses import replace
from functools import cache, partial
from math import erf

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close, near, relative, unchecked

from duat_jax import papers
from duat_jax.errors import InvalidInput
from duat_jax.papers import (
    PROMPT_NETWORKS,
    PromptNetwork,
    PromptSizes,
    blind_errors,
    count_parameters,
    dense_parameters,
    draw_sequences,
    matched,
    parameter_changes,
    prompted_errors,
    prompted_outputs,
    prompted_targets,
    relative_position,
    train_prompted,
)
from duat_jax.papers.networks import FOUR, NUMBERS, SHIFTS, drawn
from duat_jax.papers.parameters import BIASES, PATTERNS, SOURCES, evaluated
from duat_jax.plots import draw_parameter_changes, draw_prompted_outputs
from duat_jax.verification.networks import randomised
from experiments.approximation.measuring import with_mean_patterns

LAYERS, HEADS, FEATURES = 2, 2, 8
FIXED = pytest.param("fixed pattern", marks=pytest.mark.slow)


def sizes_of(kind, layers=LAYERS):
    return PromptSizes(kind=kind, task=FOUR, layers=layers, features=FEATURES, neurons=6, heads=HEADS)


@cache
def network_of(kind, layers=LAYERS):
    return randomised(PromptNetwork(sizes_of(kind, layers), jnp.float64), 3, scale=0.5)


CONTENTS = draw_sequences(jax.random.key(5), 3, jnp.float64)


@cache
def exchanged(kind, layers=LAYERS):
    return papers.exchange_sources(network_of(kind, layers), CONTENTS)


@cache
def written(kind, layers=LAYERS):
    """Outputs, [number, prompts, content]."""
    return np.asarray(prompted_outputs(network_of(kind, layers), CONTENTS).swapaxes(0, 1))


def softmax(scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def by_hand(network, content, prompt, patterns=None):
    """Return what a network writes and its patterns, in numpy; with patterns given, those are taken."""
    n = jax.tree.map(np.asarray, network)
    asked = n.prompt[...][prompt]
    if n.places is None:
        x = (asked + content @ n.content[...])[None]
    else:
        x = np.concatenate([asked[None], content[:, None] * n.content[...] + n.places[...]])
    used = []
    for i, block in enumerate(n.stack.blocks):
        if n.places is not None:
            attention = block.attention
            if hasattr(attention, "scores"):
                pattern = softmax(attention.scores[...])
            elif patterns is not None:
                pattern = patterns[i]
            else:
                q, k = ((x @ part.kernel[...]).reshape(len(x), HEADS, -1) for part in (attention.query, attention.key))
                pattern = softmax(np.einsum("qhd,khd->hqk", q, k) * (FEATURES // HEADS) ** -0.5)
            used.append(pattern)
            x = x + attended(attention, pattern)(x)
        z = x @ block.mlp.input.kernel[...] + block.mlp.input.bias[...]
        x = x + gelu(z) @ block.mlp.output.kernel[...] + block.mlp.output.bias[...]
    y = x @ n.readout.kernel[...] + n.readout.bias[...]
    return (y[0] if n.places is None else y[1:, 0]), used


def attended(attention, pattern):
    """Return attention with a pattern, the linear map of the stream."""
    value, output = (np.asarray(part.kernel[...]) for part in (attention.value, attention.output))
    heads = [value[:, h * 4 : h * 4 + 4] @ output[h * 4 : h * 4 + 4] for h in range(HEADS)]  # of four features each
    return lambda x: sum(pattern[h] @ x @ heads[h] for h in range(HEADS))


def gelu(z):
    return z * np.vectorize(lambda number: (1 + erf(number / 2**0.5)) / 2)(z)


@pytest.mark.parametrize("kind", PROMPT_NETWORKS)
def test_networks_write_what_is_computed_by_hand(kind):
    for i, content in enumerate(np.asarray(CONTENTS)):
        for prompt in range(4):
            close(written(kind)[i, prompt], by_hand(network_of(kind), content, prompt)[0], LAYERS)


def test_tasks_are_what_their_names_say():
    x = jnp.arange(8.0) / 8
    negated, squared, reversed_, mean = prompted_targets(FOUR, x[None])[:, 0]
    assert negated.tolist() == (-x).tolist() and reversed_.tolist() == x.tolist()[::-1]
    assert squared[4] == -0.5 and mean[4] == (1 + 2 + 3 + 4) / 8 / 5
    shifted = prompted_targets(SHIFTS, x[None])[:, 0]
    assert [list(row).index(0.0) for row in shifted.tolist()] == list(range(NUMBERS))


def test_the_output_with_the_least_mean_square_over_prompts_is_the_mean():
    """Of shifts that is the sequence's mean: the error is `√(1/3 · 7/8)` where numbers are uniform."""
    content = draw_sequences(jax.random.key(0), 5000)
    relative(blind_errors(SHIFTS, content), (7 / 24) ** 0.5, within=0.02)
    asked, least = prompted_targets(FOUR, content[:50]), float((blind_errors(FOUR, content[:50]) ** 2).mean())
    for other in (asked.mean(0) + 0.01, asked[1], jnp.median(asked, 0)):
        assert float(((other - asked) ** 2).mean()) > least


@pytest.mark.parametrize("kind", PROMPT_NETWORKS)
def test_networks_are_matched_to_one_neuron(kind):
    sizes = sizes_of(kind)
    step = count_parameters(replace(sizes, neurons=7)) - count_parameters(sizes)
    assert sum(leaf.size for leaf in jax.tree.leaves(drawn(sizes, jax.random.key(0)))) == count_parameters(sizes)
    for parameters in (1500, 1501, 1511):
        assert abs(count_parameters(matched(sizes, parameters)) - parameters) <= step / 2


def test_too_few_parameters_are_refused():
    with pytest.raises(InvalidInput, match="10 parameters are too few"):
        matched(sizes_of("transformer"), 10)


def test_first_weights_have_variance_one_over_what_they_sum_over():
    network = drawn(replace(sizes_of("perceptron"), features=100, neurons=400), jax.random.key(0))
    mlp = network.stack.blocks[0].mlp
    assert float(mlp.output.kernel[...].std()) == pytest.approx(400**-0.5, rel=0.02)
    assert float(mlp.input.kernel[...].std()) == pytest.approx(0.1, rel=0.02)
    assert float(jnp.abs(mlp.input.bias[...]).max()) == 0.0


@pytest.mark.slow
def test_training_learns_the_functions_and_seeds_are_their_own():
    keys = jax.random.split(jax.random.key(0), 2)
    sizes = replace(sizes_of("perceptron", 1), features=16, neurons=64)
    both, second = (train_prompted(sizes, some, steps=400, batch=64, rate=1e-2) for some in (keys, keys[1:]))
    for one, other in zip(jax.tree.leaves(both), jax.tree.leaves(second), strict=True):
        near(one[1], other[0], within=1e-5)
    content = draw_sequences(jax.random.key(9), 200)
    error = prompted_errors(both, FOUR, content)
    off = np.asarray(prompted_outputs(both, content) - prompted_targets(FOUR, content))
    close(error, (off**2).mean((2, 3)) ** 0.5)
    assert (error.mean(1) < 0.5 * blind_errors(FOUR, content).mean()).all()


@pytest.mark.parametrize("kind", ["perceptron", FIXED, "transformer"])
def test_closed_form_written_out_is_the_forward_pass(kind):
    network = network_of(kind)
    x = network.embed(CONTENTS[0], jnp.array(2))
    own = jax.jit(partial(dense_parameters, network.states))(x)
    close(evaluated(network, x, own, own), by_hand(network, np.asarray(CONTENTS[0]), 2)[0], LAYERS)


def test_parameters_of_the_transformer_are_kronecker_sums():
    network, content = network_of("transformer"), np.asarray(CONTENTS[0])
    found = jax.jit(partial(dense_parameters, network.states))(network.embed(CONTENTS[0], jnp.array(1)))
    _, patterns = by_hand(network, content, 1)
    first, second = network.stack.blocks

    def path(block, pattern):
        value, output = (np.asarray(part.kernel[...]) for part in (block.attention.value, block.attention.output))
        mixed = [np.kron(pattern[h], (value[:, 4 * h : 4 * h + 4] @ output[4 * h : 4 * h + 4]).T) for h in range(HEADS)]
        return np.eye(9 * FEATURES) + sum(mixed)

    def on_tokens(linear):
        return np.kron(np.eye(9), np.asarray(linear.kernel[...]).T)

    paths = [path(first, patterns[0]), path(second, patterns[1])]
    close(found.paths[0], paths[0], LAYERS)
    close(found.paths[1], paths[1] @ paths[0], LAYERS)
    close(found.inners[1], on_tokens(second.mlp.input) @ paths[1] @ paths[0], LAYERS)
    close(found.outers[0], paths[1] @ on_tokens(first.mlp.output), LAYERS)
    close(found.outers[1], on_tokens(second.mlp.output), LAYERS)
    close(found.biases[0], np.tile(np.asarray(first.mlp.output.bias[...]), (9, 1)), LAYERS)
    close(found.inner_biases[0], np.tile(np.asarray(first.mlp.input.bias[...]), (9, 1)), LAYERS)


def largest(change):
    return float(jnp.abs(change).max())


@pytest.mark.parametrize("kind", ["perceptron", "fixed pattern"])
def test_without_a_moving_pattern_only_later_biases_move(kind):
    changes = parameter_changes(network_of(kind), CONTENTS)
    assert [symbol for symbol, change in changes.items() if largest(change) != 0] == ["c2"]
    assert float(changes["c2"][0, 0]) == 0 and float(changes["c2"][0, 1]) > 0.01


def test_a_pattern_that_asks_nothing_moves_no_weights():
    network = network_of("transformer")
    silent = jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.zeros_like(leaf) if "query" in jax.tree_util.keystr(path) else leaf, network
    )
    changes = parameter_changes(silent, CONTENTS)
    assert [symbol for symbol, change in changes.items() if largest(change) != 0] == ["c2"]


def test_what_moves_in_a_transformer():
    """Its patterns move the weights; the last outer weights and the first biases have no pattern in them."""
    changes = parameter_changes(network_of("transformer"), CONTENTS)
    still = {"C2", "c1", "q1"}
    assert {symbol for symbol, change in changes.items() if largest(change) < 1e-12} - {"q2"} == still
    assert all(largest(changes[symbol]) == 0 for symbol in still)
    assert largest(changes["q2"]) < 1e-12


def test_change_of_a_bias_is_relative_to_both():
    """The perceptron's `c_2` is its pre-activation without `B_2 x_0`: by hand, between two prompts."""
    network, content = network_of("perceptron"), np.asarray(CONTENTS[0])

    def bias(prompt):
        first, second = network.stack.blocks
        x = np.asarray(network.prompt[...])[prompt] + content @ np.asarray(network.content[...])
        hidden = gelu(x @ np.asarray(first.mlp.input.kernel[...]) + np.asarray(first.mlp.input.bias[...]))
        written = hidden @ np.asarray(first.mlp.output.kernel[...]) + np.asarray(first.mlp.output.bias[...])
        return written @ np.asarray(second.mlp.input.kernel[...]) + np.asarray(second.mlp.input.bias[...])

    one, other = bias(0), bias(3)
    size = ((np.linalg.norm(one) ** 2 + np.linalg.norm(other) ** 2) / 2) ** 0.5
    found = parameter_changes(network, CONTENTS[:1])["c2"]
    close(found[0, 3], np.linalg.norm(one - other) / size)
    close(found, found.T)


@pytest.mark.parametrize("kind", ["perceptron", FIXED, "transformer"])
def test_with_all_sources_from_one_prompt_its_output_is_written(kind):
    corners = {corner: exchanged(kind)[name] for corner, name in SOURCES.items()}
    y = written(kind)
    for p in range(4):
        for q in range(4):
            close(corners[True, True, True][:, p, q], y[:, p], LAYERS)
            close(corners[False, False, False][:, p, q], y[:, q], LAYERS)


@pytest.mark.parametrize("kind", ["perceptron", FIXED])
def test_static_weights_are_the_same_from_either_prompt(kind):
    corners = {corner: exchanged(kind)[name] for corner, name in SOURCES.items()}
    close(corners[True, False, False], corners[True, True, False], LAYERS)
    close(corners[False, False, True], corners[False, True, True], LAYERS)
    assert largest(corners[True, True, False] - corners[True, True, True]) > 1e-3
    for p in range(4):
        close(exchanged(kind)[PATTERNS][:, :, p].swapaxes(0, 1), written(kind).swapaxes(0, 1), LAYERS)


def test_held_corners_by_hand():
    """Weights of one prompt and biases of another, in the closed form of two layers written in numpy."""
    network, content, p, q = network_of("transformer"), CONTENTS[1], 0, 3
    x, y = (network.embed(content, jnp.array(prompt)) for prompt in (p, q))
    own, other = (jax.tree.map(np.asarray, jax.jit(partial(dense_parameters, network.states))(z)) for z in (x, y))
    flat = np.asarray(x).reshape(-1)
    state = other.paths[1] @ flat + other.biases[1].reshape(-1)
    for j in range(2):
        state = state + other.outers[j] @ gelu(other.inners[j] @ flat + own.inner_biases[j].reshape(-1))
    by_readout = state.reshape(9, -1)[1:] @ np.asarray(network.readout.kernel[...]) + network.readout.bias[...]
    close(exchanged("transformer")["input + biases"][1, p, q], by_readout[:, 0], LAYERS)


def test_patterns_of_another_prompt_are_run_again_by_hand():
    network, content = network_of("transformer"), np.asarray(CONTENTS[2])
    for p, q in ((0, 1), (3, 2)):
        _, patterns = by_hand(network, content, q)
        expected, _ = by_hand(network, content, p, patterns)
        close(exchanged("transformer")[PATTERNS][2, p, q], expected, LAYERS)
        assert largest(exchanged("transformer")[PATTERNS][2, p, q] - written("transformer")[2, p]) > 1e-4


def test_mean_patterns_are_run_again_by_hand():
    network = network_of("transformer")
    of_all = [by_hand(network, content, p)[1] for content in np.asarray(CONTENTS) for p in range(4)]
    mean = [np.mean([patterns[i] for patterns in of_all], 0) for i in range(LAYERS)]
    found = with_mean_patterns(network, CONTENTS)
    for p in range(4):
        close(found[1, p], by_hand(network, np.asarray(CONTENTS[1]), p, mean)[0], LAYERS)


def test_one_layer_has_no_biases_that_move():
    """There are no earlier terms: set to another prompt's, the run is the same."""
    again, y = exchanged("transformer", 1)[BIASES], written("transformer", 1)
    for q in range(4):
        close(again[:, :, q], y, 1)


def test_biases_of_another_prompt_are_run_again():
    """The second layer's pre-activation of the perceptron is moved by what the first term changed alone."""
    network, p, q = network_of("perceptron"), 1, 2
    first, second = jax.tree.map(np.asarray, network).stack.blocks

    def embedded(prompt):
        return np.asarray(network.embed(CONTENTS[0], jnp.array(prompt)))

    def layer(x, block, z):
        return x + gelu(z) @ block.mlp.output.kernel[...] + block.mlp.output.bias[...]

    def pre_activation(x, block):
        return x @ block.mlp.input.kernel[...] + block.mlp.input.bias[...]

    after = {i: layer(embedded(i), first, pre_activation(embedded(i), first)) for i in (p, q)}
    z = pre_activation(after[q] - embedded(q) + embedded(p), second)
    expected = layer(after[p], second, z) @ np.asarray(network.readout.kernel[...]) + network.readout.bias[...]
    close(exchanged("perceptron")[BIASES][0, p, q], expected[0], LAYERS)


def test_the_way_between_two_outputs():
    y = jax.random.normal(jax.random.key(0), (5, 4, NUMBERS))
    own, other = jnp.broadcast_to(y[:, :, None], (5, 4, 4, NUMBERS)), jnp.broadcast_to(y[:, None], (5, 4, 4, NUMBERS))
    for between, position in ((other, 0), (own, 1), ((own + 3 * other) / 4, 0.25)):
        close(relative_position(between, y.swapaxes(0, 1)), position)


def sizes_with(**changed):
    return PromptSizes(**{"kind": "transformer", "task": FOUR, "layers": 1, "features": 8, "neurons": 2} | changed)


KEY = jax.random.key(0)
TWO = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), PromptNetwork(sizes_with()))


@pytest.mark.parametrize(
    ("ask", "named"),
    [
        (
            lambda: sizes_with(kind="mlp", task="five", prompt="here"),
            ["'transformer'", "'eight shifts'", "'own token'"],
        ),
        (lambda: sizes_with(layers=0, neurons=-1), ["layers is 0", "neurons is -1"]),
        (lambda: sizes_with(features=6), ["6 features aren't divided by 4 heads"]),
        (lambda: draw_sequences(KEY, 0), ["number is 0"]),
        (
            lambda: train_prompted(sizes_with(), KEY[None], steps=0, batch=-1, rate=-1.0),
            ["steps", "batch", "rate is -1"],
        ),
        (lambda: prompted_targets("three", CONTENTS), ["task is 'three': give 'four functions' or 'eight shifts'"]),
        (lambda: prompted_targets(FOUR, CONTENTS[:, :7]), [r"\[3, 7\]", r"\[sequences, 8\]"]),
        (lambda: prompted_outputs(network_of("perceptron"), CONTENTS[:, :7]), [r"\[3, 7\]"]),
        (lambda: prompted_errors(network_of("perceptron"), SHIFTS, CONTENTS), ["have 4 prompts", "has 8"]),
        (lambda: parameter_changes(TWO, CONTENTS), [r"several networks.*leaf\[0\]"]),
        (lambda: papers.exchange_sources(TWO, CONTENTS), ["several networks"]),
        (
            lambda: unchecked(prompted_outputs)(sizes_with(), CONTENTS),
            ["network is of type PromptSizes: give a PromptNet"],
        ),
        (lambda: unchecked(prompted_errors)(3, FOUR, CONTENTS), ["network is of type int"]),
        (lambda: unchecked(parameter_changes)(None, CONTENTS), ["network is of type NoneType"]),
        (
            lambda: unchecked(train_prompted)("perceptron", KEY[None], steps=1),
            ["sizes is of type str: give a PromptSizes"],
        ),
        (lambda: relative_position(jnp.ones((1, 4, 4, 8)), jnp.ones((3, 1, 8))), [r"\(1, 4, 4, 8\).*\(3, 1, 8\)"]),
    ],
)
def test_everything_that_is_wrong_is_named_at_once(ask, named):
    with pytest.raises(InvalidInput) as raised:
        ask()
    assert all(re.search(each, str(raised.value)) for each in named), raised.value


def of_pairs(change):
    """Return a change between two different prompts, and none between a prompt and itself."""
    return jnp.array([[0, change], [change, 0]])


def test_pictures_show_outputs_and_changes():
    asked = jnp.array([[0.0, 1.0], [2.0, 3.0]])
    figure = draw_prompted_outputs(jnp.array([5.0, 6.0]), asked, {"network": asked + 0.5}, ["one", "two"])
    read, axes = figure.axes
    assert read.lines[0].get_ydata().tolist() == [5, 6]
    assert [line.get_ydata().tolist() for line in axes.lines] == [[0.5, 1.5], [0, 1], [2.5, 3.5], [2, 3], [1, 2]]
    table = draw_parameter_changes({"network": {"B12": of_pairs(0.5), "c1": of_pairs(0.0), "q2": of_pairs(1e-7)}}).axes[
        0
    ]
    assert [text.get_text() for text in table.texts] == ["0.50", "0", "1e-07"]
    assert [label.get_text() for label in table.get_xticklabels()] == ["$B_{12}$", "$c_{1}$", "$q_{2}$"]


def test_parameters_of_what_has_no_marked_term_are_refused():
    with pytest.raises(InvalidInput, match="no term with a mark"):
        dense_parameters(jax.nn.relu, jnp.ones((2, 3)))
