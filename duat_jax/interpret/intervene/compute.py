"""Intervene: change neurons, heads or streams of a model, run it again, and split the change of a target."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from duat_jax.deprecation import renamed_arguments
from duat_jax.errors import InvalidInput
from duat_jax.forms.decomposition import KINDS
from duat_jax.forms.secant import Secant
from duat_jax.forms.split import Split, split_between
from duat_jax.inputs.batching import bucket, padded
from duat_jax.inputs.labels import Labels, Prediction, labels_of
from duat_jax.inputs.model_inputs import Inputs, OneInput
from duat_jax.inputs.request import check_one
from duat_jax.interpret.intervene.changes import Applied, Change, Source, some
from duat_jax.interpret.intervene.result import Effect, Intervention
from duat_jax.interpret.intervene.slots import Alike, Slots, at_slots, edits_of, marks_alike, slots_of
from duat_jax.interpret.pipeline import (
    Predicted,
    forward_from,
    passed_on,
    read,
    read_target,
    readers_of,
    recomputation,
    require_finite,
)
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.config import Config
from duat_jax.models.targets.base import OneTarget, Reader, Reading, Target
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import require_loaded
from duat_jax.processes import on_host
from duat_jax.transform import marks
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.keys import Site
from duat_jax.transform.query import pull_back, question_of
from duat_jax.transform.recording import record_kinds

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@renamed_arguments(given="inputs")
def intervene(
    model: Transformer,
    inputs: "OneInput",
    changes: Change | Sequence[Change],
    target: "OneTarget" = None,
    *,
    contrast: int | str | None = None,
    against: "OneInput | None" = None,
    position: int | None = None,
    tokenizer: "Tokenizer | None" = None,
) -> Intervention:
    """Change values inside a model, run it again, and split the change of a target over them.

    With changes `m ↦ kept · m + added`, beside what the model says when it is run again stand two columns.
    *Secant*: the difference of the two runs, split exactly by the secant of the function from `kept` and `added` to the
    number, `f(changed) − f(as it is) = Σ D (changed − as it is)`.  *Frozen*: what the table of contributions predicts
    from the run as it is, everything else held, `Σ u (kept · m + added − m)`.

    Args:
        model: a loaded model.
        inputs: a text, with its `tokenizer`; its token ids, `[tokens]`; or a `duat.TokenizedText`. For a vision model
            an image's pixels.
        changes: one or several, of different places: `duat.edits.Neurons(layer, neurons, tokens)`,
            `duat.edits.Heads(layer, heads, tokens)` or `duat.edits.Stream(layers, tokens)`, each with `.set(value)`,
            `.scale(factor)` or `.steer(direction)`.
        target: the explained number: a token, a class or a target, as in `duat.explain`; if
            absent, the most probable output without changes.
        contrast: the token or class whose logit is subtracted.
        against: for an encoder, token ids of the other text.
        position: at which token the logit is read; negative counts from the end.
        tokenizer: makes tokens readable and knows the mask.

    Returns:
        The `Intervention`; it shows itself in a notebook, and `print` shows it in a terminal.

    Raises:
        InvalidInput: for a text that the model can't take, or a change at a place that isn't there, twice at one place,
            or with numbers that don't fit.
        NotFinite: if the number is NaN or infinite with the changes or without.

    Example:
        >>> import duat_jax as duat
        >>> model, tokenizer = duat.load(), duat.load_tokenizer()
        >>> ids = tokenizer.encode("for i in range(10").ids
        >>> off = [duat.edits.Heads(4, 1).set(0), duat.edits.Stream(2, tokens=-1).scale(0.9)]
        >>> found = duat.intervene(model, ids, off, tokenizer.token_to_id("):"), tokenizer=tokenizer)
        >>> found.completeness.verdict, len(found.effects)
        ('holds', 2)
    """
    require_loaded(model)
    checked, metric, given = check(model.config, inputs, changes, target, contrast, against, position, tokenizer)
    applied = [
        each if each.source is None else each.adding(each.source._values(model, checked, each, tokenizer))
        for each in given
    ]
    labels = labels_of(model.config, checked, tokenizer)
    text, stream = padded(checked, bucket(len(checked.real), model.config.positions)), metric.stream
    alike = marks_alike(model.config, model.config.layers if stream is None else stream, applied)

    def run(model: Transformer, *chosen: Applied) -> tuple[Reading, Predicted]:
        """Run the model with chosen changes, and read what was read without any."""
        (reader,) = readers_of(model, [metric])
        slots = slots_of(alike, applied, chosen, len(text.real))
        return on_host(_run(model, reader.pinned(before), text, alike, slots, stream))

    before, predicted = read_target(model, checked, metric)
    changed, changed_predicted = run(model, *applied)
    label = metric.describe(before, labels)
    numbers = {"as it is": float(before.value), "with the changes": float(changed.value)}
    require_finite(label.headline, numbers, "check the model's weights, or change by less")

    def difference(changed: Reading) -> float:
        return float(changed.value) - numbers["as it is"]

    def recompute(model: Transformer) -> Array:
        return run(model, *applied)[0].value - recomputation(text, metric, before)(model)

    def says(predicted: Predicted) -> tuple[Prediction, ...]:
        return () if predicted is None or stream is not None else labels.predictions(*predicted)

    slots = slots_of(alike, applied, applied, len(text.real))
    (reader,) = readers_of(model, [metric])
    split = _split(model, reader.pinned(before), text, alike, slots, before.readout, stream)
    # The difference is that of the plain runs.
    split = split.certified(before.value.dtype.type(difference(changed)), model, recompute)
    parts = split.parts
    return Intervention(
        family=model.config.family,
        tokens=labels.names,
        target=label,
        before=numbers["as it is"],
        after=numbers["with the changes"],
        predictions=says(predicted),
        changed_predictions=says(changed_predicted),
        effects=tuple(
            Effect(
                change=f"{change.name}, {_tokens(change, labels)}: {change.how}",
                tokens=change.tokens,
                units=change.units,
                frozen=_of(change, parts.frozen, alike, slots),
                secant=_of(change, parts.secant, alike, slots),
                alone=difference(changed if len(applied) == 1 else run(model, change)[0]),
            )
            for change in applied
        ),
        discontinuities=split.discontinuities,
        completeness=split.completeness,
        notes=split.notes,
    )


def check(
    config: Config,
    inputs: Any,
    changes: Any,
    target: Any = None,
    contrast: Any = None,
    against: Any = None,
    position: Any = None,
    tokenizer: "Tokenizer | None" = None,
) -> tuple[Inputs, Target, list[Applied]]:
    """Validate the arguments of `intervene`, before a model is loaded."""
    problems: list[str] = []
    request = None
    try:
        request = check_one(config, inputs, target, contrast, against, position, tokenizer)
    except InvalidInput as error:
        problems.append(str(error))
    tokens = len(request[0].real) if request else 0
    layers = config.layers if request is None or request[1].stream is None else request[1].stream
    several = [changes] if isinstance(changes, Change) else changes
    if not isinstance(several, list | tuple) or not several or not all(isinstance(one, Change) for one in several):
        problems.append(
            f"changes are one or several such as duat.edits.Neurons(3, 17).set(0), not {quoted(changes)}:"
            " give at least one"
        )
        several = []
    applied: dict[int, Applied] = {}
    for i, change in enumerate(several):
        found: list[str] = []
        one = change.applied(config, tokens, layers, found)
        if isinstance(change.added, Source) and request is not None:
            change.added._check(config, request[0], one, tokenizer, found)
        problems += [f"change {i}: {problem}" if len(several) > 1 else problem for problem in found]
        if one is None:
            continue
        for k, other in applied.items():
            if other.site == one.site and (other.here & one.here).any():
                problems.append(f"changes {k} and {i} overlap at {one.name}: change each value once")
        applied[i] = one
    if problems or request is None:
        raise InvalidInput("; ".join(problems))
    return *request, list(applied.values())


class _Parts(NamedTuple):
    frozen: list[Float[Array, "slots tokens *shape"]]
    secant: list[Float[Array, "slots tokens *shape"]]


def _states(model: Transformer, real: Any, stream: int | None) -> Callable[[Array], Array]:
    """Return the function from the embeddings to a stream, or to the states of the read-out."""
    return lambda x: forward_from(model, x, real, stream).at(stream)


@partial(jax.jit, static_argnames=("alike", "stream"))
def _run(
    model: Transformer,
    reader: Reader,
    inputs: Inputs,
    alike: tuple[Alike, ...],
    slots: tuple[Slots, ...],
    stream: int | None,
) -> tuple[Reading, Predicted]:
    """Return the target's reading with changes, and the most probable outputs where it reads the last states."""
    states = edit(_states(model, inputs.real, stream), edits_of(alike, slots))
    passed = passed_on(inputs.real, states(model.embed(inputs.given, inputs.segments)), stream)
    return read(model, reader, passed) if stream is None else (reader.read(model, passed), None)


@partial(jax.jit, static_argnames=("alike", "stream"))
def _split(
    model: Transformer,
    reader: Reader,
    inputs: Inputs,
    alike: tuple[Alike, ...],
    slots: tuple[Slots, ...],
    readout: Array,
    stream: int | None,
) -> Split:
    """Split the effect of all changes over every changed value, by the table of contributions and by the secant."""
    x, states = model.embed(inputs.given, inputs.segments), _states(model, inputs.real, stream)
    slots = tuple(Slots(each.marks, jax.tree.map(lambda array: array.astype(x.dtype), each.edits)) for each in slots)
    changes = [each.edits for each in slots]

    def number(changes: list[Edit]) -> Array:
        changed = tuple(Slots(each.marks, edits) for each, edits in zip(slots, changes, strict=True))
        return reader.read(model, passed_on(inputs.real, edit(states, edits_of(alike, changed))(x), stream)).value

    sites = {site: Site(marks.ADDED[site.kind], site.key) for each in alike for site in each.sites}
    recording = record_kinds(states, x, {*KINDS, *(site.kind for site in sites)})
    zeros = {added: jnp.zeros_like(recording.seen[site]) for site, added in sites.items()}
    _, pulled = pull_back(recording, question_of(recording, None, linear=zeros), None, readout, zeros)
    on_marks = {site: pulled[added] for site, added in sites.items()}

    def frozen(each: Alike, slots: Slots) -> Array:
        (kept, added), (seen, on) = slots.edits, (at_slots(each, slots, of) for of in (recording.seen, on_marks))
        return on * ((kept - 1) * seen + added)

    def parts_of(secant: Secant) -> _Parts:
        on_changes = [kept + added for kept, added in secant.parts]
        return _Parts([frozen(*each) for each in zip(alike, slots, strict=True)], on_changes)

    unchanged = [Edit(jnp.ones_like(kept), jnp.zeros_like(added)) for kept, added in changes]
    return split_between(number, parts_of)(changes, unchanged)


def _of(
    change: Applied, parts: list[np.ndarray], alike: tuple[Alike, ...], slots: tuple[Slots, ...]
) -> Float[np.ndarray, "tokens *units"]:
    """Return the parts of one change's values, by token and unit."""
    (kind,) = (kind for kind, each in enumerate(alike) if change.site in each.sites)
    (slot,) = np.flatnonzero(slots[kind].marks == alike[kind].sites.index(change.site))
    part = parts[kind][slot]
    part = part.reshape(*part.shape[: 1 if change.units is None else 2], -1).sum(-1)
    return part[change.chosen]


def _tokens(change: Applied, labels: Labels) -> str:
    if change.every:
        return "every token"
    return labels.place(change.tokens[0]) if len(change.tokens) == 1 else f"tokens {some(change.tokens)}"
