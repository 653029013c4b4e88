"""Tasks of several tokens, weights by least squares, and the verdicts on eight numbers, jumps, pointers and weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from helpers import close, near

from duat_jax.nn.mlp import ACTIVATIONS
from experiments.approximation import cases, direct, further, trainings
from experiments.approximation.tokens import ELEMENTS, JUMPS, MOST, NUMBERS, SMOOTH, Numbers, Pointers
from experiments.generalization.networks import TRANSFORMER, count, drawn
from experiments.generalization.training import outputs

KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def as_optax_promotes():
    with jax.numpy_dtype_promotion("standard"):
        yield


def test_pointers_are_followed():
    """Places, pointers and steps are read from the tokens here, and the value is that of the place that is reached."""
    examples = Pointers().asked(KEY, jnp.arange(12) % MOST + 1)
    inputs = np.asarray(examples.inputs)
    values = np.linspace(-1, 1, ELEMENTS)
    for i, of in enumerate(inputs):
        assert (of[:-1, :ELEMENTS] == np.eye(ELEMENTS)).all()
        points_to = of[:-1, ELEMENTS : 2 * ELEMENTS].argmax(1)
        assert sorted(points_to) == list(range(ELEMENTS))
        place, steps = of[-1, :ELEMENTS].argmax(), of[-1, 2 * ELEMENTS :].argmax() + 1
        assert steps == i % MOST + 1
        for _ in range(steps):
            place = points_to[place]
        near(examples.targets[i, 0], values[place] / np.sqrt((values**2).mean()), within=1e-6)


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_functions_have_variance_one_and_read_every_number(name):
    task = Numbers(name=name)
    x = jax.random.uniform(KEY, (4096, NUMBERS))
    values = task.values(x)
    near(jnp.stack([values.mean(), values.std()]), jnp.array([0.0, 1.0]), within=0.1)
    slopes = jax.vmap(jax.grad(lambda x: task.values(x[None])[0]))(x)
    assert (jnp.abs(slopes).max(0) > 0.01).all()


def test_the_board_has_sixteen_fields():
    x = (jnp.arange(4) + 0.5) / 4
    fields = Numbers(name="board").values(jnp.stack(jnp.meshgrid(x, x), -1).reshape(-1, 2)).reshape(4, 4)
    assert (fields == (-1.0) ** np.add.outer(np.arange(4), np.arange(4))).all()
    turned = Numbers(name="turned board").values(jnp.array([[2e-3, 1e-3]]))
    assert turned[0] == -1, "its second number is just below zero there"


@pytest.mark.parametrize("kind, layers", trainings.DEEP)
def test_networks_have_as_many_parameters(kind, layers):
    task = Pointers()
    sizes = trainings.sizes_of(task, kind, trainings.WIDEST, layers)
    near(count(sizes, task), count(trainings.sizes_of(task, TRANSFORMER, 32), task), within=300)


def test_a_single_layers_weights_are_least_squares():
    task = Numbers(name="cone")
    network = drawn(trainings.sizes_of(task, "one layer", 8), task, KEY)
    examples = task.draw(KEY, 600)
    found = direct.fitted(network, examples)
    x = np.asarray(examples.inputs.reshape(600, -1), float)
    neurons = np.asarray(ACTIVATIONS["gelu"](jax.vmap(network.stack.input)(x.astype(np.float32))), float)
    dense = np.concatenate([neurons, x, np.ones((600, 1))], 1)
    written = dense @ np.linalg.lstsq(dense, np.asarray(examples.targets, float), rcond=1e-6)[0]
    near(outputs(found, examples), written, within=2e-3)


def test_a_transformers_first_layer_is_fitted_to_the_target_and_the_second_to_the_rest():
    task = Numbers(name="wave")
    network = drawn(trainings.sizes_of(task, TRANSFORMER, 8, norms=False), task, KEY)
    examples = task.draw(KEY, 400)
    found = direct.fitted(network, examples)
    x, rest = jax.vmap(found.embed)(examples.inputs), np.asarray(examples.targets[:, 0], float)
    for block, before in zip(found.stack.blocks, network.stack.blocks, strict=True):
        close(block.mlp.input.kernel[...], before.mlp.input.kernel[...])
        x = x + jax.vmap(block.attention)(x)
        neurons = ACTIVATIONS["gelu"](jax.vmap(block.mlp.input)(x))
        outer = np.asarray(block.mlp.output.kernel[...])
        assert np.abs(outer[:, 1:]).max() == 0, "it writes along one direction"
        last = np.asarray(neurons[:, -1], float)
        off = rest - last @ outer[:, 0]
        assert np.abs(last.T @ off).max() < 1e-2 * np.abs(last.T @ rest).max(), "nothing more is to be had"
        x, rest = x + jax.vmap(block.mlp.output)(neurons), off
    assert trainings.errors(found, examples)["error"] < trainings.errors(network, examples)["error"]
    nothing = np.sqrt((np.asarray(examples.targets) ** 2).mean())
    assert trainings.errors(found, examples)["error"] < nothing


def test_the_read_out_has_all_of_the_last_token():
    task = Numbers(name="wave")
    network = drawn(trainings.sizes_of(task, TRANSFORMER, 8, norms=True), task, KEY)
    examples = task.draw(KEY, 300)
    features = direct.features(network, examples)
    weights = jnp.linalg.lstsq(features, outputs(network, examples))[0]
    near(features @ weights, outputs(network, examples), within=1e-3)
    assert features.shape[1] == 3 * 8 + 1 + 2 * network.stack.blocks[0].mlp.input.kernel.shape[1]


def test_errors_are_of_points():
    found = trainings._of_errors(jnp.array([0.0, 0.6, -0.8, jnp.nan]))
    assert found["far"] == 0.75 and found["largest"] == 1e9
    near(trainings._of_errors(jnp.array([0.6, -0.8]))["error"], 0.5**0.5, within=1e-6)


def frames(*, sum_over=3.0, best_over=3.0, far=(0.4, 0.2, 0.01), four_steps=0.1, two_layers=0.9, computed=0.5):
    """Measurements in which the Transformer's error is .05, and those of rivals are multiples of it."""
    shifts = (0.99, 1.0, 1.01)
    networks = []
    for name in (*SMOOTH, *JUMPS):
        for width, share in zip((8, 16, 32), far, strict=True):
            for kind in trainings.KINDS:
                times = {TRANSFORMER: 1.0, "one layer": sum_over}.get(kind, best_over)
                keys = {
                    "task": name,
                    "network": kind,
                    "layers": 2,
                    "width": width,
                    "times": 1,
                    "parameters": 100 * width,
                }
                networks += [
                    {**keys, "seed": seed, "error": 0.05 * times * shift, "far": share * shift}
                    for seed, shift in enumerate(shifts)
                ]
    for kind, layers in trainings.DEEP:
        own = {4: four_steps, 2: two_layers}.get(layers, 0.9) if kind == TRANSFORMER else 0.9
        keys = {"task": "pointers", "network": kind, "layers": layers, "width": 32, "parameters": 1}
        networks += [
            {**keys, "times": times, "seed": seed, "error": own, "steps": [own * shift] * MOST}
            for times in (1, 4)
            for seed, shift in enumerate(shifts)
        ]
    ways = {"computed": computed, "trained": 0.3, "as briefly trained": 0.6, "read out": 0.7}
    weights = [
        {"task": task, "network": kind, "way": way, "seed": seed, "error": error * shift}
        for task in trainings.DIRECT
        for kind in (TRANSFORMER, "one layer")
        for way, error in ways.items()
        for seed, shift in enumerate(shifts)
    ]
    return {"networks": pd.DataFrame(networks), "computed": pd.DataFrame(weights)}


QUESTIONS = "depth", "eight numbers", "jumps", "from the data", "depth, longer"


@pytest.mark.parametrize(
    ("given", "question", "papers", "opposite"),
    [
        ({}, "eight numbers", "confirmed", "refuted"),
        ({"sum_over": 1.1, "best_over": 1.1}, "eight numbers", "refuted", "confirmed"),
        ({"best_over": 1.0}, "eight numbers", "confirmed", "confirmed"),
        ({"sum_over": 1.6, "best_over": 1.6}, "eight numbers", "undecided", "undecided"),
        ({}, "jumps", "confirmed", "confirmed"),
        ({"far": (0.4, 0.4, 0.4)}, "jumps", "refuted", "refuted"),
        ({}, "depth", "confirmed", "refuted"),
        ({}, "depth, longer", "confirmed", "refuted"),
        ({"two_layers": 0.1}, "depth", "confirmed", "refuted"),
        ({"four_steps": 0.79}, "depth", "refuted", "confirmed"),
        ({"four_steps": 0.9}, "depth", "undecided", "undecided"),
        ({}, "from the data", "confirmed", "refuted"),
        ({"computed": 0.7}, "from the data", "refuted", "confirmed"),
    ],
)
def test_verdicts(given, question, papers, opposite):
    measured, predictions = frames(**given), further.STUDY.predictions
    of_papers, of_others = predictions[2 * QUESTIONS.index(question) :][:2]
    assert of_papers.verdict(measured) == papers
    assert of_others.verdict(measured) == opposite


def test_slopes_are_of_logarithms():
    slopes = cases.slope("board", TRANSFORMER, frames(far=(0.4, 0.2, 0.1)))
    near(slopes, np.full(3, -1.0), within=1e-9)


def test_errors_below_the_floor_have_no_verdict():
    small = cases.ratio(np.array([0.01, 0.015]), np.array([0.002, 0.001]))
    assert cases.ahead(small) == "undecided"
    assert cases.ahead(small, cases.ratio(np.array([0.3, 0.31]), np.array([0.03, 0.03]))) == "confirmed"
