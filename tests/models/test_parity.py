"""Tiny random checkpoints of every family load into what the reference implementation computes with them."""

import jax.numpy as jnp
import pytest
from cases import GOLDEN
from golden_checkpoints import CHECKPOINTS, agree, golden

import duat_jax as duat
from duat_jax.inputs.model_inputs import Inputs
from duat_jax.models.registry import FAMILIES
from duat_jax.models.targets.base import forward

# A family's name is its base; what follows names a switch or a head.
EACH = [pytest.param(name, marks=[pytest.mark.slow] * ("-" in name)) for name in CHECKPOINTS]
REAL = 9
"""Number of tokens in front of the padding."""


def test_every_family_has_a_checkpoint():
    assert {duat.load_config(GOLDEN / name).family for name in CHECKPOINTS} == set(FAMILIES)


@pytest.mark.parametrize("name", EACH)
def test_the_model_is_the_reference(name):
    model, given, outputs = golden(name)
    agree(model(given), outputs["float64"])


QUICK = ("bert", "gpt2")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in CHECKPOINTS])
def test_the_model_is_the_reference_in_float32(name):
    model, given, outputs = golden(name, "float32")
    agree(model(given), outputs["float32"], "float32")


@pytest.mark.parametrize("name", EACH)
def test_every_hidden_state_is_the_reference(name):
    model, given, outputs = golden(name)
    streams = forward(
        model, Inputs(given, jnp.ones(outputs["streams"].shape[1], bool), None), tuple(range(model.config.layers + 1))
    )
    agree(jnp.stack(list(streams.streams.values())), outputs["streams"])


@pytest.mark.parametrize("name", [name for name in EACH if not name.values[0].startswith("vit")])
def test_what_follows_as_padding_changes_nothing(name):
    model, given, outputs = golden(name)
    real = jnp.arange(len(given)) < REAL
    actual = model(jnp.where(real, given, 7), real)
    agree(actual[:REAL] if actual.ndim == 2 else actual, outputs["padded"])
