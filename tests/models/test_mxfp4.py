"""Experts stored in MXFP4 are the numbers that their bits stand for; what isn't that is refused by name."""

import jax.numpy as jnp
import numpy as np
import pytest
from containers import same, write_directory

import duat_jax as duat
from duat_jax.models.families.tensor_map import parameter_at
from duat_jax.models.loader import skeleton
from duat_jax.models.registry import FAMILIES

CONFIG = {
    "model_type": "gpt_oss",
    "vocab_size": 11,
    "hidden_size": 64,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 16,
    "num_local_experts": 3,
    "num_experts_per_tok": 2,
}
QUANTISED = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
EXPERTS = ("gate_up_proj", "down_proj")


def number(bits):
    """Return what four bits stand for: a sign, two bits of an exponent, one of a fraction."""
    sign, exponent, fraction = bits >> 3, (bits >> 1) & 3, bits & 1
    size = fraction * 0.5 if exponent == 0 else (1 + fraction / 2) * 2.0 ** (exponent - 1)
    return -size if sign else size


def dense(blocks, scales):
    """Return a tensor number by number."""
    experts, columns, many, half = blocks.shape
    tensor = np.zeros((experts, many * half * 2, columns), np.float32)
    for (i, j, b, k), byte in np.ndenumerate(blocks):
        factor = 2.0 ** (int(scales[i, j, b]) - 127)
        for place, bits in enumerate((int(byte) & 15, int(byte) >> 4)):
            tensor[i, 32 * b + 2 * k + place, j] = factor * number(bits)
    return tensor


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The tensors of a checkpoint with packed experts, and the same with dense ones."""
    config = duat.load_config(write_directory(tmp_path_factory.mktemp("a") / "b", {}, **CONFIG))
    random, plain, packed = np.random.default_rng(0), {}, {}
    model = skeleton(config, jnp.float32)
    for entry in FAMILIES["gpt_oss"].tensor_map(config):
        shapes = [parameter_at(model, path).shape for path in entry.parameters]
        (shape,) = entry.transform.shapes(shapes)
        name = entry.names[0] if entry.names[0].startswith("lm_head") else f"model.{entry.names[0]}"
        if name.endswith(EXPERTS):
            blocks = random.integers(0, 256, (shape[0], shape[2], shape[1] // 32, 16), np.uint8)
            scales = random.integers(120, 131, blocks.shape[:-1], np.uint8)
            packed |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
            plain[name] = dense(blocks, scales)
        else:
            plain[name] = packed[name] = random.normal(size=shape).astype(np.float32)
    return packed, plain


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_packed_experts_are_the_numbers_that_their_bits_stand_for(stored, tmp_path, dtype):
    packed, plain = stored
    published = write_directory(tmp_path / "packed", packed, **CONFIG, quantization_config=QUANTISED)
    written_out = write_directory(tmp_path / "plain", plain, **CONFIG)
    model = duat.load(published, dtype=jnp.dtype(dtype))
    assert same(model, duat.load(written_out, dtype=jnp.dtype(dtype)))


def damaged(packed, change):
    name = next(name for name in packed if name.endswith("_scales"))
    return change(dict(packed), name)


CHANGES = {
    "without scales": lambda t, name: {key: value for key, value in t.items() if key != name},
    "too few scales": lambda t, name: t | {name: t[name][:, 1:]},
    "scales in float32": lambda t, name: t | {name: t[name].astype(np.float32)},
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_no_packed_tensor_is_refused_by_name(stored, tmp_path, change):
    tensors = damaged(stored[0], CHANGES[change])
    with pytest.raises(duat.BadCheckpoint, match=r"gate_up_proj .* is missing.*gate_up_proj_blocks .* isn't part of"):
        duat.load(write_directory(tmp_path / "a", tensors, **CONFIG, quantization_config=QUANTISED))


def test_a_scale_that_is_no_number_is_refused(stored, tmp_path):
    tensors = damaged(stored[0], lambda t, name: t | {name: np.full_like(t[name], 255)})
    with pytest.raises(duat.BadCheckpoint, match="gate_up_proj has NaN or infinite entries"):
        duat.load(write_directory(tmp_path / "a", tensors, **CONFIG, quantization_config=QUANTISED))


@pytest.mark.parametrize("quantised", [{"quant_method": "awq"}, QUANTISED | {"bits": 3}])
def test_another_quantisation_is_refused_by_name(stored, tmp_path, quantised):
    with pytest.raises(duat.BadCheckpoint, match=r"quantization_config\.(quant_method|bits)"):
        duat.load_config(write_directory(tmp_path / "a", {}, **CONFIG, quantization_config=quantised))
