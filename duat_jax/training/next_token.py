"""The training of a language model on pieces of text, as a `Run`, and the part of every piece's tokens."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from duat_jax.errors import InvalidInput
from duat_jax.evaluation.running_text import stream, token_losses, windows
from duat_jax.models.config import Config
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import require_layers
from duat_jax.training.over_examples.result import Influence
from duat_jax.training.run import Run

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class TrainingSettings(NamedTuple):
    """Settings of a training on pieces of text.

    Args:
        steps: the number of Adam steps, with a learning rate that warms up and decays to zero.
        batch: the number of texts in a step.
        rate: the highest learning rate.
        seed: the seed of the order of the texts.
    """

    steps: int = 100
    batch: int = 8
    rate: float = 1e-3
    seed: int = 0


def require_enough(ids: Int[np.ndarray, "pieces tokens"], settings: TrainingSettings) -> None:
    """Raise unless there are as many pieces as a step reads."""
    if len(ids) < settings.batch:
        raise InvalidInput(
            f"a step needs {settings.batch} texts, and there are {len(ids)}: give more text, or a smaller batch"
        )


def training_pieces(
    config: Config, tokenizer: "Tokenizer", texts: Iterable[str], tokens: int
) -> Int[np.ndarray, "pieces tokens"]:
    """Return texts as pieces of one length, of which a language model is trained to predict the next tokens."""
    require_layers(config)
    if config.head.kind != "next token":
        raise InvalidInput(f"a {config.family} model doesn't predict the next token: give a language model")
    if tokens > config.positions:
        raise InvalidInput(
            f"pieces of {tokens} tokens: the model's context is {config.positions} tokens; give shorter pieces"
        )
    return windows(stream(tokenizer, texts), None, tokens)


def learning_rate(settings: TrainingSettings) -> optax.Schedule:
    """Return the learning rate of every step: it warms up and decays to zero."""
    warm = min(settings.steps // 10, 100)
    return optax.warmup_cosine_decay_schedule(0.0 if warm else settings.rate, settings.rate, warm, settings.steps)


def optimiser_of(settings: TrainingSettings) -> optax.GradientTransformation:
    """Return Adam with clipped gradients and the learning rate of the settings."""
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(learning_rate(settings)))


def rows_of_step(step: int, pieces: int, settings: TrainingSettings) -> Int[np.ndarray, "batch"]:
    """Return the numbers of the pieces that a step reads: every pass has its own random order."""
    of_a_pass = pieces // settings.batch
    order = np.random.default_rng([settings.seed, step // of_a_pass]).permutation(pieces)
    first = step % of_a_pass * settings.batch
    return order[first : first + settings.batch]


def next_token_run(ids: Int[np.ndarray, "pieces tokens"], settings: TrainingSettings) -> Run:
    """Return the training of all weights of a language model on pieces of text."""
    require_enough(ids, settings)

    def terms(model: Transformer, rows: Int[Array, "batch tokens"]) -> Float[Array, "batch predicted"]:
        return token_losses(model, rows) / rows[:, 1:].size

    return Run(
        terms,
        optimiser_of(settings),
        lambda step: jnp.asarray(ids[rows_of_step(step, len(ids), settings)]),
        settings.steps,
    )


def parts_of_pieces(
    influence: Influence, pieces: int, settings: TrainingSettings
) -> tuple[Float[np.ndarray, "pieces predicted"], Int[np.ndarray, "pieces"]]:
    """Return the part of every token of every piece, summed over the steps that read it, and their number."""
    which = np.stack([rows_of_step(step, pieces, settings) for step in range(settings.steps)])
    parts = np.zeros((pieces, influence.examples.shape[-1]))
    np.add.at(parts, which, influence.examples)
    return parts, np.bincount(which.ravel(), minlength=pieces)
