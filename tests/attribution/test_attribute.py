"""`attribute`: every method on every kind of units, beside derivatives taken by JAX and the exact contrast."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from heads import GIVEN, IDS
from helpers import close

import duat_jax as duat
from duat_jax.attribution.registry import METHODS
from tests.interpret.test_contrast import OTHERS, TARGETS, model_of

OTHER = [5, 7, 4, 10, 2]
TEXT = "next token"
PAIRS = [
    (unit, name)
    for unit, methods in METHODS.items()
    for name in methods
    if not name.startswith("collapse, ")  # a gauge of gated terms, which the small model doesn't have
]


def needs_change(unit, name):
    return METHODS[unit][name].of_change


def attributed(unit, method, other=OTHER, **arguments):
    other = other if needs_change(unit, method) else None
    return duat.attribute(model_of(TEXT), IDS, other, TARGETS[TEXT], unit=unit, method=method, **arguments)


def logit(model, x):
    """Return the number of `TARGETS`: the most probable token's logit minus another's, at token 2."""
    logits = model.head.logits(model.states(x)[2], model.unembedding)
    return logits[9] - logits[6]


@pytest.mark.parametrize("unit, name", PAIRS)
def test_every_method_scores_every_unit(unit, name):
    found = attributed(unit, name)
    shapes = {"token": (5,), "stream": (2, 5), "neuron": (1, 5, 6), "head": (1, 5, 2)}
    assert found.scores.shape == shapes[unit]
    assert (found.scores != 0).any() and found.source == METHODS[unit][name].source
    json.dumps(found.as_dict("tiny"), allow_nan=False)
    assert found.method in str(found) and len(found.top(3)) == 3


@pytest.mark.parametrize("name", ["next token", "masked token", "hidden", "first", "image"])
def test_the_secant_gives_the_parts_of_a_contrast(name):
    target = TARGETS.get(name, duat.targets.ClassLogit("good", contrast=0))
    asked = model_of(name), GIVEN.get(name, IDS), OTHERS.get(name, OTHER), target
    contrast = duat.contrast(*asked)
    of_unit = {unit: duat.attribute(*asked, unit=unit) for unit in METHODS}
    close(of_unit["stream"].scores, contrast.flow)
    close(of_unit["token"].scores, contrast.flow[0])
    close(of_unit["head"].scores, np.stack(list(contrast.heads.values())))
    close(of_unit["neuron"].scores, np.stack(list(contrast.neurons.values())))
    close(of_unit["token"].difference, contrast.difference)
    assert np.abs(of_unit["stream"].gap).max() < 1e-9 * max(1, np.abs(contrast.flow).sum())
    assert of_unit["neuron"].gap is None


def test_gradients_are_those_of_jax():
    model = model_of(TEXT)
    x, y = (model.embed(jnp.array(ids)) for ids in (IDS, OTHER))
    gradient = jax.grad(lambda x: logit(model, x))
    close(attributed("token", "gradient x change").scores, (gradient(x) * (x - y)).sum(-1))
    close(attributed("token", "gradient x input").scores, (gradient(x) * x).sum(-1))
    along = [gradient(y + (i + 0.5) / 32 * (x - y)) for i in range(32)]
    close(attributed("token", "integrated gradients, 32 steps").scores, (np.mean(along, 0) * (x - y)).sum(-1))


def test_several_references_are_averaged():
    others = [OTHER, [1, 7, 4, 10, 2], duat.baselines.Mean()]
    for unit, name in (("token", "integrated gradients, 32 steps"), ("head", "gradient x change")):
        together = attributed(unit, name, others)
        alone = [attributed(unit, name, other) for other in others]
        close(together.scores, np.mean([each.scores for each in alone], 0))
        close(together.difference, np.mean([each.difference for each in alone]))
        assert [other.name for other in together.references] == [each.references[0].name for each in alone]


def test_a_target_inside_the_stack():
    target = duat.targets.Direction(np.arange(1.0, model_of(TEXT).config.features + 1), stream=1, position=2)
    model = model_of(TEXT)
    x, y = (model.embed(jnp.array(ids)) for ids in (IDS, OTHER))

    def number(x):
        return model.stack.blocks[0](model.first(x))[2] @ jnp.asarray(target.vector)

    found = duat.attribute(model, IDS, OTHER, target, method="gradient x change")
    close(found.scores, (jax.grad(number)(x) * (x - y)).sum(-1))
    assert duat.attribute(model, IDS, OTHER, target, unit="stream").scores.shape == (2, 5)


def test_the_largest_units():
    found = attributed("neuron", "secant")
    first = found.top(1)[0]
    assert abs(first.score) == np.abs(found.scores).max()
    assert found.scores[first.layer, first.token_index, first.unit] == first.score
    assert len(found.top(10**6)) == found.scores.size
    assert attributed("token", "secant").top(1)[0].layer is None


@pytest.mark.parametrize(
    "wrong, says",
    [
        ({"unit": "layer"}, "no kind of units"),
        ({"method": "magic"}, "choose one of secant; collapse"),
        ({"method": "collapse, gate"}, "no method"),
        ({"unit": "stream", "method": "integrated gradients, all layers together"}, "no method"),
        ({"reference": None}, "give another input or a baseline"),
        ({"method": "contributions"}, "leave reference and alignment out"),
        ({"reference": [5, 7]}, "alignment"),
    ],
)
def test_errors_say_what_to_do(wrong, says):
    arguments = {"reference": OTHER} | wrong
    with pytest.raises(duat.InvalidInput, match=says):
        duat.attribute(model_of(TEXT), IDS, **arguments)
