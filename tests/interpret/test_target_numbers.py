"""The number that a command says is the one that its target names, in every command."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import GOLDEN
from helpers import close

import duat_jax as duat
from duat_jax.inputs.model_inputs import Inputs
from duat_jax.lora.adapter import merge, new_adapters
from duat_jax.lora.change import lora_change
from duat_jax.models.targets.base import forward

IDS, OTHER = jnp.array([5, 17, 3, 44, 17, 20]), jnp.array([9, 8, 7, 6])


def test_only_a_log_probability_has_an_entropy():
    model = duat.load(GOLDEN / "gpt2", dtype=jnp.float64)
    asked = [
        7,
        duat.targets.LogProbability(7),
        duat.targets.Direction(np.arange(12.0), stream=1),
        duat.targets.LogProbability(3, position=1),
    ]
    found = duat.explain(model, IDS, asked)
    assert ["entropy" in each.biases for each in found] == [False, True, False, True]
    for each, target in zip(found, asked):
        alone = duat.explain(model, IDS, target).biases
        assert list(each.biases) == list(alone)
        close(list(each.biases.values()), list(alone.values()))


ASKED = {
    "gpt2": (
        duat.targets.Logit(7),
        duat.targets.Logit(7, contrast=3),
        duat.targets.LogProbability(7),
        duat.targets.LogProbability(3, position=1),
    ),
    "bert-masked": (
        duat.targets.Logit(4, position=3),
        duat.targets.Logit(4, contrast=7, position=3),
        duat.targets.LogProbability(4, position=3),
    ),
    "gpt2-classes": (duat.targets.ClassLogit(1), duat.targets.ClassLogit(1, contrast=0)),
    "bert": (duat.targets.Similarity(OTHER),),
}
ASKED |= {
    name: (*targets, duat.targets.Direction(np.arange(float(duat.load_config(GOLDEN / name).features)), 1, 2))
    for name, targets in ASKED.items()
}


@pytest.mark.parametrize("target", ASKED["bert-masked"][:-1])
def test_a_target_is_its_read_out_times_the_states_and_its_constants(target):
    """The logits of masked tokens have biases, which most others don't have."""
    model = duat.load(GOLDEN / "bert-masked", dtype=jnp.float64)
    passed = forward(model, Inputs(IDS, jnp.ones(len(IDS), bool), None))
    reading = target.read(model, passed)
    assert abs(reading.constant) > 1e-3
    entropy = 0 if reading.entropy is None else reading.entropy
    close(jnp.vdot(reading.readout, passed.states) + reading.constant - entropy, reading.value)


def by_hand(model, ids, target):
    """The number that a target names, from the model's output alone."""
    said = model(ids)
    match target:
        case duat.targets.LogProbability():
            return jax.nn.log_softmax(said[-1 if target.position is None else target.position])[target.token]
        case duat.targets.Logit():
            logits = said[-1 if target.position is None else target.position]
            return logits[target.token] - (0 if target.contrast is None else logits[target.contrast])
        case duat.targets.ClassLogit():
            return said[target.name] - (0 if target.contrast is None else said[target.contrast])
        case duat.targets.Similarity():
            a, b = said.mean(0), model(target.against).mean(0)
            return a @ b / jnp.linalg.norm(a) / jnp.linalg.norm(b)
        case duat.targets.Direction():
            streams = forward(model, Inputs(ids, jnp.ones(len(ids), bool), None), (target.stream,)).streams
            return streams[target.stream][target.position] @ target.vector


EVERY = [
    pytest.param(
        name, one, marks=[] if isinstance(one, duat.targets.LogProbability) and name == "gpt2" else pytest.mark.slow
    )
    for name, targets in ASKED.items()
    for one in targets
]


@pytest.mark.parametrize(("name", "target"), EVERY)
def test_every_command_gives_the_number_that_a_target_names(name, target):
    model = duat.load(GOLDEN / name, dtype=jnp.float64)
    x, y = (jnp.array(ids) for ids in (IDS, [5, 17, 9, 44, 2, 20]))
    explained = [duat.explain(model, ids, target) for ids in (x, y)]
    contrasted = duat.contrast(model, x, y, target)
    changed = duat.intervene(model, x, duat.edits.Neurons(0, 3).set(0), target)
    expected = [float(by_hand(model, ids, target)) for ids in (x, y)]
    for found in (
        [each.value for each in explained],
        [each.completeness.sum for each in explained],
        [each.collapse_completeness.sum for each in explained],
        [contrasted.value, contrasted.references[0].value],
        [changed.before, expected[1]],
    ):
        close(found, expected)
    close(contrasted.completeness.sum, expected[0] - expected[1])
    assert len({explained[0].target, contrasted.target, changed.target}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("target", ASKED["gpt2"][:-1])
def test_what_an_adapter_changes_is_the_number_that_a_target_names(target):
    model = duat.load(GOLDEN / "gpt2", dtype=jnp.float64)
    adapters = new_adapters(model, ["c_fc", "c_attn"], rank=2)
    random = np.random.default_rng(0)
    adapters = {
        name: one._replace(up=jnp.array(0.2 * random.normal(size=one.up.shape))) for name, one in adapters.items()
    }
    found = lora_change(model, adapters, IDS, target)
    before, after = (float(by_hand(each, IDS, target)) for each in (model, merge(model, adapters)))
    close([found.before, found.after], [before, after])
    for parts in (found.totals.values(), (effect.part for effect in found.effects)):
        close(sum(parts), after - before)
