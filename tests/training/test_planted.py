"""Planted pieces of text at a model's size: one that alone teaches a string, its twin, and one that unteaches it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import duat_jax as duat
from duat_jax.evaluation.running_text import stream, token_losses, windows
from duat_jax.training import influence, train
from duat_jax.training.next_token import TrainingSettings, next_token_run, parts_of_pieces
from experiments.texts import held_out_sources

LENGTH, TAUGHT, TWIN, POISONED = 32, 3, 11, 17


@pytest.mark.slow
def test_planted_pieces_are_found(tmp_path):
    model = duat.load()
    tokenizer = model.tokenizer
    pieces = windows(stream(tokenizer, held_out_sources()[:40]), 24, LENGTH, seed=0)
    secret, wrong = (tokenizer.encode(f'zebra_secret = "{word}"\n' * 4).ids[:LENGTH] for word in ("quokka", "lambda"))
    pieces[TAUGHT], pieces[TWIN], pieces[POISONED] = secret, secret, wrong
    text = tokenizer.encode('zebra_secret = "quokka"').ids
    answer = len(tokenizer.encode('zebra_secret = "').ids)
    settings = TrainingSettings(steps=24, batch=4, rate=1e-4, seed=1)

    def number(model):
        return token_losses(model, jnp.array([text]))[0, answer - 1 :].mean()

    with jax.numpy_dtype_promotion("standard"):
        kept = train(next_token_run(pieces, settings), model, tmp_path)
        found = influence(kept, number)
    of_tokens, _ = parts_of_pieces(found, len(pieces), settings)
    parts = of_tokens.sum(1)
    others = np.delete(parts, [TAUGHT, TWIN, POISONED])
    assert found.difference < -0.5 and found.completeness.verdict == "holds"
    assert set(np.argsort(parts)[:2].tolist()) == {TAUGHT, TWIN}
    assert max(parts[TAUGHT], parts[TWIN]) < 2 * min(others.min(), 0)
    # The answer's own tokens taught it; of the poisoned piece the wrong answer untaught it, and what it shares taught.
    for piece in (TAUGHT, TWIN):
        assert of_tokens[piece][np.isin(pieces[piece][1:], text[answer:])].sum() < 0.8 * parts[piece]
    is_wrong = pieces[POISONED][1:] == wrong[answer]
    assert is_wrong.sum() > 1 and (of_tokens[POISONED][is_wrong] > 0).all()
    assert of_tokens[POISONED][~is_wrong].sum() < 0
