"""Slicing against the model that it is made of, and against a rotation by hand."""

import jax
import numpy as np
import pytest
from cases import GOLDEN
from helpers import near

import duat_jax as duat
from duat_jax.nn.block import Block
from experiments.pruning import slicing

IDS = np.array(jax.random.randint(jax.random.key(3), (4, 9), 0, 30), np.int32)


@pytest.fixture(scope="module", params=["gpt2", "llama", "mistral"])
def model(request):
    return duat.load(GOLDEN / request.param, dtype="float64")


@pytest.mark.parametrize("shared", [False, True])
def test_all_directions_are_the_model(model, shared):
    rotations = slicing.principal_rotations(model, IDS, shared=shared)
    whole = slicing.sliced(model, rotations, model.config.features)
    near(whole(IDS), model(IDS), within=1e-4)
    kinds = {type(block) for block in whole.stack.blocks}
    assert kinds == ({Block} if shared else {slicing.SlicedBlock})


def test_a_direction_that_the_stream_never_has_costs_nothing():
    """A mean of features is never there after LayerNorms: the model is the same without its direction."""
    model = duat.load(GOLDEN / "gpt2", dtype="float64")
    features = model.config.features
    rotations = slicing.principal_rotations(model, IDS)
    for q in rotations:
        near(q.T @ q, np.eye(features), within=1e-9)
        near(np.abs(q[:, -1]), np.full(features, features**-0.5), within=1e-5)
    near(slicing.sliced(model, rotations, features - 1)(IDS), model(IDS), within=1e-4)


def test_norms_divide_by_the_sum_of_what_is_left(model):
    features = model.config.features
    rotations = slicing.random_rotation(model, 0)
    smaller = slicing.sliced(model, rotations, features // 2)
    x = smaller.embed(IDS)
    norm = smaller.stack.blocks[0].norm_1
    by_hand = x / np.sqrt((np.asarray(x) ** 2).sum(-1, keepdims=True) / features + model.config.blocks[0].epsilon)
    near(norm(x), by_hand, within=1e-5)


def test_other_models_are_refused():
    for name in ("bert", "mixtral", "gemma", "gpt_neox"):
        with pytest.raises(duat.DuatError, match="GPT-2's and Llama's kinds"):
            slicing.principal_rotations(duat.load(GOLDEN / name), IDS)


def test_the_largest_number_within_a_limit():
    assert slicing.largest_within(lambda n: n * n, 10, 20) == 3
    assert slicing.largest_within(lambda n: n, 100, 20) == 20
