"""A checkpoint made from another one keeps its files but those of weights, and states how its own are stored."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import GOLDEN
from command import run
from containers import GATED, as_stored, decoder, same, write_gguf
from safetensors.numpy import load_file

import duat_jax as duat
from duat_jax.lora import new_adapters, save_adapters, save_merged
from duat_jax.models.chat import template_of
from duat_jax.models.checkpoint.place import open_checkpoint
from duat_jax.models.saver import write_model
from duat_jax.pruning import save_pruned

KEPT = {
    "tokenizer_config.json": '{"do_lower_case": false}',
    "generation_config.json": '{"eos_token_id": 1}',
    "chat_template.jinja": "{{ messages }}",
    "special_tokens_map.json": "{}",
    "1_Pooling/config.json": '{"pooling_mode_cls_token": true}',
}
STORED = ("dtype", "torch_dtype")
LEFT = ("pytorch_model.bin", "optimizer.pt", "onnx/model.onnx", ".git/config", "model.safetensors.index.json")


@pytest.fixture
def source(tmp_path):
    folder = shutil.copytree(GOLDEN / "llama", tmp_path / "source")
    for name, content in (KEPT | dict.fromkeys(LEFT, "weights")).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    return folder


def merged(source, target):
    model = duat.load(source)
    save_merged(target, new_adapters(model), model, source)


def pruned(source, target):
    save_pruned(duat.load(source), source, target, dtype=np.dtype("float32"))


def merged_by_command(source, target):
    model = duat.load(source)
    save_adapters(target.with_name("adapter"), new_adapters(model), model)
    assert run("lora", "merge", target.with_name("adapter"), "--output", target, "--model", source).exit_code == 0


WRITERS = {each.__name__: each for each in (merged, pruned, merged_by_command)}


@pytest.mark.parametrize("writer", WRITERS)
def test_what_holds_no_weights_is_copied(writer, source, tmp_path):
    derived = tmp_path / "derived"
    WRITERS[writer](source, derived)
    written = {str(path.relative_to(derived)) for path in derived.rglob("*") if path.is_file()}
    assert written == {"config.json", "model.safetensors", "tokenizer.json", *KEPT}
    for name in ("tokenizer.json", *KEPT):
        assert (derived / name).read_bytes() == (source / name).read_bytes(), name


@pytest.mark.parametrize("stated", [{"dtype": "bfloat16"}, {"torch_dtype": "float16"}, dict.fromkeys(STORED, "x")])
@pytest.mark.parametrize("writer", ["merged", "pruned"])
def test_the_configuration_states_the_stored_dtype_and_nothing_else_of_it(writer, stated, source, tmp_path):
    settings = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(settings | stated))
    WRITERS[writer](source, tmp_path / "derived")
    fields = json.loads((tmp_path / "derived" / "config.json").read_text())
    (dtype,) = {tensor.dtype for tensor in load_file(tmp_path / "derived" / "model.safetensors").values()}
    assert {name: fields[name] for name in STORED if name in fields} == {"torch_dtype": str(dtype)}


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(path.name, marks=[] if path.name in ("gpt2", "gpt_oss") else pytest.mark.slow)
        for path in sorted(GOLDEN.iterdir())
    ],
)
def test_changed_weights_of_every_layout_are_written_as_they_are(family, tmp_path):
    changed = jax.tree.map(jnp.cos, duat.load(GOLDEN / family))
    write_model(tmp_path, changed, open_checkpoint(GOLDEN / family), np.float32)
    assert same(duat.load(tmp_path), changed)


def test_weights_of_four_bits_are_written_out_without_their_description(tmp_path):
    model = duat.load(GOLDEN / "gpt_oss")
    save_merged(tmp_path / "derived", new_adapters(model), model, GOLDEN / "gpt_oss")
    assert "quantization_config" not in json.loads((tmp_path / "derived" / "config.json").read_text())


def test_a_link_that_leaves_the_folder_is_not_followed(source, tmp_path):
    (tmp_path / "elsewhere.txt").write_text("")
    (source / "notes.txt").symlink_to(tmp_path / "elsewhere.txt")
    with pytest.raises(duat.BadCheckpoint, match=r"notes\.txt is a link that leaves the folder"):
        merged(source, tmp_path / "derived")
    assert not (tmp_path / "derived").exists()


def test_a_gguf_file_keeps_its_chat_template_with_the_tokens_that_it_writes_and_its_pooling(tmp_path):
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }} the{{ eos_token }}{% endfor %}"
    keys = {"tokenizer.chat_template": template, "tokenizer.ggml.add_bos_token": True}
    tensors = as_stored(decoder(GATED), permuted=True)
    source = write_gguf(tmp_path / "a.gguf", "llama", tensors, pooling_type=3, **keys)
    model = duat.load(source)
    tokenizer = model.tokenizer
    save_merged(tmp_path / "derived", new_adapters(model), model, source)
    kept = duat.load_tokenizer(tmp_path / "derived", chat=True)
    chat = [{"role": "user", "content": " the 123xyz<tool>"}]
    assert template_of(kept) == template_of(tokenizer)
    assert duat.load_config(tmp_path / "derived", head="hidden").pooling.modes == ("lasttoken",)
    for text in ("<|end|> the's<tool>xyz", template_of(tokenizer).render(chat, "the chat")):
        assert kept.encode(text).ids == tokenizer.encode(text).ids
