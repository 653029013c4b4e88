"""Entries of a result lie along the axes that the tables say: elsewhere it doesn't change with them."""

from functools import partial
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
from helpers import make_input
from jax import lax
from test_primitives import OF_OTHER_VERSIONS

from duat_jax.transform.entrywise import axes_of_results, own_axes
from duat_jax.transform.primitives import KEEPS_PLACE, MIXES_AXES

CUMULATED = ("cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum")
FOLDS = {
    "reduce_sum": (0.0, lax.add),
    "reduce_prod": (1.0, lax.mul),
    "reduce_max": (-np.inf, lax.max),
    "reduce_min": (np.inf, lax.min),
}
OF_TRUTH_VALUES = {
    "reduce_and": (True, lax.bitwise_and),
    "reduce_or": (False, lax.bitwise_or),
    "reduce_xor": (False, lax.bitwise_xor),
}
COPIES = {
    "broadcast_in_dim": lambda z: [lax.broadcast_in_dim(z, (4, 2, 3, 5, 6), (0, 2, 4))],
    "concatenate": lambda z: [lax.concatenate([z, 2 * z], 1)],
    "optimization_barrier": lambda z: lax.optimization_barrier([z]),
    "reshape": lambda z: [z.reshape(shape) for shape in ((4, 3, 1, 6), (1, 4, 3, 6))],
    "rev": lambda z: [lax.rev(z, (1,))],
    "sort": lambda z: [lax.sort((z, 2 * z, -z), dimension=1, num_keys=2)[2]],
    "squeeze": lambda z: [lax.squeeze(z[:, None], (1,))],
    "stack": lambda z: [jnp.stack([z, 2 * z], axis) for axis in range(4)],
    "transpose": lambda z: [z.transpose(axes) for axes in permutations(range(3))],
    **{name: partial(lambda fn, z: [fn(z, 1)], getattr(lax, name)) for name in CUMULATED},
    **{name: partial(lambda fn, z: [lax.reduce(z, *fn, (1,))], fn) for name, fn in FOLDS.items()},
    **{name: partial(lambda fn, z: [lax.reduce(z > 0, *fn, (1,))], fn) for name, fn in OF_TRUTH_VALUES.items()},
    "argmax": lambda z: [lax.argmax(z, 1, jnp.int32)],
    "argmin": lambda z: [lax.argmin(z, 1, jnp.int32)],
}
"""Operations on three functions of every entry, which lie along the second axis."""


def axes_of(jaxpr):
    """Return the axes of each result along which the argument's entries lie."""
    axes = {jaxpr.invars[0]: own_axes(jaxpr.invars[0])}
    for equation in jaxpr.eqns:
        operands = [None if isinstance(v, jax.extend.core.Literal) else axes.get(v) for v in equation.invars]
        axes |= zip(equation.outvars, axes_of_results(equation, operands), strict=True)
    return [axes[v] for v in jaxpr.outvars]


def test_entries_lie_along_the_axes_that_the_tables_say():
    def functions(x):
        z = jnp.stack([x, jnp.sin(x), 1 - x], 1)
        return {name: fn(z) for name, fn in COPIES.items()}

    x, place = make_input(), (2, 4)
    all_axes, before = axes_of(jax.make_jaxpr(functions)(x).jaxpr), jax.jit(functions)(x)
    for value in (-9.7, 7.3):
        after = jax.jit(functions)(x.at[place].set(value))
        for a, b, axes in zip(*map(jax.tree.leaves, (before, after)), all_axes, strict=True):
            assert {tuple(entry[list(axes)]) for entry in np.argwhere(np.asarray(a != b))} <= {place}


def test_every_entry_has_its_case():
    assert not (KEEPS_PLACE | MIXES_AXES) - {*COPIES, *OF_OTHER_VERSIONS, "sharding_constraint"}
