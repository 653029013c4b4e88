"""Small random programs: operations drawn by a seed, of values that are `[tokens, features]` or `[tokens]`."""

import random

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core

from duat_jax.transform.calls import sub_program
from duat_jax.transform.parameters import bind
from tests.marking.plain_programs import weights

TOKENS, WIDTH = 3, 4
X = weights((TOKENS, WIDTH), key=7, scale=1.0)[0]
MATRICES = jnp.stack([weights((WIDTH, WIDTH), key=key)[0] for key in range(3)])
BIAS = weights((WIDTH,), key=3)[0]


def of(z, array):
    """Return constants in the dtype of a value."""
    return array.astype(z.dtype)


ELEMENTWISE = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "silu": lambda z: z * jax.nn.sigmoid(z),
    "exp": lambda z: jnp.exp(-jnp.abs(z)),
    "log": lambda z: jnp.log1p(z * z),
    "root": lambda z: jnp.sqrt(z**2 + 1),
    "floor": lambda z: jnp.floor(2 * z),
    "cap": lambda z: 3 * jnp.tanh(z / 3),
    "bias": lambda z: z + of(z, BIAS),
    "scaled": lambda z: -1.5 * z,
}
MIXING = {
    "weights": lambda z: z @ of(z, MATRICES[0]) + of(z, BIAS),
    "norm": lambda z: z * lax.rsqrt((z * z).mean(-1, keepdims=True) + 1e-2),
    "centred": lambda z: z - z.mean(-1, keepdims=True),
    "softmax": lambda z: jax.nn.softmax(z, -1),
    "log-softmax": lambda z: jax.nn.log_softmax(z, -1),
    "attention": lambda z: jax.nn.softmax(z @ z.T) @ z,
    "sort": lambda z: jnp.sort(z, -1),
    "running": lambda z: jnp.cumsum(z, 0),
    "largest": lambda z: z.max(0, keepdims=True) + z,
    "looked up": lambda z: of(z, MATRICES)[jnp.argmax(z[0]) % 3][:TOKENS] + z,
    "gathered": lambda z: z[jnp.argsort(z[:, 0])],
    "reversed": lambda z: z[::-1, ::-1],
    "joined": lambda z: jnp.concatenate([z[:, 2:], jnp.tanh(z[:, :2])], 1),
    "scan": lambda z: lax.scan(lambda c, w: (c + jnp.tanh(c @ w), None), z, of(z, MATRICES))[0],
    "recurrence": lambda z: lax.scan(lambda c, row: (0.5 * c + row * jnp.sum(c), c), z[0], z)[1],
    "loop": lambda z: lax.fori_loop(0, 2, lambda _, c: c @ of(z, MATRICES[1]) + jnp.tanh(c), z),
    "branch": lambda z: lax.cond(z[0, 0] > 0, lambda z: jnp.tanh(z) @ of(z, MATRICES[2]), lambda z: z + 1, z),
    "checkpointed": jax.checkpoint(lambda z: z + jax.nn.gelu(z @ of(z, MATRICES[2]))),
    "mapped": lambda z: jax.vmap(lambda row: row * row.max())(z),
}
JOINING = {
    "sum": jnp.add,
    "difference": jnp.subtract,
    "product": jnp.multiply,
    "quotient": lambda a, b: a / (1 + b * b),
    "pattern": lambda a, b: jax.nn.softmax(a @ b.T) @ b,
    "maximum": jnp.maximum,
    "where": lambda a, b: jnp.where(a > b, a, 0.5 * b),
    "gate": lambda a, b: jax.nn.sigmoid(a) * b,
    "einsum": lambda a, b: jnp.einsum("ti,tj,ij->tj", a, b, of(a, MATRICES[0])),
}
READOUTS = {
    "entry": lambda z: z[-1, 1],
    "sum": jnp.sum,
    "mean": lambda z: (z @ of(z, BIAS)).mean(),
    "log-probability": lambda z: jax.nn.log_softmax(z[-1])[0],
}


def program(seed, length=6):
    """Return a function of `X`, and the names of its operations."""
    draw = random.Random(seed)
    steps = []
    for k in range(length):
        table = draw.choice((ELEMENTWISE, MIXING, JOINING))
        steps.append((table, draw.choice(list(table)), draw.randint(0, k), draw.randint(0, k)))
    readout = draw.choice(list(READOUTS))

    def fn(x):
        values = [x]
        for table, name, a, b in steps:
            # The newest value is always read, so that most operations flow to the result.
            values.append(
                table[name](values[-1], values[b]) if table is JOINING else table[name](values[a]) + values[-1]
            )
        return READOUTS[readout](values[-1])

    return fn, [name for _, name, *_ in steps] + [readout]


def rewritten(fn, rule):
    """Return a function with every product, and every sum, of two numbers written in another way.

    Args:
        fn: a function of one array.
        rule: `"swapped"`, or `"reassociated"`, which turns `(a b) c` into `a (b c)`.
    """

    def run(jaxpr, consts, arguments):
        values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *arguments], strict=True))
        made = {}

        def read(atom):
            return atom.val if isinstance(atom, core.Literal) else values[atom]

        for equation in jaxpr.eqns:
            operands, inner = [read(atom) for atom in equation.invars], sub_program(equation)
            name, shape = equation.primitive.name, equation.outvars[0].aval.shape
            first = next((made.get(atom) for atom in equation.invars[:1] if not isinstance(atom, core.Literal)), None)
            if inner is not None and name in ("jit", "pjit"):
                results = run(inner.jaxpr, inner.consts, operands)
            elif name not in ("mul", "add"):
                results = bind(equation, operands)
            elif rule == "swapped":
                results = bind(equation, operands[::-1])
            elif first is not None and first[0] == (name, shape):
                (inside,) = bind(equation, [first[1][1], operands[1]])
                results = bind(equation, [first[1][0], inside])
            else:
                results = bind(equation, operands)
            made[equation.outvars[0]] = (name, shape), operands
            values |= zip(equation.outvars, results, strict=True)
        return [read(atom) for atom in jaxpr.outvars]

    def other(x):
        closed = jax.make_jaxpr(fn)(x)
        return run(closed.jaxpr, closed.consts, [x])[0]

    return other
