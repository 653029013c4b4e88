"""State the hypotheses of theorems, in words and as equations."""

from collections.abc import Iterable

from symbolic.equality.definition import Definition
from symbolic.expressions.parameter import Parameter
from symbolic.proof.derivation import Hypothesis
from symbolic.proof.step import Step

HELD = (
    "A parameter that the network computes from its input (an attention pattern, a norm's scale, a gate) is held: it is"
    " treated as a constant, at its value on this input."
)

NOTHING_HELD = "Nothing is held: at the other input every parameter may have another value."


def residual_layers(layer: Definition) -> Step:
    """Return the hypothesis that every layer is a residual term.

    Args:
        layer: Eq. 20.
    """
    return Step(layer.left, layer.right, "Every layer is the residual term of Eq. 20", None)


def of_a_held_stack(layer: Definition) -> tuple[Hypothesis, ...]:
    """Return the hypotheses of the closed form: layers that are residual terms, with their parameters held.

    Args:
        layer: Eq. 20.
    """
    return residual_layers(layer), HELD


def moving_parameters(held: Iterable[Parameter], weights: Iterable[Parameter]) -> str:
    """Return the hypothesis on the parameters of a layer at two inputs.

    Args:
        held: those that may have other values at the other input.
        weights: those that are the same.
    """
    moving, still = ", ".join(map(str, held)), ", ".join(map(str, weights))
    moves = f"Nothing is held: at the other input {moving} may have other values." if moving else "Nothing is held."
    return moves + (f" The same at both inputs: {still}." if still else "")


def held_parameters(held: Iterable[Parameter]) -> str:
    """Return the hypothesis that some parameters are held, or that none depends on the input.

    Args:
        held: the parameters.
    """
    names = ", ".join(map(str, held))
    if not names:
        return "No parameter depends on the input."
    return f"Held, that is, treated as constants, at their values on this input: {names}."
