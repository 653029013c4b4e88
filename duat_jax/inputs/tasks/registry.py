"""The registry of tasks."""

from collections.abc import Callable
from random import Random

from duat_jax.inputs.tasks import context, grammar, knowledge, order
from duat_jax.inputs.tasks.case import Case

TASKS: dict[str, Callable[[Random], Case]] = {
    "indirect object": context.indirect_object,
    "agreement": grammar.agreement,
    "capital": knowledge.capital,
    "language": knowledge.language,
    "greater than": order.greater_than,
    "pronoun": grammar.pronoun,
    "parameter": context.parameter,
    "opposite": knowledge.opposite,
    "comparative": grammar.comparative,
    "successor": order.successor,
    "repetition": context.repetition,
    "bracket": context.bracket,
    "tense": grammar.tense,
    "property": context.property_of,
    "colour": knowledge.colour,
}
"""The tasks, each with the function that draws its cases."""
