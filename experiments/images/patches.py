"""Patches of an image, and the methods that rank them."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

import duat_jax as duat

SIDE, PATCH = 8, 2
PATCHES = (SIDE // PATCH) ** 2


def of_patches(parts: jax.Array) -> jax.Array:
    """Return the sums over patches, `[patches]`."""
    side = SIDE // PATCH
    return parts.reshape(side, PATCH, side, PATCH).sum((1, 3)).ravel()


def kept_of(image: jax.Array, kept: jax.Array) -> jax.Array:
    """Return an image with all patches but the kept ones set to paper."""
    side = SIDE // PATCH
    return image * jnp.repeat(jnp.repeat(kept.reshape(side, side), PATCH, 0), PATCH, 1)[..., None]


def rankers() -> dict[str, Callable]:
    """Return the methods that rank patches, by name: each maps a logit and an image to a score for every patch."""

    def left_out(logit: Callable, x: jax.Array, key: jax.Array) -> jax.Array:
        return logit(x) - jax.vmap(lambda kept: logit(kept_of(x, kept)))(1 - jnp.eye(PATCHES))

    return {
        "secant to paper": lambda logit, x, key: of_patches(duat.secant(logit)(x, jnp.zeros_like(x)).parts),
        "collapse": lambda logit, x, key: of_patches(
            duat.collapse(lambda x: logit(x)[None], x).linear.T(jnp.ones(1)) * x
        ),
        "gradient × ink": lambda logit, x, key: of_patches(jax.grad(logit)(x) * x),
        "leave one out": left_out,
        "random": lambda logit, x, key: jax.random.normal(key, (PATCHES,)),
    }
