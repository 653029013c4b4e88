"""Questions about one input that take a list of inputs too."""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from duat_jax.display.result import ResultList
from duat_jax.errors import InvalidInput
from duat_jax.inputs.baseline_kinds import Baseline
from duat_jax.inputs.baselines import several
from duat_jax.inputs.model_inputs import is_many
from duat_jax.models.transformer import Transformer

P = ParamSpec("P")
R = TypeVar("R")


def answers_each_input(ask: Callable[P, R]) -> Callable[P, R]:
    """Return a function that answers a list of inputs by a list, with an answer for each."""
    # To a type checker the answer is that of one input.
    parameters = signature(ask)

    @wraps(ask)
    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        given = parameters.bind(*args, **kwargs)
        model, inputs = given.arguments["model"], given.arguments["inputs"]
        if not isinstance(model, Transformer) or not is_many(model.config, inputs):
            return ask(*args, **kwargs)
        references = several(model.config, given.arguments.get("reference"))
        if len(inputs) == len(references) > 1 and not any(isinstance(each, Baseline) for each in references):
            raise InvalidInput(
                f"{len(inputs)} inputs and as many references could be pairs, but every input is compared with the mean"
                " of all references: give one input at a time, with its own reference for pairs, or with all of them"
            )
        answers = ResultList()
        for i, each in enumerate(inputs):
            given.arguments["inputs"] = each
            try:
                answers.append(ask(*given.args, **given.kwargs))
            except InvalidInput as error:
                raise InvalidInput(f"input {i}: {error}") from None
        return answers

    return call
