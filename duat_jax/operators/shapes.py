"""Shapes and dtypes of an array, or of named streams in a pytree."""

from typing import Any

import jax
import jax.numpy as jnp

from duat_jax.errors import DuatError


def shapes_of(x: Any) -> Any:
    """Return the shape and dtype of an array, or of each array of a pytree."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), x)


def zeros_of(shapes: Any) -> Any:
    """Return zeros of a shape and dtype, or of each of a pytree."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def fits(a: Any, b: Any) -> bool:
    """Return whether two arrays or pytrees have the same structure, shapes and dtypes."""
    structures: list[Any] = [jax.tree.structure(tree) for tree in (a, b)]
    return structures[0] == structures[1] and all(
        x.shape == y.shape and x.dtype == y.dtype for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def names_of(shapes: Any) -> list[str]:
    """Return the names of the streams of a pytree, in order; of one array that of nothing, `""`."""
    return [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in jax.tree.leaves_with_path(shapes)]


def describe(shapes: Any) -> str:
    """Format shape and dtype of an array, or of each stream by its name, for an error message.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> text = jax.ShapeDtypeStruct((3, 6), jnp.float32)
        >>> describe(text), describe({"text": text, "image": text})
        ('float32[3,6]', 'image float32[3,6], text float32[3,6]')
    """
    return ", ".join(
        f"{name} {leaf.dtype}[{','.join(map(str, leaf.shape))}]".lstrip()
        for name, leaf in zip(names_of(shapes), jax.tree.leaves(shapes), strict=True)
    )


def require_fits(x: Any, shapes: Any, taker: str) -> None:
    """Raise unless an array, or streams, have the structure, shapes and dtypes that something takes."""
    if not fits(given := shapes_of(x), shapes):
        raise DuatError(f"{taker} takes {describe(shapes)} but was given {describe(given)}: convert or reshape it")


def require_floats(x: Any, result: Any) -> None:
    """Raise unless a function's argument and result are arrays, or streams, of floating-point numbers."""
    if not jax.tree.leaves(x):
        raise DuatError("the argument is empty: give an array, or streams by their names")
    if not _flow(x):
        raise DuatError(
            f"the argument is {describe(shapes_of(x))}: it has whole numbers, and nothing flows from those: begin at"
            " the embeddings, with a function of what your model looks up for its token ids, and close over other whole"
            " numbers"
        )
    if not _flow(result):
        raise DuatError(
            f"the result is {describe(shapes_of(result))}: nothing flows to whole numbers and truth values: return"
            " floating-point numbers alone"
        )


def _flow(x: Any) -> bool:
    return all(jnp.issubdtype(jnp.result_type(leaf), jnp.inexact) for leaf in jax.tree.leaves(x))
