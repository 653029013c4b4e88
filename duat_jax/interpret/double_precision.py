"""Run a model in double precision where its parts miss its value: which of the two is farther from the truth."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from duat_jax.forms.completeness import FAILS, Completeness

Model = TypeVar("Model")


def in_double_precision(model: Model) -> Model:
    """Return a model with its parameters in double precision.

    Args:
        model: the model.
    """
    return jax.tree.map(
        lambda leaf: leaf.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, model
    )


def judged(completeness: Completeness, model: Model, value: Callable[[Model], Any]) -> Completeness:
    """Return completeness with the value in double precision where it fails; nothing is computed where it doesn't.

    Args:
        completeness: of a number that a model computes.
        model: the model.
        value: what computes that number by a model.
    """
    if completeness.verdict != FAILS or completeness.dtype == jnp.float64:
        return completeness
    with jax.enable_x64(True):
        return completeness._replace(in_float64=float(value(in_double_precision(model))))
