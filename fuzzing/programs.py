"""Random programs, each written twice: with JAX, and for a batch of inputs with NumPy in extended precision.

An operation is a pair of functions of values that are `[tokens, features]`; NumPy's have any axes before these.  Those
of JAX are the tables of the tests of automatic marks, and more here.
"""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy import special

from tests.marking.random_programs import (
    BIAS,
    ELEMENTWISE,
    JOINING,
    MATRICES,
    MIXING,
    READOUTS,
    TOKENS,
    WIDTH,
    of,
)

Values = np.ndarray
"""Numbers of NumPy's longest floating-point dtype, `[batch, tokens, features]`, or `[batch]`."""

LONG = np.longdouble
SHAPE = TOKENS, WIDTH
SEGMENTS = (0, 1, 0)
KERNEL = (0.5, -1.0, 0.25)


class Constants(NamedTuple):
    """The constants of programs, as a dtype rounds them.

    Args:
        matrices: three matrices of weights.
        bias: a vector.
    """

    matrices: Values
    bias: Values


def constants(dtype: Any) -> Constants:
    """Return the constants in extended precision, as a dtype rounds them.

    Args:
        dtype: of the program's values.
    """
    return Constants(*(np.asarray(array.astype(dtype)).astype(LONG) for array in (MATRICES, BIAS)))


def _sigmoid(z: Values) -> Values:
    small = np.exp(-np.abs(z))
    return np.where(z >= 0, 1, small) / (1 + small)


def _log_softmax(z: Values) -> Values:
    shifted = z - z.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _softmax(z: Values) -> Values:
    return np.exp(_log_softmax(z))


def _turned(z: Values) -> Values:
    return np.swapaxes(z, -1, -2)


def _gelu(z: Values) -> Values:
    return z * (1 + np.tanh(np.sqrt(2 / LONG(np.pi)) * (z + LONG(0.044715) * z**3))) / 2


def _sorted_rows(z: Values) -> Values:
    order = np.argsort(z[..., 0], axis=-1, kind="stable")
    return np.take_along_axis(z, order[..., None], -2)


def _scan(z: Values, c: Constants) -> Values:
    for w in c.matrices:
        z = z + np.tanh(z @ w)
    return z


def _recurrence(z: Values) -> Values:
    carried, rows = z[..., 0, :], []
    for t in range(TOKENS):
        rows.append(carried)
        carried = carried / 2 + z[..., t, :] * carried.sum(-1, keepdims=True)
    return np.stack(rows, -2)


def _loop(z: Values, c: Constants) -> Values:
    for _ in range(2):
        z = z @ c.matrices[1] + np.tanh(z)
    return z


def _with_row(z: Values, row: int, new: Values) -> Values:
    z = z.copy()
    z[..., row, :] = new
    return z


def _convolved(z: Values) -> Values:
    padded = np.concatenate([np.zeros_like(z[..., :1, :]), z, np.zeros_like(z[..., :1, :])], -2)
    return np.add.reduce([LONG(w) * padded[..., k : k + TOKENS, :] for k, w in enumerate(KERNEL)])


def _segments(z: Values) -> Values:
    return np.stack([z[..., 0, :] + z[..., 2, :], z[..., 1, :], np.zeros_like(z[..., 0, :])], -2)


def _row_at(z: Values) -> Values:
    chosen = np.argmax(z[..., :, 0], -1)
    return np.take_along_axis(z, chosen[..., None, None], -2)


def _causal(z: Values) -> Values:
    scores = np.where(np.tril(np.ones((TOKENS, TOKENS), bool)), z @ _turned(z) / 2, -np.inf)
    return _softmax(scores) @ z


def _experts(z: Values, c: Constants) -> Values:
    weights, chosen = _softmax(z), np.argmax(z, -1) % 3
    return weights.max(-1)[..., None] * np.einsum("...ti,...tij->...tj", z, c.matrices[chosen])


def _rotated(z: Values) -> Values:
    angles = np.arange(TOKENS).astype(LONG)[:, None]
    cos, sin = (f(angles).astype(z.dtype) for f in (np.cos, np.sin))
    a, b = z[..., :2], z[..., 2:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def _jax_convolved(z: jax.Array) -> jax.Array:
    kernel = jnp.array(KERNEL, z.dtype)[:, None, None]
    return lax.conv_general_dilated(z.T[:, :, None], kernel, (1,), [(1, 1)], dimension_numbers=("NWC", "WIO", "NWC"))[
        :, :, 0
    ].T


def _jax_causal(z: jax.Array) -> jax.Array:
    scores = jnp.where(jnp.tril(jnp.ones((TOKENS, TOKENS), bool)), z @ z.T / 2, -jnp.inf)
    return jax.nn.softmax(scores) @ z


def _jax_experts(z: jax.Array) -> jax.Array:
    weights, chosen = jax.nn.softmax(z).max(-1), jnp.argmax(z, -1) % 3
    return weights[:, None] * jnp.einsum("ti,tij->tj", z, of(z, MATRICES)[chosen])


def _jax_rotated(z: jax.Array) -> jax.Array:
    angles = jnp.arange(TOKENS, dtype=z.dtype)[:, None]
    cos, sin, a, b = jnp.cos(angles), jnp.sin(angles), z[:, :2], z[:, 2:]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], 1)


Operation = tuple[Callable[..., jax.Array], Callable[..., Values]]
"""A function of one value, or of two, in JAX; and in NumPy, of the values and the constants."""


def _pairs(table: dict[str, Any], twins: dict[str, Callable[..., Values]]) -> dict[str, Operation]:
    return {name: (function, twins[name]) for name, function in table.items()}


OF_ONE: dict[str, Operation] = {
    **_pairs(
        ELEMENTWISE,
        {
            "tanh": lambda z, c: np.tanh(z),
            "relu": lambda z, c: np.maximum(z, 0),
            "silu": lambda z, c: z * _sigmoid(z),
            "exp": lambda z, c: np.exp(-np.abs(z)),
            "log": lambda z, c: np.log1p(z * z),
            "root": lambda z, c: np.sqrt(z**2 + 1),
            "floor": lambda z, c: np.floor(2 * z),
            "cap": lambda z, c: 3 * np.tanh(z / 3),
            "bias": lambda z, c: z + c.bias,
            "scaled": lambda z, c: -LONG(1.5) * z,
        },
    ),
    **_pairs(
        MIXING,
        {
            "weights": lambda z, c: z @ c.matrices[0] + c.bias,
            "norm": lambda z, c: z / np.sqrt((z * z).mean(-1, keepdims=True) + LONG(0.01)),
            "centred": lambda z, c: z - z.mean(-1, keepdims=True),
            "softmax": lambda z, c: _softmax(z),
            "log-softmax": lambda z, c: _log_softmax(z),
            "attention": lambda z, c: _softmax(z @ _turned(z)) @ z,
            "sort": lambda z, c: np.sort(z, -1),
            "running": lambda z, c: np.cumsum(z, -2),
            "largest": lambda z, c: z.max(-2, keepdims=True) + z,
            "looked up": lambda z, c: c.matrices[np.argmax(z[..., 0, :], -1) % 3][..., :TOKENS, :] + z,
            "gathered": lambda z, c: _sorted_rows(z),
            "reversed": lambda z, c: z[..., ::-1, ::-1],
            "joined": lambda z, c: np.concatenate([z[..., 2:], np.tanh(z[..., :2])], -1),
            "scan": _scan,
            "recurrence": lambda z, c: _recurrence(z),
            "loop": _loop,
            "branch": lambda z, c: np.where(z[..., :1, :1] > 0, np.tanh(z) @ c.matrices[2], z + 1),
            "checkpointed": lambda z, c: z + _gelu(z @ c.matrices[2]),
            "mapped": lambda z, c: z * z.max(-1, keepdims=True),
        },
    ),
    "sine": (jnp.sin, lambda z, c: np.sin(z)),
    "cosine": (jnp.cos, lambda z, c: np.cos(z)),
    "arctangent": (jnp.arctan, lambda z, c: np.arctan(z)),
    "asinh": (jnp.arcsinh, lambda z, c: np.arcsinh(z)),
    "cube": (lambda z: z**3, lambda z, c: z**3),
    "cube root": (jnp.cbrt, lambda z, c: np.cbrt(z)),
    "expm1": (lambda z: jnp.expm1(-jnp.abs(z)), lambda z, c: np.expm1(-np.abs(z))),
    "exp2": (lambda z: jnp.exp2(-z * z), lambda z, c: np.exp2(-z * z)),
    "size": (jnp.abs, lambda z, c: np.abs(z)),
    "clipped": (lambda z: jnp.clip(z, -1, 1), lambda z, c: np.clip(z, -1, 1)),
    "rounded": (jnp.round, lambda z, c: np.rint(z)),
    "sign": (jnp.sign, lambda z, c: np.sign(z)),
    "softplus": (jax.nn.softplus, lambda z, c: np.logaddexp(z, np.zeros_like(z))),
    "elu": (jax.nn.elu, lambda z, c: np.maximum(z, 0) + np.expm1(np.minimum(z, 0))),
    "erf": (lax.erf, lambda z, c: special.erf(z.astype(np.float64)).astype(LONG)),
    "power": (lambda z: (1 + z * z) ** 0.75, lambda z, c: (1 + z * z) ** LONG(0.75)),
    "reciprocal": (lambda z: 1 / (1 + jnp.abs(z)), lambda z, c: 1 / (1 + np.abs(z))),
    "scale": (lambda z: lax.rsqrt(1 + jnp.abs(z)), lambda z, c: 1 / np.sqrt(1 + np.abs(z))),
    "chosen": (lambda z: jnp.where(z > 0, z, 0.5 * z * z), lambda z, c: np.where(z > 0, z, z * z / 2)),
    "running maximum": (lambda z: lax.cummax(z, 0), lambda z, c: np.maximum.accumulate(z, -2)),
    "running product": (lambda z: jnp.cumprod(jnp.tanh(z), 1), lambda z, c: np.cumprod(np.tanh(z), -1)),
    "running sum of exponentials": (
        lambda z: lax.cumlogsumexp(z, 0),
        lambda z, c: np.logaddexp.accumulate(z, -2),
    ),
    "product of a row": (lambda z: z.prod(-1, keepdims=True) + z, lambda z, c: z.prod(-1, keepdims=True) + z),
    "smallest": (lambda z: z - z.min(-1, keepdims=True), lambda z, c: z - z.min(-1, keepdims=True)),
    "top": (
        lambda z: lax.top_k(z, 2)[0].sum(-1, keepdims=True) + z,
        lambda z, c: np.sort(z, -1)[..., 2:].sum(-1, keepdims=True) + z,
    ),
    "variance": (lambda z: z.var(-1, keepdims=True) + z, lambda z, c: z.var(-1, keepdims=True) + z),
    "logsumexp": (
        lambda z: jax.nn.logsumexp(z, 0, keepdims=True) + z,
        lambda z, c: np.logaddexp.reduce(z, -2, keepdims=True) + z,
    ),
    "layer norm": (
        lambda z: (z - z.mean(-1, keepdims=True)) / jnp.sqrt(z.var(-1, keepdims=True) + 1e-2),
        lambda z, c: (z - z.mean(-1, keepdims=True)) / np.sqrt(z.var(-1, keepdims=True) + LONG(0.01)),
    ),
    "convolution": (_jax_convolved, lambda z, c: _convolved(z)),
    "added row": (lambda z: z.at[0].add(z[1]), lambda z, c: _with_row(z, 0, z[..., 0, :] + z[..., 1, :])),
    "replaced row": (lambda z: z.at[1].set(z[0]), lambda z, c: _with_row(z, 1, z[..., 0, :])),
    "row at the largest": (lambda z: z[jnp.argmax(z[:, 0])] + z, lambda z, c: _row_at(z) + z),
    "segments": (
        lambda z: jax.ops.segment_sum(z, jnp.array(SEGMENTS), TOKENS),
        lambda z, c: _segments(z),
    ),
    "causal attention": (_jax_causal, lambda z, c: _causal(z)),
    "experts": (_jax_experts, _experts),
    "rotation": (_jax_rotated, lambda z, c: _rotated(z)),
}
"""Operations of one value."""

OF_TWO: dict[str, Operation] = {
    **_pairs(
        JOINING,
        {
            "sum": lambda a, b, c: a + b,
            "difference": lambda a, b, c: a - b,
            "product": lambda a, b, c: a * b,
            "quotient": lambda a, b, c: a / (1 + b * b),
            "pattern": lambda a, b, c: _softmax(a @ _turned(b)) @ b,
            "maximum": lambda a, b, c: np.maximum(a, b),
            "where": lambda a, b, c: np.where(a > b, a, b / 2),
            "gate": lambda a, b, c: _sigmoid(a) * b,
            "einsum": lambda a, b, c: (a @ c.matrices[0]) * b,
        },
    ),
    "minimum": (jnp.minimum, lambda a, b, c: np.minimum(a, b)),
    "angle": (lambda a, b: jnp.arctan2(a, 1 + b * b), lambda a, b, c: np.arctan2(a, 1 + b * b)),
    "logaddexp": (jnp.logaddexp, lambda a, b, c: np.logaddexp(a, b)),
    "gelu gate": (lambda a, b: jax.nn.gelu(a) * b, lambda a, b, c: _gelu(a) * b),
    "distance": (lambda a, b: jnp.sqrt(a * a + b * b + 1), lambda a, b, c: np.sqrt(a * a + b * b + 1)),
}
"""Operations of two values."""

TO_ONE_NUMBER: dict[str, Operation] = _pairs(
    READOUTS,
    {
        "entry": lambda z, c: z[..., -1, 1],
        "sum": lambda z, c: z.sum((-1, -2)),
        "mean": lambda z, c: (z @ c.bias).mean(-1),
        "log-probability": lambda z, c: _log_softmax(z[..., -1, :])[..., 0],
    },
)
"""Read-outs, which make one number of a value."""


class Drawn(NamedTuple):
    """A program that was drawn.

    Args:
        function: of one value, in JAX.
        twin: the same in NumPy, of values in extended precision with a batch before them, and the constants.
        operations: their names.
    """

    function: Callable[[jax.Array], jax.Array]
    twin: Callable[[Values, Constants], Values]
    operations: list[str]


def draw(seed: int) -> Drawn:
    """Draw a program: an operation reads an earlier value, and the newest one goes into its result.

    Args:
        seed: what decides.
    """
    chance = random.Random(seed)
    length = chance.randint(1, 6)
    steps = []
    for k in range(length):
        table = chance.choice((OF_ONE, OF_ONE, OF_TWO))
        steps.append((table, chance.choice(list(table)), chance.randint(0, k), chance.random() < 0.3))
    readout = chance.choice(list(TO_ONE_NUMBER))

    def run(x: Any, side: int, *further: Any) -> Any:
        values = [x]
        for table, name, earlier, alone in steps:
            operation: Callable[..., Any] = table[name][side]
            if table is OF_TWO:
                values.append(operation(values[-1], values[earlier], *further))
            elif alone:
                values.append(operation(values[-1], *further))
            else:
                values.append(operation(values[earlier], *further) + values[-1])
        return TO_ONE_NUMBER[readout][side](values[-1], *further)

    return Drawn(lambda x: run(x, 0), lambda x, c: run(x, 1, c), [*(name for _, name, *_ in steps), readout])
