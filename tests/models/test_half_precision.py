"""Parameters kept in half precision: rounded once, and everything is computed from them in single precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import ENCODER, GOLDEN
from flax import nnx
from helpers import BLOCK_NAMES, make_input, make_stack, near
from typer.testing import CliRunner

import duat_jax as duat
from duat_jax.cli import application
from duat_jax.models.residual_network import ResidualNetwork
from experiments import smollm2

HALF = (jnp.bfloat16, jnp.float16)
CHECKPOINTS = sorted(path.name for path in GOLDEN.iterdir())


def rounded(model, dtype):
    """Return a model in double precision whose parameters are rounded to another dtype."""
    return jax.tree.map(lambda p: p.astype(dtype).astype(jnp.float64), model)


def require_computed_in_single(kept, exact, given):
    """Assert that a model of half precision computes what its parameters say: nothing but them is rounded so far."""
    assert all(jnp.finfo(p.dtype).bits == 16 for p in jax.tree.leaves(kept))
    with jax.disable_jit():
        actual, expected = kept(given), exact(given)
    assert actual.dtype == jnp.float32
    near(actual, expected, within=1e-5 * np.abs(expected).max())


QUICK = ("bert", "gemma2", "gpt2", "gpt_oss", "llama", "vit")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(name, dtype, marks=[pytest.mark.slow] * (name not in QUICK or dtype == jnp.float16))
        for name in CHECKPOINTS
        for dtype in HALF
    ],
)
def test_a_model_of_every_family_computes_in_single_precision(name, dtype):
    outputs = np.load(GOLDEN / name / "outputs.npz")
    given = jnp.asarray(outputs["ids" if "ids" in outputs else "pixels"])
    exact = rounded(duat.load(GOLDEN / name, dtype=jnp.float64), dtype)
    require_computed_in_single(duat.load(GOLDEN / name, dtype=dtype), exact, given)


@pytest.mark.parametrize("block", BLOCK_NAMES)
def test_a_stack_of_half_precision_keeps_the_streams_dtype(block):
    kept, exact = (make_stack(block, dtype=dtype) for dtype in (jnp.bfloat16, jnp.float64))
    nnx.update(exact, jax.tree.map(lambda p: p.astype(jnp.float64), nnx.state(kept)))
    x = make_input(dtype=jnp.float32)
    with jax.disable_jit():
        actual, expected = kept(x), exact(x.astype(jnp.float64))
    assert actual.dtype == jnp.float32
    near(actual, expected, within=1e-5 * np.abs(expected).max())


def test_a_residual_network_of_half_precision():
    kept = ResidualNetwork(1, (4, 4, 8), 10, dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    exact = jax.tree.map(lambda p: p.astype(jnp.float64), kept)
    require_computed_in_single(kept, exact, jnp.ones((1, 8, 8)))


def completeness_of_texts(path, dtype, texts=6, tokens=16):
    """Return completeness of the most probable token's logit, or of a cosine similarity, of several texts."""
    model = duat.load(path, dtype=dtype)
    ids = np.random.default_rng(0).integers(5, min(4000, model.config.vocab), (texts, tokens))
    against = ids[0] if model.config.head.kind == "hidden" else None
    found = duat.explain(model, list(ids), against=against)
    return [kind for one in found for kind in (one.completeness, one.collapse_completeness)]


def require_said(found):
    """Assert that every verdict holds, with a tolerance within thirty times the error that is seen."""
    assert {one.verdict for one in found} == {"holds"}
    error, tolerance = (np.array([getattr(one, name) for one in found], float) for name in ("error", "tolerance"))
    assert 1 < tolerance.max() / np.abs(error).max() < 30


def test_the_embedded_model_in_bfloat16_says_something():
    require_said(completeness_of_texts(None, "bfloat16"))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["embedded", "all-MiniLM-L6-v2", "SmolLM2"])
def test_real_models_in_half_precision_say_something(name, dtype):
    path = {"embedded": lambda: None, "all-MiniLM-L6-v2": lambda: ENCODER, "SmolLM2": smollm2.path}[name]()
    require_said(completeness_of_texts(path, dtype, texts=32))


@pytest.mark.parametrize("command", [["explain"], ["attention", "--layer", "1", "--head", "0", "--key", "0"]])
def test_the_commands_take_bfloat16(command):
    result = CliRunner().invoke(application, [command[0], "return self", *command[1:], "--dtype", "bfloat16"])
    assert result.exit_code == 0, result.output
