"""Trainings of networks in which a prompt selects the function of a sequence, and their errors."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Key

from duat_jax.papers.networks import NUMBERS, PROMPT_TASKS, PromptNetwork, PromptSizes, drawn
from duat_jax.papers.validation import another_kind, bad_number, many_keys, one_key, refuse, too_small, unknown


def draw_sequences(
    key: Key[Array, ""], number: int, dtype: DTypeLike = jnp.float32
) -> Float[Array, "sequences numbers"]:
    """Draw random sequences of eight numbers, each uniform between −1 and 1.

    Args:
        key: a random key.
        number: number of sequences.
        dtype: their dtype.

    Returns:
        The sequences.

    Raises:
        InvalidInput: if the number isn't a positive integer, or the key isn't one random key.

    Example:
        >>> import duat_jax as duat, jax
        >>> duat.papers.draw_sequences(jax.random.key(0), 3).shape
        (3, 8)
    """
    refuse([*too_small(1, number=number), *one_key(key)])
    return jax.random.uniform(key, (number, NUMBERS), dtype, -1.0, 1.0)


def train_prompted(
    sizes: PromptSizes, keys: Key[Array, "seeds"], *, steps: int, batch: int = 128, rate: float = 3e-3
) -> PromptNetwork:
    """Train networks to compute the function that the prompt selects, `min E ‖y(prompt, x) − f_prompt(x)‖²`, by Adam.

    Every step reads new random sequences and prompts. The learning rate rises over a twentieth of the steps and then
    falls as a cosine.

    Args:
        sizes: the sizes of the networks.
        keys: a random key for each network, such as `jax.random.split(jax.random.key(0), 5)`.
        steps: number of steps.
        batch: number of sequences in a step.
        rate: the highest learning rate.

    Returns:
        The networks as one, whose arrays have an axis of `seeds` first; `jax.tree.map(lambda leaf: leaf[0], networks)`
        is the first.

    Raises:
        InvalidInput: if `sizes` aren't `PromptSizes`, a number isn't positive, the rate is negative or not finite, or
            `keys` is a single key.

    Example:
        >>> import duat_jax as duat, jax
        >>> sizes = duat.papers.PromptSizes(kind="perceptron", task="four functions", layers=1, features=8, neurons=8)
        >>> networks = duat.papers.train_prompted(sizes, jax.random.split(jax.random.key(0), 2), steps=2)
        >>> duat.papers.prompted_outputs(networks, duat.papers.draw_sequences(jax.random.key(1), 3)).shape
        (2, 4, 3, 8)

    Source: Wang & Li, "Dynamic Universal Approximation Theory", Section 2.3 and 4.1: a prompt selects the function.
    """
    wrong = another_kind(PromptSizes, sizes=sizes) + too_small(1, steps=steps, batch=batch)
    refuse(wrong + many_keys(keys) + bad_number(rate=rate))
    with jax.numpy_dtype_promotion("standard"):  # as optax needs it
        return _train(sizes, keys, steps, batch, rate)


@partial(jax.jit, static_argnums=(0, 2, 3))
def _train(sizes: PromptSizes, keys: Array, steps: int, batch: int, rate: float | Array) -> PromptNetwork:
    share = optax.warmup_cosine_decay_schedule(0.0, 1.0, max(1, steps // 20), max(2, steps))
    rule = optax.adam(lambda step: rate * share(step))
    functions = list(PROMPT_TASKS[sizes.task].values())

    def loss(network: PromptNetwork, key: Array) -> Array:
        sequences_key, prompt_key = jax.random.split(key)
        sequences = draw_sequences(sequences_key, batch)
        prompts = jax.random.randint(prompt_key, (batch,), 0, len(functions))
        target = jax.vmap(lambda prompt, x: jax.lax.switch(prompt, functions, x))(prompts, sequences)
        return ((jax.vmap(network)(sequences, prompts) - target) ** 2).mean()

    def step(carried: tuple, key: Array) -> tuple[tuple, None]:
        network, state = carried
        updates, state = rule.update(jax.grad(loss)(network, key), state, network)
        return (optax.apply_updates(network, updates), state), None

    def train_seed(key: Array) -> PromptNetwork:
        weights_key, data_key = jax.random.split(key)
        network = drawn(sizes, weights_key)
        return jax.lax.scan(step, (network, rule.init(network)), jax.random.split(data_key, steps))[0][0]

    return jax.lax.map(train_seed, keys)


def prompted_outputs(
    networks: PromptNetwork, sequences: Float[Array, "sequences numbers"]
) -> Float[Array, "*seeds prompts sequences numbers"]:
    """Compute the outputs of networks for every prompt.

    Args:
        networks: a network, or several as `train_prompted` returns them.
        sequences: the sequences that each reads after each prompt.

    Returns:
        The outputs, without the axis of `seeds` for a single network.

    Raises:
        InvalidInput: if `networks` is no `PromptNetwork`, or sequences don't have eight numbers.

    Example:
        >>> import duat_jax as duat, jax
        >>> sizes = duat.papers.PromptSizes(kind="transformer", task="four functions", layers=1, features=8, neurons=8)
        >>> sequences = duat.papers.draw_sequences(jax.random.key(0), 3)
        >>> duat.papers.prompted_outputs(duat.papers.PromptNetwork(sizes), sequences).shape
        (4, 3, 8)
    """
    require_sequences(sequences, networks)
    if networks.prompt[...].ndim == 2:
        return _outputs(jax.tree.map(lambda leaf: leaf[None], networks), sequences)[0]
    return _outputs(networks, sequences)


@jax.jit
def _outputs(networks: PromptNetwork, sequences: Array) -> Array:
    def of_network(network: PromptNetwork) -> Array:
        over_sequences = jax.vmap(network, (0, None))
        return jax.vmap(over_sequences, (None, 0))(sequences, jnp.arange(len(network.prompt[...])))

    return jax.lax.map(of_network, networks)


def prompted_targets(
    task: str, sequences: Float[Array, "sequences numbers"]
) -> Float[Array, "prompts sequences numbers"]:
    """Compute the target of every prompt, `f_prompt(x)`.

    Args:
        task: a name in `PROMPT_TASKS`.
        sequences: the sequences.

    Returns:
        The targets.

    Raises:
        InvalidInput: if there is no such task, or sequences don't have eight numbers.

    Example:
        >>> import duat_jax as duat, jax.numpy as jnp
        >>> shifted = duat.papers.prompted_targets("eight shifts", jnp.arange(8.0)[None])
        >>> shifted[1, 0].tolist()
        [7.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    """
    refuse(unknown("task", task, PROMPT_TASKS))
    require_sequences(sequences)
    return jnp.stack([jax.vmap(function)(sequences) for function in PROMPT_TASKS[task].values()])


def prompted_errors(
    networks: PromptNetwork, task: str, sequences: Float[Array, "sequences numbers"]
) -> Float[Array, "*seeds prompts"]:
    """Measure the error of networks after every prompt, `√ mean (y − f_prompt(x))²` over sequences and numbers.

    Args:
        networks: a network, or several as `train_prompted` returns them.
        task: the task that they were trained on.
        sequences: the sequences that are tested.

    Returns:
        The error after each prompt.

    Raises:
        InvalidInput: if there is no such task, `networks` is no `PromptNetwork` or has other prompts, or sequences
            don't have eight numbers.

    Example:
        >>> import duat_jax as duat, jax
        >>> sizes = duat.papers.PromptSizes(kind="perceptron", task="four functions", layers=1, features=8, neurons=8)
        >>> sequences = duat.papers.draw_sequences(jax.random.key(0), 100)
        >>> duat.papers.prompted_errors(duat.papers.PromptNetwork(sizes), "four functions", sequences).shape
        (4,)
    """
    target = prompted_targets(task, sequences)
    require_sequences(sequences, networks)
    prompts = networks.prompt[...].shape[-2]
    if len(target) != prompts:
        refuse([f"the networks have {prompts} prompts and {task!r} has {len(target)}: give the task of their training"])
    return root_mean_square(prompted_outputs(networks, sequences) - target)


def blind_errors(task: str, sequences: Float[Array, "sequences numbers"]) -> Float[Array, "prompts"]:
    """Measure the error of the output with the least mean square over all prompts: the mean of their targets.

    `√ mean (Σ_p f_p(x)/n − f_prompt(x))²` over sequences and numbers, with `n` prompts: the output is the same after
    every prompt.

    Args:
        task: a name in `PROMPT_TASKS`.
        sequences: the sequences.

    Returns:
        The error after each prompt.

    Raises:
        InvalidInput: if there is no such task, or sequences don't have eight numbers.

    Example:
        >>> import duat_jax as duat, jax.numpy as jnp
        >>> [round(float(error), 3) for error in duat.papers.blind_errors("four functions", jnp.ones((1, 8)))]
        [1.5, 0.5, 0.5, 0.5]
    """
    target = prompted_targets(task, sequences)
    return root_mean_square(target.mean(0) - target)


def root_mean_square(error: Float[Array, "... sequences numbers"]) -> Float[Array, "..."]:
    """Return the root mean square over sequences and positions."""
    return jnp.sqrt((error**2).mean((-2, -1)))


def require_sequences(sequences: Float[Array, "sequences numbers"], *networks: Any) -> None:
    """Raise unless there are sequences of eight numbers, and `PromptNetwork`s that read them, if any are given."""
    refuse([sentence for network in networks for sentence in another_kind(PromptNetwork, network=network)])
    shape = getattr(sequences, "shape", None)
    if shape is None or len(shape) != 2 or shape[0] < 1 or shape[1] != NUMBERS:
        found = "is no array" if shape is None else f"has the shape [{', '.join(map(str, shape))}]"
        refuse([f"sequences {found}: give [sequences, {NUMBERS}], as draw_sequences does"])
