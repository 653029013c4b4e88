"""Every layer may have an activation function of its own: all theorems hold for it, and none takes it for another's."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from helpers import numbers
from sympy import Basic
from test_blocks import KINDS, F, G
from test_theorems_in_numbers import all_of

import duat_jax as duat
from symbolic import Block, activation, matrix
from symbolic.equality.definition import Definition
from symbolic.errors import NumbersDiffer, SymbolicError
from symbolic.expressions.activation import Activation
from symbolic.theorems.closed_form import prove
from symbolic.theorems.residual_stack import ResidualStack

NAMES = {kind: {part.function for part in Block(KINDS[kind]).written.atoms(Activation)} for kind in KINDS}


def functions_in(derivation):
    sides = [side for step in (*derivation.given, *derivation.steps) for side in (step.left, step.right)]
    return {part for side in sides if isinstance(side, Basic) for part in side.atoms(Activation)}


QUICK = "one term", "the term alone"


@pytest.mark.parametrize(
    "kind",
    [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS if NAMES[kind]],
)
def test_every_theorem_holds_with_the_layers_index(kind):
    block = Block(KINDS[kind], name=kind, own=tuple(NAMES[kind]))
    for derivation in (*all_of(block), block.unroll(5), block.prove(letters=True)):
        assert derivation.proved, derivation
        assert all(part.indices for part in functions_in(derivation)), derivation.title
    assert "Every layer has its own" in str(derivation) and "_{i}\\!" in block.document()


def test_only_the_named_functions_are_a_layers_own():
    block = Block(KINDS["one term into another"], own=("tanh",))
    assert {(part.function, bool(part.indices)) for part in functions_in(block.prove())} == {
        ("gelu", False), ("tanh", True)
    }  # fmt: skip


STACK = ResidualStack(neurons=(3, 4), functions=("σ", "τ"), couplings=((2, 1),), own=("σ", "τ"))
WITH_FUNCTIONS = [k for k, rule in enumerate(STACK.recursions) if rule.right.has(Activation)]


@pytest.mark.parametrize("k", WITH_FUNCTIONS, ids=lambda k: str(STACK.recursions[k].left))
def test_a_recursion_with_another_layers_function_isnt_proved(k):
    rule = STACK.recursions[k]
    assert prove(STACK).proved

    def moved(e):
        """Return the expression with the next layer's function for each, from part to part, in sums too."""
        if not e.has(Activation):
            return e
        parts = [moved(part) if isinstance(part, Basic) else part for part in e.args]
        return Activation(*parts[:-1], (e.indices[0] + 1,)) if isinstance(e, Activation) else e.func(*parts)

    wrong = Definition(rule.left, moved(rule.right), rule.variables)
    assert not prove(STACK, (*STACK.recursions[:k], wrong, *STACK.recursions[k + 1 :])).verified


def test_a_layer_with_another_layers_function_isnt_eq_20():
    block = Block(KINDS["one term"], own=("σ",))
    block.stack = replace(block.stack, own=())
    for derivation in (block.residual_terms(), block.prove(), block.unroll(2)):
        assert not derivation.verified


WEIGHTS = [{"F": numbers(3, 2, key=k), "G": numbers(2, 3, key=k + 9)} for k in range(3)]
FUNCTIONS = [jnp.tanh, jax.nn.gelu, jnp.cos]
X = jnp.array([0.3, -0.7])


def layer(weights, function):
    return lambda x: x + weights["G"] @ duat.term(function, weights["F"] @ x, "mlp")


LAYERS = list(map(layer, WEIGHTS, FUNCTIONS))
MLP = {
    own: Block(lambda x: x + matrix("G", 2, 3) * activation(matrix("F", 3, 2) * x), (2, 1), own=own)
    for own in ((), ("σ",))
}


def test_it_is_verified_with_one_function_for_each_layer():
    first, second, third = FUNCTIONS
    assert MLP["σ",].verify(LAYERS, X, WEIGHTS, [first, {"σ": second}, third]).holds


@pytest.mark.parametrize(
    ("own", "given", "error", "words"),
    [
        (("σ",), FUNCTIONS[::-1], NumbersDiffer, "layer 1"),
        (("σ",), jnp.tanh, NumbersDiffer, "layer 2"),
        (("σ",), FUNCTIONS[:2], SymbolicError, "of 2 layers for 3"),
        (("σ",), [{"τ": jnp.tanh}] * 3, SymbolicError, "no function for σ"),
        ((), FUNCTIONS, SymbolicError, "own=('σ',)"),
    ],
)
def test_another_layers_function_is_noticed(own, given, error, words):
    with pytest.raises(error) as caught:
        MLP[own].verify(LAYERS, X, WEIGHTS, given)
    assert words in str(caught.value)


@pytest.mark.parametrize(("own", "words"), [("σ", r"\('σ',\)"), (("τ",), "τ is every layer's own")])
def test_a_name_that_is_no_function_of_the_layer_is_refused(own, words):
    with pytest.raises(SymbolicError, match=words):
        Block(lambda x: x + G * activation(F * x), own=own)
