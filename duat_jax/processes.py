"""Arrays that lie on the devices of several processes, each of which runs the same program."""

from typing import Any

import jax
from jax.errors import JaxRuntimeError
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import Sharding

from duat_jax.errors import DuatError


def put(tree: Any, place: Any) -> Any:
    """Put arrays of the host on devices; those of other processes are left to them."""
    if not isinstance(place, Sharding) or place.is_fully_addressable:
        return jax.device_put(tree, place)

    def put_own(x: Any) -> jax.Array:
        if isinstance(x, jax.Array) and not x.is_fully_addressable:  # it was put already
            return jax.device_put(x, place)
        # device_put would send the array to every other process, to compare it with theirs.
        return jax.make_array_from_callback(x.shape, place, lambda index: x[index])

    return jax.tree.map(put_own, tree)


def on_host(tree: Any) -> Any:
    """Bring arrays to the host: in every process all of them, wherever they lie."""
    try:
        return jax.device_get(jax.tree.map(_gathered, tree))
    except JaxRuntimeError as error:
        if "Gloo" not in str(error) or jax.process_count() == 1:
            raise
        (reason, *_) = str(error).splitlines()
        raise DuatError(
            f"another of the {jax.process_count()} processes ended, so process {jax.process_index()} can't go on: start"
            f" all of them again ({reason})"
        ) from None


def _gathered(x: Any) -> Any:
    elsewhere = isinstance(x, jax.Array) and not (x.is_fully_addressable or x.is_fully_replicated)
    return process_allgather(x, tiled=True) if elsewhere else x
