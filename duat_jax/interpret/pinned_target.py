"""Pin a target to the output that it found, so that it is the same number on two runs of a model."""

from dataclasses import replace
from typing import Any

from duat_jax.models.targets.base import Reading
from duat_jax.models.targets.classes import Class
from duat_jax.models.targets.logit import Logit, LogProbability

CHOSEN: dict[type, str] = {Logit: "token", LogProbability: "token", Class: "name"}
"""By which name a target says what it is about, where it would be the most probable one."""


def fixed(reader: Any, reading: Reading) -> Any:
    """Return what reads the same token or class on another run, where it was the most probable one.

    Args:
        reader: what reads the target.
        reading: what it read on the first run.
    """
    name = CHOSEN.get(type(reader))
    return replace(reader, **{name: reading.output}) if name and getattr(reader, name) is None else reader
