"""The steps that every question about one number of a model shares: read it, and pin what it reads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from duat_jax.errors import DuatError, NotFinite
from duat_jax.forms.pre_activation import UnitsOfTokens
from duat_jax.inputs.baselines import Reference
from duat_jax.inputs.batching import batches, over_rows, row, stack
from duat_jax.inputs.labels import most_probable
from duat_jax.inputs.model_inputs import Inputs, checked_input
from duat_jax.models.config import Config
from duat_jax.models.converted import require_source_agrees
from duat_jax.models.embedding import TokenEmbedding
from duat_jax.models.image_beside_text import widened
from duat_jax.models.sites import HEADS
from duat_jax.models.targets.base import ForwardPass, Reader, Reading, Target, forward
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import alike
from duat_jax.processes import on_host
from duat_jax.transform import marks
from duat_jax.transform.keys import Key, Marked, Site
from duat_jax.transform.stored_program import stored_program

Predicted = tuple[Array | np.ndarray, Array | np.ndarray] | None
"""The most probable outputs and their probabilities, where a model predicts anything."""


@partial(stored_program, static_argnames=("streams",))
def forward_passes(model: Transformer, batch: Inputs, streams: tuple[int, ...] = ()) -> ForwardPass:
    """Return the plain forward passes of a batch: a program of its own, with which parts are compared."""
    return over_rows(lambda inputs: forward(model, inputs, streams), batch)


def embedded(model: Transformer, reference: Reference) -> Float[Array, "tokens features"]:
    """Return the embeddings of a reference input, the vocabulary's mean at the tokens that are averaged."""
    x = reference.inputs.embedded(model)
    if not isinstance(model.embedding, TokenEmbedding):
        return x
    table = alike(model.embedding.token[...], x)
    change = jnp.asarray(model.config.embedding_scale, x.dtype) * (table.mean(0) - table[reference.inputs.given])
    averaged = reference.averaged
    if model.config.beside is not None:  # an image has no vocabulary
        averaged = averaged & (np.arange(len(x)) >= model.config.beside.tokens)
    return jnp.where(averaged[:, None], x + widened(change, x.shape[-1]), x)


def forward_from(
    model: Transformer, x: Float[Array, "tokens features"], real: Shaped[Array, "tokens"], stream: int | None
) -> ForwardPass:
    """Return the forward pass from embeddings, only as far as a target reads it."""
    return passed_on(real, model.states(x, real) if stream is None else model.stream(x, stream, real), stream)


def passed_on(real: Any, states: Float[Array, "tokens features"], stream: int | None) -> ForwardPass:
    """Return the forward pass whose last states are known, as far as a target reads it."""
    return ForwardPass(real, states, {} if stream is None else {stream: states})


def readers_of(model: Transformer, targets: list[Target]) -> list[Reader]:
    """Return what reads targets; another text that several of them compare with is run once."""
    known: dict[bytes, tuple[Array, int]] = {}

    def states(given: np.ndarray) -> tuple[Array, int]:
        if (key := given.tobytes()) not in known:
            text = checked_input(model.config, given, "the other text", [])
            (alone,) = batches([text], model.config.positions, 1)
            known[key] = forward_passes(model, alone.inputs).states[0], len(text.real)
        return known[key]

    return [target.reader(states) for target in targets]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class _ByTheModel(Reader):
    """The reading of a target by the model that is read, whose own states of another text may be a part of it."""

    target: Target
    seen: Reading | None = None

    def read(self, model: Transformer, passed: ForwardPass) -> Reading:
        def states(given: Any) -> tuple[Array, int]:
            other = model.states(model.embed(given))
            return other, len(other)

        reader = self.target.reader(states)
        return (reader if self.seen is None else reader.pinned(self.seen)).read(model, passed)

    def pinned(self, reading: Reading) -> Reader:
        return replace(self, seen=reading)


def reader_of_weights(target: Target) -> Reader:
    """Return what reads a target as a function of a model's weights: nothing that it reads is another model's."""
    if isinstance(target, Reader):
        return target
    if jax.tree_util.all_leaves([target]):
        raise DuatError(
            f"{type(target).__name__} isn't a pytree: put @jax.tree_util.register_dataclass above the class, so that"
            " what it reads can be a function of the weights"
        )
    return _ByTheModel(target)


def read(model: Transformer, reader: Reader, passed: ForwardPass) -> tuple[Reading, Predicted]:
    """Return a target's reading of a forward pass, and the most probable outputs there."""
    kind, place = model.config.head.kind, reader.position
    # One output is a number, not the probability of anything.
    if kind == "hidden" or model.config.head.outputs == 1 or (kind != "classes" and place is None):
        return reader.read(model, passed), None
    state = model.head.pooled(passed.states, passed.real) if kind == "classes" else passed.states[place]
    return reader.read(model, passed), most_probable(model.logits_at(state).values)


def read_targets(model: Transformer, batch: Inputs, targets: list[tuple[Target, ...]]) -> list[tuple[Reading, Any]]:
    """Read targets on a batch by plain forward passes, and bring the readings to the host."""
    each_row = len(targets[0])
    readers = readers_of(model, [target for of_row in targets for target in of_row])
    stacked = [stack(readers[k::each_row]) for k in range(each_row)]
    streams = tuple(sorted({target.stream for target in targets[0] if target.stream is not None}))
    passed = forward_passes(model, batch, streams)
    require_source_agrees(model, batch, lambda: passed.states)
    return on_host(_read_all(model, stacked, passed))


def read_target(model: Transformer, inputs: Inputs, target: Target) -> tuple[Reading, Predicted]:
    """Read one target on one input by a plain forward pass."""
    (alone,) = batches([inputs], model.config.positions, 1)
    return row(read_targets(model, alone.inputs, [(target,)])[0], 0)


@stored_program
def _read_all(model: Transformer, readers: list[Reader], passed: ForwardPass) -> list[tuple[Reading, Predicted]]:
    return [over_rows(partial(read, model), reader, passed) for reader in readers]


def recomputation(inputs: Inputs, target: Target, reading: Reading) -> Callable[[Transformer], Float[Array, ""]]:
    """Return the function that computes a number by a model: that of a target, about the output that it read."""

    def recompute(model: Transformer) -> Float[Array, ""]:
        (reader,) = readers_of(model, [target])
        return _value(model, reader.pinned(reading), inputs, target.stream)

    return recompute


@partial(stored_program, static_argnames=("stream",))
def _value(model: Transformer, reader: Reader, inputs: Any, stream: int | None) -> Float[Array, ""]:
    streams = () if stream is None else (stream,)
    return reader.read(model, forward(model, inputs, streams)).value


def rows_of_tokens(config: Config, kind: str, parts: Marked[Array], real: Shaped[Array, "tokens"]) -> Marked[Array]:
    """Return the parts that have an axis of tokens, `[tokens, units]`, or of heads `[tokens, heads, head_features]`."""
    if config.marks is None:
        rows = {key: part for key, part in parts.items() if part.ndim > 1 and len(part) == len(real)}
        return Marked({key: part if key.name == HEADS else part.reshape(len(real), -1) for key, part in rows.items()})
    known = {each.site: each for each in config.marks}
    return Marked(
        {
            key: units.by_token(part, real)
            for key, part in parts.items()
            if (units := known.get(Site(kind, key))) is not None
        }
    )


def units_of_tokens(config: Config, terms: tuple[Key, ...], real: Shaped[Array, "tokens"]) -> UnitsOfTokens:
    """Return how the neurons of terms lie that have some of every token."""
    if config.marks is None:
        return UnitsOfTokens(terms)
    known = {each.site.key: each for each in config.marks if each.site.kind == marks.ACTIVATION}
    return UnitsOfTokens(
        terms,
        lambda key, array: known[key].by_token(array, real),
        lambda key, rows: known[key].as_they_lie(rows, real),
    )


def require_finite(label: str, numbers: Mapping[str, float], remedy: str) -> None:
    """Raise if a number is NaN or infinite."""
    if wrong := [f"{number} {place}" for place, number in numbers.items() if not np.isfinite(number)]:
        raise NotFinite(f"the {label} is {' and '.join(wrong)}: {remedy}")
