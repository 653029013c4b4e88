"""The training that is followed, and the numbers by which its states are measured, as functions of the weights."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float

from duat_jax.evaluation.running_text import token_losses
from duat_jax.models.transformer import Transformer
from duat_jax.training import Run
from duat_jax.training.over_weights.compute import Number
from duat_jax.training.update import Weights
from experiments.emergence.texts import Sizes, Texts
from training.train import CONFIG, optimizer

TRAINED_ON, HELD_OUT, REPETITION = FOLLOWED = "trained-on text", "held-out text", "repetition"
"""The numbers whose change is split."""
COPY, OWN = "copy after another text", "the step's own batch"
"""A number that is measured beside them, and the loss that a step lowers."""
WITHOUT, DRAWN, UNCHANGED = "without tokens after one that stands before", "without as many drawn tokens", "unchanged: "
"""The trainings of the first seed beside the one that is followed."""


class Network(NamedTuple):
    """A network before its training.

    Args:
        weights: its first weights.
        model: the Transformer with given weights.
    """

    weights: Weights
    model: Callable[[Weights], Transformer]


def make_network(sizes: Sizes, seed: int) -> Network:
    """Return a network of the embedded model's shape with random first weights."""
    block = replace(CONFIG.blocks[0], features=sizes.features, heads=sizes.heads, neurons=4 * sizes.features)
    config = replace(CONFIG, blocks=(block,) * sizes.layers)
    graph, values = nnx.split(Transformer(config, rngs=nnx.Rngs(seed)))
    return Network(nnx.to_pure_dict(values), lambda weights: nnx.merge(graph, nnx.State(weights)))


def make_run(
    network: Network,
    texts: Texts,
    counted: Bool[np.ndarray, "steps batch predicted"] | None = None,
    frozen: Callable[[str], bool] | None = None,
    *,
    decays: bool = True,
) -> Run:
    """Return the training of a network."""
    steps = len(texts.training)

    def batch(step: int) -> tuple[Array, Array]:
        ids = texts.training[step]
        which = np.ones((len(ids), ids.shape[1] - 1)) if counted is None else counted[step]
        return jnp.asarray(ids), jnp.asarray(which, jnp.float32)

    def terms(weights: Weights, batch: tuple[Array, Array]) -> Float[Array, "batch predicted"]:
        ids, which = batch
        return token_losses(network.model(weights), ids) * which / which.size

    def restored(_: int, weights: Weights) -> Weights:
        def of_leaf(path: Any, first: Array, now: Array) -> Array:
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            return first if frozen is not None and frozen(name) else now

        return jax.tree_util.tree_map_with_path(of_leaf, network.weights, weights)

    return Run(terms, optimizer(steps, decays=decays), batch, steps, None if frozen is None else restored)


def numbers_of(network: Network, texts: Texts) -> dict[str, "Number"]:
    """Return the numbers that are followed, as functions of the weights."""

    def loss(ids: Array, weights: Weights) -> Array:
        return token_losses(network.model(weights), ids).mean()

    copied, shuffled, after_another = map(jnp.asarray, (texts.copied, texts.shuffled, texts.after_another))
    length = texts.copied.shape[1] // 2

    def difference(other: Array, weights: Weights) -> Array:
        model = network.model(weights)
        after_itself, after_other = (token_losses(model, ids)[:, length:].mean() for ids in (copied, other))
        return after_itself - after_other

    return {
        TRAINED_ON: partial(loss, jnp.asarray(texts.trained_on)),
        HELD_OUT: partial(loss, jnp.asarray(texts.held_out)),
        REPETITION: partial(difference, shuffled),
        COPY: partial(difference, after_another),
    }
