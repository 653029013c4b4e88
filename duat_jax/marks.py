"""The four marks that say which part of a function plays which role in its closed form.

A mark is the identity.  It is `jax.ad_checkpoint.checkpoint_name` with a structured name, so it passes through `jit`,
`grad`, `vmap`, `scan` and `remat`, and the compiled program is the one without marks.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Shaped

from duat_jax.errors import DuatError

PREFIX = "duat"

HOLD = "hold"
OFFSET = "offset"
STREAM = "stream"
PRE_ACTIVATION = "pre_activation"
ACTIVATION = "activation"
IMAGE = "image"
AT_ZERO = "at_zero"
SLOPE_AT_ZERO = "slope_at_zero"
OF_A_TERM = frozenset({PRE_ACTIVATION, AT_ZERO, SLOPE_AT_ZERO, ACTIVATION, IMAGE})


def _mark(x: Array, kind: str, name: str) -> Array:
    return checkpoint_name(x, f"{PREFIX}/{kind}/{name}")


def _floating(x: Array, where: str) -> Array:
    if not jnp.issubdtype(jnp.result_type(x), jnp.inexact):
        raise DuatError(f"{where} is of {jnp.result_type(x)}: convert it to a floating-point dtype first")
    return x


def _require_elementwise(activation: Callable[[Array], Array], zero: Array, name: str) -> None:
    try:
        is_elementwise = jax.eval_shape(activation, zero).shape == ()
    except (TypeError, ValueError, IndexError):
        is_elementwise = False
    if not is_elementwise:
        raise DuatError(
            f"the activation of term {name!r} isn't elementwise: it must take one number to one number; hold what mixes"
            " numbers, such as an attention pattern"
        )


def hold(x: Shaped[Array, "..."], name: str) -> Shaped[Array, "..."]:
    """Mark `x` as a dynamic parameter: held at its value on this input.

    Attention patterns, normalisation scales, gates and router weights are held: `x ↦ x`, and in the closed form `x`
    counts as a constant of this input.

    Args:
        x: any array.
        name: what it is, for example `"attention.pattern"`.

    Returns:
        `x`, unchanged.

    Example:
        >>> import jax.numpy as jnp
        >>> hold(jnp.array([1.0, 2.0]), "gate").tolist()
        [1.0, 2.0]

    Source: Wang & Li, Section 3.2 (`H_i` "regarded as parameters").
    """
    return _mark(x, HOLD, name)


def offset(b: Shaped[Array, "..."], name: str) -> Float[Array, "..."]:
    """Mark `b` as a bias or norm offset, to be accounted for by name.

    In the closed form it is one summand of `b'_{i,3}` or `b'_{j,2}`.

    Args:
        b: the bias, before it is broadcast and added.
        name: what it is, for example `"mlp.output.bias"`.

    Returns:
        `b`, unchanged.

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.ones((2, 3)) + offset(jnp.zeros(3), "bias")

    Source: Wang & Li, Eq. 20.
    """
    return _mark(_floating(b, f"offset(b, {name!r})"), OFFSET, name)


def stream(x: Float[Array, "..."], name: str) -> Float[Array, "..."]:
    """Mark `x` as the residual stream at a layer boundary, where forms may begin or be read out.

    Between two neighbouring streams the function is one residual term (Eq. 20).

    Args:
        x: the residual stream, usually `[tokens, features]`.
        name: what it is, for example `"layer"`.

    Returns:
        `x`, unchanged.

    Example:
        >>> import jax.numpy as jnp
        >>> x = stream(jnp.ones((2, 3)), "layer")

    Source: Wang & Li, Eq. 20 (`x_i`).
    """
    return _mark(x, STREAM, name)


def term(
    activation: Callable[[Array], Array],
    z: Shaped[Array, "..."],
    name: str,
    outer: Callable[[Array], Array] | None = None,
) -> Float[Array, "..."]:
    """Apply an elementwise activation and mark it as the nonlinear heart of a term `W3 σ(W2 x0 + b2)`.

    Args:
        activation: the elementwise `σ`.
        z: its pre-activation `W2 x + b2`, usually `[tokens, neurons]`.
        name: what it is, for example `"mlp"`.
        outer: the linear map `W3` that carries `σ(z)` on.  With it the whole term `W3 σ(z)` is marked too, so that
            a table per layer and token can be made without going down to neurons.

    Raises:
        DuatError: if `σ` isn't elementwise, or `z` isn't floating-point.

    Returns:
        `σ(z)`, or `outer(σ(z))` where `outer` is given.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> term(jax.nn.relu, jnp.array([-1.0, 2.0]), "mlp").tolist()
        [0.0, 2.0]

    Source: Wang & Li, Eq. 20.
    """
    z = _mark(_floating(z, f"term(…, z, {name!r})"), PRE_ACTIVATION, name)
    zero = jnp.zeros((), z.dtype)
    _require_elementwise(activation, zero, name)
    # Dead code in normal use; the collapse needs both where z is zero.
    _mark(activation(zero), AT_ZERO, name)
    _mark(jax.grad(activation)(zero), SLOPE_AT_ZERO, name)
    activated = _mark(activation(z), ACTIVATION, name)
    return activated if outer is None else _mark(outer(activated), IMAGE, name)
