"""Adapters of mixtures of experts: routers have some only where they are named."""

import warnings

import pytest
from cases import GOLDEN

import duat_jax as duat
from duat_jax.lora import load_adapters, new_adapters, save_adapters

ROUTERS = {
    "mixtral": "block_sparse_moe.gate",
    "qwen3_moe": "mlp.gate",
    "olmoe": "mlp.gate",
    "granitemoe": "block_sparse_moe.router.layer",
    "gpt_oss": "mlp.router",
}
ATTENTION = [f"self_attn.{letter}_proj" for letter in "qkvo"]


def names(adapters):
    return list(dict.fromkeys(name.split(".", 2)[2] for name in adapters))


@pytest.mark.parametrize("family", ROUTERS)
def test_a_mixtures_router_has_an_adapter_only_where_it_is_named(family):
    model = duat.load(GOLDEN / family)
    assert names(new_adapters(model)) == ATTENTION
    assert names(new_adapters(model, [ROUTERS[family]])) == [ROUTERS[family]]


@pytest.mark.parametrize("family", ROUTERS)
def test_an_adapter_of_a_router_is_saved_and_read_here_and_a_warning_says_where_peft_doesnt_read_it(family, tmp_path):
    model = duat.load(GOLDEN / family)
    adapters = new_adapters(model, [ROUTERS[family]])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        save_adapters(tmp_path / "adapter", adapters, model)
    said = [str(warning.message) for warning in caught]
    assert len(said) == (family in ("granitemoe", "gpt_oss"))
    assert all("PEFT" in message and "save_merged" in message for message in said)
    assert list(load_adapters(tmp_path / "adapter", model)) == list(adapters)
