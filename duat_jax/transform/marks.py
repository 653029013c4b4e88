"""The five marks, which give a function's parts their roles in its closed form.

A mark is the identity: it passes through `jit`, `grad`, `vmap`, `scan` and `remat`, and the compiled program is the one
without marks.  The conditions on a mark are checked when a question is asked, not in the forward pass.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from duat_jax.errors import DuatError
from duat_jax.transform.identities import bind_mark

HOLD = "hold"
OFFSET = "offset"
STREAM = "stream"
POINT = "point"
PRE_ACTIVATION = "pre_activation"
ACTIVATION = "activation"
TERM_OUTPUT = "term_output"
OF_A_TERM = frozenset({PRE_ACTIVATION, ACTIVATION, TERM_OUTPUT})
KINDS = (HOLD, PRE_ACTIVATION, ACTIVATION, TERM_OUTPUT, OFFSET, STREAM, POINT)

SLOPE, AT_ZERO, FACTOR_SLOPE = "slope", "at_zero", "factor_slope"
KEPT, ADDED = ({kind: f"{part} {kind}" for kind in KINDS} for part in ("kept", "added"))
"""Values that a question provides at a mark: `at_zero + slope · z` at an activation, `factor_slope · u` where that is
multiplied by a dynamic parameter `u`, `kept · value + added` at any mark."""
PROVIDED_AT = {
    **dict.fromkeys((SLOPE, AT_ZERO, FACTOR_SLOPE), ACTIVATION),
    **{part[kind]: kind for part in (KEPT, ADDED) for kind in KINDS},
}


def _mark(x: Any, kind: str, name: str, where: str, *, floating: bool = True) -> Array:
    if not isinstance(name, str):
        raise DuatError(f"{where}: the name of a mark is a string, not {name!r}")
    try:
        x = jnp.asarray(x)
    except (TypeError, ValueError) as error:
        raise DuatError(f"{where}: a mark stands on one array, not on a {type(x).__name__}: mark its leaves") from error
    if floating and not jnp.issubdtype(x.dtype, jnp.inexact):
        raise DuatError(f"{where} is of {x.dtype}: convert it to a floating-point dtype first")
    return bind_mark(x, kind, name)


def hold(x: Shaped[Array, "..."], name: str) -> Shaped[Array, "..."]:
    """Mark `x` as a dynamic parameter: held at its value on this input.

    Attention patterns, normalisation scales, gates and router weights are held: `x ↦ x`, and in the closed form `x`
    counts as a constant of this input.

    Args:
        x: any array.
        name: its name, for example `"attention.pattern"`.

    Returns:
        `x`, unchanged.

    Example:
        >>> import jax.numpy as jnp
        >>> hold(jnp.array([1.0, 2.0]), "gate").tolist()
        [1.0, 2.0]

    Source: Wang & Li, Section 3.2 (`H_i` "regarded as parameters").
    """
    return _mark(x, HOLD, name, f"hold(x, {name!r})", floating=False)


def offset(b: Shaped[Array, "..."], name: str) -> Float[Array, "..."]:
    """Mark `b` as a bias or norm offset, to be accounted for by name.

    In the closed form it is one summand of `b'_{i,3}` or `b'_{j,2}`.  It may not depend on anything that flows: the
    input, terms and other offsets.

    Args:
        b: the bias, before it is broadcast and added.
        name: its name, for example `"mlp.output.bias"`.

    Raises:
        DuatError: if `b` isn't floating-point.

    Returns:
        `b`, unchanged.

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.ones((2, 3)) + offset(jnp.zeros(3), "bias")

    Source: Wang & Li, Eq. 20.
    """
    return _mark(b, OFFSET, name, f"offset(b, {name!r})")


def stream(x: Float[Array, "..."], name: str) -> Float[Array, "..."]:
    """Mark `x` as the residual stream at a layer boundary, where forms may begin or end.

    Between two neighbouring streams the function is one residual term (Eq. 20).

    Args:
        x: the residual stream, usually `[tokens, features]`.
        name: its name, for example `"layer"`.

    Returns:
        `x`, unchanged.

    Example:
        >>> import jax.numpy as jnp
        >>> x = stream(jnp.ones((2, 3)), "layer")

    Source: Wang & Li, Eq. 20 (`x_i`).
    """
    return _mark(x, STREAM, name, f"stream(x, {name!r})")


def point(x: Shaped[Array, "..."], name: str) -> Float[Array, "..."]:
    """Mark `x` as a place without a role in the closed form, where differences are read and edits are made.

    Args:
        x: any array of floating-point numbers, for example the heads' outputs, `[tokens, heads, head_features]`.
        name: its name, for example `"attention.mixed"`.

    Returns:
        `x`, unchanged.

    Raises:
        DuatError: if `x` isn't floating-point.

    Example:
        >>> import jax.numpy as jnp
        >>> x = point(jnp.ones((2, 4, 3)), "attention.mixed")
    """
    return _mark(x, POINT, name, f"point(x, {name!r})")


def term(
    activation: Callable[[Array], Array],
    z: Shaped[Array, "..."],
    name: str,
    outer: Callable[[Array], Array] | None = None,
) -> Float[Array, "..."]:
    """Apply an elementwise activation and mark it as the activation of a term `W3 σ(W2 x0 + b2)`.

    Args:
        activation: the elementwise `σ`; of all values that flow it may depend on `z` alone.
        z: its pre-activation `W2 x + b2`, usually `[tokens, neurons]`.
        name: its name, for example `"mlp"`.
        outer: the linear map `W3` that carries `σ(z)` on, without a bias.  With it the whole term `W3 σ(z)` is marked
            too, so that a table per layer and token can be made without going down to neurons.

    Raises:
        DuatError: if `z`, `σ(z)` or what `outer` returns isn't one array of floating-point numbers.

    Returns:
        `σ(z)`, or `outer(σ(z))` where `outer` is given.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> term(jax.nn.relu, jnp.array([-1.0, 2.0]), "mlp").tolist()
        [0.0, 2.0]

    Source: Wang & Li, Eq. 20.
    """
    where = f"term(…, z, {name!r})"
    z = _mark(z, PRE_ACTIVATION, name, where)
    activated = _mark(activation(z), ACTIVATION, name, f"the activation of {where}")
    return activated if outer is None else _mark(outer(activated), TERM_OUTPUT, name, f"the outer map of {where}")
