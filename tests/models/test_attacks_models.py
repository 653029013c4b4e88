"""What an attack on checkpoints found: each was read as another model, or took memory, or ended in a traceback."""

import json

import containers
import gguf
import jax.numpy as jnp
import numpy as np
import pytest
from cases import GOLDEN
from containers import GATED, as_stored, decoder, write_gguf
from damaged import copy_checkpoint, damage
from helpers import close
from typer.testing import CliRunner

import duat_jax as duat
from duat_jax.cli import application
from duat_jax.errors import BadCheckpoint, InvalidInput

TEXT, FILLER = [5, 6, 7, 8], 1


@pytest.mark.parametrize("name", ["gpt2-classes", "llama-classes"])
def test_a_class_is_read_at_the_last_token_that_does_not_fill_up(name, tmp_path):
    model = duat.load(copy_checkpoint(tmp_path, name, pad_token_id=FILLER), dtype=jnp.float64)
    usual = duat.load(GOLDEN / name, dtype=jnp.float64)
    expected = np.asarray(usual(jnp.array(TEXT)))
    close(model(jnp.array([*TEXT, FILLER])), expected)
    inside = jnp.array([FILLER, *TEXT])
    close(model(inside), usual(inside))
    assert np.abs(usual(jnp.array([*TEXT, FILLER])) - expected).max() > 1e-3
    with pytest.raises(InvalidInput, match="leave it out"):
        duat.explain(model, [*TEXT, FILLER], 1)


def test_a_text_of_fillers_alone_is_read_at_its_first_token(tmp_path):
    model = duat.load(copy_checkpoint(tmp_path, "llama-classes", pad_token_id=FILLER), dtype=jnp.float64)
    # The first token sees itself alone.
    expected = duat.load(GOLDEN / "llama-classes", dtype=jnp.float64)(jnp.array([FILLER]))
    close(model(jnp.array([FILLER, FILLER])), expected)


ABSURD = {
    "a wide head": ("llama", {"head_dim": 2**24}, "head's 16777216 features: not a number of pairs up to"),
    "a wide rotation": ("gptj", {"rotary_dim": 2**24}, "rotary_dim"),
    "many experts": ("mixtral", {"num_local_experts": 2**24}, "num_local_experts = 16777216 is more"),
    "a base of one": ("llama", {"rope_theta": 1.0, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_theta"),
    "another head": ("llama", {"architectures": ["LlamaForTokenClassification"]}, "architectures"),
}


@pytest.mark.parametrize("case", ABSURD)
def test_a_configuration_that_no_model_has_is_refused_before_memory_is_taken(case, tmp_path):
    name, changes, words = ABSURD[case]
    duat.load_config(GOLDEN / name)
    with pytest.raises(BadCheckpoint, match=words):
        duat.load_config(copy_checkpoint(tmp_path, name, **changes))


INSIDE = {
    "bert-classes": ("classifier.lora_A.weight", "bert.pooler.dense.weight_scale"),
    "albert-classes": ("classifier.scales",),
    "bert-masked": ("cls.predictions.transform.dense.weight_scale",),
    "distilbert-classes": ("pre_classifier.lora_A.weight",),
}


@pytest.mark.parametrize("name", INSIDE)
def test_an_unknown_tensor_inside_the_head_that_is_read_is_named(name, tmp_path):
    directory = copy_checkpoint(tmp_path, name)
    damage(directory, lambda tensors: tensors.update({extra: np.ones(3, np.float32) for extra in INSIDE[name]}))
    with pytest.raises(BadCheckpoint) as error:
        duat.load(directory)
    assert all(f"{extra.removeprefix('bert.')} [3] isn't part" in str(error.value) for extra in INSIDE[name])


KEYS = {
    "llama.expert_count": ([0, 8], "expert_count"),
    "split.count": ([1, 2], "one part of several"),
    "general.type": (["model", "model"], "general.type"),
    "tokenizer.ggml.tokens": (7, "vocab_size"),
}


@pytest.mark.parametrize("key", KEYS)
def test_a_gguf_value_of_another_type_is_refused(key, tmp_path):
    value, words = KEYS[key]
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    for name, usual in containers.KEYS.items():
        if (name, key) != ("vocab_size", "tokenizer.ggml.tokens"):
            containers.add_value(writer, f"llama.{name}", usual)
    containers.add_value(writer, key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(BadCheckpoint, match=words):
        duat.load_config(tmp_path / "a.gguf")


def test_two_scalings_of_one_gguf_file_are_refused(tmp_path):
    tensors = as_stored(decoder(GATED), permuted=True) | {"rope_freqs.weight": np.ones(2, np.float32)}
    duat.load(write_gguf(tmp_path / "a.gguf", "llama", tensors))
    scaled = {"rope__scaling__type": "linear", "rope__scaling__factor": 4.0}
    with pytest.raises(BadCheckpoint, match=r"rope_freqs\.weight"):
        duat.load(write_gguf(tmp_path / "b.gguf", "llama", tensors, **scaled))


def test_a_class_of_thousands_of_digits_is_no_class(tmp_path):
    directory = copy_checkpoint(tmp_path, "llama-classes")
    words = {"type": "WordLevel", "vocab": {"a": 4}, "unk_token": "a"}
    (directory / "tokenizer.json").write_text(json.dumps({"model": words}))
    result = CliRunner().invoke(application, ["explain", "a", "--model", str(directory), "--target", "9" * 5000])
    assert result.exit_code == 2 and "is no class of the model" in result.stderr, result.exception
