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
}
"""The tasks, each with the function that draws its cases."""
