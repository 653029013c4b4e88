"""Adapters made by PEFT load and agree; ours load in PEFT."""

import json

import jax.numpy as jnp
import numpy as np
import peft
import pytest
import torch
import transformers
from adapters import OUTSIDE, SELECTIONS

import duat_jax as duat
from duat_jax.lora import adapt, load_adapters, merge, new_adapters, save_adapters, save_merged

from . import hugging_face
from .cases import inputs, make_case, relative_error
from .families import FAMILIES

TOLERANCE = 1e-5
TARGETS = {
    "gpt2": ["c_attn", "c_proj", "c_fc"],
    "llama": "all-linear",
    "gpt_neox": ["query_key_value", "dense_4h_to_h"],
    "phi3": ["qkv_proj", "gate_up_proj"],
    "bert": ["query", "value", "dense"],
    "albert": ["query", "ffn"],
    "modernbert": ["Wqkv", "Wi"],
    "vit": ["q_proj", "o_proj", "fc1", "fc2"],
}
ROUTERS = {
    "mixtral": ("block_sparse_moe.gate", "read"),
    "qwen3_moe": ("mlp.gate", "read"),
    "olmoe": ("mlp.gate", "read"),
    "granitemoe": ("block_sparse_moe.router.layer", "dropped"),
    "gpt_oss": ("mlp.router", "refused"),
}
"""The router of each mixture of experts, and what PEFT does with an adapter of it that is written here."""


def _of_experts(base):
    names = [name for name, _ in base.named_parameters() if name.endswith("experts.down_proj")]
    return peft.LoraConfig(r=3, target_modules=[], target_parameters=names)


QUERIES = ["q_proj", "v_proj"]
UNREAD = {
    "target_parameters": _of_experts,
    "use_dora": lambda base: peft.LoraConfig(r=2, target_modules=QUERIES, use_dora=True),
    "bias": lambda base: peft.LoraConfig(r=2, target_modules=QUERIES, bias="all"),
    "trainable_token_indices": lambda base: peft.LoraConfig(
        r=2, target_modules=QUERIES, trainable_token_indices=[1, 2]
    ),
    "peft_type": lambda base: peft.LoHaConfig(r=2, target_modules=QUERIES),
}
"""Adapters that aren't read, by the field that says so."""
LLAMAS = [("llama", field) for field in UNREAD if field != "target_parameters"]
SETTINGS = {
    "plain": {},
    "another rank": {"rank_pattern": {r"\w+\.0\..*": 2}, "alpha_pattern": {r"\w+\.1\..*": 5}},
    "rank-stabilised": {"use_rslora": True},
}


def random_adapters(model):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))


def said(model, case, directory):
    return hugging_face.run(model, FAMILIES[case.family].layer, inputs(case)).value


def check_agrees(case, fields, folder):
    """Check that an adapter of PEFT says here what it says there; return the model, the adapters and what is said."""
    base = hugging_face.make(folder / "base", case.architecture, case.settings)
    before = said(base, case, folder)
    adapted = peft.get_peft_model(base, peft.LoraConfig(r=3, lora_alpha=6, **fields))
    random_adapters(adapted)
    adapted.save_pretrained(folder / "adapter")
    # In float32 adapters of this size round to as much as the tolerance.
    expected = said(adapted.double(), case, folder)
    assert relative_error(expected, before) > 1000 * TOLERANCE
    model = duat.load(folder / "base", dtype=jnp.float64)
    adapters = load_adapters(folder / "adapter", model)
    for put in (adapt, merge):
        assert relative_error(np.asarray(put(model, adapters)(jnp.asarray(inputs(case)))), expected) < TOLERANCE
    return model, adapters, expected


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("family", TARGETS)
def test_an_adapter_made_by_peft_agrees(family, settings, tmp_path):
    case = make_case(family, {})
    check_agrees(case, {"target_modules": TARGETS[family], **SETTINGS[settings]}, tmp_path)


def drawn(model, modules=()):
    """Return adapters made here that change what the model says."""
    random = np.random.default_rng(0)
    return {
        name: one._replace(up=jnp.asarray(random.normal(size=one.up.shape, scale=0.3), jnp.float32))
        for name, one in new_adapters(model, modules, rank=2, alpha=5.0).items()
    }


@pytest.mark.parametrize("family", [*TARGETS, *ROUTERS])
def test_an_adapter_made_here_loads_in_peft(family, tmp_path):
    case = make_case(family, {})
    base = hugging_face.make(tmp_path / "base", case.architecture, case.settings)
    model, given = duat.load(tmp_path / "base"), jnp.asarray(inputs(case))
    adapters = drawn(model)
    last = list(adapters)[-1]
    adapters[last] = adapters[last]._replace(scale=jnp.asarray(0.5, jnp.float32))
    save_adapters(tmp_path / "adapter", adapters, model)
    adapted = peft.PeftModel.from_pretrained(base, tmp_path / "adapter")
    assert sum("lora_A" in name for name, _ in adapted.named_parameters()) == len(adapters)
    assert relative_error(np.asarray(adapt(model, adapters)(given)), said(adapted, case, tmp_path)) < TOLERANCE


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ROUTERS)
def test_peft_reads_an_adapter_of_a_router_of_three_mixtures(family, tmp_path):
    case, (router, does) = make_case(family, {}), ROUTERS[family]
    base = hugging_face.make(tmp_path / "base", case.architecture, case.settings)
    model, before = duat.load(tmp_path / "base"), said(base, case, tmp_path)
    adapters = drawn(model, ["q_proj", router])
    save_adapters(tmp_path / "adapter", adapters, model)
    if does == "refused":
        with pytest.raises(ValueError, match="Router.* is not supported"):
            peft.PeftModel.from_pretrained(base, tmp_path / "adapter")
        return
    kept = adapters if does == "read" else {name: one for name, one in adapters.items() if router not in name}
    theirs = said(peft.PeftModel.from_pretrained(base, tmp_path / "adapter"), case, tmp_path)
    assert relative_error(theirs, before) > 1000 * TOLERANCE
    assert relative_error(np.asarray(adapt(model, kept)(jnp.asarray(inputs(case)))), theirs) < TOLERANCE


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("family", "field"), [(family, "target_parameters") for family in ROUTERS] + LLAMAS)
def test_an_adapter_that_is_refused_is_read_merged_by_peft_as_the_error_says(family, field, tmp_path):
    case = make_case(family, {})
    base = hugging_face.make(tmp_path / "base", case.architecture, case.settings)
    adapted = peft.get_peft_model(base, UNREAD[field](base))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    adapted.save_pretrained(tmp_path / "adapter")
    expected = said(adapted, case, tmp_path)
    with pytest.raises(
        duat.BadCheckpoint, match=rf"{field} = .* isn't supported.*: merge .*merge_and_unload\(\)"
    ) as error:
        load_adapters(tmp_path / "adapter", duat.load(tmp_path / "base"))
    assert "target_modules must name" not in str(error.value)
    fresh = getattr(transformers, case.architecture).from_pretrained(tmp_path / "base")
    peft.PeftModel.from_pretrained(fresh, tmp_path / "adapter").merge_and_unload().save_pretrained(tmp_path / "merged")
    ours = np.asarray(duat.load(tmp_path / "merged")(jnp.asarray(inputs(case))))
    assert relative_error(ours, expected) < TOLERANCE


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("selection", SELECTIONS)
def test_adapters_that_the_configuration_leaves_out_are_those_of_peft(selection, tmp_path):
    case = make_case("llama", {})
    base = hugging_face.make(tmp_path / "base", case.architecture, case.settings)
    adapted = peft.get_peft_model(base, peft.LoraConfig(r=3, target_modules=["q_proj", "v_proj"]))
    random_adapters(adapted)
    adapted.save_pretrained(tmp_path / "adapter")
    fields, expected = SELECTIONS[selection]
    file = tmp_path / "adapter" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    fresh = hugging_face.make(tmp_path / "again", case.architecture, case.settings)
    if not expected:
        with pytest.raises(ValueError, match=r"[Tt]arget modules"):
            peft.PeftModel.from_pretrained(fresh, tmp_path / "adapter")
        return
    reference = said(peft.PeftModel.from_pretrained(fresh, tmp_path / "adapter").double(), case, tmp_path)
    model = duat.load(tmp_path / "base", dtype=jnp.float64)
    ours = np.asarray(adapt(model, load_adapters(tmp_path / "adapter", model))(jnp.asarray(inputs(case))))
    assert relative_error(ours, reference) < TOLERANCE


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("which", OUTSIDE)
def test_an_adapter_outside_of_the_layers_agrees_and_merged_loads_in_the_reference(which, tmp_path):
    family, changes, head, fields = OUTSIDE[which]
    case = make_case(family, changes, head)
    model, adapters, expected = check_agrees(case, fields, tmp_path)
    given = jnp.asarray(inputs(case))
    save_merged(tmp_path / "merged", adapters, model, tmp_path / "base")
    merged = getattr(transformers, case.architecture).from_pretrained(tmp_path / "merged", attn_implementation="eager")
    assert relative_error(said(merged, case, tmp_path), expected) < TOLERANCE
    assert relative_error(np.asarray(duat.load(tmp_path / "merged")(given)), expected) < TOLERANCE
    save_adapters(tmp_path / "ours", adapters, model)
    fresh = hugging_face.make(tmp_path / "base", case.architecture, case.settings)
    again = peft.PeftModel.from_pretrained(fresh, tmp_path / "ours")
    assert relative_error(said(again.double(), case, tmp_path), expected) < TOLERANCE
