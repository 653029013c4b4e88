"""What adapters change in a number, split exactly: by hand, by the merged model, and by the symbolic form."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from adapters import IDS, TOKEN, random_adapters, small_model
from cases import GOLDEN
from helpers import close
from test_lora import said

import duat_jax as duat
from duat_jax.json_record import plain
from duat_jax.lora.adapter import adapt, merge, new_adapters, scaled
from duat_jax.lora.change import lora_change
from duat_jax.lora.parameters import moved_parameters
from duat_jax.lora.result import COLUMNS
from duat_jax.models.config import Head
from duat_jax.reference.blocks import residual_terms
from duat_jax.verification.routes import held_by_layer
from symbolic.equality.normal_form import normal_form
from symbolic.evaluation.bridge import name_of, to_jax
from symbolic.theorems.lora import AdaptedStack, delta, first_order
from symbolic.theorems.residual_stack import ResidualStack

BARE = {"norm": "none", "attention_bias": False, "output_bias": False, "mlp_bias": False}
"""A block of which everything but the attention pattern stands still, and which has no biases."""


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def adapters(model):
    return random_adapters(model)


@pytest.fixture(scope="module")
def found(model, adapters):
    return lora_change(model, adapters, IDS, TOKEN)


def test_new_adapters_change_no_number(model):
    found = lora_change(model, new_adapters(model, rank=2), IDS, TOKEN)
    assert found.difference == 0
    assert not any(found.totals.values())
    assert not any(part for effect in found.effects for part in effect[1:])


def forward_by_hand(model, x, held=None):
    """The forward pass written out, with the patterns and norms' scales of another run where they are given."""
    seen = []

    def hold(value):
        seen.append(value)
        return value if held is None else held[len(seen) - 1]

    def norm(module, x):
        x = x - x.mean(-1, keepdims=True)
        return hold(1 / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)) * x * module.scale[...] + module.bias[...]

    def linear(layer, x):
        return x @ layer.kernel[...] + layer.bias[...]

    tokens = len(x)
    for block in model.stack.blocks:
        h = norm(block.norm_1, x)
        q, k, v = (
            linear(part, h).reshape(tokens, 2, 3)
            for part in (block.attention.query, block.attention.key, block.attention.value)
        )
        scores = jnp.where(
            jnp.tril(jnp.ones((tokens, tokens), bool)), jnp.einsum("qhd,khd->hqk", q, k) / 3**0.5, -jnp.inf
        )
        pattern = hold(jax.nn.softmax(scores))
        x = x + linear(block.attention.output, jnp.einsum("hqk,khd->qhd", pattern, v).reshape(tokens, 6))
        x = x + linear(block.mlp.output, jax.nn.gelu(linear(block.mlp.input, norm(block.norm_2, x)), approximate=False))
    return norm(model.final_norm, x)[-1] @ model.embedding.token[...][TOKEN], seen


def test_the_three_columns_are_those_of_four_runs_written_out(model, adapters, found):
    x, models = model.embed(IDS), (model, merge(model, adapters))
    (before, d0), (after, d1) = (forward_by_hand(one, x) for one in models)
    moved, adapted = forward_by_hand(models[0], x, d1)[0] - before, forward_by_hand(models[1], x, d0)[0] - before
    expected = {"moved": moved, "adapter": adapted, "interaction": after - before - moved - adapted}
    close(found.before, before)
    close(found.after, after)
    for name in COLUMNS:
        assert abs(expected[name]) > 1e-2
        close(found.totals[name], np.asarray(expected[name]), 6)
    assert found.completeness.verdict == "holds"
    assert [corner.verdict for corner in found.corners] == ["holds"] * 4
    close(sum(row["base"] for row in found.rows.values()), before)
    close(sum(effect.part for effect in found.effects), found.difference, 6)
    for name in list(adapters)[:2]:
        alone, _ = forward_by_hand(merge(model, {name: adapters[name]}), x)
        (effect,) = (one for one in found.effects if one.name == name)
        close(effect.alone, alone - before, 6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixtral", "capped"])
def test_the_columns_and_the_adapters_parts_sum_to_what_the_merged_model_says(name):
    """Of a router that jumps, and of a read-out that moves."""
    model = small_model(cap=2.0) if name == "capped" else duat.load(GOLDEN / name, dtype=jnp.float64)
    adapters = random_adapters(model, size=0.05 if name == "mixtral" else 0.3)
    found = lora_change(model, adapters, IDS, TOKEN, contrast=8, position=3)
    before, after = (said(one, IDS)[3] for one in (model, merge(model, adapters)))
    change = (after[TOKEN] - after[8]) - (before[TOKEN] - before[8])
    close(sum(found.totals.values()), change, 8)
    close(sum(effect.part for effect in found.effects) + sum(found.discontinuities.values()), change, 8)
    for effect in found.effects[:2]:
        alone = said(merge(model, {effect.name: adapters[effect.name]}), IDS)[3]
        close(effect.alone, np.asarray(alone[TOKEN] - alone[8] - (before[TOKEN] - before[8])), 8)


def only(adapters, name, columns=slice(None)):
    """Return the same adapters, of which one alone, in some columns, does anything: one program for all."""
    kept = {each: jnp.zeros_like(one.up) for each, one in adapters.items()}
    kept[name] = kept[name].at[:, columns].set(adapters[name].up[:, columns])
    return {each: one._replace(up=kept[each]) for each, one in adapters.items()}


def test_adapters_of_queries_and_keys_alone_only_move_the_dynamics(model, adapters):
    found = lora_change(model, only(adapters, "h.0.attn.c_attn", slice(12)), IDS, TOKEN)
    assert abs(found.difference) > 1e-3
    for row in found.rows.values():
        assert row["adapter"] == row["interaction"] == 0
    assert found.first_order_held == 0


@pytest.fixture(scope="module")
def bare():
    """A model in which nothing but attention patterns is dynamic, without biases, and random adapters."""
    model = small_model(2, final_norm=False, activation="tanh", **BARE)
    return model, random_adapters(model)


@pytest.mark.slow
def test_an_adapter_that_nothing_follows_is_linear_by_hand(bare):
    """Without a norm after it, an adapter of the last outer matrix adds `E_t · s (σ(z) A) B` to its own term."""
    model, adapters = bare
    name = "h.1.mlp.c_proj"
    down, up, scale = adapters[name]
    found = lora_change(model, only(adapters, name), IDS, TOKEN)
    activated = duat.record(model.output)(model.embed(IDS)).dynamics.activations["layers.1.mlp"][-1]
    expected = np.asarray(scale * (activated @ down) @ up @ model.embedding.token[...][TOKEN])
    effects = {effect.name: effect[1:] for effect in found.effects}
    for number in (found.difference, found.rows["layers.1.mlp"]["adapter"], *effects[name], found.first_order):
        close(number, expected)
    close(found.first_order_held, expected)
    assert found.totals["moved"] == found.totals["interaction"] == 0


@pytest.mark.slow
def test_two_linear_maps_share_their_product_by_halves_by_hand(bare):
    """Values and outputs adapted together: `H x (V + ΔV)(O + ΔO)`, of second order in both."""
    model, adapters = jax.tree.map(lambda leaf: leaf, bare)
    model.stack.blocks[1].mlp.output.kernel.set_value(jnp.zeros((10, 6)))
    names = "h.1.attn.c_attn", "h.1.attn.c_proj"
    adapters = only(adapters, names[0], slice(12, 18)) | {names[1]: adapters[names[1]]}
    found = lora_change(model, adapters, IDS, TOKEN)
    seen = duat.record(model.output)(model.embed(IDS)).dynamics
    x, pattern = seen.streams["layer[1]"], seen.held["layers.1.attention.pattern"][:, -1]
    attention, u = model.stack.blocks[1].attention, model.embedding.token[...][TOKEN]
    dv, do = (float(one.scale) * one.down @ one.up for one in (adapters[name] for name in names))

    def through(value, output):
        mixed = jnp.einsum("hk,khd->hd", pattern, (x @ value).reshape(5, 2, 3)).reshape(6)
        return mixed @ output @ u

    v, o, dv = attention.value.kernel[...], attention.output.kernel[...], dv[:, 12:]
    firsts, second = {names[0]: through(dv, o), names[1]: through(v, do)}, through(dv, do)
    assert abs(second) > 1e-3
    for effect in found.effects:
        first = firsts.get(effect.name, jnp.zeros(()))
        close(effect.first_order, np.asarray(first))
        close(effect.part, np.asarray(first + (second / 2 if effect.name in names else 0)))
        close(effect.alone, np.asarray(first))
    close(found.difference, np.asarray(sum(firsts.values()) + second))
    assert found.totals["moved"] == found.totals["interaction"] == 0


def test_the_first_order_is_the_derivative_of_the_merged_model(model, adapters, found):
    number = jax.jit(lambda scale: merge(model, scaled(adapters, scale))(IDS)[-1, TOKEN])
    step = 1e-4
    numeric = (8 * (number(step) - number(-step)) - (number(2 * step) - number(-2 * step))) / (12 * step)
    assert abs(found.first_order - numeric) < 1e-8 * abs(numeric)
    assert abs(found.first_order - found.difference) > 1e-3


def terms_of(model, x):
    form = duat.unroll(model.stack, x)
    return form, residual_terms(model.stack, held_by_layer(form.dynamics, model.config.layers))


def arrays_of(terms, x):
    symbols = ResidualStack()
    arrays = {name_of(symbols.x(0)): x.reshape(-1)}
    for k, term in enumerate(terms, 1):
        arrays |= {name_of(symbols.W(k, 1)): term.path, name_of(symbols.W(k, 2)): term.inner}
        arrays |= {name_of(symbols.W(k, 3)): term.outer}
        arrays |= {name_of(symbols.b(k, 3)): term.path_bias, name_of(symbols.b(k, 2)): term.inner_bias}
    return arrays


@pytest.mark.slow
def test_the_symbolic_form_says_the_same(bare):
    """With `ΔW'` read off both runs, it is the adapted network; with their derivatives, its first order."""
    (model, adapters), symbols, adapted = bare, ResidualStack(), AdaptedStack()
    x, u = model.embed(IDS), model.embedding.token[...][TOKEN]
    found = lora_change(model, adapters, IDS, TOKEN)

    def arrays_at(scale):
        return arrays_of(terms_of(merge(model, scaled(adapters, scale)), x)[1], x)

    def read(states):
        return states.reshape(x.shape)[-1] @ u

    base, after = arrays_at(0.0), arrays_at(1.0)
    weights = [name for name in base if name.startswith("W'")]
    assert len(weights) == 6
    for name in base.keys() - weights:  # what the symbolic form lets stand still does
        close(after[name], base[name])
    form = to_jax(adapted.form(2), jnp.tanh, adapted.recursions)
    close(read(form(base | {f"Δ{name}": after[name] - base[name] for name in weights})), np.asarray(found.after), 6)

    network = normal_form(symbols.x(2), [symbols.equation_20]).expression()
    formal = to_jax(first_order(network, lambda p: delta(p) if p.letter == "W'" else None), jnp.tanh)
    step = 1e-4
    slopes = jax.tree.map(lambda a, b: (a - b) / (2 * step), arrays_at(step), arrays_at(-step))
    expected = read(formal(base | {f"Δ{name}": slopes[name] for name in weights}))
    assert abs(found.first_order - expected) < 1e-5 * abs(expected) + 1e-7
    assert abs(found.first_order - found.difference) > 1e-3


@pytest.mark.slow
def test_parameters_move_as_the_dense_ones_do():
    model = small_model(layers=2)
    adapters = random_adapters(model, ["h.1.attn.c_attn", "h.1.mlp.c_proj"])
    moved = moved_parameters(model, adapters, IDS, samples=64)
    x = model.embed(IDS)
    base, after = (duat.unroll(one.hidden, x) for one in (model, merge(model, adapters)))

    def apart(of):
        one, other = np.asarray(of(base)), np.asarray(of(after))
        return np.linalg.norm(other - one) / np.linalg.norm(one) if one.any() else 0.0

    estimated = {
        **{
            ("P", i): (one, lambda form, i=i: form.input_map(i).dense())
            for i, one in enumerate(moved.input_maps.values())
        },
        **{
            ("B", j): (one, lambda form, j=j: form.inner_map(j).dense())
            for j, one in enumerate(moved.inner_maps.values(), 1)
        },
        **{
            ("C", j): (one, lambda form, j=j: form.outer_map(j).dense())
            for j, one in enumerate(moved.outer_maps.values(), 1)
        },
    }
    assert len(estimated) == 3 + 2 + 2
    for name, ((value, error), of) in estimated.items():
        expected = apart(of)
        assert abs(value - expected) <= 4 * error + 1e-12, name
        assert error <= 0.1 * value
        assert (value == 0) == (expected == 0), name
    for i, one in enumerate(moved.biases.values()):
        close(one, np.asarray(apart(lambda form, i=i: form.bias(i))))
    for j, one in enumerate(moved.inner_biases.values(), 1):
        close(one, np.asarray(apart(lambda form, j=j: form.inner_bias(j))))
    # Before the adapters nothing moves; a term before them is carried through what they moved.
    assert [float(one.value) for one in moved.input_maps.values()][:2] == [0, 0]
    assert float(next(iter(moved.inner_maps.values())).value) == 0 < float(next(iter(moved.outer_maps.values())).value)
    assert plain(moved)["inner_maps"]["layers.0.mlp"] == {"value": 0, "standard_error": 0}
    nothing = moved_parameters(model, scaled(adapters, 0), IDS, samples=64)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(nothing))


def test_a_change_shows_itself(found):
    for part in ("logit of '4' at token 4", "of first order", "h.0.attn.c_attn", "holds"):
        assert part in str(found)
    told = found.as_dict("a model", 3)
    json.dumps(told, allow_nan=False)
    assert len(told["top_neurons"]) == 3
    assert [axis.get_title() for axis in found.plot().axes] == ["By term of the closed form", "By adapter"]
    neuron = told["top_neurons"][0]
    columns = sum(getattr(found.columns, name).terms[neuron["term"]] for name in COLUMNS)
    close(neuron["change"], columns[neuron["token_index"], neuron["neuron"]])
    assert abs(neuron["change"]) == max(
        np.abs(sum(getattr(found.columns, name).terms[key] for name in COLUMNS)).max()
        for key in found.columns.base.terms
    )


@pytest.mark.slow
def test_an_encoder_is_asked_for_a_similarity():
    model = small_model(head=Head())
    adapters = random_adapters(model)
    found = lora_change(model, adapters, IDS, against=[5, 8, 3])

    def similarity(one):
        pooled = [one(jnp.array(ids)).mean(0) for ids in (IDS, [5, 8, 3])]
        return jnp.vdot(*pooled) / jnp.linalg.norm(pooled[0]) / jnp.linalg.norm(pooled[1])

    before, after = similarity(model), similarity(merge(model, adapters))
    close(found.before, np.asarray(before))
    close(found.after, np.asarray(after))
    close(sum(found.totals.values()), np.asarray(after - before), 6)
    # The other text, too, is read by the adapted model.
    assert found.by_adapter.verdict == "holds"
    close(sum(effect.part for effect in found.effects), np.asarray(after - before), 6)
    name, adapter = next(iter(adapters.items()))
    close(found.effects[0].alone, np.asarray(similarity(merge(model, {name: adapter})) - before), 6)


def test_before_a_head_that_is_a_term_the_layers_outer_maps_stand_still():
    model = duat.load(GOLDEN / "bert-classes", dtype=jnp.float64)
    found = plain(moved_parameters(model, random_adapters(model), jnp.array([5, 7, 9])))
    assert {one["value"] for name, one in found["outer_maps"].items() if name.startswith("layers.")} == {0.0}
    json.dumps(found, allow_nan=False)


def test_a_layer_of_the_model_itself_is_adapted():
    model = duat.load(GOLDEN / "albert", dtype=jnp.float64)
    adapters = random_adapters(model, ["embedding_hidden_mapping_in"])
    close(adapt(model, adapters)(jnp.array([5, 7, 9])), np.asarray(merge(model, adapters)(jnp.array([5, 7, 9]))), 6)
