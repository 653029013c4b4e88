"""Attribute: score tokens, neurons, heads or streams of a model by any attribution method."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from duat_jax.attribution.registry import METHODS, method_of
from duat_jax.attribution.result import Attribution
from duat_jax.attribution.tokens import Metric, number, read, states
from duat_jax.deprecation import renamed_arguments
from duat_jax.errors import InvalidInput, NotFinite
from duat_jax.inputs.baseline_kinds import Baseline
from duat_jax.inputs.baselines import ContrastQuestion, ask_contrast
from duat_jax.inputs.batching import over_rows
from duat_jax.inputs.model_inputs import ManyInputs, OneInput
from duat_jax.inputs.question import ask_once
from duat_jax.interpret.comparison import compare_runs
from duat_jax.interpret.many_inputs import answers_each_input
from duat_jax.models.targets.base import OneTarget, Reader
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import require_loaded
from duat_jax.nn.linear import PRECISION
from duat_jax.processes import on_host
from duat_jax.transform.stored_program import stored_program

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@renamed_arguments(other="reference")
@answers_each_input
def attribute(
    model: Transformer,
    inputs: "OneInput | ManyInputs",
    reference: "OneInput | Baseline | Sequence[OneInput | Baseline] | None" = None,
    target: "OneTarget" = None,
    *,
    method: str = "secant",
    unit: str = "token",
    contrast: int | str | None = None,
    against: "OneInput | None" = None,
    position: int | None = None,
    alignment: Sequence[tuple[int, int]] | np.ndarray | None = None,
    tokenizer: "Tokenizer | None" = None,
) -> Attribution:
    """Score each unit of a model by an attribution method: its share of a number, or of the number's difference.

    Most methods multiply a coefficient by the change from a reference, `score = c Δ`; the page on attribution
    methods has the formula and the source of each. `duat.explain` and `duat.contrast` give more detail for the two
    exact methods; this function is for comparing methods on the same units.

    Args:
        model: a loaded model.
        inputs: a text; its token ids, `[tokens]`; or a `duat.TokenizedText`. For a vision model
            an image's pixels. Or a list of many.
        reference: as in `duat.contrast`: another input, a baseline, or a list of several, over
            which the scores are averaged. `None` for methods that multiply by no change.
        target: the explained number: a token, a class or a target, as in `duat.explain`.
        method: the name of a method that scores such units; an unknown one is answered with the list.
        unit: `"token"`; or `"neuron"`, `"head"` or `"stream"`, each at every token of every layer.
        contrast: the token or class whose logit is subtracted.
        against: for an encoder, what the inputs are compared with.
        position: at which token the logit is read; negative counts from the end.
        alignment: where texts differ in length, pairs of indices, as in `duat.contrast`.
        tokenizer: reads texts and names tokens, in the place of the model's own.

    Returns:
        The `Attribution`; it shows itself in a notebook, and `print` shows it in a terminal.
        Of many inputs, a list with one for each.

    Raises:
        InvalidInput: for inputs that the model can't take, an unknown method or kind of units, a reference that is
            missing, or one that the method doesn't use.
        NotFinite: if the number or a score is NaN or infinite.

    Example:
        >>> import duat_jax as duat
        >>> model = duat.load()
        >>> ids = model.tokenizer.encode("for i in range(10").ids
        >>> exact = duat.attribute(model, ids, duat.baselines.Mean())
        >>> bool(abs(exact.gap) < 1e-4 * abs(exact.difference))
        True
        >>> duat.attribute(model, ids, duat.baselines.Mean(), method="gradient x change", unit="head").scores.shape
        (6, 6, 4)
    """
    require_loaded(model)
    arguments = target, contrast, against, position, alignment, tokenizer
    return answer(model, ask_attribution(model, method, unit, inputs, reference, *arguments), method, unit)


def ask_attribution(
    model: Any,
    method: str,
    unit: str,
    inputs: Any,
    reference: Any = None,
    target: Any = None,
    contrast: Any = None,
    against: Any = None,
    position: Any = None,
    alignment: Any = None,
    tokenizer: "Tokenizer | None" = None,
) -> ContrastQuestion:
    """Validate a method, an input, a target and the references that the method multiplies the change from."""
    if method_of(model.config, unit, method).of_change:
        if reference is None:
            raise InvalidInput(
                f"{method!r} multiplies by the change from a reference: give another input or a baseline"
                " (--reference or --baseline)"
            )
        return ask_contrast(model, inputs, reference, target, contrast, against, position, alignment, tokenizer)
    if reference is not None or alignment is not None:
        raise InvalidInput(f"{method!r} uses no reference: leave reference and alignment out")
    alone = ask_once(model, inputs, target, contrast, against, position, tokenizer)
    return ContrastQuestion(alone.input, alone.target, (), (), (), tokenizer=alone.tokenizer)


def answer(model: Transformer, question: ContrastQuestion, method: str, unit: str) -> Attribution:
    """Answer a validated question."""
    described, runs = method_of(model.config, unit, method), compare_runs(model, question)
    scores = on_host(_scores(model, runs.reader, runs.real, runs.embeddings, runs.stream, method, unit))
    real = slice(len(runs.tokens))
    scores = scores[real] if unit == "token" else scores[:, real]
    if not np.isfinite(scores).all():
        raise NotFinite(f"{method!r} gives scores that are NaN or infinite: compute in a dtype of a wider range")
    return Attribution(
        family=model.config.family,
        tokens=runs.tokens,
        target=runs.target,
        method=method,
        unit=unit,
        score=described.score,
        source=described.source,
        value=runs.value,
        predictions=runs.predictions,
        references=runs.references,
        difference=float(runs.difference),
        scores=scores,
    )


@partial(stored_program, static_argnames=("stream", "method", "unit"))
def _scores(
    model: Transformer,
    reader: Reader,
    real: Shaped[Array, "tokens"],
    embeddings: Float[Array, "rows tokens features"],
    stream: int | None,
    method: str,
    unit: str,
) -> Float[Array, "..."]:
    """Return the scores of the first row against each of the others, averaged over these."""
    x, references = embeddings[0], embeddings[1:]
    rule, of_change = METHODS[unit][method].rule, METHODS[unit][method].of_change
    metric = Metric(x, {}, real, reader, stream)
    readout = read(model, metric, x).readout

    def held_readout(x: Array) -> Array:
        return jnp.vdot(readout, states(model, metric, x), precision=PRECISION)

    def scores(y: Any) -> Array:
        if unit != "token":
            fn = held_readout if METHODS[unit][method].of_readout else partial(number, model, metric)
            return getattr(rule(model, fn, x, y, real), f"{unit}s")
        if not of_change:
            return rule(model, metric)
        return rule(model, metric._replace(baselines={"reference": y}), baseline="reference")

    if not of_change:
        return scores(None)
    return over_rows(scores, references).mean(0)
