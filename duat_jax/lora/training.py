"""Low-rank adapters trained on running text, the base model as it is; a killed run goes on where it was."""

import json
import os
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
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from duat_jax.errors import BadText, NotFinite
from duat_jax.evaluation.journal import fingerprint
from duat_jax.evaluation.running_text import token_losses
from duat_jax.lora.adapter import Adapters, adapt
from duat_jax.models.transformer import Transformer

SECONDS = 2.0
"""A state that is older than this is written again: so much work is done again after a kill, with the same result."""

Weights = dict[str, tuple[Array, Array]]


class Settings(NamedTuple):
    """How adapters are trained.

    Args:
        steps: how many, by Adam, at a rate that is warmed up and falls to zero.
        batch: texts of a step.
        rate: the highest learning rate.
        seed: in which order the texts come.
    """

    steps: int = 100
    batch: int = 8
    rate: float = 1e-3
    seed: int = 0


def train(
    model: Transformer,
    adapters: Adapters,
    ids: Int[np.ndarray, "windows tokens"],
    settings: Settings,
    *,
    work: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Adapters, Float[np.ndarray, "steps"]]:
    """Train adapters to predict the next token, `min_{A, B} −Σ log p(t_{i+1} | t_1 … t_i)`, all else as it is.

    Args:
        model: a language model.
        adapters: where training begins.
        ids: texts of one length.
        settings: how.
        work: a file in which the state is kept, whole at any moment: after a kill the same call goes on from there, and
            ends with the same numbers. Nothing is kept if absent.
        progress: called with the number of steps done and that of all.

    Returns:
        The trained adapters, and the loss at every step before it, in nats per token.

    Raises:
        BadText: if the model isn't a language model, there are fewer texts than a step takes, or the file holds another
            run's state.
        NotFinite: if the loss isn't.

    Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021.
    """
    if model.config.head.kind != "next token":
        raise BadText(f"a {model.config.family} model with this head predicts no next token: train a language model")
    if len(ids) < settings.batch:
        raise BadText(
            f"{settings.batch} texts make a step, and there are {len(ids)}: give more text, or a smaller batch"
        )
    rule = _rule(settings)
    weights: Weights = {name: (one.down, one.up) for name, one in adapters.items()}
    state = (weights, rule.init(weights), jnp.zeros(settings.steps))
    run = {"settings": settings._asdict(), "model": fingerprint(model, model.config), "text": fingerprint(ids)}
    run["adapters"] = fingerprint(adapters)
    done, state = (0, state) if work is None else _restored(work, state, run)
    saved = time.monotonic()
    for step in range(done, settings.steps):
        rows = jnp.asarray(ids[_rows(step, len(ids), settings)])
        # Steps that were only asked for aren't done.
        state = jax.block_until_ready(_step(model, adapters, *state, jnp.asarray(step), rows, settings))
        progress(step + 1, settings.steps)
        if work is not None and (step + 1 == settings.steps or time.monotonic() - saved > SECONDS):
            _keep(work, state, run, step + 1)
            saved = time.monotonic()
    weights, losses = state[0], np.asarray(state[2])
    if not np.isfinite(losses).all():
        raise NotFinite(f"the loss is {losses[~np.isfinite(losses)][0]} at a step: take a lower learning rate")
    return _with(adapters, weights), losses


def _rule(settings: Settings) -> optax.GradientTransformation:
    warm = min(settings.steps // 10, 100)
    rate = optax.warmup_cosine_decay_schedule(0.0 if warm else settings.rate, settings.rate, warm, settings.steps)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))


def _with(adapters: Adapters, weights: Weights) -> Adapters:
    return {name: one._replace(down=weights[name][0], up=weights[name][1]) for name, one in adapters.items()}


def _rows(step: int, windows: int, settings: Settings) -> np.ndarray:
    """Return which texts a step reads: every pass over them has an order of its own."""
    of_a_pass = windows // settings.batch
    order = np.random.default_rng([settings.seed, step // of_a_pass]).permutation(windows)
    first = step % of_a_pass * settings.batch
    return order[first : first + settings.batch]


@partial(jax.jit, static_argnames="settings")
def _step(
    model: Transformer,
    adapters: Adapters,
    weights: Weights,
    state: Any,
    losses: Array,
    step: Array,
    ids: Array,
    settings: Settings,
) -> tuple[Weights, Any, Array]:
    def loss_of(weights: Weights) -> Array:
        return token_losses(adapt(model, _with(adapters, weights)), ids).mean()

    loss, gradient = jax.value_and_grad(loss_of)(weights)
    updates, state = _rule(settings).update(gradient, state)
    return optax.apply_updates(weights, updates), state, losses.at[step].set(loss.astype(losses.dtype))


def _named(state: Any) -> dict[str, np.ndarray]:
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(state)}


def _keep(file: Path, state: Any, run: dict[str, Any], done: int) -> None:
    """Write the state beside the file and put it in its place at once: a kill leaves the old one or the new one."""
    temporary = file.with_name(file.name + ".part")
    with temporary.open("wb") as opened:
        opened.write(save(_named(state), metadata={"run": json.dumps(run), "done": str(done)}))
        opened.flush()
        os.fsync(opened.fileno())
    temporary.replace(file)


def _restored(file: Path, state: Any, run: dict[str, Any]) -> tuple[int, Any]:
    if not file.exists():
        return 0, state
    try:
        with safe_open(file, framework="np") as opened:
            metadata = opened.metadata() or {}
            if metadata.get("run") != json.dumps(run):
                raise BadText(f"{file} holds another run than this one: give another file, or remove it")
            leaves = [jnp.asarray(opened.get_tensor(name)) for name in _named(state)]
    except (SafetensorError, OSError) as error:
        raise BadText(f"{file} is no state of a training ({error}): give another file") from None
    return int(metadata["done"]), jax.tree.unflatten(jax.tree.structure(state), leaves)
