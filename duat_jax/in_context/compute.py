"""Exact decomposition of the effect of a part of a text, such as demonstrations, on the log-probability of the answer.

Two runs are compared. Either both read the same text, and in the second one nothing after the part attends to it: no
input changes, because the part is masked and not removed. Or the second run has another part of as many tokens in its
place, such as the same demonstrations with their answers exchanged: inputs and parameters both change.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from duat_jax.errors import InvalidInput, NotFinite
from duat_jax.forms.secant import Secant, notes_of
from duat_jax.forms.split import Split, split_between
from duat_jax.in_context.parameters import moved_form
from duat_jax.in_context.result import Ledger
from duat_jax.in_context.runs import LayerReads, Task, mean_log_probabilities, mean_log_probability, number, readings
from duat_jax.inputs.batching import bucket
from duat_jax.interpret.contrast.compute import HEADS
from duat_jax.models.config import Config
from duat_jax.models.layout import NO_LAYERS
from duat_jax.models.sites import PATTERN
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import require_loaded
from duat_jax.nn.attention import LONGEST_STORED, Attention
from duat_jax.nn.position import Rotary
from duat_jax.processes import on_host
from duat_jax.transform import marks
from duat_jax.transform.keys import Key, Marked
from duat_jax.transform.stored_program import stored_program

SHORTEST = 32
"""Minimum padded length in tokens, so that one compiled program serves all short texts."""

SOFT_CAP = "attention.soft_cap"
"""The soft cap of attention scores; like the pattern it has an axis of heads before that of the queries."""

LOGITS_CAP = "head.soft_cap"
"""The soft cap of the logits; its first axis is that of the read positions, not of the tokens."""

AT_ONCE = 10
"""Number of runs of the model in one batch."""


class _LedgerParts(NamedTuple):
    inputs: Float[Array, "tokens"]
    within: Marked[Float[Array, ""]]
    patterns: Float[Array, "layers heads tokens"]
    held: Marked[Float[Array, ""]]
    heads: Float[Array, "layers heads"]


class _Splits(NamedTuple):
    """The plain values of both runs, and their difference over parameters and over what each layer reads."""

    values: Float[Array, "two"]
    parameters: Split
    reads: Split


@stored_program
def _split(model: Transformer, task: Task) -> _Splits:
    runs, reading = readings(model, task), partial(number, model, task)

    def parts_of(secant: Secant) -> _LedgerParts:
        moved, points = secant.moved, secant.contributions.points
        within = {key: jnp.where(_at_tokens(key, part, task.hidden), part, 0) for key, part in moved.items()}
        after, after_part = {key: part - within[key] for key, part in moved.items()}, ~task.hidden[:, None, None]
        return _LedgerParts(
            jnp.zeros(len(task.ids)) if task.other is None else secant.parts.sum(-1),
            Marked({key: part.sum() for key, part in within.items()}),
            jnp.stack([part.sum(-2) for key, part in after.items() if key.name == PATTERN]),
            Marked({key: part.sum() for key, part in after.items() if key.name != PATTERN}),
            jnp.stack(
                [jnp.where(after_part, part, 0).sum((0, -1)) for key, part in points.items() if key.name == HEADS]
            ),
        )

    def reads_of(secant: Secant) -> Array:
        def of_layer(i: int) -> Array:
            in_layer = (part for name, part in secant.discontinuities.items() if name.startswith(f"layers.{i}:"))
            return sum(in_layer, start=jnp.zeros((), secant.values[0].dtype))

        return secant.parts.streams.sum((1, 2)) + jnp.stack([of_layer(i) for i in range(len(model.stack.blocks))])

    def of_text(x0: Array) -> Array:
        return mean_log_probability(model, model.states(x0), task)

    between = partial(split_between, parts_of=parts_of, at=marks.POINT, held=True)
    if task.other is None:
        parameters = between(reading)(*runs)
    else:
        parameters = between(of_text)(model.embed(task.ids), model.embed(task.other))
    return _Splits(mean_log_probabilities(model, task), parameters, split_between(reading, reads_of)(*runs))


def _at_tokens(key: Key, part: Array, tokens: Array) -> Array:
    """Return a mask of a parameter's parts at some tokens; the soft cap of the logits belongs to no token."""
    axis = -2 % part.ndim if key.name in (PATTERN, SOFT_CAP) else 0
    chosen = jnp.zeros(part.shape[axis], bool) if key.name == LOGITS_CAP else tokens
    return jnp.expand_dims(chosen, [i for i in range(part.ndim) if i != axis])


@stored_program
def _run_again(model: Transformer, task: Task) -> Float[Array, "two layers"]:
    """Run the model with one layer, or it and all later ones, reading the part as in the second run."""
    runs, layers = readings(model, task), len(model.stack.blocks)
    other = jnp.concatenate([jnp.eye(layers, dtype=bool), jnp.tri(layers, dtype=bool).T])

    def run(other: Array) -> Array:
        def chosen(first: Array, second: Array) -> Array:
            return jnp.where(jnp.expand_dims(other, range(1, first.ndim)), second, first)

        return number(model, task, LayerReads(*map(chosen, *runs)))

    return jax.lax.map(run, other, batch_size=AT_ONCE).reshape(2, layers)


def ledger(
    model: Transformer,
    task: Task,
    *,
    run_again: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Ledger:
    """Decompose the effect of a part of a text on the log-probability of the answers exactly, over changed parameters.

    `f(first run) − f(second run) = ⟨D_0, Δx_0⟩ + Σ ⟨D_m, Δm⟩` over the changed inputs and every dynamic parameter `m`:
    attention patterns, norm scales, gates; `D` is the secant's multiplier with all of them held at their midpoints. If
    the second run hides the part, `Δx_0 = 0` by construction, because the same text is masked. Attention to the hidden
    part is then a changed pattern, and its parts belong to the tokens attended to. If the second run has another text
    (`task.other`), both inputs and parameters change. With nothing held, the same difference is split over the inputs
    that each layer reads from the part.

    Args:
        model: a causal language model.
        task: the text, its part, and the answers after it.
        run_again: whether the model is also run with layers that read the part as in the second run,
            two runs per layer.
        progress: called with the number of steps done and their total number.

    Raises:
        InvalidInput: if the model isn't a causal language model, the text is too long for it, or the other text differs
            from it outside of the part.
        NotFinite: if the log-probability is NaN or infinite.

    Example:
        >>> import duat_jax as duat
        >>> import jax.numpy as jnp
        >>> ids, hidden = jnp.array([5, 6, 7, 6]), jnp.array([False, True, True, False])
        >>> result = ledger(duat.load(), Task(ids, hidden, jnp.array([3]), jnp.array([7])))
        >>> result.patterns.shape, result.completeness.verdict
        ((6, 4, 4), 'holds')

    Source: Wang & Li, Section 4.2, as a sum.
    """
    padded = _padded(model, task)
    tokens = len(task.ids)
    values, by_parameter, by_layer = on_host(_split(model, padded))
    first, second = values
    if not np.isfinite(values).all():
        raise NotFinite(f"the log-probability is {first} in the first run, {second} in the second one")
    if progress is not None:
        progress(1, 3)
    form = on_host(moved_form(model, padded))
    if progress is not None:
        progress(2, 3)

    def difference(model: Transformer) -> Array:
        return jnp.subtract(*mean_log_probabilities(model, padded))

    # The difference is taken from the plain forward passes.
    by_parameter, by_layer = (split.certified(first - second, model, difference) for split in (by_parameter, by_layer))
    parts = by_parameter.parts
    again = layers_again(model, task) if run_again else (None, None)
    if progress is not None:
        progress(3, 3)
    return Ledger(
        values=(float(first), float(second)),
        hidden=np.asarray(task.hidden),
        inputs=None if task.other is None else parts.inputs[:tokens],
        within=Marked({key: float(part) for key, part in parts.within.items()}),
        patterns=parts.patterns[..., :tokens],
        held=Marked({key: float(part) for key, part in parts.held.items()}),
        discontinuities=by_parameter.discontinuities,
        heads=parts.heads,
        reads=by_layer.parts,
        form=form._replace(completeness=form.completeness.certified(model, difference)),
        again_at=again[0],
        again_from=again[1],
        completeness=by_parameter.completeness,
        reads_completeness=by_layer.completeness,
        notes=notes_of(by_parameter.unrecognised | by_layer.unrecognised),
    )


def layers_again(model: Transformer, task: Task) -> tuple[Float[np.ndarray, "layers"], Float[np.ndarray, "layers"]]:
    """Measure the loss of log-probability when layers read the part as in the second run."""
    padded = _padded(model, task)
    first, without = on_host((mean_log_probabilities(model, padded)[0], _run_again(model, padded)))
    return first - without[0], first - without[1]


def _padded(model: Transformer, task: Task) -> Task:
    """Validate a task and pad its text to one of a few lengths, so that few programs are compiled."""
    require_loaded(model)
    task = jax.tree.map(jnp.asarray, task)
    check(model.config, task)
    tokens = len(task.ids)
    length = min(max(SHORTEST, bucket(tokens, LONGEST_STORED)), model.config.positions)
    if any(rotary.longer is not None for rotary in _rotaries(model)):  # whose angles depend on the text's length
        length = tokens
    padding = (0, length - tokens)
    ids, hidden = jnp.pad(task.ids, padding), jnp.pad(task.hidden, padding)
    return task._replace(ids=ids, hidden=hidden, other=None if task.other is None else jnp.pad(task.other, padding))


def _rotaries(model: Transformer) -> list[Rotary]:
    attentions = [module for _, module in nnx.iter_graph(model) if isinstance(module, Attention)]
    return [module.rotary for module in attentions if module.rotary is not None]


def model_problems(config: Config) -> list[str]:
    """Return an error message if a model can't learn in context."""
    if config.marks is not None:
        return [NO_LAYERS]
    if config.head.kind == "next token" and all(block.causal for block in config.blocks):
        return []
    return ["in-context learning needs a causal language model: load one"]


def check(config: Config, task: Task) -> None:
    """Validate a task, before a model is loaded."""
    tokens, problems = len(task.ids), model_problems(config)
    longest = min(LONGEST_STORED, config.positions)
    if not 0 < tokens <= longest:
        problems.append(f"the text has {tokens} tokens: give 1 to {longest}, whose patterns are stored")
    vocab, places, answers = config.vocab, np.asarray(task.places), np.asarray(task.answers)
    if not 0 < len(places) == len(answers):
        problems.append(
            f"there are {len(places)} places and {len(answers)} answers: give one answer per place, at least one"
        )
    if ((places < 0) | (places >= tokens)).any():
        problems.append(f"places must be from 0 to {tokens - 1}, the text's last token")
    elif np.asarray(task.hidden)[places].any():
        problems.append("a place is in the hidden part: give places after it")
    other = np.asarray(task.ids if task.other is None else task.other)
    if other.shape != (tokens,):
        problems.append(f"the text has {tokens} tokens, the other one {len(other)}: give two of one length")
    elif (other != np.asarray(task.ids))[~np.asarray(task.hidden)].any():
        problems.append("the other text differs outside of the hidden part: give the same tokens there")
    if any(((ids < 0) | (ids >= vocab)).any() for ids in (np.asarray(task.ids), other, answers)):
        problems.append(f"tokens and answers must be token ids from 0 to {vocab - 1}")
    if problems:
        raise InvalidInput("; ".join(problems))
