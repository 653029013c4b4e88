"""Measurements of one trained network on prompts of all tasks."""

from functools import partial, singledispatch
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from experiments.generalization.frozen import frozen, spread
from experiments.generalization.networks import WHOLE, Network, Sizes
from experiments.generalization.plan import SEEDS, TESTED
from experiments.generalization.tasks import CONTENT, Demonstrated, Examples, Named, least_squares, nearest
from experiments.generalization.training import error, outputs
from experiments.study import Row

CONTENTS, PROMPTS = 16, 16
"""The numbers of contents, and of prompts before each, that are taken apart."""
COUNTS, UNSEEN_COUNTS = (1, 2, 4, 8, 16), (24, 32)
"""The numbers of demonstrations of trained prompts, and of prompts longer than all of them."""


def key_of_tests() -> Array:
    """Return the key of the examples that errors are taken on."""
    return jax.random.key(SEEDS + 2)


def _apart(y: Float[Array, "functions contents outputs"]) -> Array:
    """Return the root mean square of the difference of two functions' outputs for the same content."""
    return jnp.sqrt(2 * y.var(0, ddof=1).mean())


@singledispatch
def measured(task: Any, sizes: Sizes, network: Network) -> Row:
    """Measure the errors of a network."""
    raise TypeError(f"there are no measurements of {task!r}")


@measured.register
def _(task: Named, sizes: Sizes, network: Network) -> Row:
    contents = jax.random.uniform(key_of_tests(), (TESTED // task.functions, CONTENT), minval=-1.0)
    functions = jnp.repeat(jnp.arange(task.functions), len(contents))
    examples = task.named(functions, jnp.tile(contents, (task.functions, 1)))
    by_function = (task.functions, len(contents), CONTENT)
    y, targets = outputs(network, examples).reshape(by_function), examples.targets.reshape(by_function)
    of_function = jnp.sqrt(((y - targets) ** 2).mean((1, 2)))
    rarest = jnp.argsort(task.shares())[: max(2, task.functions // 4)]
    return {
        "error": float(jnp.sqrt((of_function**2).mean())),
        "by function": np.asarray(of_function).tolist(),
        "distance": float(_apart(y) / _apart(targets)),
        "distance of rarest": float(_apart(y[rarest]) / _apart(targets[rarest])),
    }


def _last(examples: Examples, tokens: int) -> Examples:
    return examples._replace(inputs=examples.inputs[:, -tokens:], mask=examples.mask[:, -tokens:])


def _demonstrations(task: Demonstrated, count: int) -> Examples:
    # The same functions, questions and demonstrations at every count, of which some are absent.
    longest = Demonstrated(family=task.family, demonstrations=max(UNSEEN_COUNTS))
    return longest.draw_with(key_of_tests(), TESTED, count)


@measured.register
def _(task: Demonstrated, sizes: Sizes, network: Network) -> Row:
    row = {}
    for count in (*COUNTS, *UNSEEN_COUNTS):
        examples = _demonstrations(task, count)
        any_length = sizes.kind not in (*WHOLE, "perceptron", "fixed pattern") and count > task.demonstrations
        read = examples if any_length else _last(examples, task.tokens)
        row[f"after {count}"] = float(error(outputs(network, read), examples))
    trained = task.draw(jax.random.fold_in(key_of_tests(), 0), TESTED)
    return {
        "error": row[f"after {task.demonstrations}"],
        **row,
        "as in training": float(error(outputs(network, trained), trained)),
    }


def references(task: Demonstrated) -> list[Row]:
    """Return the errors of the nearest demonstration's value and of least squares by number of demonstrations."""
    return [
        {"reference": name}
        | {
            f"after {count}": float(error(method(examples), examples))
            for count in (*COUNTS, *UNSEEN_COUNTS)
            for examples in [_demonstrations(task, count)]
        }
        for name, method in (("nearest", nearest), ("least squares", least_squares))
    ]


def prompts_before(task: Named | Demonstrated, key: Array) -> Examples:
    """Return prompts of several functions before each of several contents, `[contents, prompts, ...]`."""
    keys = jax.random.split(key, CONTENTS)
    if isinstance(task, Demonstrated):
        return jax.vmap(lambda key: task.other_functions(key, PROMPTS))(keys)
    contents = jax.random.uniform(key, (CONTENTS, 1, CONTENT), minval=-1.0)
    functions = jax.random.permutation(key, task.functions)[:PROMPTS]
    repeated = jnp.broadcast_to(contents, (CONTENTS, len(functions), CONTENT))
    return jax.vmap(task.named, (None, 0))(functions, repeated)


def dissected(task: Named | Demonstrated, sizes: Sizes, network: Network) -> Row:
    """Measure also what moves with the prompt, and the error with each group of parameters frozen at its mean."""
    examples = prompts_before(task, key_of_tests())
    of_groups = {
        "none": jax.vmap(partial(outputs, network))(examples),
        **jax.vmap(partial(frozen, network))(examples.inputs),
    }
    return {
        **measured(task, sizes, network),
        **{f"frozen: {group}": float(error(y, examples)) for group, y in of_groups.items()},
        **{f"movement of {symbol}": of for symbol, of in spread(network, examples.inputs[0]).items()},
    }
