"""Training of low-rank adapters on running text, resumable after an interruption."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from duat_jax.errors import DuatError, InvalidInput, NotFinite
from duat_jax.evaluation.journal import fingerprint
from duat_jax.evaluation.running_text import mean_loss, token_losses
from duat_jax.files import path_of, write_file
from duat_jax.json_record import as_record
from duat_jax.lora.adapter import Adapters, adapt, parameters_of
from duat_jax.lora.record import LoraTrainingRecord, PiecesRecord
from duat_jax.models.ids import require_ids
from duat_jax.models.transformer import Transformer
from duat_jax.sealed import seal, unseal_file
from duat_jax.training.next_token import TrainingSettings, optimiser_of, require_enough, rows_of_step

SECONDS = 2.0
"""Interval between saved states, in seconds: the most work that is repeated after a kill, with the same result."""

Weights = dict[str, Any]
"""Trained arrays, by the names of the adapters: `A` and `B`, or weights that replace the model's."""


class MeasuredTraining(NamedTuple):
    """Adapters that were trained on most pieces of a text, and the loss on the others.

    Args:
        adapters: the trained adapters.
        losses: the loss at every step before it, in nats per token.
        pieces: the numbers of pieces that were trained on, and held out.
        held_out_before: the loss on the held-out pieces before the training.
        held_out_after: the same after it.
    """

    adapters: Adapters
    losses: Float[np.ndarray, "steps"]
    pieces: PiecesRecord
    held_out_before: float
    held_out_after: float

    @property
    def parameters(self) -> int:
        """The number of trained parameters."""
        return parameters_of(self.adapters)

    def as_dict(self, **fields: Any) -> dict[str, Any]:
        """Return the result as plain data for JSON, with the fields of `LoraTrainingRecord`.

        Args:
            fields: fields of the record that aren't in the result.
        """
        return as_record(LoraTrainingRecord, self, adapters=list(self.adapters), **fields)


def held_out_of(pieces: Int[np.ndarray, "pieces tokens"], settings: TrainingSettings) -> int:
    """Return how many pieces are held out, a tenth; raise unless there are as many others as a step reads."""
    held_out = max(1, len(pieces) // 10)
    if len(pieces) - held_out < settings.batch:
        raise InvalidInput(
            f"the text has {len(pieces)} pieces of {pieces.shape[1]} tokens, of which {held_out} are held out: give"
            f" more text than that for steps of {settings.batch} pieces, or shorter pieces"
        )
    return held_out


def train_and_measure(
    model: Transformer,
    adapters: Adapters,
    pieces: Int[np.ndarray, "pieces tokens"],
    settings: TrainingSettings,
    *,
    work: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> MeasuredTraining:
    """Train adapters on pieces of text without the last tenth of them, and measure the loss there before and after.

    Args:
        model: a language model.
        adapters: the initial adapters.
        pieces: texts of one length.
        settings: the settings of the training.
        work: a file for the state, as in `train`.
        progress: called with the number of steps done and their total number.
    """
    held_out = held_out_of(pieces, settings)
    trained, losses = train(model, adapters, pieces[:-held_out], settings, work=work, progress=progress)
    before, after = (mean_loss(each, pieces[-held_out:]) for each in (model, adapt(model, trained)))
    return MeasuredTraining(trained, losses, PiecesRecord(len(pieces) - held_out, held_out), before, after)


def train(
    model: Transformer,
    adapters: Adapters,
    ids: Int[np.ndarray, "windows tokens"],
    settings: TrainingSettings,
    *,
    work: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Adapters, np.ndarray]:
    """Train adapters to predict the next token, `min_{A, B} −Σ log p(t_{i+1} | t_1 … t_i)`, with the base model frozen.

    Args:
        model: a language model.
        adapters: the initial adapters.
        ids: texts of one length.
        settings: the settings of the training.
        work: a file for the state, replaced atomically: after an interruption the same call resumes from it, and
            ends with the same numbers. Nothing is stored if absent.
        progress: called with the number of steps done and their total number.

    Returns:
        The trained adapters, and the loss at every step before it, in nats per token.

    Raises:
        InvalidInput: if the model isn't a language model, there are fewer texts than a step takes, an id is outside
            the vocabulary, or the file holds another run's state.
        NotFinite: if the loss isn't finite.

    Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021.
    """
    work = None if work is None else path_of(work, "a file for the state of a training")
    if model.config.head.kind != "next token":
        raise InvalidInput(
            f"a {model.config.family} model with this head doesn't predict the next token: train a language model"
        )
    require_enough(ids, settings)
    require_ids(model.config, {"the text": ids})
    rule = optimiser_of(settings)
    weights: Weights = {name: adapter.trained for name, adapter in adapters.items()}
    state = (weights, rule.init(weights), jnp.zeros(settings.steps))
    run = {"settings": settings._asdict(), "model": fingerprint(model, model.config), "text": fingerprint(ids)}
    run["adapters"] = fingerprint(adapters)
    done, state = (0, state) if work is None else _restored(work, state, run)
    saved = time.monotonic()
    for step in range(done, settings.steps):
        rows = jnp.asarray(ids[rows_of_step(step, len(ids), settings)])
        # Dispatch is asynchronous: a step counts as done once its result is there.
        state = jax.block_until_ready(_step(model, adapters, *state, jnp.asarray(step), rows, settings))
        if progress is not None:
            progress(step + 1, settings.steps)
        if work is not None and (step + 1 == settings.steps or time.monotonic() - saved > SECONDS):
            _keep(work, state, run, step + 1)
            saved = time.monotonic()
    weights, losses = state[0], np.asarray(state[2])
    if not np.isfinite(losses).all():
        raise NotFinite(f"the loss is {losses[~np.isfinite(losses)][0]} at a step: choose a lower learning rate")
    return _with(adapters, weights), losses


def _with(adapters: Adapters, weights: Weights) -> Adapters:
    return {name: adapter.with_trained(weights[name]) for name, adapter in adapters.items()}


@partial(jax.jit, static_argnames="settings")
def _step(
    model: Transformer,
    adapters: Adapters,
    weights: Weights,
    state: Any,
    losses: Array,
    step: Array,
    ids: Array,
    settings: TrainingSettings,
) -> tuple[Weights, Any, Array]:
    def loss_of(weights: Weights) -> Array:
        return token_losses(adapt(model, _with(adapters, weights)), ids).mean()

    loss, gradient = jax.value_and_grad(loss_of)(weights)
    updates, state = optimiser_of(settings).update(gradient, state)
    return optax.apply_updates(weights, updates), state, losses.at[step].set(loss.astype(losses.dtype))


def _named(state: Any) -> dict[str, np.ndarray]:
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(state)}


def _keep(file: Path, state: Any, run: dict[str, Any], done: int) -> None:
    write_file(file, seal(_named(state), {"run": run, "done": done}))


def _restored(file: Path, state: Any, run: dict[str, Any]) -> tuple[int, Any]:
    if not file.exists():
        return 0, state
    try:
        head, arrays = unseal_file(file, {"run": run}, "give another file, or remove it")
    except DuatError as error:
        raise InvalidInput(str(error)) from None
    leaves = [jnp.asarray(arrays[name]) for name in _named(state)]
    return head["done"], jax.tree.unflatten(jax.tree.structure(state), leaves)
