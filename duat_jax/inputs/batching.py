"""Batching: texts padded on the right to few lengths, a few at a time."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jaxtyping import Int, Shaped

from duat_jax.errors import DuatError
from duat_jax.inputs.model_inputs import Inputs
from duat_jax.processes import put

SHORTEST, LARGEST_BATCH = 16, 8
"""The shortest padded length, and the largest number of tables in a batch."""


class Batch(NamedTuple):
    """Texts of one bucket, or images.

    Args:
        indices: which ones they are.
        rows: which one each row is: the indices, and the first one again where rows are left over.
        inputs: all of them, padded.
    """

    indices: tuple[int, ...]
    rows: tuple[int, ...]
    inputs: Inputs


def bucket(tokens: int, longest: int) -> int:
    """Return the length that a text is padded to: the next power of two, or the longest text that a model takes.

    Example:
        >>> [bucket(tokens, 100) for tokens in (1, 17, 65)]
        [16, 32, 100]
    """
    return min(max(SHORTEST, power_of_two(tokens)), longest)


def power_of_two(number: int) -> int:
    """Return the next power of two."""
    return 1 << (number - 1).bit_length()


def shards_of(sharding: NamedSharding | None) -> int:
    """Return the number of parts into which a sharding cuts the first axis."""
    if sharding is None:
        return 1
    return sharding.num_devices // sharding.shard_shape((sharding.num_devices,))[0]


def batches(
    inputs: Sequence[Inputs], longest: int, targets: int, sharding: NamedSharding | None = None
) -> Iterator[Batch]:
    """Return all texts or images, padded; the number of rows is a power of two, so that few programs are compiled."""
    shards = shards_of(sharding)
    most = shards * max(1, LARGEST_BATCH // power_of_two(targets))
    of_length: dict[int, list[int]] = {}
    for i, text in enumerate(inputs):
        of_length.setdefault(bucket(len(text.real), longest), []).append(i)
    for length, indices in of_length.items():
        for start in range(0, len(indices), most):
            chosen = indices[start : start + most]
            of_shard = power_of_two(-(-len(chosen) // shards))
            rows = chosen + chosen[:1] * (shards * of_shard - len(chosen))
            batch = stack(padded(inputs[i], length) for i in rows)
            yield Batch(tuple(chosen), tuple(rows), batch if sharding is None else put(batch, sharding))


def padded(inputs: Inputs, length: int) -> Inputs:
    """Return a text padded on the right to a length; an image as it is."""

    def pad(x: Shaped[np.ndarray, "_"]) -> Shaped[np.ndarray, "_"]:
        return np.pad(x, (0, length - len(x)))

    text = inputs.given.ndim == 1
    return Inputs(
        pad(inputs.given.astype(np.int32)) if text else inputs.given,
        pad(inputs.real),
        None if inputs.segments is None else pad(inputs.segments.astype(np.int32)),
        inputs.pixels,
    )


def require_spread(model: Any, sharding: NamedSharding) -> None:
    """Raise if a batch can't be spread over devices as asked, or not over those of the model."""
    problems = []
    if len(sharding.spec) > 1:
        problems.append(f"{sharding.spec} spreads more than the axis of texts: give P(axis)")
    if any(axis is not AxisType.Auto for axis in sharding.mesh.axis_types):
        problems.append("the mesh has explicit axes: make it by jax.sharding.Mesh(devices, names)")
    if {device for leaf in jax.tree.leaves(model) for device in leaf.devices()} != sharding.device_set:
        problems.append(
            "the model lies on other devices than the texts: put it there, for example by"
            " duat.load(path, device=NamedSharding(mesh, P()))"
        )
    if problems:
        raise DuatError("; ".join(problems))


def row(tree: Any, index: int | slice | Int[np.ndarray, "rows"]) -> Any:
    """Return one row of every array of a tree, or some of the rows."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def stack(trees: Any) -> Any:
    """Return trees of the same structure as one, its arrays with an axis more."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def over_rows(fn: Callable[..., Any], *batch: Any) -> Any:
    """Map a function over the rows of a batch, which may be a single one."""
    if len(jax.tree.leaves(batch)[0]) > 1:
        return jax.vmap(fn)(*batch)
    # Attention with an axis of one text before its heads reads and writes a third more memory on a CPU.
    return jax.tree.map(lambda leaf: leaf[None], fn(*row(batch, 0)))
