"""Where checkpoints come from: a directory, several files with an index, a GGUF file; the same tensors from each."""

import json
import struct

import gguf
import jax
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
    TOKENS,
    add_tokenizer,
    as_stored,
    decoder,
    routed,
    write_directory,
    write_gguf,
)
from damaged import copy_checkpoint, damage
from safetensors.numpy import load_file, save_file

import duat_jax as duat
from duat_jax.cli.progress import loading_bar
from duat_jax.models.checkpoint.gguf_checkpoint import GgufCheckpoint
from duat_jax.models.checkpoint.gguf_header import read_header
from duat_jax.models.checkpoint.place import open_checkpoint

IDS = jnp.array([5, 7, 9, 3, 11])
BIASED = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
LLAMA = {"model_type": "llama", "hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
MIXTRAL = routed("block_sparse_moe", "w1", "w3", "w2")
QWEN3_MOE = routed("mlp", "gate_proj", "up_proj", "down_proj")
CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}


def leaves(model):
    return jax.tree.leaves(model)


def same(a, b):
    pairs = list(zip(leaves(a), leaves(b), strict=True))
    return len(pairs) > 5 and all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in pairs)


# --- GGUF: what is read


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


@pytest.mark.parametrize("architecture", ["gptneox", "mamba"])
def test_an_unknown_architecture_is_refused_by_name(tmp_path, architecture):
    file = write_gguf(tmp_path / "a.gguf", architecture, {})
    for load in (duat.load, duat.load_config):
        with pytest.raises(duat.BadCheckpoint, match=f"general.architecture = '{architecture}' isn't supported"):
            load(file)


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


# --- GGUF: the tokenizer


def tokenizer_of(tmp_path, architecture="llama", kind="smollm", **keys):
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", architecture)
    add_tokenizer(writer, kind)
    for key, value in keys.items():
        (writer.add_bool if isinstance(value, bool) else writer.add_string)(f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return open_checkpoint(tmp_path / "a.gguf").tokenizer()


@pytest.mark.parametrize(
    ("kind", "pieces"),
    [
        ("gpt-2", "Ġthe Ġ 123 4 a 's ' S x y z Ġ Ã ©"),
        ("smollm", "Ġthe Ġ 1 2 3 4 a 's ' S x y z Ġ Ã ©"),
        ("llama-bpe", "<|end|> Ġthe Ġ 123 4 a 's 'S xyz Ġ Ã ©"),
        ("qwen2", "Ġthe Ġ 1 2 3 4 a 's 'S x y z Ġ Ã ©"),
    ],
)
def test_a_text_is_split_as_the_file_says(tmp_path, kind, pieces):
    tokenizer = tokenizer_of(tmp_path, kind=kind)
    assert tokenizer.encode(" the 1234a's'Sxyz \u00e9").tokens == pieces.split()
    assert tokenizer.decode(tokenizer.encode(" the 1234a's'Sxyz\n\n\u00e9").ids) == " the 1234a's'Sxyz\n\n\u00e9"
    # Qwen's own tokenizer composes characters, the others leave them as they are.
    composed = tokenizer.decode(tokenizer.encode("e\u0301").ids)
    assert composed == ("\u00e9" if kind == "qwen2" else "e\u0301")


def test_tokens_of_their_own_are_found_and_texts_begin_and_end_as_the_file_says(tmp_path):
    tokenizer = tokenizer_of(tmp_path, add_bos_token=True, add_eos_token=True)
    encoded = tokenizer.encode("the<tool> the<|end|>é")
    assert encoded.tokens == ["<|end|>", "t", "he", "<tool>", "Ġthe", "<|end|>", "Ã", "©", "<|end|>"]
    assert encoded.ids[3] == len(TOKENS) - 1
    assert tokenizer.decode(encoded.ids) == "the<tool> theé"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"kind": "default"}, "pre = 'default'"),
        ({"precompiled_charsmap": "x"}, "precompiled_charsmap"),
        ({"add_space_prefix": True}, "add_space_prefix = True"),
        ({"add_bos_token": "x"}, "add_bos_token = 'x' must be a bool"),
        ({"model": "bert"}, "model = 'bert' isn't supported, only gpt2, llama"),
        ({"architecture": "gemma2"}, "Gemma"),
    ],
)
def test_a_tokenizer_that_is_not_known_is_refused_by_name(tmp_path, keys, words, monkeypatch):
    if "model" in keys:
        monkeypatch.setattr(gguf.GGUFWriter, "add_tokenizer_model", lambda *_: None)
    with pytest.raises(duat.BadCheckpoint, match=words):
        tokenizer_of(tmp_path, **keys)


def test_neighbours_are_merged_whose_merger_has_the_highest_score(tmp_path):
    letters = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "a", "b", "c"]
    merged = ["ab", "bc", "▁a", "▁ab"]
    scores = [0.0] * 259 + [-10.0] * 4 + [-2.0, -1.0, -3.0, -4.0]
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(letters + merged)
    writer.add_token_scores(scores)
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * 8)
    writer.add_bos_token_id(1)
    writer.add_unk_token_id(0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    tokenizer = open_checkpoint(tmp_path / "a.gguf").tokenizer()
    # "bc" before "ab" in the first word, where "▁ab" and "c" would do too.
    assert tokenizer.encode("abc ab é").tokens == ["<s>", "▁a", "bc", "▁ab", "▁", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer.encode("abc ab é").ids) == "abc ab é"


@pytest.mark.parametrize("place", ["directory", "file"])
def test_a_tokenizer_with_more_tokens_than_the_model_is_an_error(tmp_path, place):
    if place == "file":
        tensors = as_stored(decoder(GATED), permuted=True)
        source = write_gguf(tmp_path / "a.gguf", "llama", tensors, vocab_size=len(TOKENS) - 1)
        good = write_gguf(tmp_path / "b.gguf", "llama", tensors, vocab_size=len(TOKENS))
    else:
        source, good = copy_checkpoint(tmp_path, vocab_size=60), copy_checkpoint(tmp_path / "good", vocab_size=61)
    duat.load_tokenizer(good)
    with pytest.raises(duat.BadCheckpoint, match="they belong to two models"):
        duat.load_tokenizer(source)


# --- Several files with an index


def sharded(directory, files=("a.safetensors", "b.safetensors")):
    """Cut a checkpoint's file in two, and return what its index says."""
    tensors = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    names = sorted(tensors)
    told = {name: files[i * 2 // len(names)] for i, name in enumerate(names)}
    for file in files:
        save_file({name: tensors[name] for name in names if told[name] == file}, directory / file)
    tell(directory, told)
    return told


def tell(directory, told):
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": told}))


def test_several_files_are_one_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr("duat_jax.models.checkpoint.directory.MAPPED", 1000)
    directory = copy_checkpoint(tmp_path)
    sharded(directory)
    assert same(duat.load(directory), duat.load(GOLDEN / "gpt2"))


def first(told, file):
    return next(name for name in told if told[name] == file)


LIES = {
    "a tensor in the other file": (
        lambda told: told | {first(told, "a.safetensors"): "b.safetensors"},
        r"isn't in b\.safetensors, but in a\.safetensors",
    ),
    "a tensor in none": (lambda told: told | {"x": "a.safetensors"}, r"tensor x isn't in a\.safetensors"),
    "a tensor left out": (
        lambda told: {name: file for name, file in told.items() if name != first(told, "a.safetensors")},
        r"of a\.safetensors isn't in the index",
    ),
    "a missing file": (lambda told: told | {"x": "c.safetensors"}, r"'c\.safetensors' is missing"),
    "a way out": (lambda told: told | {"x": "../b/b.safetensors"}, r"files of this folder, not '\.\./b"),
    "an absolute way out": (lambda told: told | {"x": "/etc/passwd"}, "files of this folder, not '/etc/passwd'"),
    "this folder": (lambda told: told | {"x": "."}, "files of this folder, not '.'"),
    "a null character": (lambda told: told | {"x": "a\0"}, "files of this folder"),
    "no name": (lambda told: told | {"x": ["a.safetensors"]}, "files of this folder"),
    "no map": (lambda told: list(told), "weight_map must give the file of each tensor"),
    "nothing": (lambda told: {}, "weight_map must give the file of each tensor"),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_index_that_lies_is_an_error(tmp_path, lie):
    change, words = LIES[lie]
    directory = copy_checkpoint(tmp_path)
    tell(directory, change(sharded(directory)))
    with pytest.raises(duat.BadCheckpoint, match=words):
        duat.load(directory)


def test_a_tensor_in_two_files_is_named(tmp_path):
    directory = copy_checkpoint(tmp_path)
    told = sharded(directory)
    doubled = first(told, "a.safetensors")
    tensors = load_file(directory / "b.safetensors")
    save_file(tensors | {doubled: np.ones(3, np.float32)}, directory / "b.safetensors")
    with pytest.raises(duat.BadCheckpoint, match=rf"{doubled} is in a\.safetensors and in b\.safetensors"):
        duat.load(directory)


@pytest.mark.parametrize(("place", "refused"), [("elsewhere", True), ("blobs", False), ("here", False)])
def test_a_link_may_not_leave_the_folder_but_for_the_hubs_cache(tmp_path, place, refused):
    directory = copy_checkpoint(tmp_path / "snapshots")
    sharded(directory)
    target = (directory if place == "here" else tmp_path / place) / "a"
    target.parent.mkdir(exist_ok=True)
    (directory / "a.safetensors").rename(target)
    (directory / "a.safetensors").symlink_to(target)
    if refused:
        with pytest.raises(duat.BadCheckpoint, match=r"a\.safetensors is a link that leaves the folder"):
            duat.load(directory)
    else:
        assert same(duat.load(directory), duat.load(GOLDEN / "gpt2"))


def test_pickled_weights_are_refused(tmp_path):
    directory = copy_checkpoint(tmp_path)
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")
    with pytest.raises(duat.BadCheckpoint, match=r"only pytorch_model\.bin.*save the model again as safetensors"):
        duat.load(directory)


@pytest.mark.parametrize("name", ["a.gguf", "model.safetensors"])
def test_a_place_that_is_no_checkpoint_is_refused(tmp_path, name):
    if name == "model.safetensors":
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(duat.BadCheckpoint, match=r"give a \.gguf file or a checkpoint directory"):
        duat.load(tmp_path / name)


# --- Dtypes, devices, progress


@pytest.mark.parametrize("stored", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32, jnp.bfloat16, jnp.float16])
def test_halves_are_read_and_given(tmp_path, stored, dtype):
    directory = copy_checkpoint(tmp_path)
    damage(directory, lambda tensors: tensors.update({n: t.astype(stored) for n, t in tensors.items()}))
    whole = load_file(directory / "model.safetensors")["transformer.ln_f.weight"]
    model = duat.load(directory, dtype=dtype)
    assert {leaf.dtype for leaf in leaves(model)} == {jnp.dtype(dtype)}
    np.testing.assert_array_equal(model.final_norm.scale[...], whole.astype(dtype))
    assert whole.astype(np.float32).std() > 0
    logits = model(IDS)
    assert logits.dtype == dtype
    near = duat.load(GOLDEN / "gpt2", dtype=jnp.float64)(IDS)
    np.testing.assert_allclose(logits.astype(np.float64), near, atol=0.3)


def test_a_weight_too_large_for_halves_is_named(tmp_path):
    directory = copy_checkpoint(tmp_path)
    damage(directory, lambda tensors: tensors.update({"transformer.ln_f.weight": np.full(12, 1e5, np.float32)}))
    duat.load(directory, dtype=jnp.bfloat16)
    with pytest.raises(duat.BadCheckpoint, match=r"ln_f\.weight has NaN or infinite entries in float16"):
        duat.load(directory, dtype=jnp.float16)


def test_nothing_is_read_while_a_header_is_wrong(tmp_path, monkeypatch):
    directory = copy_checkpoint(tmp_path)
    damage(directory, lambda tensors: tensors.update({"x": np.ones(3, np.float32)}))
    monkeypatch.setattr("duat_jax.models.checkpoint.directory.Safetensors.read", lambda *_: 1 / 0)
    with pytest.raises(duat.BadCheckpoint, match=r"tensor x \[3\] isn't part of this model"):
        duat.load(directory)


def test_weights_are_put_where_they_are_asked_for(tmp_path):
    device = jax.devices()[0]
    mesh = jax.sharding.Mesh(np.array([device]), ("parts",))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    by_rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("parts"))
    assert {leaf.sharding for leaf in leaves(duat.load(device=everywhere))} == {everywhere}
    assert {leaf.device for leaf in leaves(duat.load(device=device))} == {device}
    model = duat.load(device=lambda path: by_rows if path == "stack.blocks.0.mlp.input.kernel" else device)
    assert model.stack.blocks[0].mlp.input.kernel[...].sharding == by_rows
    assert sum(leaf.sharding == by_rows for leaf in leaves(model)) == 1
    assert same(model, duat.load())


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_is_shown_on_a_terminal_only(monkeypatch, capsys, terminal):
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    with loading_bar() as progress:
        duat.load(progress=progress)
    said = capsys.readouterr()
    assert said.out == ""
    assert ("Loading" in said.err) == terminal


def test_progress_is_told_for_every_tensor():
    told = []
    duat.load(progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == list(range(1, len(told) + 1))
    assert told[-1][0] == told[-1][1] > 10
