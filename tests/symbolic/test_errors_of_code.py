"""Errors of the code that a block is compared with: one line with the place, and what is this package's stays."""

import inspect
import re

import jax.numpy as jnp
import pytest

import duat_jax as duat
from symbolic import Block, StreamBlock, activation, held, matrix
from symbolic.errors import SymbolicError

EYE = jnp.eye(2)
STREAMS = {"x": EYE, "m": EYE}
D, G = held("D", 2, 2), matrix("G", 2, 2)
BLOCK = StreamBlock(
    lambda s: {"x": s["x"] + D * s["m"] + G * activation(s["x"]), "m": s["m"]}, {"x": (2, 2), "m": (2, 2)}
)
ONE = Block(lambda x: x + D * x + G * activation(x), (2, 2))
WEIGHTS = {"G": EYE}


def layer(s):
    return s | {"x": s["x"] + duat.hold(s["m"], "D") @ s["m"] + EYE @ duat.term(jnp.tanh, s["x"], "mlp")}


def of_one(x):
    return x + duat.hold(x, "D") @ x + EYE @ duat.term(jnp.tanh, x, "mlp")


def misshapen(s):
    return s | {"x": s["x"] + s["m"] @ jnp.ones(3)}


def misshapen_of_one(x):
    return x @ jnp.ones(3)


def of_numpy(s):
    return s | {"x": float(s["x"][0, 0]) * s["x"]}


def line_of(function, after=1):
    return inspect.getsourcelines(function)[1] + after


def wrong_activation(z):
    return z @ jnp.ones(3)


def held_wrongly(kept):
    return kept["E"] @ jnp.ones(3)


LAYER_1, OF_STREAMS = "the function of layer 1", ", of the streams x, m,"
CODE = {
    "the layer": (
        lambda: BLOCK.verify(misshapen, STREAMS, WEIGHTS, jnp.tanh),
        f"{LAYER_1}{OF_STREAMS}",
        misshapen,
    ),
    "its second layer": (
        lambda: BLOCK.verify([layer, of_numpy], STREAMS, [WEIGHTS, WEIGHTS], jnp.tanh),
        f"the function of layer 2{OF_STREAMS}",
        of_numpy,
    ),
    "a layer of one stream": (
        lambda: ONE.verify(misshapen_of_one, EYE, WEIGHTS, jnp.tanh),
        LAYER_1,
        misshapen_of_one,
    ),
    "an activation": (
        lambda: BLOCK.verify(layer, STREAMS, WEIGHTS, wrong_activation),
        "the activation σ",
        wrong_activation,
    ),
    "an activation by name": (
        lambda: ONE.verify(of_one, EYE, WEIGHTS, {"σ": wrong_activation}),
        "the activation σ",
        wrong_activation,
    ),
}


@pytest.mark.parametrize("name", CODE)
def test_an_error_of_the_users_code_is_one_line_with_its_place(name):
    verify, whose, function = CODE[name]
    with pytest.raises(SymbolicError) as refusal:
        verify()
    said = str(refusal.value)
    place = rf"\(test_errors_of_code.py, line {line_of(function)}\)"
    assert re.fullmatch(rf"{whose} raises \w+: [^\n]+ {place}", said), said
    assert refusal.value.__cause__ is not None


def test_a_held_letters_own_function_is_named():
    block = Block(lambda x: held("E", 2, 2) * x + held("F", 2, 2) * x, (2, 2))
    with pytest.raises(SymbolicError) as refusal:
        block.verify(lambda x: duat.hold(x, "E") @ x + duat.hold(x, "E") @ x, EYE, {"F": held_wrongly}, jnp.tanh)
    assert str(refusal.value).startswith("the function that gives F in layer 1 raises ")
    assert f"line {line_of(held_wrongly)})" in str(refusal.value)


def test_what_duat_refuses_stays_as_it_is():
    with pytest.raises(duat.DuatError, match="int"):
        BLOCK.verify(lambda s: s | {"x": s["x"].astype(int)}, STREAMS, WEIGHTS, jnp.tanh)
