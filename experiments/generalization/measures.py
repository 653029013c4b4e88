"""Measurements of one trained network on prompts of both tasks."""

from functools import singledispatch
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from experiments.generalization.frozen import frozen, spread
from experiments.generalization.networks import MOVING, Network, Sizes
from experiments.generalization.tasks import CONTENT, Demonstrated, Examples, Named, least_squares, nearest
from experiments.generalization.training import error, outputs

TESTED, MEAN_OF, PROMPTS = 4096, 256, 16
"""The numbers of examples that errors are taken on, that frozen parameters are means of, and whose spread is taken."""
COUNTS, UNSEEN_COUNTS = (1, 2, 4, 8, 16), (24, 32)
"""The numbers of demonstrations of trained prompts, and of prompts longer than all of them."""


def _apart(y: Float[Array, "functions contents outputs"]) -> Array:
    """Return the root mean square of the difference of two functions' outputs for the same content."""
    return jnp.sqrt(2 * y.var(0, ddof=1).mean())


def _frozen(network: Network, examples: Examples) -> dict[str, float]:
    of_groups = {"none": outputs(network, examples), **frozen(network, examples.inputs)}
    return {group: float(error(y, examples)) for group, y in of_groups.items()}


@singledispatch
def measure(task: Any, network: Network, sizes: Sizes, key: Array) -> dict[str, Any]:
    """Measure the errors of a network, with its parameters and with each group frozen, and what moves.

    Args:
        task: the task that it was trained on.
        network: the network.
        sizes: its sizes.
        key: the examples.
    """
    raise TypeError(f"there are no measurements of {task!r}")


@measure.register
def _(task: Named, network: Network, sizes: Sizes, key: Array) -> dict[str, Any]:
    contents = jax.random.uniform(key, (TESTED // task.functions, CONTENT), minval=-1.0)
    functions = jnp.repeat(jnp.arange(task.functions), len(contents))
    examples = task.named(functions, jnp.tile(contents, (task.functions, 1)))
    by_function = (task.functions, len(contents), CONTENT)
    y, targets = outputs(network, examples).reshape(by_function), examples.targets.reshape(by_function)
    of_function = jnp.sqrt(((y - targets) ** 2).mean((1, 2)))
    some = jax.tree.map(lambda leaf: leaf[jax.random.permutation(key, len(leaf))[:MEAN_OF]], examples)
    same_content = task.named(jnp.arange(PROMPTS) % task.functions, jnp.tile(contents[:1], (PROMPTS, 1)))
    return {
        "error": float(jnp.sqrt((of_function**2).mean())),
        "by function": np.asarray(of_function).tolist(),
        "apart": float(_apart(y) / _apart(targets)),
        "frozen": _frozen(network, some),
        "spread": spread(network, same_content.inputs),
    }


def _last(examples: Examples, tokens: int) -> Examples:
    return examples._replace(inputs=examples.inputs[:, -tokens:], mask=examples.mask[:, -tokens:])


@measure.register
def _(task: Demonstrated, network: Network, sizes: Sizes, key: Array) -> dict[str, Any]:
    longest = Demonstrated(family=task.family, demonstrations=max(UNSEEN_COUNTS))
    by_count: dict[str, float] = {}
    references: dict[str, dict[str, float]] = {"nearest": {}, "least squares": {}}
    for count in (*COUNTS, *UNSEEN_COUNTS):
        examples = longest.draw_shown(jax.random.fold_in(key, count), TESTED, count)
        # Mixing by attention or convolution has no parameters for a length, the others have none beyond their own.
        anyhow = sizes.kind in (*MOVING, "convolution") and count > task.demonstrations
        read = examples if anyhow else _last(examples, task.tokens)
        by_count[str(count)] = float(error(outputs(network, read), examples))
        for name, method in (("nearest", nearest), ("least squares", least_squares)):
            references[name][str(count)] = float(error(method(examples), examples))
    trained = task.draw(jax.random.fold_in(key, 0), TESTED)
    whole = task.draw_shown(key, MEAN_OF, task.demonstrations)
    return {
        "error": by_count[str(task.demonstrations)],
        "by count": by_count,
        "references": references,
        "trained": float(error(outputs(network, trained), trained)),
        "frozen": _frozen(network, whole),
        "spread": spread(network, task.other_functions(key, PROMPTS).inputs),
    }
