"""What is compiled grows with depth, and not faster; and looks up entries one by one."""

import jax
import jax.numpy as jnp
import pytest
from helpers import make_input, make_stack

import duat_jax as duat
from duat_jax.forms import affine_form, decomposition
from duat_jax.survey.measure import largest
from duat_jax.transform.recording import record

pytestmark = pytest.mark.usefixtures("optimised")


def table(recording, readout):
    return decomposition.contributions(recording, readout)


def collapsed(recording, readout):
    return affine_form.collapsed_contributions(recording, readout)


@pytest.mark.slow
@pytest.mark.parametrize("question", [table, collapsed])
def test_twice_the_layers_are_twice_the_program(question):
    """Twice as many instructions: none of a layer is fused, ever longer, into those of the layers after it."""

    def instructions(layers):
        stack = make_stack("pre-norm", layers, dtype=jnp.float32)
        answer = jax.jit(lambda x: question(record(stack)(x), jnp.ones_like(x)))
        return answer.lower(make_input(dtype=jnp.float32)).compile().as_text().count("\n")

    four, eight, sixteen = map(instructions, (4, 8, 16))
    assert sixteen - eight < 2.2 * (eight - four)


def looked_up(x):
    return jnp.take_along_axis(x, jnp.zeros((4, 1), int), -1)


def added(x):
    return x.at[jnp.arange(4), 0].add(x[:, 1])


@pytest.mark.parametrize("fn", [looked_up, added])
def test_entries_are_looked_up_at_each_input_apart(fn):
    """XLA for TPUs lays a slice of both inputs innermost, and pads their axis of two to 128 (`findings`)."""
    program = jax.jit(duat.secant(lambda x: fn(jnp.tanh(x)).sum())).lower(jnp.ones((4, 8)), jnp.zeros((4, 8)))
    assert "slice_sizes = array<i64: 2" not in program.as_text() and "update_window_dims" not in program.as_text()


def test_a_survey_looks_up_entries_one_by_one():
    """XLA for the TPU 7x lays a slice of several innermost, and pads it to 128."""
    program = jax.jit(largest).lower(jnp.ones((8, 31, 6))).as_text()
    assert "slice_sizes = array<i64: 1, 1, 1>" in program and "slice_sizes = array<i64: 1, 8" not in program
