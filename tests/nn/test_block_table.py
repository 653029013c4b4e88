"""The table of block types is the forward pass, and refuses what it doesn't know."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from helpers import FEATURES, HEADS, NEURONS, close, far, make_input, make_stack, modern, numbers

import duat_jax as duat
from duat_jax import nn
from duat_jax.models.config import Config
from duat_jax.models.transformer import Transformer
from duat_jax.nn import (
    ACTIVATIONS,
    ARRANGEMENTS,
    BLOCKS,
    MLP,
    Attention,
    Block,
    BlockConfig,
    LayerNorm,
    Stack,
)
from duat_jax.nn import (
    make_stack as stack_of,
)
from duat_jax.reference.blocks import residual_term, residual_terms
from duat_jax.reference.dense import vec
from duat_jax.verification.networks import randomised
from duat_jax.verification.routes import held_by_layer

PARTS_OF_THE_TABLE = {
    "first": {"norm": "layer"},
    "modern": {"norm": "rms", "mlp": "gated", "heads": 4, "key_value_heads": 2, "head_features": 2},
    "a scale of what is added": {"norm": "rms", "output_norms": True, "residual_scale": 0.25},
    "norms on what is added": {"norm": "rms", "output_norms": True, "norm_1": False, "sinks": True},
    "without a norm": {"norm": "none", "mlp": "gated"},
}


def held_of(stack, x):
    return held_by_layer(duat.record(stack)(x).dynamics, len(stack.blocks))


def check_table(stack, x):
    """The table's residual terms are the forward pass, and those of the closed form."""
    form = duat.unroll(stack, x)
    terms = residual_terms(stack, held_by_layer(form.dynamics, len(stack.blocks)))
    stream = x
    for i, (block, term) in enumerate(zip(stack.blocks, terms, strict=True), 1):
        activated = ACTIVATIONS[block.mlp.activation](term.inner @ vec(stream) + term.inner_bias)
        expected = block(stream)
        close(term.path @ vec(stream) + term.path_bias + term.outer @ activated, expected)
        found = form.residual_term(i)
        for ours, theirs in (
            (found.path.dense(), term.path),
            (found.path_bias, term.path_bias),
            (found.inner.dense(), term.inner),
            (found.inner_bias, term.inner_bias),
            (found.outer.dense(), term.outer),
        ):
            close(ours, theirs)
        stream = expected


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize("parts", PARTS_OF_THE_TABLE.values(), ids=PARTS_OF_THE_TABLE)
def test_the_table_of_block_types_is_the_forward_pass(arrangement, parts):
    sizes = {"features": FEATURES, "heads": HEADS, "neurons": NEURONS}
    config = BlockConfig(arrangement=arrangement, **sizes | parts)
    stack = randomised(stack_of(config, layers=1, dtype=jnp.float64, rngs=nnx.Rngs(0)))
    x = make_input(3)
    (term,) = residual_terms(stack, held_of(stack, x))
    activated = ACTIVATIONS["gelu"](term.inner @ vec(x) + term.inner_bias)
    close(term.path @ vec(x) + term.path_bias + term.outer @ activated, stack(x))


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_modern_blocks_unroll_to_the_table(arrangement):
    def block(**sizes):
        return dataclasses.replace(modern(**sizes), arrangement=arrangement)

    check_table(make_stack(block, 2), make_input(3))


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_modern_blocks_close(arrangement):
    def block(**sizes):
        return dataclasses.replace(modern(**sizes), arrangement=arrangement, mlp_bias=True, norm="rms")

    stack, x = make_stack(block, 2, activation="silu"), make_input()
    value = stack(x)
    for neurons in (True, False):
        parts = duat.decompose(lambda x: stack(x)[-1, 0], x, by_neuron=neurons)
        assert abs(float(parts.completeness.sum) - float(value[-1, 0])) < 1e-12
    close(duat.unroll(stack, x).evaluate(), value)


@pytest.mark.parametrize("parts", [*BLOCKS.values(), modern], ids=[*BLOCKS, "modern"])
def test_blocks_take_leading_batch_axes(parts):
    stack = make_stack(parts, 1)
    x = jnp.asarray(numbers(2, 3, 4, FEATURES))
    mask = jnp.array([[[True, True, True, False]] * 3, [[True] * 4] * 3])
    close(stack(x), jax.vmap(jax.vmap(stack))(x))
    close(stack(x, mask)[..., :3, :], jax.vmap(jax.vmap(stack))(x, mask)[..., :3, :])


def test_a_window_hides_what_lies_further_back():
    narrow, x = make_stack(partial(BLOCKS["pre-norm"], window=2), 1), make_input(6)
    close(narrow(x)[-1], narrow(x.at[:4].multiply(-1.0))[-1])
    assert far(narrow(x)[-1], narrow(x.at[4].multiply(-1.0))[-1])


class OtherBlock(nnx.Module):
    """A block of somebody else's with the same parts."""

    def __init__(self, block):
        self.arrangement, self.attention, self.mlp = block.arrangement, block.attention, block.mlp
        self.norm_1, self.norm_2 = block.norm_1, block.norm_2

    def __call__(self, x, mask=None):  # noqa: D102
        return x + self.mlp(self.norm_2(self.attention(self.norm_1(x), mask)))


def overriding(known, name):
    """Return a subclass that computes something else."""
    return type(name, (known,), {"__call__": lambda self, x, *rest: 2.0 * known.__call__(self, x, *rest)})


OverridingBlock = type("OverridingBlock", (Block,), {"__call__": OtherBlock.__call__})
OverridingMLP = overriding(MLP, "OverridingMLP")
OverridingNorm = overriding(LayerNorm, "OverridingNorm")
OverridingAttention = overriding(Attention, "OverridingAttention")


def with_class(part, to):
    part.__class__ = to
    return part


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda block: OtherBlock(block), "block OtherBlock"),
        (lambda block: with_class(block, OverridingBlock), "block OverridingBlock"),
        (lambda block: with_class(block.mlp, OverridingMLP) and block, "MLP OverridingMLP"),
        (lambda block: with_class(block.norm_2, OverridingNorm) and block, "norm OverridingNorm"),
        (lambda block: with_class(block.attention, OverridingAttention) and block, "attention OverridingAttention"),
    ],
)
def test_the_table_refuses_what_it_does_not_know(change, words):
    stack, x = make_stack("pre-norm", 1), make_input(3)
    stack.blocks = nnx.List([change(stack.blocks[0])])
    with pytest.raises(duat.DuatError, match=f"no {words}.*unroll the function itself"):
        residual_terms(stack, held_of(stack, x))


def test_no_part_is_made_for_overriding():
    classes = [part for part in vars(nn).values() if isinstance(part, type)]
    assert {Block, Stack, Attention, BlockConfig} <= set(classes)
    assert all(getattr(part, "__final__", False) for part in [*classes, Config, Transformer])


def test_the_table_names_what_is_not_given():
    stack = make_stack(modern, 2)
    held = held_of(stack, make_input(3))
    with pytest.raises(duat.DuatError, match="held 'mlp.factor' is missing; the held values are attention.pattern"):
        residual_term(stack.blocks[0], {name: value for name, value in held[0].items() if name != "mlp.factor"})
    with pytest.raises(duat.DuatError, match="2 blocks, but there are held values for 1"):
        residual_terms(stack, held[:1])
