"""A mask says which tokens are real; one whose sense is inverted is refused, on whichever side a text is padded."""

import dataclasses
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from flax import nnx
from helpers import close, modern, numbers

import duat_jax as duat
from duat_jax.models.config import Config, Head
from duat_jax.models.transformer import Transformer
from duat_jax.nn import attention_mask, blockwise
from duat_jax.verification.networks import randomised

REPOSITORY = Path(__file__).parents[2]
BLOCK = modern(features=8, heads=2, neurons=8, activation="silu")
CAUSAL = {
    "next token": Head(kind="next token", outputs=11, tied=True),
    "class at the last": Head(kind="classes", outputs=3, bias=True, pool="last", dense="tanh"),
}
ENCODERS = {
    "masked token": Head(kind="masked token", outputs=11, tied=True, bias=True),
    **{f"class at the {pool}": Head(kind="classes", outputs=3, bias=True, pool=pool) for pool in ("first", "mean")},
}
TEXTS = [[3, 1, 4, 1, 5], [9, 2]]
PAD = 7


def made(head, causal=True):
    config = Config(
        family="test",
        blocks=(dataclasses.replace(BLOCK, causal=causal),),
        vocab=11,
        positions=8,
        position_embedding=False,
        head=head,
    )
    return randomised(Transformer(config, dtype=jnp.float64, rngs=nnx.Rngs(0)), 0)


def padded(side, texts=TEXTS, length=6):
    """Texts padded on one side, and which tokens are real."""
    space = [(length - len(text), 0) if side == "left" else (0, length - len(text)) for text in texts]
    ids = np.stack([np.pad(text, width, constant_values=PAD) for text, width in zip(texts, space)])
    return ids, np.stack([np.pad(np.ones(len(text), bool), width) for text, width in zip(texts, space)])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("head", [*CAUSAL, *ENCODERS])
def test_padding_on_either_side_changes_nothing_and_an_inverted_mask_is_refused(head, side):
    model = made((CAUSAL | ENCODERS)[head], causal=head in CAUSAL)
    ids, mask = padded(side)
    outputs = model(jnp.array(ids), jnp.array(mask))
    for text, real, output in zip(TEXTS, mask, outputs):
        close(output[real] if output.ndim == 2 else output, model(jnp.array(text)))
    for given, wrong in ((ids, ~mask), (ids[0], ~mask[0]), (ids[1], ~mask[1]), (ids, mask ^ (ids == 4))):
        with pytest.raises(duat.InvalidInput, match="different tokens .* True means a real token, False means padding"):
            model(jnp.array(given), jnp.array(wrong))
    with pytest.raises(duat.InvalidInput, match="without a real token: True means"):
        model(jnp.array(ids), jnp.zeros_like(mask))
    with pytest.raises(duat.InvalidInput, match=r"the mask has shape \[6\], but the token ids have \[2, 6\]"):
        model(jnp.array(ids), jnp.array(mask[0]))


@pytest.mark.parametrize("side", ["left", "right"])
def test_within_jit_a_wrong_mask_gives_no_number(side):
    model = made(CAUSAL["next token"])
    ids, mask = map(jnp.array, padded(side))
    run = jax.jit(model.__call__)
    close(run(ids, mask), model(ids, mask))
    for wrong in (~mask, jnp.zeros_like(mask)):
        assert jnp.isnan(run(ids, wrong)).all()
    # Also where each text is a call of its own.
    assert jnp.isnan(jax.vmap(run)(ids, ~mask)).all() and jnp.isfinite(jax.vmap(run)(ids, mask)).all()


@pytest.fixture
def _unannotated():
    """As in a user's session, where no annotation is checked."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("_unannotated")
@pytest.mark.parametrize("run", ["model", "stack", "block", "attention", "attention_mask", "attend", "pattern"])
@pytest.mark.parametrize("dtype", [int, float])
def test_numbers_are_no_mask(run, dtype):
    x, mask = jnp.array(numbers(4, 2, 3)), jnp.array([1, 1, 1, 0], dtype)
    model = made(CAUSAL["next token"])
    stream, how = jnp.zeros((4, 8)), {"causal": True, "window": None, "mask": mask}
    runs = {
        "model": lambda: model(jnp.array([3, 1, 4, 0]), mask),
        "stack": lambda: model.stack(stream, mask),
        "block": lambda: model.stack.blocks[0](stream, mask),
        "attention": lambda: model.stack.blocks[0].attention(stream, mask),
        "attention_mask": lambda: attention_mask(4, **how),
        "attend": lambda: blockwise.attend(x, x, x, scale=1.0, **how),
        "pattern": lambda: blockwise.pattern(x, x, scale=1.0, **how),
    }
    with pytest.raises(duat.DuatError, match="the mask has dtype .* True for a real token and False for padding"):
        runs[run]()


def test_no_argument_that_is_true_on_real_tokens_is_called_padding():
    files = [path for room in ("duat_jax", "benchmarks", "training") for path in (REPOSITORY / room).rglob("*.py")]
    named = re.compile(r"\bpadding(: .*\bBool\b|: .*\bArray\b|=None)")
    assert files and not [path for path in files if named.search(path.read_text(encoding="utf-8"))]
