"""The form of several streams at a depth: its parameters are products of the layers' matrices, side by side."""

import chex
import jax.numpy as jnp
import numpy as np
import pytest

from symbolic import StreamBlock, SymbolicError, activation, held, matrix
from symbolic.evaluation.bridge import name_of, parameters_of, to_jax
from symbolic.proof.typesetting import article
from symbolic.theorems.stream_stack import StreamStack
from symbolic.theorems.unrolled_streams import unroll_streams
from typesetting.check import check_latex

STACKS = {
    "two streams, two coupled terms": (StreamStack(), (1, 2, 3, 4)),
    "three streams, a term": (StreamStack.of(3, 1), (1, 3)),
    "no term": (StreamStack.of(2, 0), (2, 5)),
    "one stream": (StreamStack.of(1, 2), (2, 12)),
    "a memory": (StreamStack(absent=(("U", 1, 2), ("F", 1, 2), ("G", 1, 2))), (2, 7)),
}


@pytest.mark.parametrize("name", STACKS)
def test_the_form_of_several_streams_at_a_depth_is_the_network(name):
    stack, depths = STACKS[name]
    for depth in depths:
        derivation = unroll_streams(depth, stack)
        assert derivation.verified and not any(derivation.conditions)
        assert {stack.x(depth, s) for s in stack.streams} <= {step.left for step in derivation.steps}


def test_its_matrices_are_products_of_the_layers_side_by_side():
    stack, depth = StreamStack((2, 3), (4,), ()), 3
    steps = {step.left: step.right for step in unroll_streams(depth, stack).steps}
    rng = np.random.default_rng(0)
    shapes = {name_of(p): p.shape for right in steps.values() for p in parameters_of(right).values()}
    arrays = {name: jnp.array(rng.normal(size=shape)) for name, shape in shapes.items()}

    def side_by_side(letter, k, columns):
        return np.block([[arrays[f"{letter}[{k},{s},{r}]"] for r in columns] for s in stack.streams])

    def value(parameter):
        return to_jax(steps[parameter], jnp.tanh)(arrays).reshape(parameter.shape)

    path = np.eye(5)
    for k in range(1, depth + 1):
        inner = np.block([[arrays[f"F[{k},1,{r}]"] for r in stack.streams]]) @ path
        chex.assert_trees_all_close(
            np.block([[value(stack.B(k, 1, r)) for r in stack.streams]]), inner, rtol=1e-12, atol=1e-12
        )
        path = side_by_side("U", k, stack.streams) @ path
        ours = np.block([[value(stack.P(k, s, r)) for r in stack.streams] for s in stack.streams])
        chex.assert_trees_all_close(ours, path, rtol=1e-12, atol=1e-12)
    carried = side_by_side("U", 3, stack.streams) @ side_by_side("U", 2, stack.streams) @ side_by_side("G", 1, (1,))
    ours = np.block([[value(stack.C(1, 3, s, 1))] for s in stack.streams])
    chex.assert_trees_all_close(ours, carried, rtol=1e-12, atol=1e-12)


def test_a_block_of_several_streams_is_unrolled():
    D, V, F, G = held("D", 3, 4), matrix("V", 5, 2), matrix("F", 2, 6), matrix("G", 6, 2)
    block = StreamBlock(
        lambda s: {"x": s["x"] + D * s["m"] * V + activation(s["x"] * F) * G, "m": s["m"]}, {"x": (3, 2), "m": (4, 5)}
    )
    for depth in (1, 2, 5):
        derivation = block.unroll(depth)
        assert derivation.verified and f"at depth {depth}" in str(derivation)
    assert "P₂,₁,₂ = U₂,₁,₁ U₁,₁,₂ + U₂,₁,₂ U₁,₂,₂" in str(block.unroll(2))
    assert "no overfull" in check_latex(article(block.prove(), block.unroll(2)))
    assert block.document(2).count(r"\begin{theorem}") == block.document().count(r"\begin{theorem}") + 1


@pytest.mark.parametrize(
    ("depth", "streams", "words"),
    [
        (8, 2, "8 layers have 512 paths from stream to stream, and at most 256 are multiplied out: give fewer"),
        (0, 2, "the depth is 0"),
        (2.0, 2, "the depth is 2.0"),
    ],
)
def test_a_depth_that_cant_be_multiplied_out_is_refused(depth, streams, words):
    with pytest.raises(SymbolicError, match=words):
        unroll_streams(depth, StreamStack.of(streams, 1))
