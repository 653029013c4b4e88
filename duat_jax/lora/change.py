"""Exact decomposition of the change of a metric by adapters."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from duat_jax.deprecation import renamed_arguments
from duat_jax.errors import InvalidInput
from duat_jax.forms import decomposition
from duat_jax.forms.completeness import Completeness, completeness_of
from duat_jax.forms.split import Split, first_order, split_between
from duat_jax.inputs.labels import labels_of
from duat_jax.inputs.model_inputs import Inputs, ManyInputs, OneInput
from duat_jax.inputs.question import ask_once
from duat_jax.interpret.many_inputs import answers_each_input
from duat_jax.interpret.pipeline import read, reader_of_weights, readers_of, require_finite
from duat_jax.lora.adapter import Adapters, adapt, changes_table, scaled
from duat_jax.lora.read_out import under_dynamics
from duat_jax.lora.result import AdapterEffect, Columns, LoraChange, MetricParts
from duat_jax.models.targets.base import ForwardPass, OneTarget, Reader, Reading
from duat_jax.models.transformer import Transformer
from duat_jax.models.untied import untied
from duat_jax.models.validation import require_loaded
from duat_jax.processes import on_host
from duat_jax.transform import marks
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.interpret import Seen
from duat_jax.transform.keys import Marked
from duat_jax.transform.recording import record_kinds
from duat_jax.transform.stored_program import stored_program
from duat_jax.weights.number import TextNumber, value_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@renamed_arguments(given="inputs")
@answers_each_input
def lora_change(
    model: Transformer,
    adapters: Adapters,
    inputs: "OneInput | ManyInputs",
    target: "OneTarget" = None,
    *,
    contrast: int | str | None = None,
    against: "OneInput | None" = None,
    position: int | None = None,
    tokenizer: "Tokenizer | None" = None,
) -> LoraChange:
    """Decompose the change of a metric by adapters exactly, over the terms of the closed form and over the adapters.

    The metric is computed from weights `W` and dynamic parameters `d`: attention patterns, norms, gates, and of the
    read-out what depends on the input, such as a soft cap. The base and the adapted run each have their own `W` and
    `d`, which gives four numbers `f(W, d)`, each the sum of its closed form's parts, and

        f(W₁, d₁) − f(W₀, d₀) = [f(W₀, d₁) − f(W₀, d₀)] + [f(W₁, d₀) − f(W₀, d₀)] + rest:

    the base's weights with the adapted run's dynamics, the adapted weights with the base's dynamics, and the
    interaction, part by part. Activations belong to neither: in each of the four they are computed anew. Adapters of
    queries and keys alone are in the first column alone, since with the pattern held they change nothing.

    Over the adapters the same change is split by the secant in their scales, `f(1) − f(0) = Σ_m D_m`. For comparison
    the result has `∂f/∂s_m` at the base, and the change of the model run with each adapter alone.

    Args:
        model: the base model.
        adapters: the adapters, from `new_adapters`, `load_adapters` or `train`.
        inputs: a text; its token ids, `[tokens]`; or a `duat.TokenizedText`. For a vision model
            an image's pixels. Or a list of many.
        target: the metric, as in `duat.explain`; the most probable output of the adapted model if absent.
        contrast: the token or class whose logit is subtracted.
        against: for an encoder, token ids of the other text.
        position: at which token the logit is read; negative counts from the end.
        tokenizer: reads texts and names tokens, in the place of the model's own.

    Returns:
        The `LoraChange`; it shows itself in a notebook, and `print` shows it in a terminal.
        Of many inputs, a list with one for each.

    Raises:
        InvalidInput: if the text or target isn't valid for the model, or there is no adapter.
        DuatError: naming every adapter that doesn't fit the model.
        NotFinite: if the metric isn't finite, with or without the adapters.

    Example:
        >>> import duat_jax as duat
        >>> from flax import nnx
        >>> from duat_jax.models.config import Head
        >>> from duat_jax.lora import new_adapters
        >>> from duat_jax.nn import BlockConfig
        >>> block = BlockConfig(arrangement="pre-norm", features=8, heads=2, neurons=16)
        >>> head = Head(kind="next token", outputs=11, tied=True)
        >>> config = duat.models.Config(family="gpt2", blocks=(block,), vocab=11, positions=8, head=head)
        >>> model = duat.models.Transformer(config, rngs=nnx.Rngs(0))
        >>> change = lora_change(model, new_adapters(model, ["c_fc"], rank=2), [5, 6, 7], target=4)
        >>> change.difference, change.totals
        (0.0, {'moved': 0.0, 'adapter': 0.0, 'interaction': 0.0})

    Source: Wang & Li, Eq. 17 and 18; the split is of two factors, weights and dynamic parameters.
    """
    require_loaded(model)
    if not adapters:
        raise InvalidInput("there is no adapter: give at least one")
    question = ask_once(model, inputs, target, contrast, against, position, tokenizer)
    text, metric = question.input, question.target
    if metric.stream is not None:
        raise InvalidInput("only duat.explain reads targets inside of the model: choose one of the model's outputs")
    labels = labels_of(model.config, text, question.tokenizer)
    if changes_table(model, adapters):
        model = untied(model)
    runs = tuple(adapt(model, scaled(adapters, by)) for by in (0, 1))
    of_base, of_adapted = (readers_of(run, [metric])[0] for run in runs)
    after, predicted_after = _read(runs[1], text, of_adapted)
    readers = of_base.pinned(after), of_adapted.pinned(after)
    before, predicted_before = _read(runs[0], text, readers[0])
    label = metric.describe(on_host(after), labels)
    numbers = {"without adapters": float(before.value), "with them": float(after.value)}
    require_finite(label.headline, numbers, "check the weights of model and adapters")
    difference = after.value - before.value

    readings = {(0, 0): before, (1, 1): after}
    readings |= {(w, d): _read_under(runs[w], runs[d], text, readers[d]) for w, d in ((0, 1), (1, 0))}
    held = [_dynamics(run, text) for run in runs]
    # Weights first, dynamic parameters second.
    corners = {(w, d): on_host(_corner(runs[w], text, held[d], readings[w, d])) for w in (0, 1) for d in (0, 1)}
    columns = _columns(*(corners[at].parts for at in ((0, 0), (0, 1), (1, 0), (1, 1))))
    number = TextNumber(text, reader_of_weights(metric).pinned(after))
    slopes, alone = on_host((_first_order(model, adapters, number), _alone(model, adapters, number)))
    whole = on_host(_closure(difference, columns, list(corners.values())))

    def recompute(both: tuple[Transformer, Adapters]) -> Array:
        base, adapted = (adapt(both[0], scaled(both[1], by)) for by in (0, 1))
        return value_of(adapted, number) - value_of(base, number)

    split = _split(model, adapters, number).certified(difference, (model, adapters), recompute)
    predictions = (predicted_before, predicted_after)
    labelled = [() if pair is None else labels.predictions(*on_host(pair)) for pair in predictions]
    return LoraChange(
        family=model.config.family,
        tokens=labels.names,
        target=label,
        before=numbers["without adapters"],
        after=numbers["with them"],
        predictions=(labelled[0], labelled[1]),
        columns=columns,
        effects=tuple(
            AdapterEffect(
                name,
                float(split.parts[name]),
                float(slopes[name]),
                float(alone[name]) - numbers["without adapters"],
            )
            for name in adapters
        ),
        first_order=float(sum(slopes.values())),
        first_order_held=float(_first_order_held(model, adapters, text, held[0], readers[0])),
        discontinuities=split.discontinuities,
        completeness=whole.certified((model, adapters), recompute),
        corners=tuple(corner.completeness.on_host() for corner in corners.values()),
        by_adapter=split.completeness,
        notes=split.notes,
    )


@stored_program
def _read(model: Transformer, inputs: Inputs, reader: Reader) -> tuple[Reading, Any]:
    """Return the metric and the model's predictions, from the plain forward pass."""
    x, real = inputs.embedded(model), jnp.asarray(inputs.real)
    return read(model, reader, ForwardPass(real, model.states(x, real), {}))


@stored_program
def _read_under(weights: Transformer, dynamics: Transformer, inputs: Inputs, reader: Reader) -> Reading:
    """Return the metric's reading by one run's weights, with what the read-out computes by itself of another run."""
    x, real = inputs.embedded(dynamics), jnp.asarray(inputs.real)
    return reader.read(under_dynamics(weights, dynamics), ForwardPass(real, dynamics.states(x, real), {}))


@stored_program
def _dynamics(model: Transformer, inputs: Inputs) -> Seen:
    """Return all dynamic parameters of a run."""
    real = jnp.asarray(inputs.real)
    return record_kinds(lambda x: model.states(x, real), inputs.embedded(model), (marks.HOLD,)).seen


class _Corner(NamedTuple):
    parts: MetricParts
    completeness: Completeness


def _under(model: Transformer, real: Array, held: Seen) -> Any:
    """Return the function from embeddings to last hidden states with the dynamic parameters of a run held."""
    edits = {site: Edit(jnp.zeros_like(value), value) for site, value in held.items()}
    return edit(lambda x: model.states(x, real), edits)


@stored_program
def _corner(model: Transformer, inputs: Inputs, held: Seen, reading: Reading) -> _Corner:
    """Return the parts of the metric for a model's weights with the dynamic parameters and the reader of a run."""
    x = inputs.embedded(model)
    recording = record_kinds(_under(model, jnp.asarray(inputs.real), held), x, decomposition.KINDS)
    parts = decomposition.contributions(recording, reading.readout)
    terms = Marked({key: part.reshape(-1, part.shape[-1]) for key, part in parts.terms.items()})
    reader = reading.constant if reading.entropy is None else reading.constant - reading.entropy
    return _Corner(MetricParts(parts.input.sum(-1), terms, parts.offsets, reader), parts.completeness)


def _columns(base: MetricParts, moved: MetricParts, adapted: MetricParts, both: MetricParts) -> Columns:
    return Columns(
        base,
        jax.tree.map(np.subtract, moved, base),
        jax.tree.map(np.subtract, adapted, base),
        jax.tree.map(lambda b, m, a, c: (c - m) - (a - b), base, moved, adapted, both),
    )


@stored_program
def _closure(difference: Array, columns: Columns, corners: list[_Corner]) -> Completeness:
    """Return the completeness of the three columns' parts against the difference of the plain forward passes."""
    parts = [jnp.asarray(leaf) for leaf in jax.tree.leaves(columns[1:])]
    rounded = [jnp.asarray(leaf) for leaf in jax.tree.leaves([corner.parts for corner in corners])]
    return completeness_of(difference, parts, rounded)


class _Path(NamedTuple):
    """The model as a function of what adapters move, each one's factor `B` or weights, and both ends of the path."""

    adapted: Callable[[dict[str, Any]], Transformer]
    with_them: dict[str, Any]
    without: dict[str, Any]


def _path(model: Transformer, adapters: Adapters) -> _Path:
    """Return the path from no adapters to all adapters."""

    def adapted(moved: dict[str, Any]) -> Transformer:
        return adapt(model, {name: adapter.with_moved(moved[name]) for name, adapter in adapters.items()})

    without = {name: adapter.without_effect(model).moved for name, adapter in adapters.items()}
    return _Path(adapted, {name: adapter.moved for name, adapter in adapters.items()}, without)


def _by_adapter(parts: dict[str, Any]) -> dict[str, Array]:
    """Return the sum of the parts of every adapter's entries."""
    return {name: sum(part.sum() for part in jax.tree.leaves(each)) for name, each in parts.items()}


# Each is compiled on its own: one program would hold the memory of all three.
@stored_program
def _split(model: Transformer, adapters: Adapters, number: TextNumber) -> Split:
    """Split the metric's change from no adapters to all adapters over these."""
    adapted, *ends = _path(model, adapters)
    return split_between(lambda moved: number(adapted(moved)), lambda secant: _by_adapter(secant.parts))(*ends)


@stored_program
def _first_order(model: Transformer, adapters: Adapters, number: TextNumber) -> dict[str, Array]:
    """Return every adapter's part to first order at the base: the derivative with respect to its scale."""
    adapted, *ends = _path(model, adapters)
    return _by_adapter(first_order(lambda moved: number(adapted(moved)), *ends))


@stored_program
def _first_order_held(model: Transformer, adapters: Adapters, inputs: Inputs, held: Seen, reader: Reader) -> Array:
    """Return the derivative with respect to a common scale at the base, its dynamic parameters held."""
    real = jnp.asarray(inputs.real)
    base = adapt(model, scaled(adapters, 0))

    def number(scale: Array) -> Array:
        changed = adapt(model, scaled(adapters, scale))
        reading, x = _read_under(changed, base, inputs, reader), inputs.embedded(changed)
        return jnp.vdot(reading.readout, _under(changed, real, held)(x)) + reading.constant

    scale = next(iter(adapters.values())).scale
    return jax.jvp(number, (jnp.zeros_like(scale),), (jnp.ones_like(scale),))[1]


@stored_program
def _alone(model: Transformer, adapters: Adapters, number: TextNumber) -> dict[str, Array]:
    """Return the metric with each adapter alone."""
    scales = dict(zip(adapters, jnp.eye(len(adapters), dtype=next(iter(adapters.values())).scale.dtype), strict=True))
    numbers = jax.lax.map(lambda each: number(adapt(model, scaled(adapters, each))), scales)
    return dict(zip(adapters, numbers, strict=True))
