"""In-context learning as a ledger: what a model says with a part of its text in view, minus what it says without.

The same text stands in both runs.  In one of them nothing after the hidden part attends to it; what the hidden part
itself computes is the same in both.  No input moves, so the whole difference is one of moved parameters.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from duat_jax.analysis.context_form import moved_form
from duat_jax.analysis.context_ledger import PATTERN, Ledger
from duat_jax.analysis.context_runs import Task, number, plainly, streams_of
from duat_jax.errors import BadText, NotFinite
from duat_jax.explanation.batch import bucket
from duat_jax.explanation.contrast import HEADS
from duat_jax.explanation.run import beside
from duat_jax.forms.completeness import Completeness
from duat_jax.forms.secant import secant
from duat_jax.models.transformer import Transformer
from duat_jax.nn.attention import LONGEST_STORED, Attention
from duat_jax.nn.position import Rotary
from duat_jax.transform import marks
from duat_jax.transform.keys import Marked

SHORTEST = 64
"""Shorter texts are padded to so many tokens, so that one program splits them all."""


class _Parts(NamedTuple):
    values: Float[Array, "two"]
    patterns: Float[Array, "layers heads tokens"]
    held: Marked[Float[Array, ""]]
    jumps: dict[str, Float[Array, ""]]
    heads: Float[Array, "layers heads"]
    mask: Float[Array, "layers"]
    completeness: Completeness
    mask_completeness: Completeness


def _of_layer(i: int, jumps: dict[str, Array]) -> Array:
    return jnp.stack([part for name, part in jumps.items() if name.startswith(f"layers.{i}:")]).sum()


@jax.jit
def _split(model: Transformer, task: Task) -> _Parts:
    known = streams_of(model, task.ids)
    seen = jnp.ones((len(model.stack.blocks), len(task.ids)), bool)
    without = seen & ~task.hidden
    fn = partial(number, model, task, known)
    found, flowing = (secant(fn, at=marks.POINT, held=held)(seen, without) for held in (True, False))
    points = found.contributions.points
    return _Parts(
        jnp.stack([plainly(model, task, seen[0]), plainly(model, task, without[0])]),
        jnp.stack([part.sum(-2) for key, part in found.moved.items() if key.name == PATTERN]),
        Marked({key: part.sum() for key, part in found.moved.items() if key.name != PATTERN}),
        found.jumps,
        jnp.stack([part.sum((0, -1)) for key, part in points.items() if key.name == HEADS]),
        jnp.stack([_of_layer(i, flowing.jumps) for i in range(len(model.stack.blocks))]),
        found.completeness,
        flowing.completeness,
    )


@jax.jit
def _run_again(model: Transformer, task: Task) -> Float[Array, "two layers"]:
    """Return the number while one layer doesn't see the part, and while none from it on does."""
    known, layers = streams_of(model, task.ids), len(model.stack.blocks)
    blind = jnp.stack([jnp.eye(layers, dtype=bool), jnp.tri(layers, dtype=bool).T])
    seen = ~(blind[..., None] & task.hidden)
    return jax.lax.map(lambda rows: jax.lax.map(partial(number, model, task, known), rows), seen)


def ledger(
    model: Transformer,
    task: Task,
    *,
    run_again: bool = True,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Ledger:
    """Split what a part of a text adds to the log-probability of what comes after it, exactly, over moved parameters.

    With the same text in both runs `x_0` doesn't move, and `f(seen) − f(hidden) = Σ ⟨D_m, Δm⟩` over every dynamic
    parameter `m`: attention patterns, norm scales, gates; `D` is the secant's multiplier with all of them held at their
    midpoints.  Attention to the hidden part is a moved pattern, and credited to the tokens attended to.  With nothing
    held, and everything flowing, the same difference is one of the masks alone, layer by layer.

    Args:
        model: a causal language model.
        task: the text, its hidden part, and what is asked after it.
        run_again: whether the model is also run with layers that don't see the part, twice as often as it has layers.
        progress: called with the number of steps done so far and that of all.

    Raises:
        BadText: if the model is no causal language model, or the text is too long for it.
        NotFinite: if the number is NaN or infinite.

    Example:
        >>> import duat_jax as duat
        >>> import jax.numpy as jnp
        >>> ids, hidden = jnp.array([5, 6, 7, 6]), jnp.array([False, True, True, False])
        >>> found = ledger(duat.load(), Task(ids, hidden, jnp.array([3]), jnp.array([7])))
        >>> found.patterns.shape, found.completeness.verdict
        ((6, 4, 4), 'holds')

    Source: Wang & Li, Section 4.2, as a sum.
    """
    task = Task(*map(jnp.asarray, task))
    _check(model, task)
    tokens = len(task.ids)
    length = min(max(SHORTEST, bucket(tokens, LONGEST_STORED)), model.config.positions)
    if any(rotary.longer is not None for rotary in _rotaries(model)):  # whose angles depend on the text's length
        length = tokens
    padding = (0, length - tokens)
    padded = task._replace(ids=jnp.pad(task.ids, padding), hidden=jnp.pad(task.hidden, padding))
    parts: Any = jax.device_get(_split(model, padded))
    if not np.isfinite(parts.values).all():
        raise NotFinite(f"the log-probability is {parts.values[0]} with, {parts.values[1]} without the hidden part")
    progress(1, 3)
    form = jax.device_get(moved_form(model, padded))
    progress(2, 3)
    with_part, without = parts.values
    again = with_part - np.asarray(_run_again(model, padded)) if run_again else (None, None)
    progress(3, 3)
    return Ledger(
        values=(float(with_part), float(without)),
        hidden=np.asarray(task.hidden),
        patterns=parts.patterns[..., :tokens],
        held=Marked({key: float(part) for key, part in parts.held.items()}),
        jumps={name: float(part) for name, part in parts.jumps.items()},
        heads=parts.heads,
        mask=parts.mask,
        form=form,
        hidden_at=again[0],
        hidden_from=again[1],
        # The difference is that of the plain forward passes.
        completeness=beside(parts.completeness, with_part - without),
        mask_completeness=beside(parts.mask_completeness, with_part - without),
    )


def _rotaries(model: Transformer) -> list[Rotary]:
    attentions = [one for _, one in nnx.iter_graph(model) if isinstance(one, Attention)]
    return [one.rotary for one in attentions if one.rotary is not None]


def _check(model: Transformer, task: Task) -> None:
    config, tokens = model.config, len(task.ids)
    problems = []
    if config.head.kind != "next token" or not all(block.causal for block in config.blocks):
        problems.append("in-context learning is asked of causal language models: load one")
    longest = min(LONGEST_STORED, config.positions)
    if not 0 < tokens <= longest:
        problems.append(f"the text has {tokens} tokens: give 1 to {longest}, whose patterns are stored")
    vocab, places, answers = config.vocab, np.asarray(task.places), np.asarray(task.answers)
    if not 0 < len(places) == len(answers):
        problems.append(
            f"{len(places)} places and {len(answers)} answers are given: give one answer for each, one at least"
        )
    if ((places < 0) | (places >= tokens)).any():
        problems.append(f"places are counted from 0 to {tokens - 1}, the text's last token")
    elif np.asarray(task.hidden)[places].any():
        problems.append("what is asked stands in the hidden part: ask after it")
    if any(((of < 0) | (of >= vocab)).any() for of in (np.asarray(task.ids), answers)):
        problems.append(f"tokens and answers are token ids from 0 to {vocab - 1}")
    if problems:
        raise BadText("; ".join(problems))
