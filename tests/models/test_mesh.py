"""Models that are divided among devices: the same numbers as on one, sums between devices and no gathered weights."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx
from jax.sharding import Mesh
from meshes import BLOCKS, model_of

from duat_jax.models.mesh import MODEL, placement

PROGRAM = Path(__file__).with_name("meshes.py")


def with_devices(count, **variables):
    """Return the environment of a process with simulated devices, in which programs of the tests run."""
    folders = (*map(str, PROGRAM.parents[1:3]), os.getenv("PYTHONPATH"))
    return {
        **os.environ,
        "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={count}",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(filter(None, folders)),
        **variables,
    }


def run_on_eight_devices(*arguments):
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    done = subprocess.run(command, env=with_devices(8), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_answers_are_those_of_one_device():
    run_on_eight_devices("answers", "grouped heads", "2x4")


@pytest.mark.slow
@pytest.mark.parametrize("kind", BLOCKS)
def test_the_answers_of_every_kind_of_model_on_every_mesh_are_those_of_one_device(kind):
    run_on_eight_devices("answers", kind, "2x4", "8x1", "1x8")


@pytest.mark.slow
def test_how_a_text_is_read_changes_its_contributions_and_logits_by_rounding():
    run_on_eight_devices("invariance")


@pytest.mark.parametrize(
    ("key_value_heads", "tokens"),
    [(8, 600), pytest.param(4, 600, marks=pytest.mark.slow), pytest.param(8, 64, marks=pytest.mark.slow)],
)
def test_devices_send_each_other_sums(key_value_heads, tokens):
    """Of a text of 600 tokens, devices gather the tokens that each has between parts, and never a layer's weights."""
    run_on_eight_devices("sent", key_value_heads, tokens)


@pytest.mark.slow
def test_answers_about_long_texts_are_those_of_one_device():
    run_on_eight_devices("long texts")


def test_meshes_that_dont_fit_are_refused_in_one_line():
    run_on_eight_devices("refusals")


@pytest.mark.parametrize("kind", BLOCKS)
def test_every_parameter_of_a_layer_is_divided_or_left_whole_by_the_rules(kind):
    """The axes of heads, neurons and the vocabulary are divided, and no others."""
    mesh = Mesh(np.array(jax.devices()[:1]), ("model",))
    model = model_of(BLOCKS[kind])
    place, config = placement(model.config, mesh), model.config.blocks[0]
    heads = {config.heads * config.head_features, (config.key_value_heads or config.heads) * config.head_features}
    divided = {config.neurons, model.config.vocab, *heads}
    parameters = nnx.to_flat_state(nnx.state(model))
    assert len(parameters) > 10
    for path, parameter in parameters:
        name = ".".join(map(str, path))
        expected = [MODEL if size in divided else None for size in parameter.shape]
        if "norm" in name:  # of queries and keys too, which every head shares
            expected = []
        elif "sinks" in name:
            expected = [MODEL]
        spec = place(name).spec
        assert [*spec, *[None] * (len(expected) - len(spec))] == expected, name
