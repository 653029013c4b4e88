"""The cases: a family's base with every head, and every switch; what both sides compute, and how far they are apart."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import duat_jax as duat
from duat_jax.inputs.model_inputs import Inputs
from duat_jax.models.targets.base import forward

from . import hugging_face
from .families import FAMILIES
from .family import ABSENT, Settings

TOKENS, PADDED = 12, 15
DTYPES = ("float32", "float64")
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
"""Of the largest entry."""


REFUSED = {
    ("albert", "inner_group_num"),
    ("cohere", "use_qk_norm"),
    ("gpt_oss", "swiglu_alpha"),
    ("olmoe", "clip_qkv"),
    ("olmo3", "rope_theta"),
    ("opt", "norms without parameters"),
    ("opt", "word_embed_proj_dim"),
    ("phi", "qk_layernorm"),
    ("stablelm", "qk_layernorm"),
}
"""Switches that the reference has and we refuse by name."""


class Case(NamedTuple):
    """A checkpoint that both sides read.

    Args:
        family: its `model_type`.
        switch: the name of what differs from the family's base.
        head: what is read out.
        settings: its `config.json`.
    """

    family: str
    switch: str
    head: str
    settings: Settings

    @property
    def architecture(self) -> str:
        """The reference's class."""
        return FAMILIES[self.family].heads[self.head]

    @property
    def refused(self) -> bool:
        """Whether we refuse it by name."""
        return (self.family, self.switch) in REFUSED

    @property
    def name(self) -> str:
        """How the case is called."""
        return f"{self.family}-{self.switch}-{self.head}"


def make_case(family: str, changes: Settings, head: str | None = None, switch: str = "base") -> Case:
    """Return a family's base with some fields changed.

    Args:
        family: its `model_type`.
        changes: the fields.
        head: what is read out; the family's first head if absent.
        switch: what the change is called.
    """
    settings = {"model_type": family, **FAMILIES[family].base, **changes}
    settings = {name: value for name, value in settings.items() if value is not ABSENT}
    return Case(family, switch, head or next(iter(FAMILIES[family].heads)), settings)


def cases() -> Iterator[Case]:
    """Yield every case."""
    for family, (_, heads, _, switches, classes) in FAMILIES.items():
        yield from (make_case(family, {}, head) for head in heads)
        yield from (make_case(family, changes, None, switch) for switch, changes in switches.items())
        yield from (make_case(family, changes, "classes", switch) for switch, changes in classes.items())


def changed_from(case: Case) -> Case:
    """Return the case that a switch is a change of: `"yarn: mscale"` of `"yarn"`, the others of their family's base.

    Args:
        case: the case of a switch.
    """
    parent = case.switch.rpartition(": ")[0] or "base"
    return make_case(case.family, FAMILIES[case.family].switches.get(parent, {}), case.head, parent)


def inputs(case: Case) -> np.ndarray:
    """Return a text or an image.

    Args:
        case: for which model.
    """
    random = np.random.default_rng(0)
    if case.family != "vit":
        return random.integers(4, case.settings.get("text_config", case.settings)["vocab_size"], TOKENS)
    size = case.settings["image_size"]
    height, width = size if isinstance(size, list) else (size, size)
    return random.normal(size=(case.settings.get("num_channels", 3), height, width)).astype(np.float32)


def reference(case: Case, directory: Path, given: np.ndarray | None = None) -> dict[str, hugging_face.Outputs]:
    """Write a case's checkpoint and return what the reference computes with it, by dtype.

    Args:
        case: the case.
        directory: where its checkpoint is written.
        given: the text or image; that of `inputs` if absent.
    """
    layer, given = FAMILIES[case.family].layer, inputs(case) if given is None else given
    model = hugging_face.make(directory, case.architecture, case.settings)
    found = {"float32": hugging_face.run(model, layer, given)}
    with hugging_face.exact():
        found["float64"] = hugging_face.run(hugging_face.in_float64(model, directory), layer, given)
    return found


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference, relative to the largest entry.

    Args:
        actual: what we compute.
        expected: what the reference computes.
    """
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


def errors(case: Case, directory: Path, expected: hugging_face.Outputs, dtype: str) -> dict[str, float]:
    """Return how far our model is from the reference: what it returns, with padding behind the text, and its streams.

    Args:
        case: the case.
        directory: its checkpoint.
        expected: what the reference computes.
        dtype: in which precision.
    """
    model = duat.load(directory, dtype=jnp.dtype(dtype))
    given = jnp.asarray(inputs(case))
    wanted = tuple(range(len(expected.streams)))
    passed = forward(model, Inputs(given, jnp.ones(expected.streams.shape[1], bool), None), wanted)
    found = {
        "value": relative_error(np.asarray(model(given)), expected.value),
        "streams": relative_error(np.stack([np.asarray(passed.streams[i]) for i in wanted]), expected.streams),
    }
    if case.family != "vit":
        padded = np.asarray(model(jnp.pad(given, (0, PADDED - TOKENS)), jnp.arange(PADDED) < TOKENS))
        found["padded"] = relative_error(padded[:TOKENS] if padded.ndim == 2 else padded, expected.value)
    return found
