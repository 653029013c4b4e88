"""Checkpoints load into what the reference implementation computes, or say everything that is wrong with them."""

import dataclasses
import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import ENCODER, GOLDEN
from flax import nnx
from helpers import close

import duat_jax as duat
from duat_jax.models.config import Head
from duat_jax.models.head import ReadOut
from duat_jax.models.loader import skeleton
from duat_jax.nn import BlockConfig

CHECKPOINTS = ("bert", "gpt2", "llama", "mixtral")


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_batch_is_its_texts(name):
    ids = jnp.asarray(np.load(GOLDEN / name / "outputs.npz")["ids"])
    model = duat.load(GOLDEN / name, dtype=jnp.float64)
    batch = model(jnp.stack([ids, ids[::-1]]))
    close(batch[1], model(ids[::-1]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_real_sentence_encoder(dtype):
    model, tokenizer = duat.load(ENCODER, dtype=jnp.dtype(dtype)), duat.load_tokenizer(ENCODER)
    texts = (
        "Heat pumps move warmth from the cold air outside into the house.",
        "A refrigerator run backwards can heat a room.",
    )
    ids, against = (jnp.array(tokenizer.encode(text).ids) for text in texts)
    explanation = duat.explain(model, ids, against=against, tokenizer=tokenizer)
    assert round(explanation.value, 5) == 0.47553
    assert explanation.completeness.holds
    assert explanation.tokens[0] == "[CLS]"


def test_the_skeleton_is_built_in_linear_time():
    config = duat.load_config(GOLDEN / "gpt2")

    def calls(layers):
        count = itertools.count()
        sys.setprofile(lambda *_: next(count))
        try:
            skeleton(dataclasses.replace(config, blocks=config.blocks[:1] * layers), jnp.float32)
        finally:
            sys.setprofile(None)
        return next(count)

    calls(2)
    few, many = calls(8), calls(64)
    assert many < 8 * few


def test_a_text_longer_than_the_context_is_an_error_of_ours():
    model = duat.load(GOLDEN / "gpt2")
    with pytest.raises(duat.InvalidInput, match="17 tokens, but the model's context is 16"):
        model(jnp.zeros(17, int))


@pytest.mark.parametrize("rows", [50_257, 49_152, 30_522])
def test_a_read_out_at_one_token_copies_no_unembedding(rows):
    """Whether its rows are a multiple of the blocks' size or not: GPT-2's and BERT's aren't."""
    block, outputs = (
        BlockConfig(arrangement="pre-norm", features=8, heads=2, neurons=8),
        Head(kind="next token", outputs=rows),
    )
    config = duat.models.Config(family="gpt2", blocks=(block,), vocab=11, positions=8, head=outputs)
    head = ReadOut(config, dtype=jnp.float32, rngs=nnx.Rngs(0))
    state, weights = jnp.ones(8, jnp.float32), jnp.ones(rows, jnp.float32)

    def read(head, state):
        return head.at(state, None).values

    def carried_back(head, weights):
        return jax.linear_transpose(lambda state: read(head, state), state)(weights)

    for program, given in ((read, state), (carried_back, weights)):
        memory = jax.jit(program).lower(head, given).compile().memory_analysis()
        assert memory.temp_size_in_bytes < 0.5 * head.unembedding[...].nbytes
    close(read(head, state), head.logits(state, None))


def test_a_model_and_its_configuration_print_on_one_line():
    model = duat.load(GOLDEN / "gpt2")
    assert str(model) == repr(model) == f"Transformer({model.config})"
    assert str(model.config).startswith(f"gpt2: {model.config.layers} layers, {model.config.blocks[0].heads} heads, ")
    assert "\n" not in str(model) and len(str(model)) < 120
    assert ", images of 12 × 12, head 'classes'" in str(duat.load(GOLDEN / "vit-classes"))


@pytest.mark.parametrize("path", ["absent.gguf", "tests/absent.GGUF"])
def test_a_file_that_is_absent_is_named_with_its_folder(path):
    with pytest.raises(duat.BadCheckpoint, match="there is no file absent.* in /.*: give the path of the file"):
        duat.load(path)
