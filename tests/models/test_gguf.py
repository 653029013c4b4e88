"""A GGUF file is the model that it was written from: its configuration, its tensors; what isn't known is refused."""

import math
import os
import struct

import gguf
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from cases import GOLDEN
from containers import (
    AROUND_MLP,
    CONFIG,
    EXPERTS,
    GATED,
    GEMMA,
    QUERY_KEY_NORMS,
    STORED,
    as_stored,
    decoder,
    routed,
    same,
    write_directory,
    write_gguf,
)

import duat_jax as duat
from duat_jax.models.checkpoint.gguf_checkpoint import GgufCheckpoint
from duat_jax.models.checkpoint.gguf_header import read_header
from duat_jax.models.checkpoint.gguf_unread import DIRECTORIES

BIASED = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
LLAMA = {"model_type": "llama", "hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
MIXTRAL = routed("block_sparse_moe", "w1", "w3", "w2")
QWEN3_MOE = routed("mlp", "gate_proj", "up_proj", "down_proj")
CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}


ARCHITECTURES = {
    "llama": ("llama", decoder(GATED), {"permuted": True}, {}, LLAMA),
    "llama, untied, biases": (
        "llama",
        decoder(GATED, biases=BIASED, tied=False),
        {"permuted": True},
        {},
        LLAMA | {"attention_bias": True, "tie_word_embeddings": False},
    ),
    "mixtral": (
        "llama",
        decoder(MIXTRAL),
        {"permuted": True},
        {"expert_count": EXPERTS, "expert_used_count": 2},
        {"model_type": "mixtral", "hidden_act": "silu", "num_local_experts": EXPERTS, "num_experts_per_tok": 2},
    ),
    "qwen2": ("qwen2", decoder(GATED, biases=BIASED[:3]), {}, {}, {"model_type": "qwen2", "hidden_act": "silu"}),
    "qwen3": ("qwen3", decoder(GATED, QUERY_KEY_NORMS), {}, {}, {"model_type": "qwen3", "hidden_act": "silu"}),
    "qwen3moe": (
        "qwen3moe",
        decoder(QWEN3_MOE, QUERY_KEY_NORMS),
        {},
        {"expert_count": EXPERTS, "expert_used_count": 2, "expert_feed_forward_length": 32},
        {"model_type": "qwen3_moe", "hidden_act": "silu", "num_experts": EXPERTS, "num_experts_per_tok": 2}
        | {"moe_intermediate_size": 32, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []},
    ),
    "gemma2": (
        "gemma2",
        decoder(GATED, AROUND_MLP),
        {"shifted": True, "names": STORED | GEMMA},
        {"attention__sliding_window": 8, **CAPS},
        {"model_type": "gemma2", "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 4}
        | {"sliding_window": 8, **CAPS},
    ),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_gguf_file_is_its_configuration_and_its_tensors(tmp_path, name):
    architecture, tensors, layout, keys, config = ARCHITECTURES[name]
    file = write_gguf(tmp_path / "a.gguf", architecture, as_stored(tensors, **layout), **keys)
    checkpoint = GgufCheckpoint(file)
    assert checkpoint.settings() == {**CONFIG, "tie_word_embeddings": True, **config}
    stored = checkpoint.tensors()
    assert set(stored.names()) == set(tensors)
    for full, tensor in tensors.items():
        assert stored.shape(full) == list(tensor.shape)
        np.testing.assert_array_equal(stored.read(full, np.dtype(np.float64)), tensor)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_gguf_file_and_a_directory_are_one_model(tmp_path, name):
    architecture, tensors, layout, keys, config = ARCHITECTURES[name]
    directory = write_directory(tmp_path / "directory", tensors, **{"tie_word_embeddings": True, **CONFIG, **config})
    file = write_gguf(tmp_path / "a.gguf", architecture, as_stored(tensors, **layout), **keys)
    assert duat.load_config(file) == duat.load_config(directory)
    assert same(duat.load(file, dtype=jnp.float64), duat.load(directory, dtype=jnp.float64))


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_1"])
def test_quantised_matrices_are_the_floats_that_the_file_defines(tmp_path, kind):
    # A row has a multiple of 32 entries, as quantisation takes them.
    wide = {"self_attn.q_proj": (16, 64), "self_attn.k_proj": (8, 64), "self_attn.v_proj": (8, 64)}
    tensors = {n: t * np.float32(np.pi / 3) for n, t in decoder(wide).items() if "proj" in n and "o_proj" not in n}
    file = write_gguf(tmp_path / "a.gguf", "qwen2", as_stored(tensors), kind=gguf.GGMLQuantizationType[kind])
    stored = GgufCheckpoint(file).tensors()
    reader = {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}
    for full in tensors:
        layer, part = full.split(".")[2], full.split(".")[4][0]
        told = reader[f"blk.{layer}.attn_{part}.weight"]
        floats = gguf.dequantize(told.data, told.tensor_type)
        assert 0 < abs(floats - tensors[full]).max() < 0.3
        for dtype in (np.float64, np.float32, ml_dtypes.bfloat16, np.float16):
            np.testing.assert_array_equal(stored.read(full, np.dtype(dtype)), floats.astype(dtype))


def test_a_large_tensor_is_dequantised_in_parts(tmp_path, monkeypatch):
    tensors = decoder(GATED)
    file = write_gguf(tmp_path / "a.gguf", "llama", as_stored(tensors))
    stored = GgufCheckpoint(file).tensors()
    monkeypatch.setattr("duat_jax.models.checkpoint.gguf_checkpoint.CHUNK", 7 * 16 + 3)
    name = "model.embed_tokens.weight"
    np.testing.assert_array_equal(stored.read(name, np.dtype(np.float32)), tensors[name])


def test_the_header_is_what_the_library_reads(tmp_path):
    file = write_gguf(tmp_path / "a.gguf", "llama", as_stored(decoder(GATED)), other__list=[1, 2, 3])
    header, reader = read_header(file), gguf.GGUFReader(file)
    read = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert {key: v.tolist() if isinstance(v, np.ndarray) else v for key, v in header.metadata.items()} == read
    assert {name: (p.kind, p.shape, p.start, p.size) for name, p in header.places.items()} == {
        t.name: (t.tensor_type, t.shape.tolist()[::-1], t.data_offset, t.n_bytes) for t in reader.tensors
    }


# --- GGUF: rotations


@pytest.mark.parametrize(
    ("keys", "scaling"),
    [
        ({"type": "none"}, None),
        ({"type": "linear", "factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        (
            {"type": "yarn", "factor": 4.0, "original_context_length": 8, "finetuned": True},
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
            | {"beta_fast": 32.0, "beta_slow": 1.0},
        ),
    ],
)
def test_a_scaling_of_rotations_is_read(tmp_path, keys, scaling):
    given = {f"rope__scaling__{key}": value for key, value in keys.items()}
    file = write_gguf(tmp_path / "a.gguf", "llama", as_stored(decoder(GATED), permuted=True), **given)
    assert GgufCheckpoint(file).settings().get("rope_scaling") == scaling


USUAL = 0.1 * math.log(4.0) + 1


@pytest.mark.parametrize(
    ("given", "strength"),
    [
        ({}, USUAL),
        ({"attn_factor": 1.0, "yarn_attn_factor": 1.0, "yarn_ext_factor": 1.0}, USUAL),
        ({"attn_factor": 1.5}, 1.5 * USUAL),  # llama.cpp's multiplier
        ({"yarn_attn_factor": USUAL}, USUAL),  # as its converter writes an attention_factor
        ({"attn_factor": 0.75, "yarn_attn_factor": USUAL}, 0.75 * USUAL),
        ({"yarn_attn_factor": 2.0}, None),  # which the converter writes, and llama.cpp leaves out
        ({"yarn_ext_factor": 2.0}, None),
    ],
)
def test_the_strength_of_yarn_is_that_of_the_file(tmp_path, given, strength):
    keys = {"type": "yarn", "factor": 4.0, "original_context_length": 8} | given
    file = write_gguf(tmp_path / "a.gguf", "llama", {}, **{f"rope__scaling__{k}": v for k, v in keys.items()})
    if strength is None:
        ((name, value),) = given.items()
        with pytest.raises(
            duat.BadCheckpoint, match=f"rope.scaling.{name} = {value} isn't supported here, only 1.0 is"
        ):
            duat.load_config(file)
        return
    assert math.isclose(duat.load_config(file).blocks[0].rotary.magnitude, strength, rel_tol=1e-6)


def test_a_base_of_layers_with_a_window_is_that_of_all_layers(tmp_path):
    file = write_gguf(tmp_path / "a.gguf", "llama", {}, rope__freq_base=5e4, rope__freq_base_swa=5e4)
    assert GgufCheckpoint(file).settings()["rope_theta"] == 5e4
    file = write_gguf(tmp_path / "a.gguf", "llama", {}, rope__freq_base=5e4, rope__freq_base_swa=1e4)
    with pytest.raises(duat.BadCheckpoint, match=r"rope.freq_base_swa = 10000.0 isn't supported here, only 50000.0 is"):
        GgufCheckpoint(file).settings()


def llama3_factors(width, base, factor):
    """As Llama 3's own code slows rotations down."""
    factors = []
    for i in range(0, width, 2):
        length = 2 * np.pi * base ** (i / width)
        if length < 8192 / 4:
            factors.append(1.0)
        elif length > 8192:
            factors.append(factor)
        else:
            smooth = (8192 / length - 1) / 3
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def test_the_factors_of_llama_3_are_recognised_and_others_refused(tmp_path):
    tensors = as_stored(decoder(GATED), permuted=True)
    factors = llama3_factors(16, 500000.0, 8.0)
    assert 1 in factors and 8 in factors and len(set(factors)) > 2
    keys = {"rope__freq_base": 500000.0, "attention__key_length": 16, "attention__value_length": 16}
    keys |= {"rope__dimension_count": 16}

    def settings(factors):
        with_factors = {**tensors, "rope_freqs.weight": factors}
        return GgufCheckpoint(write_gguf(tmp_path / "a.gguf", "llama", with_factors, **keys)).settings()

    assert settings(factors)["rope_scaling"] == {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    for wrong in (factors * np.float32(1.001), factors[::-1].copy(), factors[:3]):
        with pytest.raises(duat.BadCheckpoint, match=r"rope_freqs\.weight"):
            settings(wrong)


# --- GGUF: what is refused


REFUSED = {
    "rope__scaling__type": "longrope",
    "rope__scaling__factor": 2.0,
    "rope__dimension_count": 2,
    "expert_count": 0.5,
    "expert_shared_count": 1,
    "attention__sliding_window": 8,
    "attention__scale": 0.1,
    "rope__scaling__attn_factor": 2.0,
    "attention__causal": False,
    "attention__value_length": 2,
    "attention__head_count_kv": [1, 2],
    "attn_logit_softcapping": 50.0,
    "logit_scale": 2.0,
    "block_count": 0,
    "embedding_length": "16",
    "attention__layer_norm_rms_epsilon": None,
    "rope__freq_base": float("nan"),
    "general__type": "adapter",
}


@pytest.mark.parametrize("key", REFUSED)
def test_a_key_that_changes_the_computation_is_refused_by_name(tmp_path, key):
    file = write_gguf(tmp_path / "a.gguf", "qwen2", as_stored(decoder(GATED)), **{key: REFUSED[key]})
    with pytest.raises(duat.BadCheckpoint, match=key.replace("__", r"\.")):
        GgufCheckpoint(file).settings()


def test_every_key_that_changes_the_computation_is_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("duat_jax.models.checkpoint.problems.SHOWN_PROBLEMS", 100)
    file = write_gguf(tmp_path / "a.gguf", "qwen2", as_stored(decoder(GATED)), **REFUSED)
    with pytest.raises(duat.BadCheckpoint) as raised:
        GgufCheckpoint(file).settings()
    assert [key for key in REFUSED if key.replace("__", ".") not in str(raised.value)] == []


def test_a_value_for_each_layer_may_be_the_same_in_all(tmp_path):
    file = write_gguf(tmp_path / "a.gguf", "qwen2", as_stored(decoder(GATED)), attention__head_count_kv=[2, 2])
    assert GgufCheckpoint(file).settings()["num_key_value_heads"] == 2


def test_the_largest_gemma_scales_its_scores_by_its_features(tmp_path):
    _, tensors, layout, keys, _ = ARCHITECTURES["gemma2"]
    keys = keys | {"block_count": 46, "attention__key_length": 8, "attention__value_length": 8}
    file = write_gguf(tmp_path / "a.gguf", "gemma2", as_stored(tensors, **layout), rope__dimension_count=8, **keys)
    assert GgufCheckpoint(file).settings()["query_pre_attn_scalar"] == 16 // 4


def test_another_number_of_experts_than_there_are_is_an_error(tmp_path):
    architecture, tensors, layout, keys, _ = ARCHITECTURES["mixtral"]
    keys = keys | {"expert_count": EXPERTS + 1}
    file = write_gguf(tmp_path / "a.gguf", architecture, as_stored(tensors, **layout), **keys)
    with pytest.raises(duat.BadCheckpoint, match=r"ffn_gate_exps.weight' \[3, 32, 16\] must begin with the number"):
        GgufCheckpoint(file).tensors()


@pytest.mark.parametrize("architecture", ["gptj", "mamba"])
def test_an_unknown_architecture_is_refused_by_name(tmp_path, architecture):
    file = write_gguf(tmp_path / "a.gguf", architecture, {})
    for load in (duat.load, duat.load_config):
        with pytest.raises(duat.BadCheckpoint, match=f"general.architecture = '{architecture}' isn't supported"):
            load(file)


@pytest.mark.parametrize("architecture", DIRECTORIES)
def test_an_architecture_whose_directory_is_read_is_refused_with_its_family(tmp_path, architecture):
    file, family = write_gguf(tmp_path / "a.gguf", architecture, {}), DIRECTORIES[architecture]
    with pytest.raises(duat.BadCheckpoint, match=f"load the Hugging Face directory .* is read as a {family}$"):
        duat.load_config(file)
    assert duat.load(GOLDEN / family).config.family == family


@pytest.mark.parametrize("name", ["blk.0.ffn_gate_inp.weight", "blk.0.attn_rot_embd.weight", "rope_freqs.bias", "x"])
def test_an_unknown_tensor_is_refused_by_name(tmp_path, name):
    tensors = as_stored(decoder(GATED), permuted=True) | {name: np.ones((3, 4), np.float32)}
    with pytest.raises(duat.BadCheckpoint, match=rf"{name}.* \[3, 4\]"):
        duat.load(write_gguf(tmp_path / "a.gguf", "llama", tensors))


def patched(file, old, new):
    content = file.read_bytes()
    assert content.count(old) == 1
    file.write_bytes(content.replace(old, new))
    return file


def info(name, shape, kind, offset):
    """What a GGUF file says of a tensor."""
    text = name.encode()
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
    return struct.pack("<Q", len(text)) + text + sizes + struct.pack("<IQ", kind, offset)


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (info("output_norm.weight", [16], 99, 0), "quantisation 99"),
        (info("output_norm.weight", [2**40], 0, 0), "ends at byte 4398046"),
        (info("output_norm.weight", [16], 0, 2**63), "ends at byte 9223372"),
        (info("output_norm.weight", [16], 0, 64), "begins inside"),
        (info("output_norm.weight", [16], 2, 0), "has rows of a multiple of 32"),
        (info("output_norm.weight", [0], 0, 0), r"shape \[0\]"),
    ],
)
def test_a_header_that_lies_about_a_tensor_is_refused(tmp_path, lie, words):
    file = write_gguf(tmp_path / "a.gguf", "llama", as_stored(decoder(GATED), permuted=True), tokenizer=False)
    place = read_header(file).places["output_norm.weight"]
    start = min(place.start for place in read_header(file).places.values())
    truth = info("output_norm.weight", [16], 0, place.start - start)
    assert len(lie) == len(truth)
    with pytest.raises(duat.BadCheckpoint, match=words):
        duat.load(patched(file, truth, lie))


def test_a_file_that_was_cut_off_names_its_first_missing_tensor_and_their_number(tmp_path):
    file = write_gguf(tmp_path / "a.gguf", "llama", as_stored(decoder(GATED), permuted=True), tokenizer=False)
    places = read_header(file).places
    in_order = sorted(places, key=lambda name: places[name].start)
    os.truncate(file, places[in_order[3]].start)
    with pytest.raises(duat.BadCheckpoint) as raised:
        duat.load(file)
    message = str(raised.value)
    assert f"tensor '{in_order[3]}' ends at byte" in message and message.count("tensor '") == 1
    assert f"and {len(places) - 4} of the {len(places)} tensors" in message and message.endswith("copy it again")


@pytest.mark.parametrize(
    ("other", "first"),
    [("llama.block_counx", "llama.block_count"), ("blk.0.attn_v.weight", "blk.0.attn_k.weight")],
)
def test_what_is_given_twice_is_named(tmp_path, other, first):
    tensors = as_stored(decoder(GATED), permuted=True)
    file = write_gguf(tmp_path / "a.gguf", "llama", tensors, block_counx=2, tokenizer=False)
    with pytest.raises(duat.BadCheckpoint, match=f"'{first}' is given twice"):
        duat.load(patched(file, other.encode(), first.encode()))


def test_a_quantisation_that_the_library_cannot_undo_is_refused_by_name(tmp_path):
    file = write_gguf(tmp_path / "a.gguf", "llama", as_stored(decoder(GATED), permuted=True), tokenizer=False)
    content = file.read_bytes()
    kind = content.index(b"output_norm.weight") + len("output_norm.weight") + 4 + 8
    file.write_bytes(content[:kind] + struct.pack("<I", int(gguf.GGMLQuantizationType.I32)) + content[kind + 4 :])
    with pytest.raises(duat.BadCheckpoint, match=r"tensor norm.weight is of I32, only F32, F16"):
        duat.load(file)


def test_a_part_of_a_split_file_is_refused(tmp_path):
    file = write_gguf(tmp_path / "a.gguf", "llama", {}, general__name="x")
    assert read_header(file)
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_uint16("split.count", 3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(duat.BadCheckpoint, match="gguf-split"):
        duat.load(file)


@pytest.mark.parametrize("load", [duat.load, duat.load_config, duat.load_tokenizer])
@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF" + b"\xff" * 60, b"x" * 100])
def test_what_is_no_gguf_file_is_refused(tmp_path, load, content):
    (tmp_path / "a.gguf").write_bytes(content)
    with pytest.raises(duat.BadCheckpoint, match="truncated or not a GGUF file"):
        load(tmp_path / "a.gguf")
