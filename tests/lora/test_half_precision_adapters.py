"""Adapters beside a model in half precision keep the digits of their file, and a merged weight is rounded once."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from adapters import IDS, random_adapters
from cases import GOLDEN
from helpers import near
from safetensors.numpy import load_file, save_file

import duat_jax as duat
from duat_jax.lora import adapt, load_adapters, lora_change, merge, new_adapters, save_adapters, save_merged
from duat_jax.lora.training import TrainingSettings, train

HALF = ("bfloat16", "float16")


@pytest.fixture(scope="module")
def single():
    return duat.load(GOLDEN / "llama")


@pytest.fixture(scope="module")
def adapter(single, tmp_path_factory):
    """An adapter's directory, whose entries have more digits than half precision holds."""
    folder = tmp_path_factory.mktemp("adapters") / "adapter"
    save_adapters(folder, random_adapters(single, ["q_proj", "down_proj"]), single)
    return folder


@pytest.mark.parametrize("dtype", HALF)
def test_an_adapter_keeps_the_digits_of_its_file(single, adapter, dtype):
    model = duat.load(GOLDEN / "llama", dtype=dtype)
    expected = load_adapters(adapter, single)
    for name, found in load_adapters(adapter, model).items():
        for ours, stored in zip(found, expected[name], strict=True):
            assert ours.dtype == jnp.float32 and np.array_equal(ours, stored), name


@pytest.mark.parametrize("dtype", HALF)
def test_a_merged_weight_is_the_exact_sum_rounded_once(single, adapter, dtype):
    model, adapters = duat.load(GOLDEN / "llama", dtype=dtype), load_adapters(adapter, single)
    merged = merge(model, load_adapters(adapter, model)).stack.blocks[0].mlp.output.kernel[...]
    a, b, s = (np.asarray(each, np.float64) for each in adapters["layers.0.mlp.down_proj"])
    exact = np.asarray(model.stack.blocks[0].mlp.output.kernel[...], np.float64) + s * (a @ b)
    assert merged.dtype == dtype
    # Rounded to single precision before, a sum beside the middle of two numbers may become the other one.
    assert (merged != exact.astype(np.float32).astype(merged.dtype)).mean() < 1e-3


@pytest.mark.parametrize("dtype", HALF)
def test_an_adapted_model_computes_with_the_adapter_of_the_file(single, adapter, dtype):
    model = duat.load(GOLDEN / "llama", dtype=dtype)
    near(adapt(model, load_adapters(adapter, model))(IDS), adapt(model, load_adapters(adapter, single))(IDS), within=0)


@pytest.mark.parametrize("dtype", HALF)
def test_the_copy_with_an_adapter_is_that_of_the_model_in_single_precision(single, adapter, dtype, tmp_path):
    model = duat.load(GOLDEN / "llama", dtype=dtype)
    copies = []
    for name, each in {"half": model, "single": single}.items():
        save_merged(tmp_path / name, load_adapters(adapter, each), each, GOLDEN / "llama")
        copies.append(load_file(tmp_path / name / "model.safetensors"))
    assert all(np.array_equal(copies[0][name], tensor) for name, tensor in copies[1].items())


@pytest.mark.parametrize("dtype", HALF)
def test_new_adapters_are_trained_in_single_precision(dtype):
    model = duat.load(GOLDEN / "llama", dtype=dtype)
    adapters = new_adapters(model, ["q_proj"], rank=2)
    texts = np.random.default_rng(0).integers(3, 61, (4, 6)).astype(np.int32)
    with jax.numpy_dtype_promotion("standard"):  # as Optax promotes
        trained, losses = train(model, adapters, texts, TrainingSettings(steps=2, batch=2, rate=1e-3, seed=0))
    assert np.isfinite(losses).all()
    for name, each in trained.items():
        assert {part.dtype.name for part in each} == {"float32"}
        assert np.abs(each.up - adapters[name].up).max() > 0
    assert lora_change(model, trained, IDS).completeness.verdict == "holds"


def test_a_read_out_that_is_stored_whole_keeps_its_digits_in_a_copy_and_is_rounded_once_in_a_model(single, tmp_path):
    whole = np.float32(np.pi) * load_file(GOLDEN / "llama" / "model.safetensors")["lm_head.weight"]
    save_adapters(tmp_path / "adapter", random_adapters(single, ["q_proj"]), single)
    file, config = (tmp_path / "adapter" / f"adapter_{name}" for name in ("model.safetensors", "config.json"))
    save_file(load_file(file) | {"base_model.model.lm_head.weight": whole}, file)
    config.write_text(json.dumps(json.loads(config.read_text()) | {"modules_to_save": ["lm_head"]}))
    model = duat.load(GOLDEN / "llama", dtype="bfloat16")
    adapters = load_adapters(tmp_path / "adapter", model)
    save_merged(tmp_path / "copy", adapters, model, GOLDEN / "llama")
    assert np.array_equal(load_file(tmp_path / "copy" / "model.safetensors")["lm_head.weight"], whole)
    assert np.array_equal(merge(model, adapters).head.unembedding[...], whole.astype(jnp.bfloat16))
