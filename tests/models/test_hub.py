"""Models of the Hugging Face Hub, from a stand-in on this machine: downloaded once, and mistakes told in one line."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest
import typer
from cases import GOLDEN
from command import run
from damaged import copy_checkpoint
from heads import RECIPE
from helpers import near
from hub_server import COMMIT, serve
from huggingface_hub import constants
from PIL import Image
from safetensors.numpy import load_file, save_file

import duat_jax as duat
from duat_jax.cli import application
from duat_jax.cli.command import EXAMPLES
from duat_jax.models.checkpoint.hub import snapshot
from tests.cli.test_cli import commands


@pytest.fixture
def cache(tmp_path, monkeypatch):
    snapshot.cache_clear()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def hub(tmp_path, monkeypatch, cache):
    folder = copy_checkpoint(tmp_path)
    for name in ("README.md", "pytorch_model.bin", "tf_model.h5", "flax_model.msgpack"):
        (folder / name).write_text("none of a checkpoint's files")
    with serve(folder) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


def test_a_model_of_the_hub_is_the_one_in_the_directory_and_downloaded_once(hub, cache):
    model = duat.load("hub:someone/tiny")
    tokenizer = model.tokenizer
    here = duat.load(GOLDEN / "gpt2")
    ids = jnp.array([5, 6, 7])
    near(model(ids), here(ids), within=0)
    assert model.config == here.config == duat.load_config("hub:someone/tiny")
    assert tokenizer.to_str() == duat.load_tokenizer(GOLDEN / "gpt2").to_str()
    files = [path.rpartition("/")[2] for path in hub.asked if path.startswith("GET someone/tiny/resolve/")]
    assert sorted(files) == ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert sum(path.startswith("GET api/") and "tree" not in path for path in hub.asked) == 1


@pytest.mark.parametrize(
    "files",
    [
        ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
        ["model-000001-of-000010.safetensors", "model-000002-of-000010.safetensors"],
        ["layers [0-5]*.safetensors", "embedding.safetensors"],
    ],
)
def test_a_model_in_several_files_is_downloaded_whole(hub, monkeypatch, files):
    """The files are those that its index names; what lies beside them isn't downloaded."""
    tensors = load_file(hub.folder / "model.safetensors")
    (hub.folder / "model.safetensors").unlink()
    (hub.folder / "model-00003-of-00003.safetensors").write_text("of another checkpoint")
    halves = [dict(list(tensors.items())[i::2]) for i in range(2)]
    for file, half in zip(files, halves):
        save_file(half, hub.folder / file)
    index = {"weight_map": {name: file for file, half in zip(files, halves) for name in half}}
    (hub.folder / "model.safetensors.index.json").write_text(json.dumps(index))
    ids, expected = jnp.array([5, 6, 7]), duat.load(GOLDEN / "gpt2")(jnp.array([5, 6, 7]))
    near(duat.load("hub:someone/tiny")(ids), expected, within=0)
    assert not any("model-00003" in path for path in hub.asked)
    snapshot.cache_clear()
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # without a connection, from the cache
    near(duat.load("hub:someone/tiny")(ids), expected, within=0)


@pytest.mark.parametrize("file", ["../model.safetensors", 3])
def test_an_index_that_leaves_the_folder_downloads_nothing(hub, file):
    (hub.folder / "model.safetensors").unlink()
    (hub.folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"wte.weight": file}}))
    with pytest.raises(duat.BadCheckpoint, match="weight_map must name files of this folder"):
        duat.load("hub:someone/tiny")


def test_an_image_is_read_as_the_model_of_the_hub_says(hub, tmp_path):
    for file in hub.folder.iterdir():
        file.unlink()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(GOLDEN / "vit" / name, hub.folder)
    (hub.folder / "preprocessor_config.json").write_text(json.dumps(RECIPE))
    Image.new("RGB", (12, 12), (10, 200, 30)).save(tmp_path / "image.png")
    here = duat.load_image(tmp_path / "image.png", hub.folder)
    near(duat.load_image(tmp_path / "image.png", "hub:someone/tiny"), here, within=0)


@pytest.mark.parametrize("revision", ["main", COMMIT])
def test_a_revision_is_downloaded_and_without_a_connection_the_cache_is_used(hub, cache, monkeypatch, revision):
    first = duat.load(f"hub:someone/tiny@{revision}")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    ids = jnp.array([5, 6, 7])
    near(duat.load(f"hub:someone/tiny@{revision}")(ids), first(ids), within=0)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("hub:someone/missing", "hub:someone/missing: http.* has no such model, or a private one: check the name"),
        ("hub:someone/gated", "accept the terms on http.*/someone/gated, and log in"),
        ("hub:someone/tiny@v9", r"http.*/someone/tiny has no revision 'v9'"),
        ("hub:tiny", "'hub:tiny' names no model of the hub: give hub:OWNER/NAME"),
        ("hub:", "names no model of the hub"),
        ("hub:someone/tiny/model.gguf", "names no model of the hub"),
        ("hub:someone/tiny@", "names no model of the hub"),
        ("hub:some one/tiny", "names no model of the hub"),
        ("hub:someone/tiny--er", "hub:someone/tiny--er: .*--"),
        ("someone/tiny", "someone/tiny is not a directory: .* or hub:someone/tiny, if the model of the Hugging"),
        ("gpt2", "or hub:openai-community/gpt2, if"),
        ("a/b/c", "or hub:OWNER/NAME for one of the hub"),
    ],
)
def test_a_mistake_is_told_in_one_line(hub, model, words):
    with pytest.raises(duat.BadCheckpoint, match=words) as raised:
        duat.load(model)
    assert "\n" not in str(raised.value)


def test_without_a_connection_the_error_says_where_it_looked(cache, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(
        duat.BadCheckpoint, match=r"http://127.0.0.1:9 can't be reached, and the cache .*cache"
    ) as raised:
        duat.load("hub:someone/tiny")
    assert "\n" not in str(raised.value)


def test_a_repository_without_the_files_of_a_checkpoint_is_told(hub):
    hub.folder.joinpath("model.safetensors").unlink()
    with pytest.raises(duat.BadCheckpoint, match="has no model.safetensors"):
        duat.load("hub:someone/tiny")


def test_a_download_that_breaks_off_is_told_in_one_line_and_can_go_on(hub, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # it tries again, after longer and longer waits
    hub.broken = True
    with pytest.raises(duat.BadCheckpoint, match="hub:someone/tiny: the download failed .*run it again") as raised:
        duat.load("hub:someone/tiny")
    assert "\n" not in str(raised.value)
    hub.broken = False
    assert duat.load("hub:someone/tiny").config.family == "gpt2"


def test_without_the_extra_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(duat.BadCheckpoint, match=r"hub:someone/tiny needs .*: pip install 'huggingface_hub>="):
        duat.load("hub:someone/tiny")


OF_A_MODEL = {name: example for name, examples in EXAMPLES.items() for example in examples if "--model DIR" in example}


def test_every_command_that_takes_a_model_shows_it():
    assert OF_A_MODEL.keys() == {
        name
        for name, command in commands(typer.main.get_command(application))
        if any("--model" in parameter.opts for parameter in command.params)
    }


@pytest.mark.parametrize("command", OF_A_MODEL)
def test_every_command_takes_a_model_of_the_hub(hub, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    example = OF_A_MODEL[command].partition(" > ")[0]
    for name in re.findall(r"\S+\.txt", example):
        Path(name).write_text("a text\n")
    result = run(*shlex.split(example.replace("--model DIR", "--model hub:someone/missing"))[1:])
    assert result.stderr.startswith(f"duat: hub:someone/missing: {hub.endpoint} has no such model"), result.stderr
    assert result.exit_code == 2


@pytest.mark.slow
def test_a_command_in_a_process_of_its_own_explains_with_a_model_of_the_hub(hub, tmp_path):
    environment = {**os.environ, "HF_HOME": str(tmp_path), "PYTHONPATH": str(Path(duat.__file__).parents[1])}
    command = [sys.executable, "-m", "duat_jax", "explain", "ab", "--model", "hub:someone/tiny", "--json", "-"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["model"] == "hub:someone/tiny"
