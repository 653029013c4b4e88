"""Intervene: edit neurons, heads or streams of a model, run it again, and split the change of a target."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

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
from duat_jax.inputs.model_inputs import Inputs, ManyInputs, OneInput
from duat_jax.inputs.question import Question, ask_once
from duat_jax.interpret.intervene.places import Editable, Selected, some
from duat_jax.interpret.intervene.result import Effect, Intervention
from duat_jax.interpret.intervene.slots import Slots, at_marks, filled, slot_of, slots_of
from duat_jax.interpret.intervene.sources import SCALED, SET, STEERED, ValueSource
from duat_jax.interpret.many_inputs import answers_each_input
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
from duat_jax.models.tokenizer import tokenizer_of
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import require_loaded
from duat_jax.processes import on_host
from duat_jax.transform import marks
from duat_jax.transform.editing import Edit, edit, run_again
from duat_jax.transform.keys import Site
from duat_jax.transform.query import pull_back, question_of
from duat_jax.transform.recording import record_kinds
from duat_jax.transform.stored_program import stored_program

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@renamed_arguments(given="inputs", changes="edits")
@answers_each_input
def intervene(
    model: Transformer,
    inputs: "OneInput | ManyInputs",
    edits: Edit | Sequence[Edit],
    target: "OneTarget" = None,
    *,
    contrast: int | str | None = None,
    against: "OneInput | None" = None,
    position: int | None = None,
    tokenizer: "Tokenizer | None" = None,
) -> Intervention:
    """Edit values inside a model, run it again, and split the change of a target over the edits.

    With edits `m ↦ kept · m + added`, beside what the model says when it is run again stand two columns.
    *Secant*: the difference of the two runs, split exactly by the secant of the function from `kept` and `added` to the
    number, `f(edited) − f(as it is) = Σ D (edited − as it is)`.  *Frozen*: what the table of contributions predicts
    from the run as it is, everything else held, `Σ u (kept · m + added − m)`.

    Args:
        model: a loaded model.
        inputs: a text; its token ids, `[tokens]`; or a `duat.TokenizedText`. For a vision model
            an image's pixels. Or a list of many.
        edits: one or several, of different values: `duat.edits.Neurons(layer, neurons, tokens)`,
            `duat.edits.Heads(layer, heads, tokens)` or `duat.edits.Stream(layers, tokens)`, each with `.set(value)`,
            `.scale(factor)` or `.steer(direction)`.
        target: the explained number: a token, a class or a target, as in `duat.explain`; if
            absent, the most probable output without edits.
        contrast: the token or class whose logit is subtracted.
        against: for an encoder, token ids of the other text.
        position: at which token the logit is read; negative counts from the end.
        tokenizer: reads texts and names tokens, in the place of the model's own.

    Returns:
        The `Intervention`; it shows itself in a notebook, and `print` shows it in a terminal.
        Of many inputs, a list with one for each.

    Raises:
        InvalidInput: for a text that the model can't take, or an edit of values that aren't there, twice of one value,
            or with numbers that don't fit.
        NotFinite: if the number is NaN or infinite with the edits or without.

    Example:
        >>> import duat_jax as duat
        >>> model = duat.load()
        >>> ids = model.tokenizer.encode("for i in range(10").ids
        >>> off = [duat.edits.Heads(4, 1).set(0), duat.edits.Stream(2, tokens=-1).scale(0.9)]
        >>> found = duat.intervene(model, ids, off, model.tokenizer.token_to_id("):"))
        >>> found.completeness.verdict, len(found.effects)
        ('holds', 2)
    """
    require_loaded(model)
    tokenizer = tokenizer_of(model, tokenizer, inputs)
    checked, metric, given = check(model, inputs, edits, target, contrast, against, position, tokenizer)
    known = [_with_values(each, model, checked, tokenizer) for each in given]
    labels = labels_of(model.config, checked, tokenizer)
    text, stream = padded(checked, bucket(len(checked.real), model.config.positions)), metric.stream
    layers = model.config.layers if stream is None else stream
    slots = slots_of(model.config, layers, [each.place for each in known])
    before, predicted = read_target(model, checked, metric)

    def pinned(model: Transformer) -> Reader:
        """Return what reads what was read without edits."""
        (reader,) = readers_of(model, [metric])
        return reader.pinned(before)

    def run(model: Transformer, chosen: list[Edit]) -> tuple[Reading, Predicted]:
        """Run the model with some of the edits."""
        values = filled(slots, chosen, len(text.real))
        return on_host(_run(model, pinned(model), text, slots, values, stream))

    after, predicted_after = run(model, known)
    label = metric.describe(before, labels)
    numbers = {"as it is": float(before.value), "with the edits": float(after.value)}
    require_finite(label.headline, numbers, "check the model's weights, or edit by less")

    def recompute(model: Transformer) -> Array:
        return run(model, known)[0].value - recomputation(text, metric, before)(model)

    def predictions(predicted: Predicted) -> tuple[Prediction, ...]:
        return () if predicted is None or stream is not None else labels.predictions(*predicted)

    values = filled(slots, known, len(text.real))
    split = _split(model, pinned(model), text, slots, values, before.readout, stream)
    # The difference is that of the plain runs.
    difference = float(after.value) - float(before.value)
    split = split.certified(before.value.dtype.type(difference), model, recompute)

    def effect(written: Edit, edit: Edit) -> Effect:
        """Return the effect of one edit, as it was written and with its values."""
        kind, slot = slot_of(slots, edit.place)
        frozen, secant = (_at(edit.place, parts[kind][slot]) for parts in split.parts)
        alone = after if len(known) == 1 else run(model, [edit])[0]
        return Effect(
            edit=_described(written, labels),
            tokens=edit.place.tokens,
            units=edit.place.units,
            frozen=frozen,
            secant=secant,
            alone=float(alone.value) - float(before.value),
        )

    return Intervention(
        family=model.config.family,
        tokens=labels.names,
        target=label,
        before=float(before.value),
        after=float(after.value),
        predictions=predictions(predicted),
        changed_predictions=predictions(predicted_after),
        effects=tuple(map(effect, given, known)),
        discontinuities=split.discontinuities,
        completeness=split.completeness,
        notes=split.notes,
    )


def check(
    model: Any,
    inputs: Any,
    edits: Any,
    target: Any = None,
    contrast: Any = None,
    against: Any = None,
    position: Any = None,
    tokenizer: "Tokenizer | None" = None,
) -> tuple[Inputs, Target, list[Edit]]:
    """Validate the arguments of `intervene`, before a model is loaded; each edit's place is then a `Selected`."""
    problems: list[str] = []
    question = None
    try:
        question = ask_once(model, inputs, target, contrast, against, position, tokenizer)
    except InvalidInput as error:
        problems.append(str(error))
    several = [edits] if isinstance(edits, Edit) else edits
    if (
        not isinstance(several, list | tuple)
        or not several
        or not all(isinstance(each, Edit) and isinstance(each.place, Editable) for each in several)
    ):
        problems.append(
            f"edits are one or several such as duat.edits.Neurons(3, 17).set(0), not {quoted(edits)}: give at least one"
        )
        several = []
    checked: dict[int, Edit] = {}
    for i, each in enumerate(several):
        wrong: list[str] = []
        selection = _checked(each, model.config, question, wrong)
        problems += [f"edit {i}: {problem}" if len(several) > 1 else problem for problem in wrong]
        if selection is None:
            continue
        problems += [
            f"edits {k} and {i} overlap at {selection.name}: edit each value once"
            for k, other in checked.items()
            if selection.overlaps(other.place)
        ]
        checked[i] = each._replace(place=selection)
    if problems or question is None:
        raise InvalidInput("; ".join(problems))
    return question.input, question.target, list(checked.values())


def _checked(given: Edit, config: Config, question: Question | None, problems: list[str]) -> Selected | None:
    """Return the values that are edited, or nothing where there is a problem with them."""
    real = question.input.real if question else np.zeros(0, bool)
    layers = config.layers if question is None or question.target.stream is None else question.target.stream
    selection = given.place._select(config, real, layers, problems)
    source = given.added if isinstance(given.added, ValueSource) else None
    if source is not None and question is not None:
        source._check(config, question.input, selection, question.tokenizer, problems)
    if selection is None:
        return None
    verb = _verb(given)
    if source is not None and verb != source._verb:
        method = {SET: "set", STEERED: "steer"}[source._verb]
        problems.append(f"{selection.name} can't be {verb} {type(source).__name__}: give it to .{method}")
    for name, number in ((SCALED, given.kept), (verb, given.added if source is None else None)):
        if number is not None:
            _require_fits(number, selection.shape, f"{selection.name}: what it is {name}", problems)
    return selection


def _require_fits(given: Any, shape: tuple[int, ...], what: str, problems: list[str]) -> None:
    """Add a problem if something is no number or array that broadcasts to a shape, or isn't finite."""
    try:
        values = np.asarray(given, float)
        np.broadcast_to(values, shape)
    except (TypeError, ValueError):
        problems.append(f"{what} must be a number, or numbers that broadcast to {list(shape)}, not {quoted(given)}")
        return
    if not np.isfinite(values).all():
        problems.append(f"{what} isn't finite: give numbers that are")


def _with_values(given: Edit, model: Transformer, inputs: Inputs, tokenizer: "Tokenizer | None") -> Edit:
    """Return an edit with the values that its source gives, if it has one."""
    if not isinstance(given.added, ValueSource):
        return given
    return given._replace(added=given.added._values(model, inputs, given.place, tokenizer))


def _verb(given: Edit) -> str:
    """Return what an edit does, before its number in words."""
    if given.added is None:
        return SCALED
    if given.kept is None:
        return STEERED
    return SET if isinstance(given.kept, int | float) and given.kept == 0 else "scaled and steered by"


def _described(given: Edit, labels: Labels) -> str:
    """Return an edit in words: what is edited, at which tokens, and what becomes of it."""
    selection = given.place
    if selection.every:
        tokens = "every token"
    elif len(selection.tokens) == 1:
        tokens = labels.place(selection.tokens[0])
    else:
        tokens = f"tokens {some(selection.tokens)}"
    if isinstance(given.added, ValueSource):
        return f"{selection.name}, {tokens}: {given.added._how()}"
    kept = 1 if given.kept is None else given.kept
    values = np.asarray(kept if given.added is None else given.added, float)
    size = f"{values:g}" if values.ndim == 0 else f"values of size {np.linalg.norm(values):.3g}"
    return f"{selection.name}, {tokens}: {_verb(given)} {size}"


def _states(model: Transformer, real: Any, stream: int | None) -> Callable[[Array], Array]:
    """Return the function from the embeddings to a stream, or to the states of the read-out."""
    return lambda x: forward_from(model, x, real, stream).at(stream)


@partial(stored_program, static_argnames=("stream",))
def _run(
    model: Transformer, reader: Reader, inputs: Inputs, slots: tuple[Slots, ...], edits: list[Edit], stream: int | None
) -> tuple[Reading, Predicted]:
    """Return the target's reading with edits, and the most probable outputs where it reads the last states."""
    states = edit(_states(model, inputs.real, stream), at_marks(slots, edits, jnp.asarray(inputs.real)))
    passed = passed_on(inputs.real, states(inputs.embedded(model)), stream)
    return read(model, reader, passed) if stream is None else (reader.read(model, passed), None)


@partial(stored_program, static_argnames=("stream",))
def _split(
    model: Transformer,
    reader: Reader,
    inputs: Inputs,
    slots: tuple[Slots, ...],
    edits: list[Edit],
    readout: Array,
    stream: int | None,
) -> Split:
    """Split the effect of all edits over every edited value, by the table of contributions and by the secant."""
    x, real = inputs.embedded(model), jnp.asarray(inputs.real)
    states = _states(model, real, stream)
    edits = jax.tree.map(lambda array: array.astype(x.dtype), edits)

    sites = {site: Site(marks.ADDED[site.kind], site.key) for each in slots for site in each.sites}
    recording = record_kinds(states, x, {*KINDS, *(site.kind for site in sites)})

    def number(edits: list[Edit]) -> Array:
        edited = run_again(recording, at_marks(slots, edits, real))
        return reader.read(model, passed_on(real, edited, stream)).value

    zeros = {added: jnp.zeros_like(recording.seen[site]) for site, added in sites.items()}
    _, pulled = pull_back(recording, question_of(recording, None, linear=zeros), None, readout, zeros)
    on_marks = {site: pulled[added] for site, added in sites.items()}

    def frozen(slots: Slots, edit: Edit) -> Array:
        seen = slots.at_slots(recording.seen, real)
        return slots.at_slots(on_marks, real) * ((edit.kept - 1) * seen + edit.added)

    def parts_of(secant: Secant) -> tuple[list[Array], list[Array]]:
        return list(map(frozen, slots, edits)), [parts.kept + parts.added for parts in secant.parts]

    unedited = [Edit(jnp.ones_like(each.kept), jnp.zeros_like(each.added)) for each in edits]
    return split_between(number, parts_of)(edits, unedited)


def _at(selection: Selected, parts: np.ndarray) -> Float[np.ndarray, "tokens *units"]:
    """Return the parts of one edit's values, by token and unit."""
    return parts.reshape(*parts.shape[: 1 if selection.units is None else 2], -1).sum(-1)[selection.entries]
