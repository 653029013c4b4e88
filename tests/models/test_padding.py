"""Padding moves no real token: outputs of a padded text are those of the text alone, in every golden checkpoint."""

import jax
import jax.numpy as jnp
import pytest
from golden_checkpoints import CHECKPOINTS, golden
from helpers import close

import duat_jax as duat
from duat_jax.models.layer_parts import scanned

PAD, SIDES = 0, {"in front": (3, 0), "behind": (0, 3), "on both sides": (2, 1)}
TEXTS = [name for name in CHECKPOINTS if not name.startswith("vit")]
LEARNED = ("gpt2", "bert", "gpt2-classes", "opt", "distilbert", "albert", "roberta")


def rows(x, value=0):
    """A text's entries with padding in each of the places, and which of them are the text's."""
    return jnp.stack([jnp.pad(x, place, constant_values=value) for place in SIDES.values()])


def question(name):
    """A model, a text of six tokens that crosses the golden rotary limits with padding, its segments, and the mask."""
    model, ids, _ = golden(name)
    ids = ids[:6]
    segments = jnp.arange(6) // 3 if model.config.segments > 1 else None
    return model, ids, segments, rows(jnp.ones(6, bool))


@pytest.mark.parametrize("name", TEXTS)
def test_a_padded_text_has_the_outputs_of_the_text_alone(name):
    model, ids, segments, mask = question(name)
    run = jax.jit(model.__call__)
    alone = run(ids, jnp.ones(6, bool), segments)
    outputs = run(rows(ids, PAD), mask, None if segments is None else rows(segments))
    for real, row in zip(mask, outputs, strict=True):
        close(row if model.config.head.kind == "classes" else row[real], alone, layers=model.config.layers)


SLOW = [pytest.param(name, loop, marks=pytest.mark.slow) for name in LEARNED[2:] for loop in (False, True)]


@pytest.mark.parametrize(("name", "loop"), [("gpt2", True), ("bert", False), *SLOW])
def test_a_padded_text_has_the_parts_of_the_text_alone(name, loop):
    model, ids, segments, mask = question(name)
    model = scanned(model) if loop else model

    @jax.jit
    def split(ids, segments, mask):
        def number(x):
            output = model.output(x, mask)
            last = output if model.config.head.kind == "classes" else output[jnp.cumsum(mask).argmax()]
            return jnp.vdot(jnp.sin(jnp.arange(last.size, dtype=last.dtype)), last)

        found = duat.decompose(number, model.embed(ids, segments, mask))
        return found.terms, found.completeness

    terms, completeness = split(ids, segments, jnp.ones(6, bool))
    for side, real in zip(SIDES.values(), mask, strict=True):
        padded, sum_of_padded = split(jnp.pad(ids, side), None if segments is None else jnp.pad(segments, side), real)
        assert sum_of_padded.verdict == "holds"
        close(sum_of_padded.value, completeness.value)
        for part, expected in zip(padded.values(), terms.values(), strict=True):
            close(part[real], expected)
