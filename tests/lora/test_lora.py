"""Low-rank adapters: a model with them, their files, and what they change, split exactly."""

import contextlib
import json
from inspect import unwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from adapters import IDS, SELECTIONS, random_adapters, small_model
from cases import GOLDEN
from helpers import close
from safetensors.numpy import load_file, save_file

import duat_jax as duat
from duat_jax.files import new_directory
from duat_jax.lora.adaptable_layers import adaptable_layers
from duat_jax.lora.adapter import Adapter, adapt, merge, new_adapters
from duat_jax.lora.change import lora_change
from duat_jax.lora.merged import save_merged
from duat_jax.lora.parameters import moved_parameters
from duat_jax.lora.peft import load_adapters, save_adapters

FAMILIES = ("llama", "gpt_neox", "albert")


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def llama():
    return duat.load(GOLDEN / "llama", dtype=jnp.float64)


@jax.jit
def said(model, ids):
    return model(ids)


def test_new_adapters_change_nothing_exactly(model):
    adapters = new_adapters(model, rank=2)
    assert len(adapters) == 4
    for put in (adapt, merge):
        assert (said(put(model, adapters), IDS) == said(model, IDS)).all()


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_merged_and_beside_the_kernels_and_written_into_the_checkpoint_are_one_model(family, tmp_path):
    path = GOLDEN / family
    model = duat.load(path, dtype=jnp.float64)
    adapters = random_adapters(model)
    expected = said(adapt(model, adapters), IDS)
    assert np.abs(expected - said(model, IDS)).max() > 1e-3
    close(said(merge(model, adapters), IDS), expected, model.config.layers)
    save_merged(tmp_path / "merged", jax.tree.map(lambda leaf: leaf.astype(jnp.float32), adapters), model, path)
    written = duat.load(tmp_path / "merged")
    close(said(written, IDS), np.float32(expected), model.config.layers)
    assert duat.load_tokenizer(tmp_path / "merged").get_vocab() == duat.load_tokenizer(path).get_vocab()


def test_an_update_is_s_a_b_in_the_checkpoints_own_layout(model):
    name = "h.0.attn.c_attn"
    (down, up, scale), merged = random_adapters(model, [name])[name], merge(model, random_adapters(model, [name]))
    assert float(scale) == 1.5
    paths = tuple(f"stack.blocks.0.attention.{part}" for part in ("query", "key", "value"))
    assert adaptable_layers(model)[name].paths == paths
    updates = np.split(1.5 * np.asarray(down) @ np.asarray(up), 3, axis=1)
    before, after = (one.stack.blocks[0].attention for one in (model, merged))
    for part, update in zip(("query", "key", "value"), updates):
        close(getattr(after, part).kernel[...], getattr(before, part).kernel[...] + update)
    others = jax.tree.map(lambda a, b: bool((a == b).all()), model, merged)
    assert sum(not same for same in jax.tree.leaves(others)) == 3


def test_adapters_are_written_and_read_whole(llama, tmp_path):
    adapters = random_adapters(llama, ["q_proj", "down_proj"])
    other = new_adapters(llama, ["layers.0.mlp.gate_proj"], rank=3, alpha=7.0)
    adapters |= jax.tree.map(lambda leaf: leaf + 0.25, other)
    save_adapters(tmp_path / "adapter", adapters, llama, base="a base")
    found = load_adapters(tmp_path / "adapter", llama)
    assert found.keys() == adapters.keys()
    for name, one in adapters.items():
        assert (found[name].down == one.down).all()
        assert (found[name].up == one.up).all()
        close(found[name].scale, one.scale)
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "a base"
    assert config["fan_in_fan_out"] is False
    assert {path.name for path in tmp_path.iterdir()} == {"adapter"}


def renamed(tensors):
    return {name.replace("q_proj", "query"): tensor for name, tensor in tensors.items()}


def misshapen(tensors):
    return {name: tensor[..., :-1] if "lora_A" in name else tensor for name, tensor in tensors.items()}


def halved(tensors):
    return {name: tensor for name, tensor in tensors.items() if "lora_B" in name}


def infinite(tensors):
    return {name: np.full_like(tensor, np.inf) for name, tensor in tensors.items()}


@pytest.mark.parametrize(
    ("changes", "tensors", "said"),
    [
        ({"peft_type": "IA3", "use_dora": True, "bias": "all"}, None, ("peft_type", "use_dora", "bias")),
        (
            {"target_modules": [], "target_parameters": ["experts.down_proj"]},
            None,
            ("adapter_config.json: target_parameters = ['experts.down_proj'] isn't supported", "merge_and_unload()"),
        ),
        ({"r": 0, "lora_alpha": "x", "new_field": 3}, None, ("r must", "lora_alpha must", "new_field")),
        ({"init_lora_weights": "pissa"}, None, ("changes the base model too",)),
        (
            {"modules_to_save": "lm_head", "alpha_pattern": {"(": 3}},
            None,
            ("modules_to_save", "isn't a valid pattern"),
        ),
        ({"r": 3}, None, ("[3, 16]",)),
        ({"target_modules": None}, None, ("target_modules must name",)),
        (
            {"target_modules": 3, "exclude_modules": "(", "layers_to_transform": "1"},
            None,
            ("exclude_modules", "numbers"),
        ),
        ({}, renamed, ("layers.0.self_attn.query", "layers.1.self_attn.query", "no linear layer of a llama model")),
        ({}, misshapen, ("layers.0.self_attn.q_proj.lora_A.weight has shape [2, 15]", "layers.1")),
        ({}, halved, ("layers.0.self_attn.q_proj has no lora_A.weight", "layers.1")),
        ({}, infinite, ("NaN or infinite",)),
        ({}, lambda tensors: {}, ("no tensor",)),
    ],
)
def test_files_that_dont_fit_are_refused_with_everything_that_is_wrong(llama, tmp_path, changes, tensors, said):
    path = tmp_path / "adapter"
    save_adapters(path, new_adapters(llama, ["q_proj"], rank=2), llama)
    config = json.loads((path / "adapter_config.json").read_text()) | changes
    (path / "adapter_config.json").write_text(json.dumps(config))
    if tensors is not None:
        save_file(
            {n: np.ascontiguousarray(t) for n, t in tensors(load_file(path / "adapter_model.safetensors")).items()},
            path / "adapter_model.safetensors",
        )
    with pytest.raises(duat.BadCheckpoint) as error:
        load_adapters(path, llama)
    for part in said:
        assert part in str(error.value)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_adapters_that_the_configuration_leaves_out_arent_used(llama, tmp_path, selection):
    fields, expected = SELECTIONS[selection]
    save_adapters(tmp_path / "adapter", new_adapters(llama, ["q_proj", "v_proj"], rank=2), llama)
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text()) | {
        "target_modules": ["q_proj", "v_proj"]
    }
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config | fields))
    if not expected:
        with pytest.raises(duat.BadCheckpoint, match="none of its adapters is named"), pytest.warns(match="leaves out"):
            load_adapters(tmp_path / "adapter", llama)
        return
    with pytest.warns(match="leaves out") if len(expected) < 4 else contextlib.nullcontext():
        used = load_adapters(tmp_path / "adapter", llama)
    short = {name.replace("layers.", "").replace(".self_attn.", ".").removesuffix("_proj") for name in used}
    assert short == expected


def test_what_isnt_there_is_refused(model, tmp_path):
    with pytest.raises(duat.InvalidInput, match=r"'q_proj', 'nothing': choose among attn\.c_attn"):
        new_adapters(model, ["q_proj", "c_fc", "nothing"])
    with pytest.raises(duat.DuatError, match="at least rank 1"):
        new_adapters(model, rank=0)
    adapter = Adapter(jnp.zeros((6, 2)), jnp.zeros((2, 5)), jnp.zeros(()))
    with pytest.raises(duat.DuatError, match=r"h\.0\.mlp\.c_fc: A .* don't fit .*; x is no linear layer"):
        adapt(model, {"x": adapter, "h.0.mlp.c_fc": adapter})
    with pytest.raises(duat.BadCheckpoint, match=r"has no adapter_config\.json"):
        load_adapters(tmp_path, model)
    with pytest.raises(duat.InvalidInput, match="one input and one target"):
        # For a user nothing checks the types of arguments before.
        unwrap(lora_change)(model, new_adapters(model), [[1, 2], [3]])
    with pytest.raises(duat.InvalidInput, match="no adapter"):
        lora_change(model, {}, IDS)
    with pytest.raises(duat.BadCheckpoint, match="no adapter"):
        save_adapters(tmp_path / "none", {}, model)
    with pytest.raises(duat.InvalidInput, match="token id 99"):
        moved_parameters(model, new_adapters(model), [1, 99])


def test_a_directory_appears_whole_or_not_at_all(tmp_path):
    def fail():
        with new_directory(tmp_path / "new") as made:
            (made / "file").write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not list(tmp_path.iterdir())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for place in ("full", "full/file", "absent/new"):
        with pytest.raises(duat.BadCheckpoint), new_directory(tmp_path / place):
            pass
