"""Where checkpoints come from: a directory, several files with an index; in which dtype and where they are put."""

import json

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from cases import GOLDEN
from containers import leaves, same
from damaged import copy_checkpoint, damage
from helpers import near
from safetensors.numpy import load_file, save_file

import duat_jax as duat
from duat_jax.cli.progress import loading_bar

IDS = jnp.array([5, 7, 9, 3, 11])


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
    monkeypatch.setattr("duat_jax.models.checkpoint.safetensors_files.MAPPED", 1000)
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


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.gguf", r"there is no file a\.gguf in .*: give the path of the file"),
        ("model.safetensors", r"give a \.gguf file, a checkpoint directory"),
    ],
)
def test_a_place_that_is_no_checkpoint_is_refused(tmp_path, name, message):
    if name == "model.safetensors":
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(duat.BadCheckpoint, match=message):
        duat.load(tmp_path / name)


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
    # What is kept in half precision is computed in single.
    assert logits.dtype == (jnp.float64 if dtype == jnp.float64 else jnp.float32)
    expected = duat.load(GOLDEN / "gpt2", dtype=jnp.float64)(IDS)
    near(logits.astype(np.float64), expected, within=0.3)


def test_a_weight_too_large_for_halves_is_named(tmp_path):
    directory = copy_checkpoint(tmp_path)
    damage(directory, lambda tensors: tensors.update({"transformer.ln_f.weight": np.full(12, 1e5, np.float32)}))
    duat.load(directory, dtype=jnp.bfloat16)
    with pytest.raises(duat.BadCheckpoint, match=r"ln_f\.weight has NaN or infinite entries in float16"):
        duat.load(directory, dtype=jnp.float16)


def test_nothing_is_read_while_a_header_is_wrong(tmp_path, monkeypatch):
    directory = copy_checkpoint(tmp_path)
    damage(directory, lambda tensors: tensors.update({"x": np.ones(3, np.float32)}))
    monkeypatch.setattr("duat_jax.models.checkpoint.safetensors_files.Safetensors.read", lambda *_: 1 / 0)
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
