"""Checkpoints that other tools loaded with wrong numbers: they are right here (docs/explanation/traps.md)."""

import json
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
from adapters import random_adapters
from cases import GOLDEN
from golden_checkpoints import agree, golden
from helpers import close
from safetensors.numpy import load_file, save_file

import duat_jax as duat
from duat_jax.lora import load_adapters, merge, save_adapters, save_merged, scaled

ABSENT = object()


def changed(folder, name, fields, **tensors):
    """Copy a golden checkpoint with other fields in its configuration, and more tensors."""
    shutil.copytree(GOLDEN / name, folder)
    config = json.loads((folder / "config.json").read_text()) | fields
    config = {field: value for field, value in config.items() if value is not ABSENT}
    (folder / "config.json").write_text(json.dumps(config))
    if tensors:
        save_file(load_file(folder / "model.safetensors") | tensors, folder / "model.safetensors")
    return folder


SAME = {
    "a Gemma whose old configuration says gelu": ("gemma", {"hidden_act": "gelu"}),
    "rotations in the fields of version 4": ("llama", {"rope_theta": 100.0, "rope_parameters": ABSENT}),
    "both fields, of which version 5 reads one": ("llama", {"rope_theta": 5000.0}),
    "types of layers left to their default": ("gemma2", {"layer_types": ABSENT}),
    "a window that is switched off": ("qwen2", {"use_sliding_window": False, "sliding_window": 2}),
}


@pytest.mark.parametrize("name", SAME)
def test_another_spelling_of_a_configuration_is_what_transformers_computes(name, tmp_path):
    checkpoint, fields = SAME[name]
    ids, outputs = golden(checkpoint)[1:]
    agree(duat.load(changed(tmp_path / "a", checkpoint, fields), dtype=jnp.float64)(ids), outputs["float64"])


def test_two_rotations_that_differ_are_refused(tmp_path):
    with pytest.raises(duat.BadCheckpoint, match="differs from rope_parameters"):
        duat.load(changed(tmp_path / "a", "llama", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}))


def test_a_read_out_of_its_own_under_a_tied_configuration_is_refused(tmp_path):
    """A merged adapter of new words leaves such a folder; the read-out was overwritten when it was loaded."""
    with pytest.raises(duat.BadCheckpoint, match="the configuration says they are tied"):
        duat.load(changed(tmp_path / "a", "llama", {"tie_word_embeddings": True}))


def test_a_classifier_of_texts_that_end_with_their_padding_is_read_where_transformers_reads_it(tmp_path):
    ids, outputs = golden("llama-classes")[1:]
    filler = 60  # no token of the text
    model = duat.load(changed(tmp_path / "a", "llama-classes", {"pad_token_id": filler}), dtype=jnp.float64)
    assert filler not in ids
    agree(model(jnp.append(ids, jnp.array([filler, filler]))), outputs["float64"])
    inside = jnp.array(ids).at[2].set(filler)  # one in the middle ends nothing
    close(duat.explain(model, inside, 1).value, model(inside)[1])
    with pytest.raises(duat.InvalidInput, match="fills texts up and says nothing here"):
        duat.explain(model, jnp.append(ids, filler), 1)


def written_by_peft(folder, model, **fields):
    """Write a random adapter of two layers as PEFT does, and return A and B of each."""
    save_adapters(folder, random_adapters(model, ["q_proj"], rank=4), model)
    config = json.loads((folder / "adapter_config.json").read_text()) | fields
    (folder / "adapter_config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "adapter_model.safetensors")
    return [
        [tensors[f"base_model.model.model.layers.{i}.self_attn.q_proj.lora_{k}.weight"] for k in "AB"] for i in (0, 1)
    ]


def kernels(model):
    return np.stack([np.asarray(block.attention.query.kernel[...]) for block in model.stack.blocks])


def test_a_scale_by_the_root_of_the_rank_stays_one_when_it_is_scaled(tmp_path):
    model = golden("llama")[0]
    halves = written_by_peft(tmp_path / "a", model, use_rslora=True, lora_alpha=6, rank_pattern={}, alpha_pattern={})
    adapters = load_adapters(tmp_path / "a", model)
    update = np.stack([(np.float64(b) @ np.float64(a)).T for a, b in halves]) * 6 / 4**0.5
    for factor in (1, 0.25, -2):
        close(kernels(merge(model, scaled(adapters, factor))) - kernels(model), factor * update)


def test_an_adapter_with_a_bias_is_refused(tmp_path):
    """Its scale was left out when it was merged."""
    model = golden("llama")[0]
    written_by_peft(tmp_path / "a", model, lora_bias=True)
    with pytest.raises(duat.BadCheckpoint, match="lora_bias"):
        load_adapters(tmp_path / "a", model)


def test_two_adapters_are_added_in_either_order(tmp_path):
    model = golden("llama")[0]
    one, two = random_adapters(model, ["q_proj"]), random_adapters(model, ["q_proj"], key=1)
    together = kernels(merge(merge(model, one), two))
    close(together, kernels(merge(merge(model, two), one)))
    close(together - kernels(model), kernels(merge(model, one)) + kernels(merge(model, two)) - 2 * kernels(model))


def test_an_adapter_of_a_tied_read_out_leaves_the_embedding_as_it_was(tmp_path):
    model = golden("gemma2")[0]
    adapters = random_adapters(model, ["lm_head"])
    merged, table = merge(model, adapters), np.asarray(model.embedding.token[...])
    assert (np.asarray(merged.embedding.token[...]) == table).all()
    ((down, up, scale),) = adapters.values()
    close(np.asarray(merged.unembedding) - table, (float(scale) * np.asarray(down) @ np.asarray(up)).T)
    save_merged(tmp_path / "a", adapters, model, GOLDEN / "gemma2")
    assert json.loads((tmp_path / "a" / "config.json").read_text())["tie_word_embeddings"] is False
    ids = golden("gemma2")[1]
    close(duat.load(tmp_path / "a")(ids), np.float32(merged(ids)), 8)
