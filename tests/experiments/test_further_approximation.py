"""Tasks of several tokens, weights by least squares, and the verdicts on eight numbers, jumps, pointers and weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close, near

from duat_jax.nn.mlp import ACTIVATIONS
from experiments.approximation import direct, further, further_tables
from experiments.approximation.tokens import ELEMENTS, JUMPS, MOST, NUMBERS, SMOOTH, Numbers, Pointers
from experiments.generalization.networks import TRANSFORMER, drawn
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


@pytest.mark.parametrize("kind, layers", further.DEEP)
def test_networks_have_as_many_parameters(kind, layers):
    task = Pointers()
    sizes = further.sizes_of(task, kind, further.WIDEST, layers)
    near(further.count(sizes, task), further.count(further.sizes_of(task, TRANSFORMER, 32), task), within=300)


def test_a_single_layers_weights_are_least_squares():
    task = Numbers(name="cone")
    network = drawn(further.sizes_of(task, "one layer", 8), task, KEY)
    examples = task.draw(KEY, 600)
    found = direct.fitted(network, examples)
    x = np.asarray(examples.inputs.reshape(600, -1), float)
    neurons = np.asarray(ACTIVATIONS["gelu"](jax.vmap(network.stack.input)(x.astype(np.float32))), float)
    dense = np.concatenate([neurons, x, np.ones((600, 1))], 1)
    written = dense @ np.linalg.lstsq(dense, np.asarray(examples.targets, float), rcond=1e-6)[0]
    near(outputs(found, examples), written, within=2e-3)


def test_a_transformers_first_layer_is_fitted_to_the_target_and_the_second_to_the_rest():
    task = Numbers(name="wave")
    network = drawn(further.sizes_of(task, TRANSFORMER, 8, norms=False), task, KEY)
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
    assert further.errors(found, examples)["error"] < further.errors(network, examples)["error"]
    nothing = np.sqrt((np.asarray(examples.targets) ** 2).mean())
    assert further.errors(found, examples)["error"] < nothing


def test_the_read_out_has_all_of_the_last_token():
    task = Numbers(name="wave")
    network = drawn(further.sizes_of(task, TRANSFORMER, 8, norms=True), task, KEY)
    examples = task.draw(KEY, 300)
    features = direct.features(network, examples)
    weights = jnp.linalg.lstsq(features, outputs(network, examples))[0]
    near(features @ weights, outputs(network, examples), within=1e-3)
    assert features.shape[1] == 3 * 8 + 1 + 2 * network.stack.blocks[0].mlp.input.kernel.shape[1]


def test_errors_are_of_points():
    found = further._of_errors(jnp.array([0.0, 0.6, -0.8, jnp.nan]))
    assert found["far"] == 0.75 and found["largest"] == 1e9
    near(further._of_errors(jnp.array([0.6, -0.8]))["error"], 0.5**0.5, within=1e-6)


def results(*, sum_over=3.0, best_over=3.0, far=(0.4, 0.2, 0.01), four_steps=0.1, two_layers=0.9, computed=0.5):
    """Results in which the Transformer's error is .05, and those of rivals are multiples of it."""
    widths = (8, 16, 32)
    shifts = (0.99, 1.0, 1.01)
    networks, longer = {}, {}
    for name in (*SMOOTH, *JUMPS):
        for width, share in zip(widths, far, strict=True):
            for kind in further.KINDS:
                times = {TRANSFORMER: 1.0, "one layer": sum_over}.get(kind, best_over)
                seeds = [{"error": 0.05 * times * shift, "far": share * shift, "largest": 1.2} for shift in shifts]
                networks[f"{name}; {kind}; {width}"] = {"parameters": 100 * width, "rate": 0.01, "seeds": seeds}
    for kind, layers in further.DEEP:
        own = {4: four_steps, 2: two_layers}.get(layers, 0.9) if kind == TRANSFORMER else 0.9
        seeds = [{"error": own, "steps": [own * shift] * MOST} for shift in shifts]
        of = {"parameters": 1, "rate": 0.01, "seeds": seeds, "sizes": {"norms": True}}
        networks[f"pointers; {kind}; {layers}"] = of
        longer[f"pointers; {kind}; {layers}; 4 times as long"] = of

    def make_results(error):
        return [{"error": error * shift} for shift in shifts]

    ways = {
        "computed": make_results(computed),
        "trained": make_results(0.3),
        "as briefly trained": make_results(0.6),
        "read out": make_results(0.7),
    }
    times = {"seconds": 0.5, "seconds of training": 5.0, "steps": 300}
    kinds = dict.fromkeys((TRANSFORMER, "one layer"), ways | times)
    settings = {"widths": widths, "kinds": list(further.KINDS), "tested": 8192}
    from_data = {f"from data; {name}": kinds for name in further.DIRECT}
    return {"settings": settings, "networks": networks, "from data": from_data, "longer": longer}


@pytest.mark.parametrize(
    ("given", "question", "papers", "opposite"),
    [
        ({}, "eight numbers", "confirmed", "refuted"),
        ({"sum_over": 1.1, "best_over": 1.1}, "eight numbers", "refuted", "confirmed"),
        ({"best_over": 1.0}, "eight numbers", "confirmed", "confirmed"),
        ({"sum_over": 1.6, "best_over": 1.6}, "eight numbers", "open", "open"),
        ({}, "jumps", "confirmed", "confirmed"),
        ({"far": (0.4, 0.4, 0.4)}, "jumps", "refuted", "refuted"),
        ({}, "depth", "confirmed", "refuted"),
        ({"two_layers": 0.1}, "depth", "confirmed", "refuted"),
        ({"four_steps": 0.79}, "depth", "refuted", "confirmed"),
        ({"four_steps": 0.9}, "depth", "no verdict", "no verdict"),
        ({}, "from the data", "confirmed", "refuted"),
        ({"computed": 0.7}, "from the data", "refuted", "confirmed"),
    ],
)
def test_verdicts(given, question, papers, opposite):
    fields = further.fields(results(**given))
    name = f"Verdicts on approximation / {question}"
    assert fields[f"{name} / the papers' prediction"] == papers
    assert fields[f"{name} / the opposite view"] == opposite


def test_slopes_are_of_logarithms():
    near(further_tables.slope(results(far=(0.4, 0.2, 0.1)), "board", TRANSFORMER).value, -1.0, within=1e-9)
