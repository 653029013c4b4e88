"""Functions of one value, entry by entry: recognised however they are written, and split as one function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close
from jax import lax
from two_inputs import each

import duat_jax as duat
from duat_jax.transform.entrywise import axes_of_results, own_axes

X = jnp.array([[2.0, -1.0, 0.5], [-0.3, 0.0, 0.0]])
Y = jnp.array([[-1.0, 3.0, 0.7], [0.9, 2.0, 0.0]])

ONE_VALUE = {
    "a product with a comparison": lambda z: z * (z > 0),
    "a product with a sign": lambda z: z * jnp.sign(z),
    "a remainder": lambda z: z - jnp.floor(z),
    "a power of a sign": lambda z: jnp.exp(z) * jnp.where(z > 0, 1, -1),
    "piecewise": lambda z: jnp.piecewise(z, [z < 0, z >= 1], [lambda z: -z, lambda z: z * z, 0.5]),
    "select": lambda z: jnp.select([z > 1, z > 0], [z * z, 2 * z], -z),
    "a cond of every entry": jax.vmap(jax.vmap(lambda z: lax.cond(z > 0, jnp.sin, lambda z: 2 - z, z))),
    "a maximum of stacked cases": lambda z: jnp.stack([z, 0.1 * z, z * (z > 1)], 1).max(1),
    "transposed and back": lambda z: (z.T * (z.T > 0)).T,
    "beside a new axis": lambda z: jnp.where(z[:, None] > 0, z[:, None], 3.0)[:, 0],
    "where(z > 0, log z, 0)": lambda z: jnp.where(z > 0, jnp.log(z), 0),
    "where(z > 0, sqrt z, 0)": lambda z: jnp.where(z > 0, jnp.sqrt(z), 0),
    "where(z != 0, sin z / z, 1)": lambda z: jnp.where(z != 0, jnp.sin(z) / z, 1),
    "where(|z| > 0.1, 1 / z, 0)": lambda z: jnp.where(jnp.abs(z) > 0.1, 1 / z, 0),
    "nan_to_num(log z)": lambda z: jnp.nan_to_num(jnp.log(z), nan=0.0, neginf=0.0),
    "softplus of large numbers": lambda z: jnp.where(500 * z > 20, 500 * z, jnp.log(1 + jnp.exp(500 * z))),
    "elu of large numbers": lambda z: jnp.where(z > 0, 500 * z, jnp.exp(500 * z) - 1),
    "a power with a guard": lambda z: jnp.where(z > 0, z**z, 1),
}


def test_every_entry_has_the_difference_of_its_own_values():
    functions = {name: lambda z, fn=fn: fn(z).sum() for name, fn in ONE_VALUE.items()}
    with jax.numpy_dtype_promotion("standard"):
        found, _ = each(functions, *(dict.fromkeys(functions, z) for z in (X, Y)))
        expected = {name: fn(X) - fn(Y) for name, fn in ONE_VALUE.items()}
    assert found.completeness.verdict == "holds" and not any(found.discontinuities.values())
    for name, parts in found.parts.items():
        close(parts, expected[name], layers=10)


def test_one_number_may_choose_a_branch():
    def fn(x):
        return lax.cond(x[0] > 0, lambda z: z, lambda z: 0.1 * z, x[0]) * x[1]

    found = duat.secant(fn)(jnp.array([2.0, 1.0]), jnp.array([-1.0, 1.0]))
    close(found.parts, [2.1, 0.0])
    assert found.completeness.verdict == "holds" and not found.discontinuities


def transposed(z):
    return lax.reshape(z, z.shape, dimensions=(1, 0))


def test_a_reshape_that_transposes_keeps_no_places():
    z = jnp.arange(9.0).reshape(3, 3) - 4
    with pytest.raises(duat.NotAffine, match="reshape mixes its entries"):
        duat.collapse(lambda x: duat.term(lambda z: jnp.tanh(transposed(z)), x, "t"), z)
    found = duat.secant(lambda z: jnp.where(transposed(z) > 0, z, 0.1 * z).sum())(z, z[::-1] + 0.3)
    assert any(found.discontinuities.values()) and found.completeness.verdict == "holds"


ALONG = {
    "reshape": [
        lambda z: lax.reshape(z, (2, 3), dimensions=(1, 0)),
        lambda z: z.reshape(3, 2),
        lambda z: z.reshape(1, 2, 3),
    ],
    "broadcast_in_dim": [lambda z: lax.broadcast_in_dim(z, (4, 2, 3), (1, 2)), lambda z: z[:, None, :]],
    "transpose": [lambda z: z.T, lambda z: lax.transpose(z, (0, 1))],
    "squeeze": [lambda z: lax.squeeze(z[None], (0,))],
    "rev": [lambda z: lax.rev(z, (0,)), lambda z: lax.rev(jnp.stack([z, -z]), (0,))],
    "concatenate": [lambda z: lax.concatenate([z, z], 0), lambda z: lax.concatenate([z[None], -z[None]], 0)],
    "stack": [lambda z: jnp.stack([z, -z], 0), lambda z: jnp.stack([z, -z], 2)],
    "cumsum": [lambda z: lax.cumsum(z, 1, reverse=True), lambda z: lax.cumsum(z[None], 0)],
    "cumprod": [lambda z: lax.cumprod(z, 0), lambda z: lax.cumprod(z[:, None], 1)],
    "cummax": [lambda z: lax.cummax(z, 0), lambda z: lax.cummax(z[..., None], 2)],
    "cummin": [lambda z: lax.cummin(z, 1), lambda z: lax.cummin(z[None], 0)],
    "cumlogsumexp": [lambda z: lax.cumlogsumexp(z, 1), lambda z: lax.cumlogsumexp(z[None], 0)],
    "sort": [lambda z: lax.sort(z, dimension=0), lambda z: lax.sort(jnp.stack([z, -z]), dimension=0)],
    "argmax": [lambda z: lax.argmax(z, 0, jnp.int32), lambda z: lax.argmax(jnp.stack([z, -z]), 0, jnp.int32)],
    "argmin": [lambda z: lax.argmin(z, 1, jnp.int32), lambda z: lax.argmin(jnp.stack([z, -z]), 0, jnp.int32)],
    "reduce_sum": [lambda z: z.sum(0), lambda z: jnp.stack([z, z * z], 1).sum(1)],
    "reduce_prod": [lambda z: z.prod(1), lambda z: jnp.stack([z, z * z], 1).prod(1)],
    "reduce_max": [lambda z: z.max((0, 1)), lambda z: jnp.stack([z, z * z], 2).max(2)],
    "reduce_min": [lambda z: z.min(1), lambda z: jnp.stack([z, z * z], 2).min(2)],
    "reduce_and": [lambda z: (z > 0).all(0), lambda z: jnp.stack([z > 0, z > 1]).all(0)],
    "reduce_or": [lambda z: (z > 0).any(0), lambda z: jnp.stack([z > 0, z > 1]).any(0)],
    "reduce_xor": [
        lambda z: lax.reduce_xor_p.bind((z > 0), axes=(0,)),
        lambda z: lax.reduce_xor_p.bind(jnp.stack([z > 0, z > 1]), axes=(0,)),
    ],
    "optimization_barrier": [lambda z: lax.optimization_barrier((z.T, z))[0]],
}
"""Operations that move, add or mix axes, over their parameters; of each the places are right or not known."""


def depends(fn, z):
    """Return which entries of a result change where one entry of the argument is another number."""
    before = np.asarray(fn(z))
    changed = [fn(z.at[place].set(other)) != before for place in np.ndindex(z.shape) for other in (-9.7, 7.3)]
    return np.stack(changed).reshape(*z.shape, 2, *before.shape).any(z.ndim)


@pytest.mark.parametrize("name", ALONG)
def test_the_entries_of_a_result_lie_along_the_axes_that_are_said(name):
    z = jnp.array([[0.3, -1.2, 2.0], [1.7, 0.4, -0.6]])
    for fn in ALONG[name]:
        jaxpr = jax.make_jaxpr(fn)(z).jaxpr
        axes = {jaxpr.invars[0]: own_axes(jaxpr.invars[0])}
        for equation in jaxpr.eqns:
            flags = [axes.get(v) if not hasattr(v, "val") else None for v in equation.invars]
            if any(flag is not None for flag in flags):
                axes |= zip(equation.outvars, axes_of_results(equation, flags), strict=True)
        along = axes.get(jaxpr.outvars[0])
        if along is None:
            continue
        places = depends(fn, z)
        for place in np.argwhere(places):
            source, target = place[: z.ndim], place[z.ndim :]
            assert [target[axis] for axis in along] == list(source), (name, along)
    assert along is not None  # of the last of each the axes are known
