"""Split the difference of a number between two models exactly over their weights."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from duat_jax.errors import BadText
from duat_jax.forms.completeness import Completeness
from duat_jax.forms.secant import notes_of, secant
from duat_jax.inputs.batching import bucket, padded
from duat_jax.inputs.labels import Labels, labels_of
from duat_jax.inputs.model_inputs import Inputs, ManyInputs, OneInput
from duat_jax.inputs.request import check
from duat_jax.interpret.pipeline import certified, forward_from, reader_of_weights, require_finite
from duat_jax.models.config import Config
from duat_jax.models.layer_parts import written_out
from duat_jax.models.targets.base import OneTarget, Reader, Reading, Target
from duat_jax.models.targets.description import TargetDescription
from duat_jax.models.transformer import Transformer
from duat_jax.models.vocabulary.token import quoted_label
from duat_jax.processes import on_host
from duat_jax.transform import marks
from duat_jax.weights.filled import filled
from duat_jax.weights.old_order import accepts_two_models
from duat_jax.weights.result import Flow, ModelDiff, RunAgain, UnitPart
from duat_jax.weights.units import EMBEDDINGS, LAYERS, Units, numbered, parameters_of, units_of
from duat_jax.weights.validation import alike_models

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LOSS = "mean loss of the tokens after the first one, in nats"
UNITS = 5
"""The number of neurons, heads and rows each that are listed."""
TOGETHER = "together"
"""The name of all exchanged parameters at once."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Number:
    """The number of one text, as a function of a model.

    Args:
        inputs: the padded text.
        reader: reads the number; the mean loss if absent.
        stream: the number of layers before the stream that is read; the states of the read-out if absent.
    """

    inputs: Inputs
    reader: Reader | None = None
    stream: int | None = field(default=None, metadata={"static": True})

    def read(self, model: Transformer) -> Reading:
        """Return the reading of a target."""
        given, real, segments = self.inputs
        passed = forward_from(model, model.embed(given, segments), jnp.asarray(real), self.stream)
        return cast(Reader, self.reader).read(model, passed)

    def __call__(self, model: Transformer) -> Float[Array, ""]:
        if self.reader is not None:
            return self.read(model).value
        ids, real, segments = self.inputs
        logs = jax.nn.log_softmax(model.output(model.embed(ids, segments), jnp.asarray(real))[:-1])
        losses = -jnp.take_along_axis(logs, ids[1:, None], -1)[:, 0]
        counted = jnp.asarray(real[1:], losses.dtype)
        return (losses * counted).sum() / counted.sum()


class _Parts(NamedTuple):
    units: Units
    streams: tuple[Float[Array, "tokens"], ...]
    discontinuities: dict[str, Float[Array, ""]]
    completeness: Completeness
    unrecognised: dict[str, Float[Array, "..."]]


class _OfText(NamedTuple):
    """The parts of the difference on one text.

    Args:
        number: the number that is read.
        target: its description.
        names: display labels of the text's tokens.
        values: the number by the reference and by the model.
        parts: the parts of the difference.
        first_order: of every parameter, the gradient at the reference times its change.
    """

    number: _Number
    target: TargetDescription
    names: tuple[str, ...]
    values: tuple[np.floating, np.floating]
    parts: _Parts
    first_order: dict[str, float]


@accepts_two_models
def diff(
    model: Transformer,
    inputs: "OneInput | ManyInputs",
    target: "OneTarget" = None,
    *,
    reference: Transformer,
    contrast: int | str | None = None,
    against: "OneInput | None" = None,
    position: int | None = None,
    largest: int = 10,
    tokenizer: "Tokenizer | None" = None,
    progress: Callable[[int, int], None] | None = None,
) -> ModelDiff:
    """Split the difference of a number between a model and its reference, of one shape, exactly over their weights.

    The number is a function `f` of the weights `θ`, and its secant between both models is

        f(θ_A) − f(θ_B) = Σ_w D_w (θ_A,w − θ_B,w),

    a sum over all weights `w`, however far apart the models are; the gradient at one of them gives a first-order term
    alone. Parts of parameters, neurons, heads and rows of embeddings are sums of these. They account for the difference
    between these two models. What the exchange of one parameter does is another question, since all others then stay as
    they are: the parameters with the largest parts are exchanged, too, and the model is run again.

    Args:
        model: the model that is asked about, `A`: fine-tuned, rounded, or a later step of a training; or pruned, whose
            missing neurons and layers have weights of zero here.
        inputs: a text or an image, as in `duat.explain`; or a list of them, over which all numbers are means.
        target: the number, as in `duat.explain`. If absent, of a language model the mean loss of the text's tokens
            after the first one, in nats; of another one, and with a `contrast` or a `position`, the most probable
            output of the model.
        reference: the model that it is compared with, `B`, with the same shapes.
        contrast: the token or class whose logit is subtracted.
        against: for an encoder, token ids of the other text.
        position: at which token the logit is read; negative counts from the end.
        largest: how many parameters are exchanged, in the order of the sizes of their parts; none if 0.
        tokenizer: for readable tokens and the mask token.
        progress: called after each run with the number of runs so far and the number of all; a split is one.

    Returns:
        The `ModelDiff`; it shows itself in a notebook, and `print` shows it in a terminal.

    Raises:
        BadText: if an input or the target isn't valid for the model.
        DuatError: naming every setting and parameter in which the models differ in shape.
        NotFinite: if the number isn't finite for one of the models.

    Example:
        >>> import duat_jax as duat
        >>> import jax
        >>> model, tokenizer = duat.load(tokenizer=True)
        >>> rounded = jax.tree.map(lambda leaf: leaf.astype("bfloat16").astype("float32"), model)
        >>> found = diff(rounded, "for i in range(10", reference=model, largest=1, tokenizer=tokenizer)
        >>> found.target.headline, found.completeness[0].verdict
        ('mean loss of the tokens after the first one, in nats', 'holds')

    Source: the secant of `duat.secant`, between weights; along a path of small steps, Lan et al., "LCA: Loss Change
    Allocation for Neural Network Training", 2019.
    """
    before, after = alike_models(*filled(reference, model))
    config = before.config
    if largest < 0:
        raise BadText(f"largest is {largest}: give the number of parameters that are exchanged, 0 for none")
    loss = config.head.kind == "next token" and all(given is None for given in (target, contrast, position))
    request = check(config, inputs, None if loss else target, contrast, against, position, tokenizer)
    if request.many_targets:
        raise BadText("one target is taken: call it once for each")
    if len(request.inputs) > 1 and not loss and target is None and config.head.kind != "hidden":
        raise BadText("several inputs have no most probable output in common: give a target")
    if loss and (short := [str(i) for i, text in enumerate(request.inputs) if len(text.real) < 2]):
        raise BadText(f"text {', '.join(short)}: one token has no loss; give at least two, or a target")
    asked = [None if loss else target for (target,) in request.targets]
    numbers, names = numbered(before)
    exchanged = min(largest, len(names))
    steps, total = count(1), len(asked) * (1 + 2 * (exchanged + 1 if exchanged else 0))

    def report() -> None:
        if progress is not None:
            progress(next(steps), total)

    found = []
    for each in zip(request.inputs, asked, strict=True):
        found.append(_of_text(before, after, *each, tokenizer))
        report()
    parts = [each.parts for each in found]

    def by_name(dictionaries: list[dict[str, Any]]) -> dict[str, np.ndarray]:
        return {name: np.array([of_text[name] for of_text in dictionaries]) for name in dictionaries[0]}

    def means(dictionaries: list[dict[str, Any]]) -> dict[str, np.ndarray]:
        return {name: values.mean(0) for name, values in by_name(dictionaries).items()}

    neurons, heads, rows = (
        means([getattr(each.units, kind) for each in parts]) for kind in ("neurons", "heads", "rows")
    )

    parameters = by_name([each.units.parameters for each in parts])
    chosen = sorted(parameters, key=lambda name: -abs(parameters[name].mean()))[:exchanged]
    values = np.array([each.values for each in found], np.float64)
    first, second = values.mean(0).tolist()

    def with_exchanged(members: list[str], *, all_others: bool = False) -> float:
        """Return the number of the reference with some parameters of the model, or with all but these."""
        exchanged = jax.tree.map(partial(_exchange, np.isin(names, members) ^ all_others), numbers, before, after)
        runs = []
        for each in found:
            runs.append(float(_value(exchanged, each.number)))
            report()
        return float(np.mean(runs))

    def run_again(name: str, members: list[str]) -> RunAgain:
        part = float(sum(parameters[member].mean() for member in members))
        return RunAgain(name, part, second - with_exchanged(members, all_others=True), with_exchanged(members) - first)

    again = [run_again(name, [name]) for name in chosen] + ([run_again(TOGETHER, chosen)] if chosen else [])
    jumps = dict.fromkeys(name for each in parts for name in each.discontinuities)
    unrecognised = dict.fromkeys(name for each in parts for name in each.unrecognised)
    return ModelDiff(
        family=config.family,
        tokens=() if request.many_inputs else found[0].names,
        target=found[0].target,
        values=values,
        parameters=parameters,
        first_order=by_name([each.first_order for each in found]),
        neurons=neurons,
        heads=heads,
        rows=rows,
        units=(
            *_largest(neurons, "neuron"),
            *_largest(heads, "head"),
            *_largest(rows, "row", None if tokenizer is None else Labels(config, tokenizer, ())),
        ),
        again=tuple(again),
        flow=None if request.many_inputs else _flow(config, found[0]),
        discontinuities={name: float(np.mean([each.discontinuities.get(name, 0) for each in parts])) for name in jumps},
        completeness=tuple(each.completeness for each in parts),
        notes=notes_of({name: max(np.max(each.unrecognised.get(name, 0)) for each in parts) for name in unrecognised}),
    )


def _of_text(
    before: Transformer, after: Transformer, inputs: Inputs, target: Target | None, tokenizer: "Tokenizer | None"
) -> _OfText:
    labels = labels_of(before.config, inputs, tokenizer)
    number = _Number(padded(inputs, bucket(len(inputs.real), before.config.positions)))
    described = TargetDescription(LOSS, "Loss")
    if target is not None:
        reader = reader_of_weights(target)
        number = replace(number, reader=reader, stream=target.stream)
        reading = on_host(_read(after, number))
        number, described = replace(number, reader=reader.pinned(reading)), target.describe(reading, labels)
    values = on_host((_value(before, number), _value(after, number)))
    by = {"by the model": float(values[1]), "by the reference": float(values[0])}
    require_finite(described.headline, by, "check their weights")
    parts = on_host(_split(before, after, number))

    def difference(models: tuple[Transformer, Transformer]) -> Array:
        first, second = (_value(model, number) for model in models)
        return second - first

    completeness = certified(parts.completeness.against(values[1] - values[0]), (before, after), difference)
    first_order = {name: float(part) for name, part in on_host(_first_order(before, after, number)).items()}
    return _OfText(number, described, labels.names, values, parts._replace(completeness=completeness), first_order)


@jax.jit
def _read(model: Transformer, number: _Number) -> Reading:
    return number.read(model)


@jax.jit
def _value(model: Transformer, number: _Number) -> Float[Array, ""]:
    return number(model)


@jax.jit
def _split(before: Transformer, after: Transformer, number: _Number) -> _Parts:
    """Return the parts of the difference between two models, by unit, and where it is in each token's stream."""
    split = secant(number, at=marks.STREAM)(after, before)
    return _Parts(
        units_of(split.parts),
        tuple(part.sum(-1) for part in split.contributions.streams.values()),
        split.discontinuities,
        split.completeness,
        split.unrecognised,
    )


@jax.jit
def _first_order(before: Transformer, after: Transformer, number: _Number) -> dict[str, Float[Array, ""]]:
    """Return of every parameter the gradient at the reference times its change."""
    gradient = jax.grad(number)(before)
    terms = jax.tree.map(lambda slope, a, b: slope * (b - a), gradient, before, after)
    return {name: part.sum() for name, part in parameters_of(written_out(terms)).items()}


def _exchange(of_second: np.ndarray, index: np.ndarray, a: Array, b: Array) -> Array:
    """Return a parameter of the reference or of the model, of a loop's parameters step by step."""
    chosen = of_second[index]
    if chosen.all() or not chosen.any():
        return b if chosen.all() else a
    return jnp.where(chosen.reshape(chosen.shape + (1,) * (a.ndim - chosen.ndim)), b, a)


def _largest(parts: dict[str, np.ndarray], kind: str, labels: Labels | None = None) -> list[UnitPart]:
    """Return the units of a kind with the largest parts, without those of zero."""
    found = []
    for weights, each in parts.items():
        for place in np.argsort(-np.abs(each), axis=None)[:UNITS]:
            *expert, number = map(int, np.unravel_index(place, each.shape))
            unit = f"{kind} {number}" if not expert else f"expert {expert[0]}, {kind} {number}"
            if labels is not None and weights == "embedding.token":
                unit += f", {quoted_label(labels.token(number))}"
            if labels is not None and weights == "head.unembedding":
                unit += f", {quoted_label(labels.output(number))}"
            found.append(UnitPart(weights, unit, float(each.flat[place])))
    return sorted((unit for unit in found if unit.part), key=lambda unit: -abs(unit.part))[:UNITS]


def _flow(config: Config, found: _OfText) -> Flow | None:
    """Return where the difference is layer by layer.

    There is none of a number that several texts are read for, whose streams are those of several runs; nor where a
    choice has a part, which doesn't say in which layer it is.
    """
    layers, streams, parameters = config.layers, found.parts.streams, found.parts.units.parameters
    if not 0 < len(streams) <= layers + 1 or any(found.parts.discontinuities.values()):
        return None

    def place_of(name: str) -> int:
        """Return the number of streams before a parameter; one of embeddings has none."""
        if name.startswith(LAYERS):
            return int(name.removeprefix(LAYERS).partition(".")[0]) + 1
        return 0 if name.startswith(EMBEDDINGS) else layers + 1

    tokens = np.array([part[: len(found.names)] for part in streams])
    of_place = np.zeros(layers + 2)
    for name, part in parameters.items():
        of_place[place_of(name)] += part
    if config.head.tied:  # what the token embedding doesn't do through the first stream it does as the read-out
        of_place[-1] += of_place[0] - tokens[0].sum()
    return Flow(tokens, np.array([of_place[i + 1 :].sum() for i in range(len(tokens))]))
