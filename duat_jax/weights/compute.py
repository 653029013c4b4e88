"""Split the difference of a number between two models exactly over their weights."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from duat_jax.deprecation import renamed_arguments
from duat_jax.errors import InvalidInput
from duat_jax.forms.secant import Secant, notes_of
from duat_jax.forms.split import Split, first_order, split_between
from duat_jax.inputs.batching import bucket, padded
from duat_jax.inputs.labels import Labels, labels_of
from duat_jax.inputs.model_inputs import Inputs, ManyInputs, OneInput
from duat_jax.inputs.question import Question, ask
from duat_jax.interpret.pipeline import reader_of_weights, require_finite
from duat_jax.models.config import Config
from duat_jax.models.targets.base import OneTarget, Target
from duat_jax.models.targets.description import TargetDescription
from duat_jax.models.transformer import Transformer
from duat_jax.models.vocabulary.token import quoted_label
from duat_jax.processes import on_host
from duat_jax.transform import marks
from duat_jax.transform.stored_program import stored_program
from duat_jax.weights.exchange import run_again
from duat_jax.weights.number import LOSS, TextNumber, reading_of, value_of
from duat_jax.weights.old_order import accepts_two_models
from duat_jax.weights.result import LayerDifferences, ModelDiff, UnitPart
from duat_jax.weights.units import EMBEDDINGS, LAYERS, UnitSums, parameters_of, units_of
from duat_jax.weights.validation import alike_models

if TYPE_CHECKING:
    from tokenizers import Tokenizer

UNITS = 5
"""The number of neurons, heads and rows each that are listed."""


class _DiffParts(NamedTuple):
    units: UnitSums
    streams: tuple[Float[Array, "tokens"], ...]


class _OfText(NamedTuple):
    """The difference on one text: its number, values by the reference and by the model, and parts."""

    number: TextNumber
    target: TargetDescription
    names: tuple[str, ...]
    values: tuple[np.floating, np.floating]
    split: Split
    first_order: dict[str, float]


@renamed_arguments(largest="top")
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
    top: int = 10,
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
        top: how many parameters are exchanged, in the order of the sizes of their parts; none if 0.
        tokenizer: reads texts and names tokens, in the place of the model's own.
        progress: called after each run with the number of runs so far and the number of all; a split is one.

    Returns:
        The `ModelDiff`; it shows itself in a notebook, and `print` shows it in a terminal.

    Raises:
        InvalidInput: if an input or the target isn't valid for the model.
        DuatError: naming every setting and parameter in which the models differ in shape.
        NotFinite: if the number isn't finite for one of the models.

    Example:
        >>> import duat_jax as duat
        >>> import jax
        >>> model = duat.load()
        >>> rounded = jax.tree.map(lambda leaf: leaf.astype("bfloat16").astype("float32"), model)
        >>> found = diff(rounded, "for i in range(10", reference=model, top=1)
        >>> found.target.headline, found.completeness[0].verdict
        ('mean loss of the tokens after the first one, in nats', 'holds')

    Source: the secant of `duat.secant`, between weights; along a path of small steps, Lan et al., "LCA: Loss Change
    Allocation for Neural Network Training", 2019.
    """
    if top < 0:
        raise InvalidInput(f"top is {top}: give the number of parameters that are exchanged, 0 for none")
    before, after = alike_models(reference, model)
    config = after.config
    question, targets = _checked(after, inputs, target, contrast, against, position, tokenizer)
    exchanged = min(top, len(parameters_of(after)))
    steps, total = count(1), len(targets) * (1 + 2 * (exchanged + 1 if exchanged else 0))

    def report() -> None:
        if progress is not None:
            progress(next(steps), total)

    texts = []
    for text, of_text in zip(question.inputs, targets, strict=True):
        texts.append(_of_text(before, after, text, of_text, question.tokenizer))
        report()
    splits, values = [text.split for text in texts], np.array([text.values for text in texts], np.float64)
    units: Any = jax.tree.map(lambda *of_texts: np.array(of_texts), *(split.parts.units for split in splits))
    neurons, heads, rows = ({name: part.mean(0) for name, part in kind.items()} for kind in units[1:])
    parts = {name: part.mean() for name, part in units.parameters.items()}
    again = run_again(before, after, [text.number for text in texts], values, parts, exchanged, report)
    jumps = dict.fromkeys(name for split in splits for name in split.discontinuities)
    places = dict.fromkeys(name for split in splits for name in split.unrecognised)
    return ModelDiff(
        family=config.family,
        tokens=() if question.many_inputs else texts[0].names,
        target=texts[0].target,
        values=values,
        parameters=units.parameters,
        first_order={name: np.array([text.first_order[name] for text in texts]) for name in units.parameters},
        neurons=neurons,
        heads=heads,
        rows=rows,
        units=(
            *_largest(neurons, "neuron"),
            *_largest(heads, "head"),
            *_largest(rows, "row", None if question.tokenizer is None else Labels(config, question.tokenizer, ())),
        ),
        again=tuple(again),
        flow=None if question.many_inputs else _flow(config, texts[0]),
        discontinuities={
            name: float(np.mean([split.discontinuities.get(name, 0) for split in splits])) for name in jumps
        },
        completeness=tuple(split.completeness for split in splits),
        notes=notes_of({place: max(np.max(split.unrecognised.get(place, 0)) for split in splits) for place in places}),
    )


def _checked(
    model: Transformer, inputs: Any, target: Any, contrast: Any, against: Any, position: Any, tokenizer: Any
) -> tuple[Question, list[Target | None]]:
    """Validate inputs and target; the target of each input is `None` where its loss is read."""
    config = model.config
    loss = config.head.kind == "next token" and all(given is None for given in (target, contrast, position))
    question = ask(model, inputs, target, contrast, against, position, tokenizer)
    if question.many_targets:
        raise InvalidInput("one target is taken: call it once for each")
    if len(question.inputs) > 1 and not loss and target is None and config.head.kind != "hidden":
        raise InvalidInput("several inputs have no most probable output in common: give a target")
    if loss and (short := [str(i) for i, text in enumerate(question.inputs) if len(text.real) < 2]):
        raise InvalidInput(f"text {', '.join(short)}: one token has no loss; give at least two, or a target")
    return question, [None if loss else target for (target,) in question.targets]


def _of_text(
    before: Transformer, after: Transformer, inputs: Inputs, target: Target | None, tokenizer: "Tokenizer | None"
) -> _OfText:
    """Split the difference on one text."""
    labels = labels_of(after.config, inputs, tokenizer)
    number = TextNumber(padded(inputs, bucket(len(inputs.real), after.config.positions)))
    described = TargetDescription(LOSS, "Loss")
    if target is not None:
        reader = reader_of_weights(target)
        number = replace(number, reader=reader, stream=target.stream)
        reading = on_host(reading_of(after, number))
        number, described = replace(number, reader=reader.pinned(reading)), target.describe(reading, labels)
    values, slopes = on_host(((value_of(before, number), value_of(after, number)), _first_order(before, after, number)))
    by = {"by the model": float(values[1]), "by the reference": float(values[0])}
    require_finite(described.headline, by, "check their weights")

    def difference(models: tuple[Transformer, Transformer]) -> Array:
        return value_of(models[1], number) - value_of(models[0], number)

    split = _split(before, after, number).certified(values[1] - values[0], (before, after), difference)
    return _OfText(number, described, labels.names, values, split, {name: float(part) for name, part in slopes.items()})


@stored_program
def _split(before: Transformer, after: Transformer, number: TextNumber) -> Split:
    """Split the difference between two models by unit, and over each token's stream."""

    def parts_of(secant: Secant) -> _DiffParts:
        streams = secant.contributions.streams.values()
        return _DiffParts(units_of(secant.parts), tuple(part.sum(-1) for part in streams))

    return split_between(number, parts_of, at=marks.STREAM)(after, before)


@stored_program
def _first_order(before: Transformer, after: Transformer, number: TextNumber) -> dict[str, Float[Array, ""]]:
    """Return of every parameter the gradient at the reference times its change."""
    terms = first_order(number, after, before)
    return {name: part.sum() for name, part in parameters_of(terms).items()}


def _largest(parts: dict[str, np.ndarray], kind: str, labels: Labels | None = None) -> list[UnitPart]:
    """Return the units of a kind with the largest parts, without those of zero."""
    largest = []
    for weights, of_units in parts.items():
        for place in np.argsort(-np.abs(of_units), axis=None)[:UNITS]:
            *expert, number = map(int, np.unravel_index(place, of_units.shape))
            unit = f"{kind} {number}" if not expert else f"expert {expert[0]}, {kind} {number}"
            if labels is not None and weights == "embedding.token":
                unit += f", {quoted_label(labels.token(number))}"
            if labels is not None and weights == "head.unembedding":
                unit += f", {quoted_label(labels.output(number))}"
            largest.append(UnitPart(weights, unit, float(of_units.flat[place])))
    return sorted((unit for unit in largest if unit.part), key=lambda unit: -abs(unit.part))[:UNITS]


def _flow(config: Config, text: _OfText) -> LayerDifferences | None:
    """Return where the difference is layer by layer, if its streams and its parts say so."""
    units, streams = text.split.parts
    layers = config.layers
    # A number of several texts has the streams of several runs; a choice's part doesn't say in which layer it is.
    if not 0 < len(streams) <= layers + 1 or any(text.split.discontinuities.values()):
        return None

    def place_of(name: str) -> int:
        """Return the number of streams before a parameter; one of embeddings has none."""
        if name.startswith(LAYERS):
            return int(name.removeprefix(LAYERS).partition(".")[0]) + 1
        return 0 if name.startswith(EMBEDDINGS) else layers + 1

    tokens = np.array([part[: len(text.names)] for part in streams])
    of_place = np.zeros(layers + 2)
    for name, part in units.parameters.items():
        of_place[place_of(name)] += part
    if config.head.tied:  # what the token embedding doesn't do through the first stream it does as the read-out
        of_place[-1] += of_place[0] - tokens[0].sum()
    return LayerDifferences(tokens, np.array([of_place[i + 1 :].sum() for i in range(len(tokens))]))
