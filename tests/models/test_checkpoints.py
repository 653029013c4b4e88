"""A checkpoint that isn't what it should be: everything that is wrong with it is said in one error."""

import functools
import json

import jax.numpy as jnp
import numpy as np
import pytest
from cases import GOLDEN
from damaged import change_tokenizer, copy_checkpoint, damage, real_configurations
from safetensors.numpy import load_file, save_file

import duat_jax as duat


@pytest.fixture
def checkpoint(tmp_path):
    return functools.partial(copy_checkpoint, tmp_path)


def test_every_unsupported_field_is_named_at_once(checkpoint):
    directory = checkpoint(activation_function="quick_gelu", scale_attn_weights="no", n_head=5, layer_norm_epsilon="x")
    with pytest.raises(duat.BadCheckpoint) as raised:
        duat.load(directory)
    for words in (
        "activation_function = 'quick_gelu'",
        "scale_attn_weights must be true or false, not 'no'",
        "n_head = 5 must divide",
        "epsilon",
    ):
        assert words in str(raised.value)


@pytest.mark.parametrize("settings", [{"position_embedding_type": "relative_key"}, {"is_decoder": True}])
def test_an_unsupported_bert_is_named(checkpoint, settings):
    with pytest.raises(duat.BadCheckpoint, match=f"{next(iter(settings))} = .* isn't supported"):
        duat.load(checkpoint("bert", **settings))


def test_an_unsupported_family_is_named(checkpoint):
    with pytest.raises(duat.BadCheckpoint, match="model_type = 'mamba' isn't supported, only .*gpt2.* are"):
        duat.load(checkpoint(model_type="mamba"))


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
    assert "h.0.ln_1.weight has shape [7], but the configuration says [12]" in message
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
    {"layer_norm_epsilon": float("inf")},
    {"layer_norm_epsilon": 10**400},
    {"layer_norm_epsilon": 1e-60},
    {"n_inner": 10**12},
    {"n_positions": 10**30},
    {"n_embd": "12"},
    {"n_embd": [[[[["deep" * 10_000]]]]]},
    {"tie_word_embeddings": 1},
]


@pytest.mark.parametrize("settings", ODD_SETTINGS, ids=lambda settings: next(iter(settings)))
def test_odd_settings_are_errors_of_ours(checkpoint, settings):
    with pytest.raises(duat.BadCheckpoint) as raised:
        duat.load(checkpoint(**settings))
    assert len(str(raised.value)) < 500


# What the computation of these architectures can depend on in other libraries, in forks and in other families.
CHANGES_THE_COMPUTATION = {
    "gpt2": {
        "sliding_window": 4,
        "attn_logit_softcapping": 30.0,
        "position_embedding_type": "rotary",
        "is_causal": False,
        "quantization_config": {"bits": 4},
        "auto_map": {"AutoModel": "modeling.Model"},
        "per_layer_config": {"0": {"n_inner": 7}},
        "add_cross_attention": True,
        "is_encoder_decoder": True,
        "pruned_heads": {"0": [1]},
        "hidden_size": 24,
        "num_hidden_layers": 2,
    },
    "bert": {
        "position_embedding_type": "alibi",
        "directionality": "left-to-right",
        "is_decoder": True,
        "add_cross_attention": True,
        "is_encoder_decoder": True,
        "pruned_heads": {"0": [1]},
        "embedding_size": 6,
        "auto_map": {"AutoModel": "modeling.Model"},
        "quantization_config": {"bits": 4},
    },
}


@pytest.mark.parametrize("name", CHANGES_THE_COMPUTATION)
def test_every_field_that_changes_the_computation_is_refused_by_name_at_once(checkpoint, name, monkeypatch):
    monkeypatch.setattr("duat_jax.models.checkpoint.problems.SHOWN_PROBLEMS", 100)
    fields = CHANGES_THE_COMPUTATION[name]
    with pytest.raises(duat.BadCheckpoint) as raised:
        duat.load_config(checkpoint(name, **fields))
    assert [field for field in fields if f"{field} = " not in str(raised.value)] == []


@pytest.mark.parametrize("name", CHANGES_THE_COMPUTATION)
@pytest.mark.parametrize("field", sorted(set().union(*CHANGES_THE_COMPUTATION.values())))
def test_one_field_that_changes_the_computation_is_refused(checkpoint, name, field):
    if field in CHANGES_THE_COMPUTATION[name]:
        with pytest.raises(duat.BadCheckpoint, match=f"{field} = "):
            duat.load_config(checkpoint(name, **{field: CHANGES_THE_COMPUTATION[name][field]}))


def test_unknown_fields_may_be_null(checkpoint):
    directory = checkpoint(sliding_window=None, rope_scaling=None, quantization_config=None)
    assert duat.load_config(directory) == duat.load_config(GOLDEN / "gpt2")


def test_a_field_given_twice_is_named(checkpoint):
    directory = checkpoint()
    file = directory / "config.json"
    file.write_text(file.read_text().replace("{", '{"n_head": 1, ', 1))
    with pytest.raises(duat.BadCheckpoint, match="n_head.* twice"):
        duat.load_config(directory)


def test_other_names_of_a_field_say_the_same(checkpoint):
    directory = checkpoint()
    values = json.loads((directory / "config.json").read_text())
    values["hidden_size"] = values.pop("n_embd")
    values["num_hidden_layers"] = values["n_layer"]
    (directory / "config.json").write_text(json.dumps(values))
    assert duat.load_config(directory) == duat.load_config(GOLDEN / "gpt2")


@pytest.mark.parametrize("name", real_configurations())
def test_real_configurations_load(tmp_path, name):
    values = real_configurations()[name]
    (tmp_path / "config.json").write_text(json.dumps(values))
    config = duat.load_config(tmp_path)
    assert config.features == next(values[field] for field in ("hidden_size", "n_embd", "dim") if field in values)
    assert config.family == values["model_type"]


def test_a_tensor_stored_twice_is_named_with_both_names(checkpoint):
    directory = checkpoint()
    damage(directory, lambda t: t.update({"ln_f.bias": np.ones(12, np.float32)}))
    with pytest.raises(duat.BadCheckpoint, match=r"transformer\.ln_f\.bias and ln_f\.bias|ln_f\.bias and transformer"):
        duat.load(directory)


def test_a_prefix_that_only_some_tensors_have_is_named(checkpoint):
    directory = checkpoint()
    damage(directory, lambda t: t.update({"ln_f.bias": t.pop("transformer.ln_f.bias")}))
    with pytest.raises(duat.BadCheckpoint, match=r"ln_f\.bias has no prefix transformer\."):
        duat.load(directory)


def test_a_prefix_on_the_head_is_no_part_of_the_model(checkpoint):
    directory = checkpoint("gpt2-untied-relu")
    damage(directory, lambda t: t.update({"transformer.lm_head.weight": t.pop("lm_head.weight")}))
    with pytest.raises(duat.BadCheckpoint, match=r"tensor transformer\.lm_head\.weight .* isn't part of this model"):
        duat.load(directory)


def test_a_head_that_is_tied_and_another_is_an_error(checkpoint):
    directory = checkpoint()
    damage(directory, lambda t: t.update({"lm_head.weight": t["transformer.wte.weight"]}))
    duat.load(directory)
    damage(directory, lambda t: t.update({"lm_head.weight": t["transformer.wte.weight"] + 1}))
    with pytest.raises(duat.BadCheckpoint, match=r"lm_head\.weight differs from wte\.weight"):
        duat.load(directory)


def test_the_older_names_of_norms_load(checkpoint):
    directory = checkpoint("bert")
    tensors = load_file(directory / "model.safetensors")
    old = {
        n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t
        for n, t in tensors.items()
    }
    assert old.keys() != tensors.keys()
    save_file({f"bert.{name}": tensor for name, tensor in old.items()}, directory / "model.safetensors")
    ids = jnp.array([1, 2, 3])
    np.testing.assert_array_equal(duat.load(directory)(ids), duat.load(GOLDEN / "bert")(ids))


def test_no_segments_is_an_error(checkpoint):
    directory = checkpoint("bert")
    damage(directory, lambda t: t.update({"embeddings.token_type_embeddings.weight": np.ones((0, 12), np.float32)}))
    with pytest.raises(duat.BadCheckpoint, match=r"token_type_embeddings.weight has shape \[0, 12\]"):
        duat.load(directory)


@pytest.mark.parametrize("layers", [4, 1000, 10**9])
def test_more_layers_than_the_file_has_are_one_line_at_once(checkpoint, layers, monkeypatch):
    monkeypatch.setattr("duat_jax.models.loader.Transformer", None)
    said = f"the configuration says {layers} layers, but .* of 3|n_layer = {layers} is more than any model has"
    with pytest.raises(duat.BadCheckpoint, match=said):
        duat.load(checkpoint(n_layer=layers))


@pytest.mark.parametrize("load", [duat.load, duat.load_config, duat.load_tokenizer])
def test_an_odd_path_is_an_error_of_ours(load):
    with pytest.raises(duat.BadCheckpoint, match="is not a directory"):
        load("a\0b")


@pytest.mark.parametrize("dtype", ["int8", "nonsense", jnp.float8_e4m3fn])
def test_an_odd_dtype_is_an_error_of_ours(dtype):
    with pytest.raises(duat.DuatError, match="float64, float32, bfloat16 or float16"):
        duat.load(GOLDEN / "gpt2", dtype=dtype)


def test_a_tokenizer_that_panics_is_one_error(checkpoint, capfd):
    directory = checkpoint()
    change_tokenizer(directory, normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"})
    with pytest.raises(duat.BadCheckpoint, match=r"tokenizer.json: not a tokenizer"):
        duat.load_tokenizer(directory)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("text", ["[" * 100_000, "[1]", '"gpt2"', "null"])
def test_an_odd_config_is_an_error_of_ours(checkpoint, text):
    directory = checkpoint()
    (directory / "config.json").write_text(text)
    with pytest.raises(duat.BadCheckpoint, match="config.json"):
        duat.load(directory)


def test_a_large_weight_in_double_precision_is_finite(checkpoint):
    directory = checkpoint()
    damage(directory, lambda t: t.update({"transformer.wpe.weight": np.full((16, 12), 1e300)}))
    assert duat.load(directory, dtype=jnp.float64).embedding.position[0, 0] == 1e300
    with pytest.raises(duat.BadCheckpoint, match="NaN or infinite"):
        duat.load(directory, dtype=jnp.float32)


def test_half_precision_and_names_without_prefix_load(checkpoint):
    directory = checkpoint()
    tensors = load_file(directory / "model.safetensors")
    halves = {name.removeprefix("transformer."): tensor.astype(np.float16) for name, tensor in tensors.items()}
    save_file(halves, directory / "model.safetensors")
    model = duat.load(directory, dtype=jnp.float64)
    assert model.embedding.token.dtype == jnp.float64
    np.testing.assert_array_equal(model.embedding.token[...], halves["wte.weight"].astype(np.float64))
