"""The analysed function: a function of one array, or a model from its embeddings on; with its marks."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array

from duat_jax.errors import DuatError
from duat_jax.marking.automatic import auto


@runtime_checkable
class Model(Protocol):
    """A model that is split at its embeddings: `model(ids) = output(embed(ids))`."""

    def embed(self, ids: Array) -> Array:
        """Return the embeddings `x_0`.

        Args:
            ids: token ids, `[tokens]`.
        """

    def output(self, x: Array) -> Array:
        """Return the result from the embeddings on.

        Args:
            x: the embeddings, `[tokens, features]`.
        """


def from_embeddings(fn: Callable[[Any], Any] | Model, x: Any) -> tuple[Callable[[Any], Any], Any]:
    """Return a function and its argument; for a model, the part after its embeddings, and the embeddings."""
    return (fn.output, fn.embed(jnp.asarray(x))) if isinstance(fn, Model) else (fn, x)


def with_marks(fn: Callable[[Any], Any], marks: str | None) -> Callable[[Any], Any]:
    """Return a function with the marks of which a form is taken."""
    if marks not in (None, "auto"):
        raise DuatError(f"marks = {marks!r} isn't known: give 'auto', or leave it out where the function has its own")
    return fn if marks is None else auto(fn)
