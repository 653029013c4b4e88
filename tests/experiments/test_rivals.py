"""Other methods' scores against models by hand, finite differences, and methods with which they must agree."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from cases import GOLDEN
from helpers import close, near, numbers

import duat_jax as duat
from duat_jax.attribution import units as ours
from duat_jax.attribution.unit_values import sites_of, values_of
from duat_jax.evaluation.circuits import FRACTIONS, UNITS
from duat_jax.inputs.prompts import Prompt, difference_at, logit_difference
from duat_jax.nn.mlp import GatedMLP
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.program import trace
from duat_jax.transform.recording import record_kinds
from experiments import task_curves
from experiments.estimate import estimate
from experiments.rivals import atp, backward, network, patching, paths
from experiments.rivals import run as study
from experiments.table import render

PROMPT = Prompt(jnp.array([5, 9, 14, 3, 8]), jnp.array([5, 30, 14, 3, 8]), jnp.array(11), jnp.array(7))


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def model(request):
    """A model with biases and one with gates, rotary positions and fewer keys than queries."""
    return duat.load(GOLDEN / request.param, dtype="float64")


def texts(model):
    read = partial(logit_difference, model, right=PROMPT.right, wrong=PROMPT.wrong)
    return read, model.embed(PROMPT.clean), model.embed(PROMPT.corrupted)


def gradient_x_change(model):
    read, x, y = texts(model)
    return ours._gradient_times_change(read, x, y)


def test_the_network_is_the_model(model):
    read, x, _ = texts(model)
    states, (neurons, heads) = network.run(model, network.PLAIN, x, network.nothing(model, x))
    close(difference_at(model, states[-1], PROMPT.right, PROMPT.wrong), read(x), layers=2)
    values = values_of(read, x)
    close(neurons, values.neurons, layers=2)
    close(heads, values.heads, layers=2)


def test_other_networks_are_refused():
    for name in ("qwen3", "gpt_neox", "gemma2"):
        model = duat.load(GOLDEN / name)
        with pytest.raises(ValueError, match="plain pre-norm"):
            network.run(model, network.PLAIN, model.embed(PROMPT.clean), ())


def test_gim_without_its_changes_is_the_gradient(model):
    rules = backward.gim_rules(1.0, held=False, divided=False)
    found, expected = backward.with_rules(rules)(model, *PROMPT), gradient_x_change(model)
    close(found.neurons, expected.neurons, layers=2)
    close(found.heads, expected.heads.sum(-1), layers=2)


def test_the_softmax_back_at_a_temperature_is_by_hand():
    x, dy = jnp.array(numbers(3, 4)), jnp.array(numbers(3, 4, key=1))
    value, back = jax.vjp(lambda x: backward.softmax_at(x, 2.0), x)
    close(value, jax.nn.softmax(x))
    p = jax.nn.softmax(x / 2)
    jacobians = jax.vmap(jnp.diag)(p) - p[:, :, None] * p[:, None, :]
    close(back(dy)[0], jnp.einsum("ri,rij->rj", dy, jacobians))


def test_gim_divides_products_and_holds_norms():
    """Queries and keys get a quarter of the gradient, values a half; nothing flows through the scale of a norm."""
    rules = backward.gim_rules(1.0)
    q, k, v = (jnp.array(numbers(4, 2, 3, key=key)) for key in range(3))

    def attention(rules, q, k, v):
        return jnp.sin(rules.mixed(rules.softmax(rules.scores(q, k)), v)).sum()

    found, plain = (jax.grad(partial(attention, r), (0, 1, 2))(q, k, v) for r in (rules, network.PLAIN))
    for part, whole, share in zip(found, plain, (0.25, 0.25, 0.5), strict=True):
        close(part, share * whole)
    close(jax.grad(lambda x: (x * rules.scale(x, 1e-5)).sum())(v), jnp.broadcast_to(network.scale(v, 1e-5), v.shape))


def test_gim_halves_what_passes_a_gated_mlp(model):
    """The neurons' own gradient is whole; that of the MLP's input is halved where two factors make a neuron."""
    _, x, _ = texts(model)
    mlp = model.stack.blocks[0].mlp
    nothing = network.nothing(model, x)[0][0]

    def output(x, added):
        return jnp.sin(network.mlp(mlp, backward.gim_rules(1.0), x, added)[0]).sum()

    found, of_neurons = jax.grad(output, (0, 1))(x, nothing)
    close(found, jax.grad(lambda x: jnp.sin(mlp(x)).sum())(x) * (0.5 if isinstance(mlp, GatedMLP) else 1))
    close(of_neurons, jnp.cos(mlp(x)) @ mlp.output.kernel[...].T, layers=2)


def test_deeplifts_contributions_sum_to_the_difference(model):
    read, x, y = texts(model)
    _, _, coefficients, change = backward.multipliers(model, *PROMPT)
    close((coefficients * change).sum(), read(x) - read(y), layers=8)


def test_deeplift_of_the_last_layer_is_that_by_hand(model):
    """Behind the last layer's neurons stands only a norm: its scale's multiplier is written out here."""
    read, x, y = texts(model)
    coefficients, _, _, _ = backward.multipliers(model, *PROMPT)
    streams = [values_of(read, z).streams[-1] for z in (x, y)]
    norm, kernel = model.final_norm, model.stack.blocks[-1].mlp.output.kernel[...]
    rows = model.head.rows(model.unembedding)
    readout = norm.scale[...] * (rows[PROMPT.right] - rows[PROMPT.wrong])
    centred = float(hasattr(norm, "bias"))
    a, b = (z[-1] - centred * z[-1].mean() for z in streams)
    powers = [(z * z).mean() + norm.epsilon for z in (a, b)]
    scales = [p**-0.5 for p in powers]
    slope = (scales[0] - scales[1]) / (powers[0] - powers[1])
    of_stream = readout * sum(scales) / 2 + slope * (readout @ (a + b) / 2) * (a + b) / len(a)
    close(coefficients[0][-1, -1], kernel @ (of_stream - centred * of_stream.mean()), layers=4)


def test_deeplift_is_the_secant_where_no_attention_moves():
    """Both give an elementwise function its difference quotient, and a product the means of its factors."""
    model = duat.load(GOLDEN / "llama", dtype="float64")
    for block in model.stack.blocks:
        block.attention.query.kernel[...] *= 0
    read, x, y = texts(model)
    found = backward.deeplift(model, *PROMPT)
    expected = ours.METHODS["secant"].rule(model, read, x, y, jnp.ones(5, bool))
    close(found.neurons, expected.neurons, layers=8)
    close(found.heads, expected.heads, layers=8)


def test_an_elementwise_functions_multiplier_is_its_slope_where_nothing_changes():
    z = jnp.array([[1.0, 2.0, 3.0], [1.0, 1.0, 3.0]])
    found = jax.grad(lambda z: backward.rescaled(jnp.square)(z)[0].sum())(z)
    close(found, [[2.0, 3.0, 6.0], [0.0, 0.0, 0.0]])


def test_the_mean_of_gradients_is_half_the_difference_of_both_directions(model):
    """The written-out network's gradient x change from one text to the other, minus the same with texts exchanged."""
    read, x, y = texts(model)
    found, scored = paths.mean_of_gradients(model, read, x, y), backward.with_rules(network.PLAIN)
    there, back = scored(model, *PROMPT), scored(model, PROMPT.corrupted, PROMPT.clean, PROMPT.right, PROMPT.wrong)
    close(found.neurons, (there.neurons - back.neurons) / 2, layers=2)
    close(found.heads.sum(-1), (there.heads - back.heads) / 2, layers=2)


def test_eap_gp_is_the_mean_gradient_on_its_path_times_the_change(model):
    """The gradients are those of the written-out network at each point of the path."""
    read, x, y = texts(model)
    nothing = network.nothing(model, x)

    def number(added, z):
        return difference_at(model, network.run(model, network.PLAIN, z, added)[0][-1], PROMPT.right, PROMPT.wrong)

    points = paths.eap_gp_path(model, x, y, steps=3)
    gradients = [jax.grad(number)(nothing, z) for z in points]
    found, values, reference = paths.eap_gp(model, read, x, y, steps=3), values_of(read, x), values_of(read, y)
    for i in range(2):
        mean = sum(gradient[i] for gradient in gradients) / 3
        close(found[i], mean * (values[i] - reference[i]), layers=4)


def test_a_step_of_eap_gp_has_length_one_and_goes_down_the_distance(model):
    """The first step starts at the text; its direction is that of finite differences of all tokens' logits."""
    _, x, y = texts(model)
    path = jnp.stack([x, *paths.eap_gp_path(model, x, y, steps=3)])
    steps = path[1:] - path[:-1]
    close(jnp.linalg.norm(steps, axis=(1, 2)), jnp.ones(3), layers=2)

    def distance(z):
        logits = model.head.logits(model.states(jnp.stack([z, y])), model.unembedding)
        return float(jnp.square(logits[0] - logits[1]).sum())

    direction = np.zeros(x.shape)
    for place in np.ndindex(*x.shape):
        moved = 1e-5 * np.eye(x.size)[np.ravel_multi_index(place, x.shape)].reshape(x.shape)
        direction[place] = (distance(x - moved) - distance(x + moved)) / 2e-5
    near(steps[0], direction / np.linalg.norm(direction), within=1e-6)


def test_atp_where_attention_does_not_move_is_gradient_x_change():
    model = duat.load(GOLDEN / "gpt2", dtype="float64")
    for block in model.stack.blocks:
        block.attention.query.kernel[...] *= 0
        block.attention.key.kernel[...] *= 0
    read, x, y = texts(model)
    found, expected = atp.atp_star(model, read, x, y, dropped=False), gradient_x_change(model)
    close(found.neurons, expected.neurons, layers=2)
    close(found.heads.sum(-1), expected.heads.sum(-1), layers=2)


def test_atp_computes_the_pattern_of_each_replaced_query_and_key_anew(model):
    """The same sums from runs of the first layer's attention in which one query, key or value is set by hand."""
    read, x, y = texts(model)
    found = atp.changes_of_heads(model, read, x, y)[0]
    names = ("attention.queries", "attention.keys", "attention.values")
    block = model.stack.blocks[0]

    def run(z, edits):
        marked = edit(lambda z: block.attention(block.norm_1(z)), edits)
        return record_kinds(marked, z, ("point",))

    streams = [model.first(z) for z in (x, y)]
    clean, reference = (run(z, {}) for z in streams)
    sites = {site.key.name: site for site in clean.seen}
    output = clean.seen[sites["attention.mixed"]]
    expected = jnp.zeros_like(output)
    for name in names:
        site = sites[name]
        for token in range(len(x)):
            live = (jnp.arange(len(x)) != token)[:, None, None]
            replaced = Edit(live.astype(x.dtype), jnp.where(live, 0, reference.seen[site]))
            expected += output - run(streams[0], {site: replaced}).seen[sites["attention.mixed"]]
    close(found, expected, layers=2)


def test_graddrop_skips_one_layer(model):
    """A first layer's neuron has the mean size of its effects with each other layer's outputs constant."""
    read, x, y = texts(model)
    found = atp.atp_star(model, read, x, y)
    first, *others = model.stack.blocks
    change = values_of(read, x).neurons - values_of(read, y).neurons
    stream = model.first(x)
    site = next(site for site in trace(first, stream)[0].of_kind("point") if site.key.name == "mlp.neurons")

    def skipping(added, skipped):
        z = edit(first, {site: Edit(added=added)})(stream)
        for block in others:
            z = z + jax.lax.stop_gradient(block(z) - z) if block is skipped else block(z)
        state = model.head.states(model.final_norm(z))[-1]
        logits = model.head.logits(state, model.unembedding)
        return logits[PROMPT.right] - logits[PROMPT.wrong]

    sizes = [jnp.abs(jax.grad(skipping)(jnp.zeros_like(change[0]), block) * change[0]) for block in others]
    close(found.neurons[0], sum(sizes) / len(others), layers=3)


def test_a_patched_units_effect_is_that_of_an_edit(model):
    read, x, y = texts(model)
    reference, sites = values_of(read, y), sites_of(trace(read, x)[0])
    kind = UNITS["neuron x position"]
    change = values_of(read, x).neurons - reference.neurons
    sample = patching.sampled(change, 6, seed=0)
    assert len(set(sample.tolist())) == 6
    for place, effect in zip(sample.tolist(), patching.effects(model, PROMPT, kind, sample), strict=True):
        layer, token, neuron = np.unravel_index(place, change.shape)
        kept = jnp.ones(change.shape[1:]).at[token, neuron].set(0)
        run = edit(read, {sites.neurons[layer]: Edit(kept, (1 - kept) * reference.neurons[layer])})
        close(effect, read(x) - run(x), layers=4)


def test_rows_have_a_curve_of_every_method_and_equal_methods_are_level(monkeypatch):
    methods = {name: study.METHODS[name] for name in (*study.OURS, "GIM", "random")}
    monkeypatch.setattr(study, "METHODS", methods | {"the same": study.METHODS["secant"]})
    monkeypatch.setattr(study, "SAMPLE", 20)
    rows = study.rows_on_task(duat.load(), "parameter", 2)
    assert all(np.shape(row["runs"]) == (2, len(FRACTIONS)) for row in rows)
    circuits = pd.DataFrame(rows).assign(task="parameter")
    assert task_curves.lead(task_curves.with_statistics(circuits), "secant", "the same")[:3] == (0, 0, 0)
    means = study.every(circuits).set_index("method").correlation
    assert means["the same"] == means["secant"] > means["random"]
    table = render(study.STUDY.tables["All tasks"], {"circuits": circuits})
    assert {line.split(" | ")[0].strip("| ") for line in table[2:7]} == {*methods, "the same"}


@pytest.mark.parametrize(
    ("leads", "verdict"),
    [([-0.001, 0.001], "confirmed"), ([0.1, 0.11], "refuted"), ([-0.1, -0.11], "refuted"), ([-0.1, 0.1], "undecided")],
)
def test_a_lead_within_a_bound_is_level(leads, verdict):
    assert study.within(0.02, estimate(leads)) == verdict
