"""Comparison of attribution methods by deletion and insertion on many texts, resumable after an interruption."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import jax
import numpy as np
from jaxtyping import Float

from duat_jax.attribution.tokens import Rule, methods_of
from duat_jax.errors import InvalidInput
from duat_jax.evaluation.deletion import (
    REMOVALS,
    SIZES,
    TextMetric,
    baselines_of,
    curves,
    leave_one_out,
    pin_targets,
    questions_of,
    scores_of,
)
from duat_jax.evaluation.drawn_texts import drawn_texts
from duat_jax.evaluation.journal import Journal, fingerprint
from duat_jax.evaluation.record import FaithfulnessRecord
from duat_jax.evaluation.statistics import IntervalEstimate, agreement, bootstrap
from duat_jax.json_record import as_record
from duat_jax.models.config import Config
from duat_jax.models.transformer import Transformer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

AT_ONCE, SORTED, REPEATS = 4, 40, 2
"""Number of texts in one batch; number of texts that are sorted by length together; number of timings of a
method."""

LEAVE_ONE_OUT = {removal: f"leave-one-out, {removal}" for removal in REMOVALS}
RANDOM = "random"


class DeletionRow(NamedTuple):
    """Results of one method for one way to take tokens away.

    Args:
        most_first: the mean metric with the most relevant tokens removed first, for each of `SIZES`, `[sizes]`.
        least_first: the same with the least relevant tokens removed first.
        deletion: the area under `most_first`; lower is better.
        insertion: the area under `least_first`, which equals that of inserting the most relevant tokens first: the
            same texts in the opposite order; higher is better.
        gaps: for each text, the area of insertion minus that of deletion, `[texts]`.
        ahead: the first method's mean gap minus this one's, paired by text; its interval is corrected for as
            many methods as are compared with the first.
        spearman: rank agreement with leave-one-out.
        kendall: the same, by the share of pairs.
    """

    most_first: Float[np.ndarray, "sizes"]
    least_first: Float[np.ndarray, "sizes"]
    deletion: IntervalEstimate
    insertion: IntervalEstimate
    gaps: Float[np.ndarray, "texts"]
    ahead: IntervalEstimate
    spearman: IntervalEstimate
    kendall: IntervalEstimate


class DeletionStudy(NamedTuple):
    """Results of a comparison.

    Args:
        texts: the number of texts.
        tokens: their mean number of removable tokens.
        value: the mean metric on the whole texts.
        tables: the row of each method, for each way to take tokens away.
        costs: the time of each method for a text's scores, in forward passes.
        seconds: the time for all texts, without the measurement of costs.
    """

    texts: int
    tokens: float
    value: float
    tables: dict[str, dict[str, DeletionRow]]
    costs: dict[str, float]
    seconds: float

    def as_dict(self, **fields: Any) -> dict[str, Any]:
        """Return the results as plain data for JSON, with the fields of `FaithfulnessRecord`."""
        return as_record(FaithfulnessRecord, self, sizes=SIZES, **fields)


def manual() -> list[str]:
    """Return sentences of Python's reference manual, in order; a language model may have been trained on them."""
    from pydoc_data.topics import topics

    sentences: dict[str, None] = {}
    for name in sorted(topics):
        for paragraph in re.split(r"\n\s*\n", topics[name]):
            for sentence in re.split(r"(?<=[.!?])\s+", " ".join(paragraph.split())):
                if 8 <= len(sentence.split()) <= 30 and re.fullmatch(r"[A-Z][\w ,;:'()-]*\.", sentence):
                    sentences[sentence] = None
    return list(sentences)


def names_of(config: Config, tokenizer: "Tokenizer") -> tuple[str, ...]:
    """Return the names of all methods that a model supports."""
    return (*methods_of(config, baselines_of(tokenizer)), *LEAVE_ONE_OUT.values(), RANDOM)


def _seconds(call: Callable[[], Any]) -> float:
    """Return the time of a call, the fastest of several; the first call, which compiles, isn't counted."""
    # Processor time excludes other programs.
    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    seconds = []
    for _ in range(REPEATS + 1):
        began = clock()
        call()
        seconds.append(clock() - began)
    return min(seconds[1:])


def _costs(
    model: Transformer, methods: Mapping[str, Rule], names: Sequence[str], questions: Sequence[TextMetric]
) -> dict[str, float]:
    """Return the time of each method, in forward passes over the same texts."""
    forward_pass = _seconds(lambda: pin_targets(model, questions))
    values, pinned = pin_targets(model, questions)
    calls = {name: partial(scores_of, name, method, model, pinned) for name, method in methods.items()} | {
        name: partial(leave_one_out, model, pinned, values, removal) for removal, name in LEAVE_ONE_OUT.items()
    }
    return {name: _seconds(calls[name]) / forward_pass if name in calls else 0.0 for name in names}


def _evaluated(
    model: Transformer,
    methods: Mapping[str, Rule],
    names: Sequence[str],
    questions: Sequence[TextMetric],
    places: Sequence[int],
    seed: int,
) -> list[dict[str, Any]]:
    """Return each text's curves and rank correlations as plain data."""
    values, pinned = pin_targets(model, questions)
    alone = {removal: leave_one_out(model, pinned, values, removal) for removal in REMOVALS}
    random = [
        np.random.default_rng([seed, place]).normal(size=question.removable.sum())
        for place, question in zip(places, pinned, strict=True)
    ]
    known = {RANDOM: random} | {name: alone[removal] for removal, name in LEAVE_ONE_OUT.items()}
    scores = {name: known[name] if name in known else scores_of(name, methods[name], model, pinned) for name in names}
    results: list[dict[str, Any]] = [
        {"value": float(value), "tokens": int(question.removable.sum())}
        for value, question in zip(values, pinned, strict=True)
    ]
    for removal in REMOVALS:
        numbers = curves(model, pinned, scores, removal)
        for i, result in enumerate(results):
            result[removal] = {
                name: {
                    "numbers": numbers[name][i].tolist(),
                    "agreement": agreement(scores[name][i], alone[removal][i]),
                }
                for name in names
            }
    return results


def _timed(*arguments: Any) -> dict[str, Any]:
    began = time.perf_counter()
    return {"texts": _evaluated(*arguments), "seconds": time.perf_counter() - began}


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the indices of each batch of texts, of similar lengths within each `SORTED`, to reduce padding."""
    # The first batches don't depend on the number of texts, so a run with more texts continues a run with fewer.
    for first in range(0, len(lengths), SORTED):
        places = sorted(range(first, min(first + SORTED, len(lengths))), key=lambda i: lengths[i])
        yield from (places[start : start + AT_ONCE] for start in range(0, len(places), AT_ONCE))


def compared(of_texts: Sequence[Mapping[str, Any]], names: Sequence[str], removal: str) -> dict[str, DeletionRow]:
    """Compare methods over all texts."""
    numbers = {name: np.array([text[removal][name]["numbers"] for text in of_texts]) for name in names}
    gaps = {name: values.mean(-1) @ (-1.0, 1.0) for name, values in numbers.items()}

    def row(name: str) -> DeletionRow:
        most_first, least_first = numbers[name].transpose(1, 0, 2)
        spearman, kendall = np.array([text[removal][name]["agreement"] for text in of_texts]).T
        return DeletionRow(
            most_first.mean(0),
            least_first.mean(0),
            bootstrap(most_first.mean(1)),
            bootstrap(least_first.mean(1)),
            gaps[name],
            bootstrap(gaps[names[0]] - gaps[name], comparisons=max(1, len(names) - 1)),
            bootstrap(spearman),
            bootstrap(kendall),
        )

    return {name: row(name) for name in names}


def check(
    config: Config, tokenizer: "Tokenizer", texts: Sequence[str], names: Sequence[str], *, count: int, longest: int
) -> tuple[str, ...]:
    """Validate the arguments of `study`, before a model is loaded."""
    drawn_texts(config, tokenizer, texts, count, longest=longest)
    known = names_of(config, tokenizer)
    if unknown := [name for name in names if name not in known]:
        raise InvalidInput(f"the model has no method {', '.join(map(repr, unknown))}: choose among {'; '.join(known)}")
    return tuple(names) or known


def study(
    model: Transformer,
    tokenizer: "Tokenizer",
    texts: Sequence[str],
    names: Sequence[str] = (),
    *,
    count: int,
    longest: int,
    seed: int = 0,
    work: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> DeletionStudy:
    """Measure the faithfulness of attribution methods on texts drawn from a list."""
    names = check(model.config, tokenizer, texts, names, count=count, longest=longest)
    methods = methods_of(model.config, baselines_of(tokenizer))
    questions = questions_of(model, tokenizer, texts, count, longest=longest, seed=seed)
    settings = {
        "texts": crc32("\n".join(texts).encode()),
        "longest": longest,
        "methods": list(names),
        "seed": seed,
        "sizes": list(SIZES),
        "model": fingerprint(model, model.config, model.config.pooling, tokenizer.to_str()),
    }
    journal = Journal(work, settings)
    results: dict[int, dict[str, Any]] = {}
    seconds = 0.0
    for places in _batches([len(question.removable) for question in questions]):
        # The last batch is filled up, so that one compiled program scores all.
        batch = (places * AT_ONCE)[:AT_ONCE]
        piece = partial(_timed, model, methods, names, [questions[i] for i in batch], batch, seed)
        piece_results = journal.once(f"texts {places}", piece)
        results |= dict(zip(places, piece_results["texts"], strict=False))
        seconds += piece_results["seconds"]
        if progress is not None:
            progress(len(results), count)
    costs = journal.once("costs", partial(_costs, model, methods, names, (questions * AT_ONCE)[:AT_ONCE]))
    of_texts = [results[i] for i in range(count)]
    return DeletionStudy(
        count,
        float(np.mean([text["tokens"] for text in of_texts])),
        float(np.mean([text["value"] for text in of_texts])),
        {removal: compared(of_texts, names, removal) for removal in REMOVALS},
        costs,
        seconds,
    )
