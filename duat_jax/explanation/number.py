"""The number that a target asks for, the same one on two runs of a model."""

from dataclasses import replace
from typing import Any

from duat_jax.explanation.words import Words
from duat_jax.models.target.base import Reading, Target
from duat_jax.models.target.classes import Class
from duat_jax.models.target.logit import Logit, LogProbability

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


def number_of(target: Any, reading: Reading) -> Any:
    """Return what is differenced: of a log-probability itself, not the form of it that is linear.

    Args:
        target: what is asked for.
        reading: the target on one run.
    """
    return reading.log_probability if isinstance(target, LogProbability) else reading.value


def label_of(target: Target, reading: Reading, words: Words) -> str:
    """Return what is differenced, in words.

    Args:
        target: what is asked for.
        reading: the target on one run.
        words: how its tokens are called.
    """
    if isinstance(target, LogProbability):
        return f"log-probability of {words.output(int(reading.output))!r} at {words.place(target.position)}"
    return target.label(reading, words)
