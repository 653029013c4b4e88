"""A result of every class that shows itself, of small inputs: what a test of the whole class walks over."""

from functools import cache

import jax
import jax.numpy as jnp

import duat_jax as duat
from duat_jax.display.result import Displayed
from duat_jax.in_context import ledger, question_of
from duat_jax.lora import lora_change, new_adapters

TEXT, OTHER = "for i in range(10", "for j in range(10"


@cache
def every_result():
    """Return the results by their class."""
    model, tokenizer = duat.load(tokenizer=True)
    known = {"tokenizer": tokenizer}
    question = question_of(tokenizer, ["a = 1", "b = 1"], "c =", " 1")
    pixels = jnp.arange(24.0).reshape(3, 4, 2)
    changes = [duat.edits.Heads(1, 0).set(0), duat.edits.Stream(2).scale(0.5)]
    made = [
        duat.explain(model, TEXT, **known),
        duat.graph(model, TEXT, neurons=3, **known),
        duat.contrast(model, TEXT, [OTHER, "mean"], **known),
        duat.attribute(model, TEXT, OTHER, unit="head", **known),
        duat.intervene(model, TEXT, changes, **known),
        duat.explain_attention(model, TEXT, layer=1, head=0, key=0, **known),
        lora_change(model, new_adapters(model, rank=1), tokenizer.encode(TEXT).ids, **known),
        ledger(model, question.task),
        duat.image_maps(_network, pixels, 0 * pixels),
    ]
    return {type(result): result for result in made}


def _network(x):
    return duat.term(jax.nn.relu, x - 4, "relu").sum() + 2 * x.sum() + duat.offset(jnp.array(3.0), "bias")


def classes_of_results():
    """Return every class of results in the package."""

    def below(of):
        return [of, *(each for child in of.__subclasses__() for each in below(child))]

    found = {each for each in below(Displayed) if each.__module__.endswith(".result")}
    return {each for each in found if each.__module__ != Displayed.__module__}
