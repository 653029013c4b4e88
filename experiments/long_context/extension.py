"""Fine-tuning to longer texts: full attention, groups of tokens and LongLoRA's shifted groups."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import optax
from jaxtyping import Array, Float, Int

from duat_jax.evaluation.running_text import token_losses
from duat_jax.models.transformer import Transformer
from experiments.long_context.networks import fit, in_groups
from experiments.lora.tuning import Method, initial, leaves_of, replaced, tuned

FULL, GROUPS, SHIFTED = "full attention", "groups", "shifted groups"
WAYS: dict[str, Callable[..., Transformer]] = {
    FULL: lambda model, group: model,
    GROUPS: partial(in_groups, shifted=False),
    SHIFTED: partial(in_groups, shifted=True),
}
"""From a model and the number of tokens of a group to a model of the same weights whose tokens see fewer others."""
ATTENTION = "q_proj", "k_proj", "v_proj", "o_proj"
ADAPTERS = Method("adapters", (), 8, ATTENTION)
"""LongLoRA's adapters, on the matrices of attention; the embeddings and norms are trained beside them."""


def _beside(model: Transformer) -> dict[str, Array]:
    """Return the parameters that LongLoRA trains as they are: those of embeddings and norms."""
    return {path: leaf for path, leaf in leaves_of(model).items() if ".kernel" not in path}


@partial(jax.jit, static_argnames=("way", "group", "adapters"))
def fine_tune(
    model: Transformer,
    ids: Int[Array, "steps batch tokens"],
    rate: Float[Array, ""],
    *,
    way: str,
    group: int,
    adapters: bool,
) -> Transformer:
    """Return a model, fine-tuned by Adam, that attends to all earlier tokens, whatever it saw in fine-tuning."""
    shape = optax.warmup_cosine_decay_schedule(0.0, 1.0, len(ids) // 10, len(ids))
    rule = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.scale_by_adam(b2=0.98),
        optax.scale_by_schedule(lambda step: -rate * shape(step)),
    )
    start: Any = (initial(model, ADAPTERS, 0), _beside(model)) if adapters else ({}, leaves_of(model))

    def build_model(weights: Any, *, merged: bool) -> Transformer:
        factors, leaves = weights
        changed = replaced(model, leaves)
        return tuned(changed, ADAPTERS, factors, merged=merged) if adapters else changed

    def loss(weights: Any, texts: Array) -> Array:
        return token_losses(WAYS[way](build_model(weights, merged=False), group), texts).mean()

    return build_model(fit(loss, start, ids, rule)[0], merged=True)
