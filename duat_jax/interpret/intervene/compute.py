"""Intervene: change neurons, heads or streams of a model, run it again, and split the change of a target."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from duat_jax.deprecation import renamed_arguments
from duat_jax.errors import BadText
from duat_jax.forms.completeness import Completeness
from duat_jax.forms.decomposition import KINDS
from duat_jax.forms.secant import notes_of, secant
from duat_jax.inputs.batching import bucket, padded
from duat_jax.inputs.labels import Labels, labels_of
from duat_jax.inputs.model_inputs import Inputs, OneInput
from duat_jax.inputs.request import check_one
from duat_jax.interpret.intervene.changes import Applied, Change, some
from duat_jax.interpret.intervene.result import Effect, Intervention
from duat_jax.interpret.pipeline import certified, forward_from, readers_of, require_finite
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.config import Config
from duat_jax.models.targets.base import ForwardPass, OneTarget, Reader, Reading, Target
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import require_loaded
from duat_jax.transform import marks
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.keys import Site
from duat_jax.transform.query import pull_back, question_of
from duat_jax.transform.recording import record_kinds

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Edits = dict[Site, Edit]


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
        BadText: for a text that the model can't take, or a change at a place that isn't there, twice at one place, or
            with numbers that don't fit.
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
    checked, metric, applied = check(model.config, inputs, changes, target, contrast, against, position, tokenizer)
    labels = labels_of(model.config, checked, tokenizer)
    text, stream = padded(checked, bucket(len(checked.real), model.config.positions)), metric.stream
    (reader,) = readers_of(model, [metric])
    before = run_edited(model, reader, text, None, stream)
    reader = reader.pinned(before)
    all_edits = _edits(applied, applied, len(text.real))
    after = float(run_edited(model, reader, text, all_edits, stream).value)
    label = metric.describe(jax.device_get(before), labels)
    numbers = {"as it is": float(before.value), "with the changes": after}
    require_finite(label.headline, numbers, "check the model's weights, or change by less")

    def alone(change: Applied) -> float:
        return float(run_edited(model, reader, text, _edits(applied, [change], len(text.real)), stream).value)

    def recompute(model: Transformer) -> Array:
        (reader,) = readers_of(model, [metric])
        runs = (run_edited(model, reader.pinned(before), text, edits, stream).value for edits in (all_edits, None))
        return jnp.subtract(*runs)

    parts = jax.device_get(_split(model, reader, text, all_edits, before.readout, stream))
    return Intervention(
        family=model.config.family,
        tokens=labels.names,
        target=label,
        before=numbers["as it is"],
        after=after,
        effects=tuple(
            Effect(
                change=f"{change.name}, {_tokens(change, labels)}: {change.how}",
                tokens=change.tokens,
                units=change.units,
                frozen=_of(change, parts.frozen),
                secant=_of(change, parts.secant),
                alone=(after if len(applied) == 1 else alone(change)) - numbers["as it is"],
            )
            for change in applied
        ),
        discontinuities={name: float(part) for name, part in parts.discontinuities.items()},
        # The difference is that of the plain runs.
        completeness=certified(
            parts.completeness.against(before.value.dtype.type(after - numbers["as it is"])), model, recompute
        ),
        notes=notes_of(parts.unrecognised),
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
    """Validate the arguments of `intervene`, before a model is loaded.

    Args:
        config: the model's parts.
        inputs: as in `intervene`.
        changes: the same.
        target: the same.
        contrast: the same.
        against: the same.
        position: the same.
        tokenizer: the same.

    Returns:
        The input, the target, and the changes of this input's values.

    Raises:
        BadText: naming everything that is wrong at once.
    """
    problems: list[str] = []
    request = None
    try:
        request = check_one(config, inputs, target, contrast, against, position, tokenizer)
    except BadText as error:
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
        problems += [f"change {i}: {problem}" for problem in found]
        if one is None:
            continue
        for k, other in applied.items():
            if other.site == one.site and (other.here & one.here).any():
                problems.append(f"changes {k} and {i} overlap at {one.name}: change each value once")
        applied[i] = one
    if problems or request is None:
        raise BadText("; ".join(problems))
    return *request, list(applied.values())


def _edits(applied: Sequence[Applied], chosen: Sequence[Applied], length: int) -> Edits:
    """Return the edits of chosen changes at the marks of all of them, in the shapes of a padded text."""

    def pad(values: np.ndarray, beyond: float) -> np.ndarray:
        return np.pad(values, [(0, length - len(values)), *[(0, 0)] * (values.ndim - 1)], constant_values=beyond)

    edits = {change.site: Edit(np.ones_like(change.kept), np.zeros_like(change.added)) for change in applied}
    for change in chosen:
        kept, added = edits[change.site]
        edits[change.site] = Edit(np.where(change.here, change.kept, kept), np.where(change.here, change.added, added))
    return {site: Edit(pad(kept, 1.0), pad(added, 0.0)) for site, (kept, added) in edits.items()}


class _Parts(NamedTuple):
    frozen: dict[Site, Array]
    secant: dict[Site, Array]
    discontinuities: dict[str, Array]
    completeness: Completeness
    unrecognised: dict[str, Array]


def _states(model: Transformer, real: Any, stream: int | None) -> Callable[[Array], Array]:
    """Return the function from the embeddings to a stream, or to the states of the read-out."""
    return lambda x: forward_from(model, x, real, stream).at(stream)


def _read(model: Transformer, reader: Reader, real: Any, states: Array, stream: int | None) -> Reading:
    return reader.read(model, ForwardPass(real, states, {} if stream is None else {stream: states}))


@partial(jax.jit, static_argnames="stream")
def run_edited(model: Transformer, reader: Reader, inputs: Inputs, edits: Edits | None, stream: int | None) -> Reading:
    """Return the target's reading, with edits or without: a program of its own, with which the parts are compared."""
    states = _states(model, inputs.real, stream)
    run = states if edits is None else edit(states, edits)
    return _read(model, reader, inputs.real, run(model.embed(inputs.given, inputs.segments)), stream)


@partial(jax.jit, static_argnames="stream")
def _split(
    model: Transformer, reader: Reader, inputs: Inputs, edits: Edits, readout: Array, stream: int | None
) -> _Parts:
    """Return the effect of every changed value on the number, by the table of contributions and by the secant."""
    x, states = model.embed(inputs.given, inputs.segments), _states(model, inputs.real, stream)
    edits = jax.tree.map(lambda array: array.astype(x.dtype), edits)

    def number(edits: Edits) -> Array:
        return _read(model, reader, inputs.real, edit(states, edits)(x), stream).value

    unchanged = {site: Edit(jnp.ones_like(kept), jnp.zeros_like(added)) for site, (kept, added) in edits.items()}
    difference = secant(number)(edits, unchanged)

    recording = record_kinds(states, x, {*KINDS, *(site.kind for site in edits)})
    zeros = {Site(marks.ADDED[site.kind], site.key): edits[site].added * 0 for site in edits}
    _, pulled = pull_back(recording, question_of(recording, None, linear=zeros), None, readout, zeros)

    def frozen(site: Site) -> Array:
        kept, added = edits[site]
        return pulled[Site(marks.ADDED[site.kind], site.key)] * ((kept - 1) * recording.seen[site] + added)

    return _Parts(
        {site: frozen(site) for site in edits},
        {site: kept + added for site, (kept, added) in difference.parts.items()},
        difference.discontinuities,
        difference.completeness,
        difference.unrecognised,
    )


def _of(change: Applied, parts: dict[Site, np.ndarray]) -> Float[np.ndarray, "tokens *units"]:
    """Return the parts of one change's values, by token and unit."""
    part = parts[change.site]
    part = part.reshape(*part.shape[: 1 if change.units is None else 2], -1).sum(-1)
    return part[np.ix_(change.tokens, *([] if change.units is None else [change.units]))]


def _tokens(change: Applied, labels: Labels) -> str:
    if change.every:
        return "every token"
    return labels.place(change.tokens[0]) if len(change.tokens) == 1 else f"tokens {some(change.tokens)}"
