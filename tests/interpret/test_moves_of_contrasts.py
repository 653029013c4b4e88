"""Moves of a contrast: pattern times value on one text minus on the other; together they are what the heads bring."""

import jax.numpy as jnp
import numpy as np
import pytest

import duat_jax as duat
from duat_jax.nn import attention
from tests.golden_checkpoints import golden
from tests.helpers import near

SOME = ["gpt2", "llama", "gpt_oss", "gemma2", "opt-post-norm"]
"""One and several heads to a key; sinks; capped scores; norms after."""


def asked(name):
    """Return a model, two texts that differ in one token, and a direction in its last stream."""
    model, given, _ = golden(name)
    ids = np.asarray(given[0] if given.ndim == 2 else given)
    other = np.where(np.arange(len(ids)) == 1, (ids + 1) % model.config.vocab, ids)
    return model, ids, other, np.arange(model.config.state_features) - 3.0


@pytest.mark.parametrize("name", SOME)
def test_moves_are_what_two_runs_say(name):
    model, ids, other, direction = asked(name)
    layers = model.config.layers
    contrast = duat.contrast(model, ids, other, duat.targets.Direction(direction, layers))

    def number(x):
        return model.stream(x, layers)[-1] @ direction

    x, y = model.embed(jnp.asarray(ids)), model.embed(jnp.asarray(other))
    multipliers = duat.secant(number, at="point")(x, y).multipliers.points
    runs = [duat.record(number)(each).dynamics for each in (x, y)]
    assert [*contrast.moves] == [*contrast.heads] and len(contrast.heads) == layers
    for key, heads in contrast.heads.items():
        scope = key.scope
        weighted = []
        for run in runs:
            (pattern,) = (v for k, v in run.held.items() if k.scope == scope and k.name == "attention.pattern")
            (values,) = (v for k, v in run.points.items() if k.scope == scope and k.name == "attention.values")
            values = np.repeat(values, pattern.shape[0] // values.shape[-2], -2)
            weighted.append(np.einsum("hts,shd->htsd", pattern, values))
        expected = np.einsum("thd,htsd->tsh", multipliers[key], weighted[0] - weighted[1])
        moves, scale = contrast.moves[key], np.abs(expected).max()
        near(moves.parts, expected[moves.tokens, moves.sources], within=1e-11 * scale)
        together = moves.others.astype(float)
        np.add.at(together, moves.tokens, moves.parts)
        near(together, expected.sum(1), within=1e-11 * scale)
        near(together, heads, within=1e-11 * scale)


def test_several_references_and_unformed_patterns_have_no_moves(monkeypatch):
    model, ids, other, _ = asked("gpt2")
    assert not duat.contrast(model, ids, [other, duat.baselines.Mean()], 7).moves
    monkeypatch.setattr(attention, "LONGEST_STORED", 4)
    assert not duat.contrast(model, ids[:7], other[:7], 7).moves
