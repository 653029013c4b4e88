"""Measurements of one trained network on prompts of both tasks."""

from functools import singledispatch
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from experiments.generalization.frozen import frozen, spread
from experiments.generalization.networks import WHOLE, Network, Sizes
from experiments.generalization.tasks import CONTENT, Demonstrated, Examples, Named, least_squares, nearest
from experiments.generalization.training import error, outputs

TESTED, CONTENTS, PROMPTS = 4096, 16, 16
"""The numbers of examples that errors are taken on; of contents, and of prompts before each, that are taken apart."""
COUNTS, UNSEEN_COUNTS = (1, 2, 4, 8, 16), (24, 32)
"""The numbers of demonstrations of trained prompts, and of prompts longer than all of them."""


def _apart(y: Float[Array, "functions contents outputs"]) -> Array:
    """Return the root mean square of the difference of two functions' outputs for the same content."""
    return jnp.sqrt(2 * y.var(0, ddof=1).mean())


@singledispatch
def measure(task: Any, network: Network, sizes: Sizes, key: Array) -> dict[str, Any]:
    """Measure the errors of a network."""
    raise TypeError(f"there are no measurements of {task!r}")


@measure.register
def _(task: Named, network: Network, sizes: Sizes, key: Array) -> dict[str, Any]:
    contents = jax.random.uniform(key, (TESTED // task.functions, CONTENT), minval=-1.0)
    functions = jnp.repeat(jnp.arange(task.functions), len(contents))
    examples = task.named(functions, jnp.tile(contents, (task.functions, 1)))
    by_function = (task.functions, len(contents), CONTENT)
    y, targets = outputs(network, examples).reshape(by_function), examples.targets.reshape(by_function)
    of_function = jnp.sqrt(((y - targets) ** 2).mean((1, 2)))
    rarest = jnp.argsort(task.shares())[: max(2, task.functions // 4)]
    return {
        "error": float(jnp.sqrt((of_function**2).mean())),
        "by function": np.asarray(of_function).tolist(),
        "apart": float(_apart(y) / _apart(targets)),
        "apart, rarest": float(_apart(y[rarest]) / _apart(targets[rarest])),
    }


def _last(examples: Examples, tokens: int) -> Examples:
    return examples._replace(inputs=examples.inputs[:, -tokens:], mask=examples.mask[:, -tokens:])


@measure.register
def _(task: Demonstrated, network: Network, sizes: Sizes, key: Array) -> dict[str, Any]:
    longest = Demonstrated(family=task.family, demonstrations=max(UNSEEN_COUNTS))
    by_count: dict[str, float] = {}
    references: dict[str, dict[str, float]] = {"nearest": {}, "least squares": {}}
    for count in (*COUNTS, *UNSEEN_COUNTS):
        # The same functions, questions and demonstrations at every count, of which some are absent.
        examples = longest.draw_with(key, TESTED, count)
        any_length = sizes.kind not in (*WHOLE, "perceptron", "fixed pattern") and count > task.demonstrations
        read = examples if any_length else _last(examples, task.tokens)
        by_count[str(count)] = float(error(outputs(network, read), examples))
        for name, method in (("nearest", nearest), ("least squares", least_squares)):
            references[name][str(count)] = float(error(method(examples), examples))
    trained = task.draw(jax.random.fold_in(key, 0), TESTED)
    return {
        "error": by_count[str(task.demonstrations)],
        "by count": by_count,
        "references": references,
        "trained": float(error(outputs(network, trained), trained)),
    }


def prompts_before(task: Named | Demonstrated, key: Array) -> Examples:
    """Return prompts of several functions before each of several contents, `[contents, prompts, ...]`."""
    keys = jax.random.split(key, CONTENTS)
    if isinstance(task, Demonstrated):
        return jax.vmap(lambda key: task.other_functions(key, PROMPTS))(keys)
    contents = jax.random.uniform(key, (CONTENTS, 1, CONTENT), minval=-1.0)
    functions = jax.random.permutation(key, task.functions)[:PROMPTS]
    repeated = jnp.broadcast_to(contents, (CONTENTS, len(functions), CONTENT))
    return jax.vmap(task.named, (None, 0))(functions, repeated)


def dissect(task: Named | Demonstrated, network: Network, key: Array) -> dict[str, Any]:
    """Measure what moves with the prompt, and the error with each group of parameters frozen at its mean."""
    examples = prompts_before(task, key)
    of_groups = {
        "none": jax.vmap(lambda of_content: outputs(network, of_content))(examples),
        **jax.vmap(lambda inputs: frozen(network, inputs))(examples.inputs),
    }
    return {
        "frozen": {group: float(error(y, examples)) for group, y in of_groups.items()},
        "spread": spread(network, examples.inputs[0]),
    }
