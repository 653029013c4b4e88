"""The attention pattern of a layer in a recording, also where it isn't kept."""

from typing import Any

from jaxtyping import Array, Float

from duat_jax.models.sites import KEYS, PATTERN, QUERIES
from duat_jax.transform.recording import Recording


def pattern_of(
    block: Any, recording: Recording, scope: tuple[str, ...], real: Any
) -> Float[Array, "heads queries keys"]:
    """Return a layer's attention pattern: the held one, or of a long text what its queries and keys give."""
    held = {key.scope: value for key, value in recording.dynamics.held.items() if key.name == PATTERN}
    if scope in held:
        return held[scope]
    return block.attention.pattern(point_of(recording, scope, QUERIES), point_of(recording, scope, KEYS), real)


def point_of(recording: Recording, scope: tuple[str, ...], name: str) -> Array:
    """Return the value at one of a layer's points."""
    points = recording.dynamics.points
    return {key.scope: value for key, value in points.items() if key.name == name}[scope]
