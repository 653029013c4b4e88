"""Explain numbers that a model computes on an input, down to every neuron at every token."""

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jaxtyping import Array, Float

from duat_jax.deprecation import renamed_arguments
from duat_jax.display.result import ResultList
from duat_jax.forms import affine_form, decomposition
from duat_jax.forms.completeness import Completeness
from duat_jax.inputs.batching import batches, require_spread, row
from duat_jax.inputs.images import seen_by
from duat_jax.inputs.labels import Labels, labels_of
from duat_jax.inputs.model_inputs import Inputs, ManyInputs, OneInput
from duat_jax.inputs.question import Question, ask
from duat_jax.interpret.explain.result import Explanation
from duat_jax.interpret.pipeline import (
    Predicted,
    read_targets,
    recomputation,
    require_finite,
    rows_of_tokens,
)
from duat_jax.models.targets.base import ManyTargets, OneTarget, Reading, Target
from duat_jax.models.transformer import Transformer
from duat_jax.models.units import encoder_layers_of, streams_of
from duat_jax.models.validation import require_gated, require_loaded
from duat_jax.processes import on_host
from duat_jax.transform import marks
from duat_jax.transform.keys import Marked, Occurrence
from duat_jax.transform.marks import offset
from duat_jax.transform.recording import record_kinds
from duat_jax.transform.stored_program import stored_program

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ENTROPY = "entropy"
"""The part of a log-probability that is minus the entropy of the model's distribution."""

_KINDS = tuple(dict.fromkeys((*decomposition.KINDS, *affine_form.KINDS, marks.STREAM)))


class _Parts(NamedTuple):
    embedding: Float[Array, "*batch tokens"]
    coefficients: Marked[Float[Array, "*batch tokens neurons"]]
    biases: Marked[Float[Array, "*batch"]]
    collapse: Float[Array, "*batch tokens"]
    collapse_bias: Float[Array, "*batch"]
    completeness: Completeness
    collapse_completeness: Completeness


class _ExplainOptions(TypedDict, total=False):
    contrast: int | str | None
    against: "OneInput | None"
    position: int | None
    gate_rule: str | None
    tokenizer: "Tokenizer | None"
    sharding: NamedSharding | None


# A string is one text, and to a type checker a sequence of strings too: the first overload that fits is meant.
@overload
def explain(  # type: ignore[overload-overlap]
    model: Transformer, inputs: "OneInput", target: "OneTarget" = None, **options: Unpack[_ExplainOptions]
) -> Explanation: ...
@overload
def explain(  # type: ignore[overload-overlap]
    model: Transformer, inputs: "OneInput", target: "ManyTargets", **options: Unpack[_ExplainOptions]
) -> list[Explanation]: ...
@overload
def explain(
    model: Transformer, inputs: "ManyInputs", target: "OneTarget" = None, **options: Unpack[_ExplainOptions]
) -> list[Explanation]: ...
@overload
def explain(
    model: Transformer, inputs: "ManyInputs", target: "ManyTargets", **options: Unpack[_ExplainOptions]
) -> list[list[Explanation]]: ...
@renamed_arguments(given="inputs", carries="gate_rule")
def explain(
    model: Transformer,
    inputs: "OneInput | ManyInputs",
    target: "OneTarget | ManyTargets" = None,
    *,
    contrast: int | str | None = None,
    against: "OneInput | None" = None,
    position: int | None = None,
    gate_rule: str | None = None,
    tokenizer: "Tokenizer | None" = None,
    sharding: NamedSharding | None = None,
) -> "Explanation | list[Explanation] | list[list[Explanation]]":
    """Explain numbers that a model computes, down to every neuron at every token.

    For a language model, the logit of `target` (minus that of `contrast`) at one position; for a classifier, that of a
    class; for an encoder, the cosine similarity of the pooled embeddings of two texts, the norm held; or any other
    target. Texts of many lengths are padded to a few, and every length is compiled once.

    Args:
        model: a loaded model.
        inputs: a text; its token ids, `[tokens]`; or a `duat.TokenizedText` of several segments.
            For a vision model an image's pixels, `[channels, height, width]`. Or a list of many, of any lengths.
        target: the token, by its id or its text, or the class, by name or number, whose logit is
            explained, the most probable one if absent; or a target, such as `duat.targets.LogProbability(7)`; or a list
            of many.
        contrast: the token or class whose logit is subtracted.
        against: for an encoder, the other text, or its token ids, `[other_tokens]`.
        position: at which token the logit is read; negative counts from the end. If absent the last one, or for a
            masked language model the only mask.
        gate_rule: through which factors of gated terms the collapse flows, as in `duat.collapse`; the table is the
            same in each.
        tokenizer: reads texts and names tokens, in the place of the model's own.
        sharding: how the axis of texts is spread over devices, for example `NamedSharding(mesh, P("batch"))`; the model
            has to lie on the same devices.

    Returns:
        The `Explanation` with its completeness; it shows itself in a notebook, and `print` shows it in a terminal. Of
        many texts, a list with one for each; of many targets, in its place a list with one for each target; a list
        is shown as a table with a row for each.

    Raises:
        InvalidInput: for token ids, pixels, a position or a combination of arguments that the model can't take.
        DuatError: for a sharding that the texts can't have, or other devices than the model's; for a gate
            rule of a model without gates.
        NotFinite: if a number is NaN or infinite.

    Example:
        >>> import duat_jax as duat
        >>> model = duat.load()
        >>> ids = model.tokenizer.encode("for i in range(10").ids
        >>> duat.explain(model, ids, model.tokenizer.token_to_id("):")).completeness.verdict
        'holds'
        >>> [[e.completeness.verdict for e in row] for row in duat.explain(model, [ids, ids[:3]], [7, None])]
        [['holds', 'holds'], ['holds', 'holds']]

    Source: Wang & Li, Eq. 11; design of the table in the project's README.
    """
    require_loaded(model)
    require_gated(model.config, gate_rule)
    question = ask(model, inputs, target, contrast, against, position, tokenizer)
    if sharding is not None:
        require_spread(model, sharding)
    return answer(model, question, gate_rule, sharding)


def answer(
    model: Transformer, question: Question, gate_rule: str | None = None, sharding: NamedSharding | None = None
) -> Any:
    """Return the explanations of a validated question."""
    streams = tuple(each.stream for each in question.targets[0])
    constant = next((each.constant for each in question.targets[0] if each.constant is not None), None)
    explanations: dict[int, list[Explanation]] = {}
    for batch in batches(question.inputs, model.config.positions, len(streams), sharding):
        readings = read_targets(model, batch.inputs, [question.targets[i] for i in batch.rows])
        of_target = [reading for reading, _ in readings]
        parts, activations = on_host(_split(model, batch.inputs, of_target, streams, gate_rule, constant))
        for place, i in enumerate(batch.indices):
            labels = labels_of(model.config, question.inputs[i], question.tokenizer)
            where = f"on input {i}" if question.many_inputs else "on what was given"
            fired = _of_tokens(row(activations, place), len(labels.names))
            explanations[i] = [
                _explanation(
                    model, question.inputs[i], labels, each, row(readings[k], place), row(parts[k], place), fired, where
                )
                for k, each in enumerate(question.targets[i])
            ]
    of_input = [ResultList(explanations[i]) for i in range(len(explanations))]
    answers = ResultList(of_input if question.many_targets else [of_targets[0] for of_targets in of_input])
    return answers if question.many_inputs else answers[0]


@partial(stored_program, static_argnames=("streams", "gate_rule", "constant"))
def _split(
    model: Transformer,
    batch: Inputs,
    readings: list[Reading],
    streams: tuple[int | None, ...],
    gate_rule: str | None,
    constant: str | None,
) -> tuple[list[_Parts], Marked[Float[Array, "texts tokens neurons"]]]:
    """Return the parts of every read-out of every text, from one recording of each, and every activation."""

    def split(inputs: Any, readings: list[Reading]) -> tuple[list[_Parts], Marked[Array]]:
        name = constant if model.head.bias is None else "head.bias"
        added = {} if name is None else {name: [reading.constant for reading in readings]}
        if any(reading.entropy is not None for reading in readings):
            added[ENTROPY] = [
                jnp.zeros_like(reading.constant) if reading.entropy is None else -reading.entropy
                for reading in readings
            ]

        def read_from(x: Array) -> Any:
            """Return the states, and by name what is added to each read-out of them."""
            return model.states(x, inputs.real), {name: offset(jnp.stack(each), name) for name, each in added.items()}

        by_token = partial(rows_of_tokens, model.config, marks.ACTIVATION, real=inputs.real)
        recording = record_kinds(read_from, inputs.embedded(model), _KINDS)

        def parts(readout: Any, target: Occurrence | None) -> _Parts:
            decomposed = decomposition.contributions(recording, readout, target=target)
            collapsed = affine_form.collapsed_contributions(recording, readout, target=target, gate_rule=gate_rule)
            coefficients = by_token(decomposed.coefficients)
            elsewhere = {key: part.sum() for key, part in decomposed.terms.items() if key not in coefficients}
            return _Parts(
                decomposed.input.sum(-1),
                coefficients,
                Marked({**decomposed.offsets, **elsewhere}),
                collapsed.input.sum(-1),
                collapsed.bias,
                decomposed.completeness,
                collapsed.completeness,
            )

        result: list[Any] = [None] * len(streams)
        for stream in dict.fromkeys(streams):
            same = [k for k, other in enumerate(streams) if other == stream]
            target, ones = None, jnp.eye(len(streams), dtype=readings[0].constant.dtype)
            readouts: list[Any] = [(readings[k].readout, dict.fromkeys(added, ones[k])) for k in same]
            if stream is not None:
                units = streams_of(model.config, stream)[0]
                target = next(step for step in recording.streams if step.site == units.site)
                readouts = [units.as_they_lie(readings[k].readout, inputs.real) for k in same]
            if len(same) == 1:  # mapping over one would be traced and compiled for nothing
                result[same[0]] = parts(readouts[0], target)
                continue
            stacked = jax.tree.map(lambda *rows: jnp.stack(rows), *readouts)
            together = jax.vmap(partial(parts, target=target))(stacked)
            for place, k in enumerate(same):
                result[k] = row(together, place)
        return result, by_token(recording.dynamics.activations)

    return jax.vmap(split)(batch, readings)


def _of_tokens(every: Marked[np.ndarray], tokens: int) -> Marked[np.ndarray]:
    """Return the rows of real tokens, as copies, so that one explanation doesn't keep a batch in memory."""
    return Marked({key: part[:tokens].copy() for key, part in every.items()})


def _explanation(
    model: Transformer,
    inputs: Inputs,
    labels: Labels,
    target: Target,
    read_out: tuple[Reading, Predicted],
    parts: Any,
    activations: Marked[np.ndarray],
    where: str,
) -> Explanation:
    (reading, predicted), tokens = read_out, len(labels.names)
    described = target.describe(reading, labels)
    remedy = "check the model's weights, or compute in a dtype of a wider range"
    require_finite(described.headline, {where: float(reading.value)}, remedy)
    recompute = recomputation(inputs, target, reading)
    # The value is that of the plain forward pass.
    whole, collapsed = (
        each.against(reading.value).certified(model, recompute)
        for each in (parts.completeness, parts.collapse_completeness)
    )
    return Explanation(
        family=model.config.family,
        tokens=labels.names,
        target=described,
        predictions=() if predicted is None else labels.predictions(*predicted),
        embedding=parts.embedding[:tokens].copy(),
        coefficients=_of_tokens(parts.coefficients, tokens),
        activations=activations,
        biases=Marked(
            {
                key: float(part)
                for key, part in parts.biases.items()
                if key.name != ENTROPY or reading.entropy is not None
            }
        ),
        collapse=parts.collapse[:tokens].copy(),
        collapse_bias=float(parts.collapse_bias),
        completeness=whole,
        collapse_completeness=collapsed,
        image=seen_by(model.config, inputs),
        encoder_layers=encoder_layers_of(model.config),
    )
