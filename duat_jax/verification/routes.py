"""Routes to the same numbers: symbolic form, plain forward pass, record and replay, and recursions.

Every route returns the parts of a form by name, each as a vector: the streams `x/i` if it has them, and `q/i`,
`P x/i`, `UAT/i`, `B x/i`, `c/i` and `C s/i` of every layer, counted from 1.
"""

from collections.abc import Mapping, Sequence

import jax
from jaxtyping import Array, Float
from sympy import MatrixExpr

from duat_jax.errors import DuatError
from duat_jax.forms.closed_form import ClosedForm
from duat_jax.nn import ACTIVATIONS, Block, GatedMLP, Stack
from duat_jax.reference.blocks import parts_of
from duat_jax.reference.dense import vec
from duat_jax.reference.recursions import Unrolled
from duat_jax.transform.recording import Dynamics
from symbolic.blocks.block import Block as SymbolicBlock
from symbolic.blocks.transformer import transformer_block
from symbolic.evaluation.bridge import to_jax


def held_by_layer(dynamics: Dynamics, layers: int) -> list[dict[str, Array]]:
    """Return the held values of every block of a stack, by name.

    Args:
        dynamics: the dynamics of the stack at one input.
        layers: number of blocks.
    """
    held = dynamics.held.items()
    return [{key.name: value for key, value in held if f"layers.{i}" in key.scope} for i in range(layers)]


def symbolic_block(block: Block) -> SymbolicBlock:
    """Return the shipped formula of a block's arrangement, gated if its MLP is.

    Args:
        block: the block.

    Raises:
        DuatError: if the papers' arrangement has norms, which no shipped formula has.
    """
    name, norms = block.arrangement, (block.norm_1, block.norm_2) != (None, None)
    if name == "paper" and norms:
        raise DuatError("the formula of the papers' block (Eq. 30) has no norms: give a block without them")
    if name == "pre-norm" and not norms:
        name = "paper-residual"
    return transformer_block(name, gated=isinstance(block.mlp, GatedMLP))


def block_arrays(stack: Stack, held: Sequence[Mapping[str, Array]], x0: Float[Array, "entries"]) -> dict[str, Array]:
    """Return the arrays of the symbols of a stack of blocks, by the names of the symbols.

    Args:
        stack: the blocks.
        held: the held values of every block, by name.
        x0: `vec(x_0)`.
    """
    arrays = {"x'[0]": x0}
    for k, (block, values) in enumerate(zip(stack.blocks, held, strict=True), 1):
        parts = parts_of(block, values)
        for letter, index, part in (
            ("A", "", parts.attention),
            ("D", ",1", parts.norm_1),
            ("D", ",2", parts.norm_2),
            ("F", ",1", parts.inner),
            ("F", ",2", parts.outer),
        ):
            arrays[f"{letter}'[{k}{index}]"] = part.matrix
            arrays[f"{letter.lower()}'[{k}{index}]"] = part.offset
        if parts.gate is not None:
            arrays[f"g'[{k}]"] = parts.gate
    return arrays


def derived(block: SymbolicBlock, depth: int, arrays: dict[str, Array], activation: str) -> dict[str, Array]:
    """Evaluate every part of the symbolic form: streams from the block as written, parts by the recursions."""
    s, function = block.stack, ACTIVATIONS[activation]
    expressions: dict[str, MatrixExpr] = {}
    for i in range(1, depth + 1):
        expressions[f"q/{i}"] = s.q(i)
        expressions[f"P x/{i}"] = s.P(i) * s.x(0)
        expressions[f"UAT/{i}"] = s.UAT(i)
        expressions[f"B x/{i}"] = s.B(i) * s.x(0)
        expressions[f"c/{i}"] = s.c(i)
        expressions[f"C s/{i}"] = s.C(i, depth) * s.activation(i)
    streams = {f"x/{i}": s.x(i) for i in range(1, depth + 1)}
    parts = to_jax(expressions, function, (*s.recursions, *block.parameters))(arrays)
    return to_jax(streams, function, (block.layer,))(arrays) | parts


def forward(form: ClosedForm, stack: Stack, x: Array) -> dict[str, Array]:
    """Return the residual streams of the plain pass: block by block, the last one by the whole stack."""
    streams = {f"x/{i}": vec(x_i) for i, x_i in enumerate(form.dynamics.streams.values()) if i}
    return streams | {f"x/{len(stack.blocks)}": vec(jax.jit(lambda x: stack(x))(x))}


def recorded(form: ClosedForm, depth: int) -> dict[str, Array]:
    """Compute the parts of the closed form by record and replay."""
    activations = form.dynamics.activations
    parts: dict[str, Array] = {}
    for i in range(1, depth + 1):
        site, index = form.terms[i - 1]
        parts |= {
            f"q/{i}": vec(form.bias(i)),
            f"P x/{i}": vec(form.input_map(i)(form.x0)),
            f"UAT/{i}": vec(form.term_sum(i)),
            f"B x/{i}": vec(form.inner_map(i)(form.x0)),
            f"c/{i}": vec(form.inner_bias(i)),
            f"C s/{i}": vec(form.outer_map(i, depth)(activations[site.key][index])),
        }
    return parts


def recursive(forms: list[Unrolled], x0: Array) -> dict[str, Array]:
    """Compute the parts of the closed form by the dense recursions."""
    parts: dict[str, Array] = {}
    for i, form in enumerate(forms[1:], 1):
        born = form.terms[-1]
        last = forms[-1].terms[i - 1]
        parts |= {
            f"q/{i}": form.bias,
            f"P x/{i}": form.input @ x0,
            f"UAT/{i}": form.term_sum(),
            f"B x/{i}": born.inner @ x0,
            f"c/{i}": born.inner_bias,
            f"C s/{i}": last.outer @ last.activation,
            f"x/{i}": form.evaluate(x0),
        }
    return parts
