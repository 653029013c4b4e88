"""Explain numbers that a model computes on an input, down to every neuron at every token."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jaxtyping import Array, Float

from duat_jax.deprecation import renamed_arguments
from duat_jax.display.result import ResultList
from duat_jax.forms import affine_form, decomposition
from duat_jax.inputs.batching import batches, over_rows, require_spread, row
from duat_jax.inputs.labels import labels_of
from duat_jax.inputs.model_inputs import Inputs, ManyInputs, OneInput
from duat_jax.inputs.question import Question, ask
from duat_jax.interpret.explain.parts import ENTROPY, CollapseSplit, TableSplit, WantedSplits, explanation, of_tokens
from duat_jax.interpret.explain.result import Explanation
from duat_jax.interpret.pipeline import read_targets, rows_of_tokens
from duat_jax.models.targets.base import ManyTargets, OneTarget, Reading
from duat_jax.models.transformer import Transformer
from duat_jax.models.units import streams_of
from duat_jax.models.validation import require_gated, require_loaded
from duat_jax.processes import on_host
from duat_jax.transform import marks
from duat_jax.transform.keys import Marked, Occurrence
from duat_jax.transform.marks import offset
from duat_jax.transform.recording import record_kinds
from duat_jax.transform.stored_program import stored_program

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TABLE, COLLAPSE = "table", "collapse"
"""The two splits of a number: over embedding, neurons and biases; over the tokens of the input."""

_KINDS = {TABLE: decomposition.KINDS, COLLAPSE: affine_form.KINDS}


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
        is shown as a table with a row for each. The collapse, by tokens of the input, is computed when it is first
        read, printed, drawn or saved, of up to eight texts at once; with `gate_rule`, or in several processes, at once.

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
    model: Transformer,
    question: Question,
    gate_rule: str | None = None,
    sharding: NamedSharding | None = None,
    *,
    collapse: bool = False,
) -> Any:
    """Return the explanations of a validated question, with the collapse if it is going to be read."""
    # A rule for the collapse asks for it. Several processes compute it together, and one of them may read it alone.
    at_once = collapse or gate_rule is not None or jax.process_count() > 1
    wanted = (TABLE, COLLAPSE) if at_once else (TABLE,)
    streams = tuple(each.stream for each in question.targets[0])
    constant = next((each.constant for each in question.targets[0] if each.constant is not None), None)
    explanations: dict[int, list[Explanation]] = {}
    for batch in batches(question.inputs, model.config.positions, len(streams), sharding):
        readings = read_targets(model, batch.inputs, [question.targets[i] for i in batch.rows])
        of_target = [reading for reading, _ in readings]
        parts, activations = on_host(_split(model, batch.inputs, of_target, streams, gate_rule, constant, wanted))
        again = [question.inputs[i] for i in batch.indices]
        collapses = _collapses_of(model, again, sharding, of_target, streams, constant)
        for place, i in enumerate(batch.indices):
            labels = labels_of(model.config, question.inputs[i], question.tokenizer)
            where = f"on input {i}" if question.many_inputs else "on what was given"
            fired = of_tokens(row(activations, place), len(labels.names))
            explanations[i] = [
                explanation(
                    model,
                    question.inputs[i],
                    labels,
                    each,
                    row(readings[k], place),
                    row(parts[k], place),
                    fired,
                    where,
                    partial(_row_of, collapses, k, place),
                )
                for k, each in enumerate(question.targets[i])
            ]
    of_input = [ResultList(explanations[i]) for i in range(len(explanations))]
    answers = ResultList(of_input if question.many_targets else [of_targets[0] for of_targets in of_input])
    return answers if question.many_inputs else answers[0]


_Collapses = Callable[[], tuple[Transformer, list[CollapseSplit]]]
"""Computes the collapse of every read-out of a batch, and returns the model that it is of, too."""


def _collapses_of(
    model: Transformer,
    inputs: Sequence[Inputs],
    sharding: NamedSharding | None,
    readings: list[Reading],
    streams: tuple[int | None, ...],
    constant: str | None,
) -> _Collapses:
    """Return the function that computes a batch's collapses when they are first read, by the weights of now."""
    # A model may be changed in place until then; its arrays can't be.
    weights, double = jax.tree.leaves(model), jax.config.read("jax_enable_x64")

    @cache
    def collapses() -> tuple[Transformer, list[CollapseSplit]]:
        unchanged = jax.tree.unflatten(jax.tree.structure(model), weights)
        (batch,) = batches(inputs, model.config.positions, len(streams), sharding)
        with jax.enable_x64(double):
            parts, _ = on_host(_split(unchanged, batch.inputs, readings, streams, None, constant, (COLLAPSE,)))
        return unchanged, [each.collapse for each in parts]

    return collapses


def _row_of(collapses: _Collapses, readout: int, place: int) -> tuple[Transformer, CollapseSplit]:
    """Return the collapse of one read-out of one text of a batch, and the model that it is of."""
    model, every = collapses()
    return model, row(every[readout], place)


@partial(stored_program, static_argnames=("streams", "gate_rule", "constant", "wanted"))
def _split(
    model: Transformer,
    batch: Inputs,
    readings: list[Reading],
    streams: tuple[int | None, ...],
    gate_rule: str | None,
    constant: str | None,
    wanted: tuple[str, ...] = (TABLE,),
) -> tuple[list[WantedSplits], Marked[Float[Array, "texts tokens neurons"]]]:
    """Return the splits of every read-out of every text, from one recording of each, and with tables activations."""

    def split(inputs: Any, readings: list[Reading]) -> tuple[list[WantedSplits], Marked[Array]]:
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
        kinds = dict.fromkeys((*(kind for each in wanted for kind in _KINDS[each]), marks.STREAM))
        recording = record_kinds(read_from, inputs.embedded(model), kinds)

        def table(readout: Any, target: Occurrence | None) -> TableSplit:
            parts = decomposition.contributions(recording, readout, target=target)
            coefficients = by_token(parts.coefficients)
            elsewhere = {key: part.sum() for key, part in parts.terms.items() if key not in coefficients}
            biases = Marked({**parts.offsets, **elsewhere})
            return TableSplit(parts.input.sum(-1), coefficients, biases, parts.completeness)

        def collapse(readout: Any, target: Occurrence | None) -> CollapseSplit:
            parts = affine_form.collapsed_contributions(recording, readout, target=target, gate_rule=gate_rule)
            return CollapseSplit(parts.input.sum(-1), parts.bias, parts.completeness)

        def parts(readout: Any, target: Occurrence | None) -> WantedSplits:
            return WantedSplits(
                table(readout, target) if TABLE in wanted else None,
                collapse(readout, target) if COLLAPSE in wanted else None,
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
        return result, by_token(recording.dynamics.activations) if TABLE in wanted else Marked({})

    return over_rows(split, batch, readings)
