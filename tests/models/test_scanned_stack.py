"""Models whose layers are the steps of one loop: the same answers, with the same keys, in a program of one layer."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import GOLDEN
from damaged import copy_checkpoint, real_configurations
from flax import nnx
from golden_checkpoints import CHECKPOINTS
from helpers import close
from meshes import BLOCK, BLOCKS, answers, further_answers
from test_mesh import run_on_eight_devices

import duat_jax as duat
from duat_jax.lora.adapter import adapt, merge, new_adapters
from duat_jax.models.config import Config, Head
from duat_jax.models.layer_parts import scanned, written_out
from duat_jax.models.transformer import Transformer
from duat_jax.nn.scanned_stack import ScannedStack
from duat_jax.pruning import Terms, without
from duat_jax.verification.networks import randomised

TEXT = [5, 17, 3, 9]
PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "gpu-and-tpu.md").read_text(encoding="utf-8")


def model_of(*blocks):
    head = Head(kind="next token", outputs=64, tied=blocks[0].score_cap is None)
    config = Config(family="gpt2", blocks=blocks, vocab=64, positions=16, head=head)
    return randomised(Transformer(config, dtype=jnp.float64, rngs=nnx.Rngs(0)), 0)


def in_turns(block):
    """Return five blocks of which every second one is another."""
    other = replace(block, scale=0.3)
    return block, other, block, other, block


@pytest.mark.slow
@pytest.mark.parametrize("kind", BLOCKS)
def test_every_answer_has_the_keys_and_numbers_of_layers_written_out(kind):
    model = model_of(*in_turns(BLOCKS[kind]))
    looped = scanned(model)
    assert len(looped.stack.repeated) == 2 and looped.stack.steps == 2 and len(looped.stack.rest) == 1
    expected, found = answers(model), answers(looped)
    # Zero parts of a first layer before which nothing jumps are named too.
    more = {name for name in found if name not in expected}
    assert all("discontinuities" in name for name in more)
    assert [name for name in found if name not in more] == list(expected)
    for name in found:
        close(found[name], expected.get(name, 0.0), layers=5)
    for one, other in zip(further_answers(looped), further_answers(model), strict=True):
        close(one, other, layers=5)


def test_blocks_are_those_of_the_stack():
    model = model_of(*in_turns(BLOCK))
    looped = scanned(model)
    assert len(looped.stack.blocks) == 5 and len(looped.stack.blocks[1:3]) == 2
    assert jax.tree.structure(written_out(looped)) == jax.tree.structure(model)
    for found, expected in zip(jax.tree.leaves(written_out(looped)), jax.tree.leaves(model), strict=True):
        close(found, expected)
    for layers in range(6):
        x = model.embed(jnp.array(TEXT))
        close(looped.stream(x, layers), model.stream(x, layers))
    with pytest.raises(IndexError):
        looped.stack.blocks[5]


def test_a_write_to_a_block_that_is_a_copy_is_refused():
    model = model_of(*in_turns(BLOCK))
    looped = scanned(model)
    kernel = looped.stack.blocks[1].mlp.input.kernel
    for write in (
        lambda: kernel.__setitem__(..., 2 * kernel[...]),
        lambda: kernel.set_value(2 * kernel[...]),
    ):
        with pytest.raises(duat.DuatError, match="a layer of a loop is a copy, .*: load the model"):
            write()
    for write in (
        lambda: looped.stack.blocks.__setitem__(1, model.stack.blocks[1]),
        lambda: setattr(looped.stack, "blocks", model.stack.blocks),
    ):
        with pytest.raises(AttributeError):
            write()
    close(looped(jnp.array(TEXT)), model(jnp.array(TEXT)), layers=5)
    # The layers behind the loop, and those of a model that is written out, are no copies.
    for changed in (looped, written_out(looped)):
        bias = changed.stack.blocks[4].mlp.output.bias
        bias[...] = bias[...] + 1
        assert (changed(jnp.array(TEXT)) != model(jnp.array(TEXT))).any()


@pytest.mark.parametrize("other", [{"scale": 0.3}, {"window": 2}, {"neurons": 12}], ids=str)
def test_a_last_layer_of_another_kind_follows_the_loop(other):
    model = model_of(*4 * (BLOCK,), replace(BLOCK, **other))
    looped = scanned(model)
    assert len(looped.stack.rest) == 1
    close(looped(jnp.array(TEXT)), model(jnp.array(TEXT)), layers=5)
    assert jax.tree.structure(written_out(looped)) == jax.tree.structure(model)


@pytest.mark.parametrize(
    ("others", "differences"),
    [
        ([{"neurons": 12}], "layers 0 and 1 differ in shapes, and layers don't come in turns"),
        ([{}, {"window": 2}, {"window": 2}], "layers 0 and 2 differ in parts, and layers don't come in turns"),
        ([], "there is 1 layer"),
    ],
)
def test_layers_that_differ_are_refused(others, differences):
    with pytest.raises(duat.DuatError, match=f"no loop runs the layers, since {differences}: load the model without"):
        scanned(model_of(BLOCK, *(replace(BLOCK, **other) for other in others)))


EVERY_LAYER = {
    "modernbert": "window, rotary and norm_1",
    "modernbert-classes": "window, rotary and norm_1",
    "gpt2-scale_attn_by_inverse_layer_idx": "scale",
    "qwen2-max_window_layers": "window",
}
"""Checkpoints whose first layers are of another kind, or each of its own, and what the first two differ in."""
TWO_LAYERS = {
    **dict.fromkeys(("gemma2", "gpt_neo", "gpt_oss", "ministral", "olmo3"), "window"),
    **dict.fromkeys(("cohere2", "exaone4", "gemma3", "gemma3_text", "gemma3_text-linear"), "window and rotary"),
    "qwen3_moe-decoder_sparse_step": "neurons, mlp, experts, chosen_experts and normalised_experts",
    "smollm3": "rotary",
}
"""Checkpoints that are too short for a second turn."""


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_layers_that_differ_are_refused_before_a_tensor_is_read(name):
    class Read(Exception):
        pass

    def read(done, total):
        raise Read

    differences = (EVERY_LAYER | TWO_LAYERS).get(name)
    message = f"since layers 0 and 1 differ in {differences}, and layers don't come in turns"
    with pytest.raises(Read) if differences is None else pytest.raises(duat.DuatError, match=message):
        duat.load(GOLDEN / name, scanned=True, progress=read)


def test_the_page_names_what_a_loop_refuses_and_what_it_names_besides():
    for words in (
        "ModernBERT",
        "GPT-2 with `scale_attn_by_inverse_layer_idx`",
        "Qwen2 with `max_window_layers`",
        f"Of the {len(real_configurations())} real configurations",
        "`layers.0: softmax`",
    ):
        assert words in PAGE, words
    model = model_of(*[BLOCKS["experts"]] * 2)
    written, looped = (duat.contrast(each, TEXT, [8, 7, 6, 5], 7).discontinuities for each in (model, scanned(model)))
    assert looped.keys() - written.keys() == {"layers.0: softmax"} and written.keys() <= looped.keys()
    close(looped["layers.0: softmax"], 0.0)


@pytest.mark.parametrize("name", real_configurations())
def test_of_real_models_modernbert_alone_is_refused(name, tmp_path):
    """The directory has the tensors of another model, which are refused where the configuration isn't."""
    directory = copy_checkpoint(tmp_path)
    (directory / "config.json").write_text(json.dumps(real_configurations()[name]))
    with pytest.raises(duat.DuatError) as refused:
        duat.load(directory, scanned=True)
    assert ("no loop runs the layers" in str(refused.value)) == name.startswith("ModernBERT"), refused.value


def test_the_embedded_model_is_loaded_so_and_answers_as_it_does():
    model = duat.load()
    tokenizer = model.tokenizer
    looped, text = duat.load(scanned=True), "return self"
    assert isinstance(looped.stack, ScannedStack)

    def results(model):
        return [
            duat.explain(model, text, tokenizer=tokenizer),
            duat.graph(model, text, tokenizer=tokenizer),
            duat.contrast(model, text, "return cls", tokenizer=tokenizer),
        ]

    for found, expected in zip(results(looped), results(model), strict=True):
        for one, other in zip(found.arrays(), expected.arrays(), strict=True):
            assert (one.part, one.place) == (other.part, other.place)
            close(np.float32(one.values), np.float32(other.values), layers=6)


def test_a_pruned_or_adapted_model_is_that_of_layers_written_out():
    model = model_of(*[BLOCK] * 3)
    looped, ids = scanned(model), jnp.array(TEXT)
    terms = Terms(neurons={1: [2, 3]}, heads={2: [0]})
    close(without(looped, terms)(ids), without(model, terms)(ids))
    adapters = new_adapters(model, rank=2)
    adapters = {name: each._replace(up=each.up + 0.1) for name, each in adapters.items()}
    for change in (adapt, merge):
        close(change(looped, adapters)(ids), change(model, adapters)(ids))
    close(looped(ids), model(ids))


@pytest.mark.parametrize("what", ["forward", "table", "secant"])
def test_a_program_is_no_longer_for_more_layers(what):
    def lines(layers):
        model = scanned(model_of(*[BLOCK] * layers))

        def logit(model, ids):
            return model(ids)[-1, 3]

        def table(model, ids):
            recording = duat.record(lambda x: model.output(x)[-1, 3])(model.embed(ids))
            return duat.contributions(recording, jnp.ones(())).completeness.sum

        def secant(model, ids):
            return duat.secant(lambda x: model.output(x)[-1, 3])(model.embed(ids), model.embed(ids + 1)).parts

        program = {"forward": logit, "table": table, "secant": secant}[what]
        return jax.jit(program).lower(model, jnp.array(TEXT)).as_text().count("dot_general")

    assert lines(4) == lines(8) > 0


@pytest.mark.slow
def test_a_mesh_divides_it_as_layers_written_out():
    run_on_eight_devices("loop")
