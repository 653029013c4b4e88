"""Checkpoints load into what the reference implementation computes, or say everything that is wrong with them."""

import dataclasses
import itertools
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from cases import ENCODER, GOLDEN
from helpers import close

import duat_jax as duat
from duat_jax.models.loader import skeleton

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
    with pytest.raises(duat.BadText, match="17 tokens, but the model's context is 16"):
        model(jnp.zeros(17, int))
