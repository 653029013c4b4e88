"""Two inputs of one structure, whose leaves have the same shapes and dtypes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from duat_jax.errors import DuatError
from duat_jax.operators.shapes import names_of


def alike(x: Any, y: Any) -> tuple[Any, Any]:
    """Return two inputs of one structure, one shape and one dtype."""
    x, y = _as_floats(x, y)
    _require_alike(x, y)
    return x, y


def _as_floats(x: Any, y: Any) -> tuple[Any, ...]:
    """Convert Python integers to floats where the other input has a Python float."""
    structures: list[Any] = [jax.tree.structure(tree) for tree in (x, y)]
    if structures[0] != structures[1]:
        return x, y
    leaves = zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True)
    pairs = [(float(a), float(b)) if {type(a), type(b)} == {int, float} else (a, b) for a, b in leaves]
    return tuple(jax.tree.unflatten(structures[0], [pair[k] for pair in pairs]) for k in (0, 1))


def _require_alike(x: Any, y: Any) -> None:
    structures: list[Any] = [jax.tree.structure(tree) for tree in (x, y)]
    if structures[0] != structures[1]:
        first, second = names_of(x), names_of(y)
        alone = {"first": _only(first, second), "second": _only(second, first)}
        streams = ", ".join(f"{names} only in the {which}" for which, names in alone.items() if names)
        kinds = streams or f"{structures[0]} and {structures[1]}"
        raise DuatError(f"the two inputs differ in structure: {kinds}; give two of one structure")
    problems = [
        f"{name or 'the first'} is {_described(a)}, the other {_described(b)}"
        for name, a, b in zip(names_of(x), jax.tree.leaves(x), jax.tree.leaves(y), strict=True)
        if _described(a) != _described(b) or not _is_array(a)
    ]
    if problems:
        raise DuatError(f"the two inputs aren't arrays of one shape and dtype: {'; '.join(problems)}")


def _only(names: list[str], others: list[str]) -> str:
    """Format the names of streams that the others don't have."""
    return ", ".join(name or "an array" for name in names if name not in others)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, int | float | complex | np.generic) or (hasattr(leaf, "dtype") and hasattr(leaf, "shape"))


def _described(leaf: Any) -> str:
    return f"{jnp.shape(leaf)} of {jnp.result_type(leaf)}" if _is_array(leaf) else f"a {type(leaf).__name__}"
