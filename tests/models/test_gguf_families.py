"""A golden checkpoint written as llama.cpp's converter writes its architecture is the same model."""

import json
import shutil

import gguf
import jax.numpy as jnp
import pytest
from cases import GOLDEN
from containers import add_value, same
from gguf_layouts import FAMILIES, SLIDING, keys_of, write
from helpers import near
from safetensors.numpy import load_file, save_file

import duat_jax as duat
from duat_jax.models.checkpoint.gguf_architectures import ARCHITECTURES, MIXTRAL, OLMO3
from duat_jax.models.checkpoint.gguf_settings import share_of
from duat_jax.models.registry import FAMILIES as KNOWN

WITHOUT_WINDOW = ("starcoder2",)


def coarse(directory, family, changes):
    """Copy a golden checkpoint, whose entries lose nothing when one is added in float32, and return its parts."""
    shutil.copytree(GOLDEN / family, directory)
    config = json.loads((directory / "config.json").read_text()) | changes
    if family in WITHOUT_WINDOW:
        config["sliding_window"] = None
    (directory / "config.json").write_text(json.dumps(config))
    tensors = load_file(directory / "model.safetensors")
    tensors = {name: (tensor * 4096).round() / 4096 for name, tensor in tensors.items()}
    save_file(tensors, directory / "model.safetensors")
    return config, tensors


@pytest.mark.parametrize("family", FAMILIES)
def test_a_golden_checkpoint_as_a_gguf_file_is_the_same_model(tmp_path, family):
    config, tensors = coarse(tmp_path / "directory", family, FAMILIES[family][-1])
    file = write(tmp_path / "a.gguf", family, config, tensors)
    stored, expected = duat.load(file, dtype=jnp.float64), duat.load(tmp_path / "directory", dtype=jnp.float64)
    assert stored.config.family == config["model_type"]
    assert same(stored, expected)
    for half in (jnp.bfloat16, jnp.float16):  # entries are rounded last, after all arithmetic
        assert same(duat.load(file, dtype=half), duat.load(tmp_path / "directory", dtype=half))
    text = jnp.array([3, 1, 4, 1, 5, 9])
    near(stored(text), expected(text), within=1e-5 * float(abs(expected(text)).max()))  # keys are stored as float32


def test_a_roberta_is_refused_by_name(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "bert")
    writer.add_tokenizer_model("t5")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(duat.BadCheckpoint, match="is a RoBERTa"):
        duat.load_config(tmp_path / "a.gguf")


WITHOUT = {
    *("mistral", "gptj", "opt", "albert", "distilbert", "vit", "modernbert", "roberta", "xlm-roberta"),
    *("camembert", "electra", "gpt_bigcode", "gpt_neo", "ministral", "helium", "glm", "granitemoe", "gemma3"),
}
"""Families of which no GGUF file is read: a Mistral's is a Llama's, the others are in docs/explanation."""


def test_every_other_family_is_read_from_a_gguf_file():
    read = {architecture.model_type for architecture in (*ARCHITECTURES.values(), MIXTRAL, OLMO3)}
    assert read | WITHOUT == set(KNOWN) and not read & WITHOUT


def test_a_share_gives_the_number_again():
    for whole in range(1, 200):
        for part in range(1, whole + 1):
            assert int(whole * share_of(part, whole)) == part and share_of(part, whole) <= 1


def test_a_window_that_is_not_said_of_every_layer_is_refused(tmp_path):
    config, tensors = coarse(tmp_path / "directory", "olmo3", {})
    file = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(file, "olmo2")
    for key, value in keys_of(config, SLIDING).items():
        add_value(writer, f"olmo2.{key}", value)
    writer.add_array("olmo2.attention.sliding_window_pattern", [True])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(duat.BadCheckpoint, match="sliding_window_pattern = .* must say for each of 2 layers"):
        duat.load_config(file)
