"""Scores over masks: sums, exact cases and derivatives, beside the forward pass that is written out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import GOLDEN
from helpers import close, relative
from hypothesis import given
from hypothesis import strategies as st

import duat_jax as duat
from duat_jax.attribution.masks import FIRST, METHODS, largest, scaled_below
from duat_jax.evaluation.circuits import METHODS as METHODS_ON_PROMPTS
from tests.attribution.test_attribution import (
    CLEAN,
    CORRUPTED,
    HEADS,
    NEURONS,
    RIGHT,
    TOKENS,
    WRONG,
    Units,
    along,
    by_hand,
    make_model,
    scores_of,
    zeros,
)

KINDS = {"neurons": (TOKENS, NEURONS), "heads": (TOKENS, HEADS)}


@pytest.fixture(scope="module")
def case():
    """Return a model, and from the mask of one kind of units its logit difference, by hand."""
    model = make_model()
    x, corrupted = model.embed(CLEAN), by_hand(model, model.embed(CORRUPTED), zeros())[1]

    def number(kind):
        given = Units(None, None, None)._replace(**{kind: getattr(corrupted, kind)})

        @jax.jit
        def of_mask(mask):
            mask = Units(None, None, None)._replace(**{kind: mask if kind == "neurons" else mask[..., None]})
            return by_hand(model, x, zeros(), given=given, mask=mask)[0]

        return of_mask

    return model, {kind: number(kind) for kind in KINDS}


def ones(kind, layers=2):
    return jnp.ones((layers, *KINDS[kind]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_of_the_secant_sum_to_the_difference_of_the_replaced_units(kind, case):
    model, numbers = case
    found = scores_of("secant over masks", model)
    close(getattr(found, kind).sum(), numbers[kind](ones(kind)) - numbers[kind](0 * ones(kind)))
    assert found.streams is None


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_over_masks_are_those_of_the_pass_by_hand(kind, case):
    model, numbers = case
    gradient = jax.jit(jax.grad(numbers[kind]))
    found = scores_of("integrated gradients over masks, 10 steps", model)
    close(getattr(found, kind), sum(gradient(t * ones(kind)) for t in along(10)) / 10)


@pytest.mark.parametrize("name", METHODS)
def test_units_that_act_linearly_are_scored_by_their_effect(name):
    """Nothing but the read-out follows the last layer's neurons: the effect is that of each one replaced alone."""
    model = make_model(1, final_norm=False)
    read = model.head.unembedding[RIGHT] - model.head.unembedding[WRONG]
    clean, corrupted = (by_hand(model, model.embed(ids), zeros(1))[1] for ids in (CLEAN, CORRUPTED))
    effect = (clean.neurons - corrupted.neurons)[0, -1] * (model.stack.blocks[0].mlp.output.kernel[...] @ read)
    found = scores_of(name, model).neurons
    close(found[0, -1], effect)
    assert not np.any(found[0, :-1])


def test_two_secants_rank_the_first_largest_parts_before_all_others(case):
    """The others are ordered by their parts with the largest units live on both sides, which sum to what is left."""
    model, numbers = case
    for kind in KINDS:
        first = getattr(scores_of("secant over masks", model), kind)
        twice = getattr(scores_of("secant over masks, twice", model), kind)
        kept = np.asarray(largest(first, FIRST, jnp.ones(TOKENS, bool)))
        assert kept.sum() == 1 and np.argmax(np.abs(twice)) == np.argmax(np.abs(first)) == np.argmax(kept)
        close(twice[kept == 1], first[kept == 1])
        left = numbers[kind](ones(kind)) - numbers[kind](jnp.asarray(kept))
        others = np.asarray(twice)[kept == 0]
        assert np.abs(others).max() < np.abs(first[kept == 1]).min()
        # Where one of them would rank above, all are scaled until the largest is just below.
        scaled = np.abs(others).max() > (1 - 1e-9) * np.abs(first[kept == 1]).min()
        if not scaled:
            close(others.sum(), left)


def test_the_largest_share_of_units():
    scores = jnp.array([[0.5, -3.0, 1.0], [2.0, 0.0, -1.5]])
    real = jnp.ones(3, bool)
    np.testing.assert_array_equal(largest(scores, 0.5, real), [[0, 1, 0], [1, 0, 1]])
    np.testing.assert_array_equal(largest(scores, 0.001, real), [[0, 1, 0], [0, 0, 0]])
    padded = jnp.pad(scores, ((0, 0), (0, 5)))
    np.testing.assert_array_equal(largest(padded, 0.5, jnp.arange(8) < 3)[:, :3], largest(scores, 0.5, real))


@given(st.lists(st.floats(1 / 64, 100, width=32), min_size=1, max_size=8), st.floats(1 / 64, 100, width=32))
def test_scores_are_scaled_below_a_number(rest, smallest):
    rest, smallest = jnp.array(rest, jnp.float32), jnp.float32(smallest)
    found = np.asarray(scaled_below(rest, smallest))
    assert found.max() < smallest
    relative(found, np.asarray(rest) * min(1, smallest / rest.max()), within=1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_scores_of_a_padded_text_are_those_of_the_text_alone(name):
    """`attribute` pads five tokens to sixteen, of which the share of the largest units isn't taken."""
    model = duat.load(GOLDEN / "gpt2", dtype="float64")
    text, other = [5, 17, 3, 9, 2], [5, 8, 3, 9, 2]
    found = duat.attribute(model, text, other, 11, contrast=7, method=name, unit="neuron").scores
    alone = METHODS_ON_PROMPTS[name](model, *map(jnp.array, (text, other, 11, 7))).neurons
    close(found, alone)
