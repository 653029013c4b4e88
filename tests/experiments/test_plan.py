"""The counts of the plan agree with those of a compiler, and its weights with the shards of a divided model."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import near
from jax.sharding import Mesh

from benchmarks import plan
from duat_jax.models.loader import skeleton
from duat_jax.models.mesh import placement


@pytest.mark.parametrize("program", plan.PROGRAMS)
def test_the_products_of_a_layer_are_those_of_the_compiled_program(program):
    """The rest, under a tenth, are sums and functions of single numbers."""
    small = dataclasses.replace(plan.llama(128, 4, 512, 2), vocab=1500)
    block = dataclasses.replace(small.blocks[0], key_value_heads=2)
    flops = []
    for layers in (1, 2):
        model = skeleton(dataclasses.replace(small, blocks=(block,) * layers), jnp.float32)
        ids = jax.ShapeDtypeStruct((64,), jnp.int32)
        flops.append(jax.jit(plan.PROGRAMS[program]).lower(model, ids).compile().cost_analysis()["flops"])
    counted = plan.counts(dataclasses.replace(small, blocks=(block,)), 64, program).flops
    near((flops[1] - flops[0]) / counted, 1.05, 0.05)


@pytest.mark.parametrize(("name", "billions"), [("1 billion", 1.24), ("8 billion", 8.03), ("70 billion", 70.6)])
def test_the_shapes_have_the_parameters_that_their_names_say(name, billions):
    near(plan.parameters(plan.SHAPES[name]) / 1e9, billions, 0.05)


@pytest.mark.parametrize(("name", "chips"), [("8 billion", 8), ("8 billion", 16), ("70 billion", 64)])
def test_the_weights_of_a_chip_are_those_of_its_shards(name, chips):
    """Of the matrices of one layer; norms are small."""
    config = dataclasses.replace(plan.SHAPES[name], blocks=plan.SHAPES[name].blocks[:1])
    place = placement(config, Mesh(np.array(jax.devices()[:1] * chips), ("model",)))
    shards = 0
    for path, parameter in nnx.to_flat_state(nnx.state(skeleton(config, jnp.bfloat16))):
        shape = parameter.get_value().shape
        if len(shape) == 2:
            shards += np.prod(place(".".join(map(str, path))).shard_shape(shape))
    near(plan.parameters(config, chips) / chips / shards, 1, 1e-6)
