"""The identity of context and rank-one updates in every layer, and the closed form beside it."""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from duat_jax.in_context.prompts import draw_question
from duat_jax.models.transformer import Transformer
from duat_jax.nn.block import Block
from duat_jax.transform import marks
from duat_jax.transform.query import pre_activations_of
from duat_jax.transform.recording import record
from experiments.in_context.rank_one import States, moved_pre_activations, run_plainly, update_between, updated_mlp
from experiments.in_context.rank_one_study import DEMONSTRATIONS, LONG, RIGHT, SHORT, Text, padded

if TYPE_CHECKING:
    from tokenizers import Tokenizer

UNRELATED, RANDOM = "unrelated text", "random vectors"
"""Controls in place of the demonstrations."""


@jax.jit
def _errors(model: Transformer, base: States, target: States) -> Float[Array, "layers three"]:
    """Return the errors of updated layers, with dense matrices, and their change, relative to the target."""
    # They are the error of the MLP's output, that of the layer's output, and the change of the MLP's output.

    def of_layer(block: Block, base: States, target: States) -> Array:
        mlp: Any = block.mlp
        update = update_between(base, target, target.stream - base.stream)
        made = updated_mlp(mlp, update)(base.normed[None])[0]
        before, wanted = block.mlp(jnp.stack([base.normed, target.normed]))
        output = target.stream + wanted
        pairs = ((made, wanted), (base.stream + made + update.residual, output), (before, wanted))
        return jnp.stack([jnp.linalg.norm(one - other) / jnp.linalg.norm(other) for one, other in pairs])

    pairs = zip(model.stack.blocks, zip(*base, strict=True), zip(*target, strict=True), strict=True)
    return jnp.stack([of_layer(block, States(*ours), States(*theirs)) for block, ours, theirs in pairs])


def _noise(states: States, seed: int) -> States:
    """Return random states of the same norms in expectation."""
    keys = jax.random.split(jax.random.key(seed), len(states))
    sizes = [jnp.sqrt((layers**2).mean(-1, keepdims=True)) for layers in states]
    return States(
        *(a * jax.random.normal(key, b.shape, b.dtype) for a, b, key in zip(sizes, states, keys, strict=True))
    )


def measure_identity(
    model: Transformer, tokenizer: "Tokenizer", task: str, seed: int, unrelated: Int[np.ndarray, "tokens"]
) -> dict[str, dict[str, float]]:
    """Compare each layer's output with updated weights with that after the demonstrations, at every token asked."""
    question = draw_question(tokenizer, task, DEMONSTRATIONS, seed=seed)
    ids, alone, replaced = question.ids, question.ids[~question.hidden], question.ids.copy()
    replaced[question.hidden] = unrelated[: question.hidden.sum()]
    found: dict[str, list[np.ndarray]] = {RIGHT: [], UNRELATED: [], RANDOM: []}
    for after in range(len(alone) - 1):  # all tokens but the line break, which sees no demonstrations
        base, target, other = (
            run_plainly(model, *padded(text[: len(text) - after], length))[1]
            for text, length in ((alone, SHORT), (ids, LONG), (replaced, LONG))
        )
        for name, wanted in {RIGHT: target, UNRELATED: other, RANDOM: _noise(target, seed + after)}.items():
            found[name].append(np.asarray(_errors(model, base, wanted)))
    return {
        name: {
            "error of the MLP": float(np.max(np.stack(errors)[..., 0])),
            "error of the layer": float(np.max(np.stack(errors)[..., 1])),
            "change": float(np.mean(np.stack(errors)[..., 2])),
        }
        for name, errors in found.items()
    }


class Composed(NamedTuple):
    """The parts of each term's pre-activation in the closed form, at the last token, each `[layers, neurons]`.

    Args:
        question: `W'_{i,2}` on the question's embeddings.
        demonstrations: `W'_{i,2}` on the demonstrations' embeddings.
        bias: `b'_{i,2}`, which has the earlier terms in it.
    """

    question: Float[Array, "layers neurons"]
    demonstrations: Float[Array, "layers neurons"]
    bias: Float[Array, "layers neurons"]


@jax.jit
def compose(model: Transformer, text: Text, demonstrations: Bool[Array, "tokens"]) -> Composed:
    """Return the parts of every term's pre-activation at the last token, from the model's closed form on a text."""
    x = model.embed(text.ids)
    recording = record(lambda x: model.stack(model.first(x)))(x)
    sites = recording.program.of_kind(marks.PRE_ACTIVATION)

    def composed(x: Array) -> Array:
        values = pre_activations_of(recording, [x], {})
        return jnp.stack([values[site][text.last] for site in sites])

    bias, part = composed(jnp.zeros_like(x)), demonstrations[:, None]
    return Composed(composed(jnp.where(part, 0, x)) - bias, composed(jnp.where(part, x, 0)) - bias, bias)


def measure_closed_form(model: Transformer, tokenizer: "Tokenizer", task: str, seed: int) -> dict[str, float]:
    """Compare `ΔA W` with the change of each term's pre-activation in the closed form, split over its parameters."""
    question = draw_question(tokenizer, task, DEMONSTRATIONS, seed=seed)
    with_context, alone = padded(question.ids, LONG), padded(question.ids[~question.hidden], SHORT)
    hidden = jnp.asarray(np.pad(question.hidden, (0, LONG - len(question.hidden))))
    states = [run_plainly(model, *text)[1] for text in (with_context, alone)]
    wanted = np.asarray(moved_pre_activations(model, states[0].normed - states[1].normed), np.float64)
    forms = compose(model, with_context, hidden), compose(model, alone, jnp.zeros(SHORT, bool))
    changes = [
        np.asarray(first, np.float64) - np.asarray(second, np.float64) for first, second in zip(*forms, strict=True)
    ]
    squares = (wanted**2).sum(-1)
    errors = np.sqrt(((sum(changes) - wanted) ** 2).sum(-1) / squares)
    shares = [float(((change * wanted).sum(-1) / squares).mean()) for change in changes]
    return {"error": float(errors.max()), **dict(zip(Composed._fields, shares, strict=True))}
