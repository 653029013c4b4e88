"""Deletion and insertion: the change of a metric as a text's tokens are masked or removed."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from duat_jax.attribution.tokens import Metric, Rule, number, read
from duat_jax.errors import NotFinite
from duat_jax.evaluation.drawn_texts import drawn_texts
from duat_jax.inputs.baseline_kinds import KINDS
from duat_jax.inputs.baselines import BASELINES, TOKENS, Reference, as_it_is, ask_contrast
from duat_jax.inputs.batching import bucket, row, stack
from duat_jax.inputs.model_inputs import Inputs
from duat_jax.interpret.pipeline import embedded, readers_of
from duat_jax.models.targets.base import Reader, Target
from duat_jax.models.targets.logit import LogProbability
from duat_jax.models.targets.similarity import Similarity
from duat_jax.models.transformer import Transformer
from duat_jax.processes import on_host

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SIZES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""The fractions of tokens taken away: the middles of five equal steps, so that the mean is the area."""

REMOVALS = ("masked", "removed")
"""The ways to take a token away: replace its embedding by a baseline, or read the text without it."""

AT_ONCE, LENGTHS = 32, 8
"""Number of texts in one batch, and the number of which padded lengths are multiples."""


class TextMetric(NamedTuple):
    """A metric of a model on one text.

    Args:
        inputs: the text.
        baselines: the text with every token that isn't special replaced, by the name of the baseline.
        removable: true for tokens that aren't special, `[tokens]`.
        reader: evaluates the metric on a forward pass.
    """

    inputs: Inputs
    baselines: dict[str, Reference]
    removable: Bool[np.ndarray, "tokens"]
    reader: Reader


def baselines_of(tokenizer: "Tokenizer") -> tuple[str, ...]:
    """Return the available baselines: those that a tokenizer has tokens for, and the mean of the vocabulary."""
    known = {name for name, tokens in TOKENS.items() if any(tokenizer.token_to_id(t) is not None for t in tokens)}
    return tuple(name for name in BASELINES if name in {*known, "mean"})


def questions_of(
    model: Transformer, tokenizer: "Tokenizer", texts: Sequence[str], count: int, *, longest: int, seed: int = 0
) -> list[TextMetric]:
    """Draw texts, each with one metric."""
    # For a language model, the log-probability of the most probable next token; for a sentence encoder, the cosine
    # similarity to the text that follows in the list.
    names, questions = baselines_of(tokenizer), []
    for ids, following in drawn_texts(model.config, tokenizer, texts, count, longest=longest, seed=seed):
        target: Target = LogProbability() if following is None else Similarity(following)
        request = ask_contrast(model, ids, [KINDS[name]() for name in names], target, tokenizer=tokenizer)
        (reader,) = readers_of(model, [request.target])
        baselines = dict(zip(names, request.others, strict=True))
        questions.append(TextMetric(request.inputs, baselines, baselines["mean"].averaged, reader))
    return questions


def masking(baselines: Iterable[str]) -> str:
    """Return the baseline that replaces a masked token: the mask token, or the mean of the vocabulary."""
    return "mask" if "mask" in baselines else "mean"


def _batch(questions: Sequence[TextMetric], longest: int) -> tuple[Reference, dict[str, Reference], Any]:
    """Return texts, their baselines and their readers, padded to one length."""
    length = bucket(max(len(question.removable) for question in questions), longest)
    texts = stack(as_it_is(question.inputs).padded(length) for question in questions)
    baselines = {
        name: stack(question.baselines[name].padded(length) for question in questions)
        for name in questions[0].baselines
    }
    return texts, baselines, stack(question.reader for question in questions)


def _metric_of(model: Transformer, text: Reference, baselines: dict[str, Reference], reader: Reader) -> Metric:
    x = embedded(model, text)
    real = jnp.asarray(text.inputs.real)
    metric = Metric(x, {name: embedded(model, baseline) for name, baseline in baselines.items()}, real, reader)
    return metric._replace(reader=reader.pinned(read(model, metric, x)))


@jax.jit
def _whole_texts(model: Transformer, texts: Reference, readers: Any) -> tuple[Float[Array, "texts"], Any]:
    def evaluate(text: Reference, reader: Reader) -> tuple[Array, Any]:
        metric = _metric_of(model, text, {}, reader)
        return number(model, metric, metric.x), metric.reader

    return jax.vmap(evaluate)(texts, readers)


@partial(jax.jit, static_argnames="method")
def _scores(
    method: Rule, model: Transformer, texts: Reference, baselines: dict[str, Reference], readers: Any
) -> Float[Array, "texts tokens"]:
    return jax.vmap(lambda *row: method(model, _metric_of(model, *row)))(texts, baselines, readers)


def pin_targets(
    model: Transformer, questions: Sequence[TextMetric]
) -> tuple[Float[np.ndarray, "texts"], list[TextMetric]]:
    """Evaluate the metrics on whole texts, and pin argmax targets to the tokens that they found."""
    texts, _, readers = _batch(questions, model.config.positions)
    values, readers = on_host(_whole_texts(model, texts, readers))
    pinned_questions = [question._replace(reader=row(readers, i)) for i, question in enumerate(questions)]
    return _finite(np.asarray(values, np.float64)), pinned_questions


def _finite(numbers: np.ndarray) -> np.ndarray:
    if not np.isfinite(numbers).all():
        raise NotFinite("the metric of a text is NaN or infinite: check the weights of the model")
    return numbers


def scores_of(
    name: str, method: Rule, model: Transformer, questions: Sequence[TextMetric]
) -> list[Float[np.ndarray, "_"]]:
    """Return a method's scores of every text's removable tokens."""
    scores = np.asarray(on_host(_scores(method, model, *_batch(questions, model.config.positions))), np.float64)
    if not np.isfinite(scores).all():
        raise NotFinite(f"{name!r} gives scores that aren't finite: leave it out")
    return [of_text[: len(q.removable)][q.removable] for of_text, q in zip(scores, questions, strict=True)]


def text_without(question: TextMetric, kept: Bool[np.ndarray, "tokens"], removal: str) -> tuple[Any, Reference]:
    """Return a text without some of its tokens, and the reader of the metric on it."""
    # When a token is removed, later tokens move up, and a metric read at it is read at the token before.
    inputs = question.inputs
    if removal == "masked":
        baseline = question.baselines[masking(question.baselines)]
        ids = np.where(kept, inputs.given, baseline.inputs.given)
        return question.reader, Reference(inputs._replace(given=ids), baseline.averaged & ~kept)
    segments = None if inputs.segments is None else inputs.segments[kept]
    text = as_it_is(Inputs(inputs.given[kept], inputs.real[kept], segments))
    place = question.reader.position
    if place is None:
        return question.reader, text
    return question.reader.at_position(np.array(kept[: place + 1].sum() - 1, np.asarray(place).dtype)), text


@jax.jit
def _numbers(model: Transformer, readers: Any, texts: Reference) -> Float[Array, "rows"]:
    def evaluate(reader: Reader, text: Reference) -> Array:
        metric = Metric(embedded(model, text), {}, jnp.asarray(text.inputs.real), reader)
        return number(model, metric, metric.x)

    return jax.vmap(evaluate)(readers, texts)


def numbers(model: Transformer, rows: Sequence[tuple[Any, Reference]]) -> Float[np.ndarray, "rows"]:
    """Evaluate the metric on many texts of any lengths."""
    values = np.empty(len(rows))
    of_length: dict[int, list[int]] = {}
    for i, (_, text) in enumerate(rows):
        length = min(-(-len(text.averaged) // LENGTHS) * LENGTHS, model.config.positions)
        of_length.setdefault(length, []).append(i)
    for length, indices in of_length.items():
        for start in range(0, len(indices), AT_ONCE):
            batch = indices[start : start + AT_ONCE]
            # The last batch is filled up, so that one compiled program reads all.
            filled = [rows[i] for i in (batch * AT_ONCE)[:AT_ONCE]]
            readers, texts = stack(reader for reader, _ in filled), stack(t.padded(length) for _, t in filled)
            values[batch] = np.asarray(on_host(_numbers(model, readers, texts)), np.float64)[: len(batch)]
    return _finite(values)


def run(
    model: Transformer, questions: Sequence[TextMetric], kept: Sequence[Bool[np.ndarray, "_ _"]], removal: str
) -> list[Float[np.ndarray, "_"]]:
    """Evaluate the metric on each text with some of its removable tokens kept; equal runs are made once."""
    rows: list[tuple[Any, Reference]] = []
    places = []
    for question, sets in zip(questions, kept, strict=True):
        different, inverse = np.unique(sets, axis=0, return_inverse=True)
        places.append(len(rows) + inverse.reshape(-1))
        for choice in different:
            kept_tokens = np.ones(len(question.removable), bool)
            kept_tokens[question.removable] = choice
            rows.append(text_without(question, kept_tokens, removal))
    values = numbers(model, rows)
    return [values[place] for place in places]


def leave_one_out(
    model: Transformer, questions: Sequence[TextMetric], values: Float[np.ndarray, "texts"], removal: str
) -> list[Float[np.ndarray, "_"]]:
    """Return the decrease of the metric when one token is taken away, for every removable token."""
    kept = [~np.eye(question.removable.sum(), dtype=bool) for question in questions]
    return [value - row for value, row in zip(values, run(model, questions, kept, removal), strict=True)]


def kept_sets(scores: Float[np.ndarray, "tokens"]) -> Bool[np.ndarray, "orders sizes tokens"]:
    """Return the kept tokens when the most relevant ones are removed first, and when the least relevant ones are.

    Example:
        >>> most_first, least_first = kept_sets(np.array([3.0, -1.0, 2.0, 0.0, 1.0]))
        >>> most_first[[0, 2]].astype(int).tolist(), least_first[2].astype(int).tolist()
        ([[0, 1, 1, 1, 1], [0, 1, 0, 1, 1]], [1, 0, 1, 0, 1])
    """
    removed = np.clip(np.rint(np.multiply(SIZES, len(scores))), 1, len(scores) - 1)[:, None]
    rank = np.empty(len(scores), int)
    rank[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return np.stack([rank >= removed, len(scores) - 1 - rank >= removed])


def curves(
    model: Transformer,
    questions: Sequence[TextMetric],
    scores: Mapping[str, Sequence[Float[np.ndarray, "_"]]],
    removal: str,
) -> dict[str, list[Float[np.ndarray, "orders sizes"]]]:
    """Evaluate the metric on each text as its tokens are removed in each method's order."""
    kept = [
        np.concatenate([np.concatenate(kept_sets(by_text[i])) for by_text in scores.values()])
        for i in range(len(questions))
    ]
    numbers_of_texts = [row.reshape(len(scores), 2, len(SIZES)) for row in run(model, questions, kept, removal)]
    return {name: [row[m] for row in numbers_of_texts] for m, name in enumerate(scores)}
