"""A user's own family loads like those that the package has; an unknown `model_type` names the nearest one."""

import dataclasses
import re
from pathlib import Path

import jax.numpy as jnp
import pytest
from cases import GOLDEN
from containers import same
from damaged import copy_checkpoint

import duat_jax as duat
from duat_jax.extras import install
from duat_jax.lora.adaptable_layers import adaptable_layers
from duat_jax.models import Family, register_family
from duat_jax.models.registry import FAMILIES


@pytest.fixture
def as_before():
    """Leave the registry as it was."""
    known = dict(FAMILIES)
    yield
    FAMILIES.clear()
    FAMILIES.update(known)


def test_a_family_of_ones_own_loads_and_is_asked_like_any_other(as_before, tmp_path):
    register_family("ours", Family(**vars(FAMILIES["gpt2"])))
    directory = copy_checkpoint(tmp_path, model_type="ours")
    model = duat.load(directory, dtype=jnp.float64)
    assert model.config.family == "ours"
    assert duat.unroll(model, jnp.array([3, 1, 4])).completeness().verdict == "holds"
    assert "h.0.attn.c_attn" in adaptable_layers(model)


def test_the_example_of_the_page_is_the_family_that_the_package_has(as_before, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "own-family.md").read_text(encoding="utf-8")
    exec("".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), {})
    model = duat.load(copy_checkpoint(tmp_path, "starcoder2", model_type="my-starcoder2"), dtype=jnp.float64)
    assert same(model, duat.load(GOLDEN / "starcoder2", dtype=jnp.float64))
    assert model.config == dataclasses.replace(duat.load_config(GOLDEN / "starcoder2"), family="my-starcoder2")


def test_a_family_that_is_known_is_not_replaced(as_before):
    register_family("gpt2", FAMILIES["gpt2"])
    with pytest.raises(duat.DuatError, match="model_type = 'gpt2' is a family already"):
        register_family("gpt2", FAMILIES["llama"])


@pytest.mark.parametrize(
    ("model_type", "nearest"),
    [
        ("qwen2_moe", "qwen3_moe"),
        ("gpt-neox", "gpt_neox"),
        ("Llama", "llama"),
        ("gemma3n_text", "gemma3_text"),
        ("zzz", None),
    ],
)
def test_an_unknown_family_names_the_nearest(tmp_path, model_type, nearest):
    directory = copy_checkpoint(tmp_path, model_type=model_type)
    with pytest.raises(duat.BadCheckpoint, match=f"model_type = '{model_type}' isn't supported") as raised:
        duat.load_config(directory)
    hint = "" if nearest is None else f"; the nearest is '{nearest}'"
    assert f" are{hint}; with {install('torch')} every model type" in str(raised.value)
