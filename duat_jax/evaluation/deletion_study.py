"""How faithful methods are on many texts: what each text said, kept piece by piece, and what all of them say."""

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

from duat_jax.attribution.tokens import Method, methods_of
from duat_jax.errors import BadText
from duat_jax.evaluation.deletion import (
    REMOVALS,
    SIZES,
    Question,
    agreement,
    baselines_of,
    curves,
    leave_one_out,
    questions_of,
    scores_of,
    settled,
)
from duat_jax.evaluation.journal import Journal, fingerprint
from duat_jax.evaluation.statistics import Estimate, bootstrap
from duat_jax.models.transformer import Transformer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

AT_ONCE, SORTED, REPEATS = 4, 40, 2
"""How many texts are scored at once; among how many those of like lengths are put together; how often a method is
timed."""

LEAVE_ONE_OUT = {removal: f"leave-one-out, {removal}" for removal in REMOVALS}
RANDOM = "random"


class Row(NamedTuple):
    """What one method reaches while tokens are taken away in one way.

    Args:
        most_first: the mean number while the most relevant tokens go first, for each of `SIZES`, `[sizes]`.
        least_first: the same while the least relevant ones do.
        deletion: the area under `most_first`, which is the better the lower.
        insertion: the area under `least_first`, which is the area while the most relevant tokens come first, too: the
            same texts in the opposite order; the better the higher.
        gaps: of each text, the area of insertion minus that of deletion, `[texts]`.
        ahead: by how much the first method's mean gap is larger, text by text paired; its interval is corrected for as
            many methods as are compared with the first.
        spearman: rank agreement with leave-one-out.
        kendall: the same, by the share of pairs.
    """

    most_first: Float[np.ndarray, "sizes"]
    least_first: Float[np.ndarray, "sizes"]
    deletion: Estimate
    insertion: Estimate
    gaps: Float[np.ndarray, "texts"]
    ahead: Estimate
    spearman: Estimate
    kendall: Estimate


class Study(NamedTuple):
    """What was tried, and what came out.

    Args:
        texts: how many.
        tokens: how many removable tokens they have on average.
        value: the mean number on the whole texts.
        tables: of each way in which tokens are taken away, the row of each method.
        costs: how long each method takes for a text's scores, in forward passes.
        seconds: how long all texts took, costs not counted.
    """

    texts: int
    tokens: float
    value: float
    tables: dict[str, dict[str, Row]]
    costs: dict[str, float]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""

        def plain(row: Row) -> dict[str, Any]:
            return {
                name: part.tolist() if isinstance(part, np.ndarray) else part._asdict()
                for name, part in row._asdict().items()
            }

        tables = {kind: {method: plain(row) for method, row in table.items()} for kind, table in self.tables.items()}
        return {**self._asdict(), "sizes": SIZES, "tables": tables}


def manual() -> list[str]:
    """Return sentences of Python's reference manual, in order, in English; a language model may have read them."""
    from pydoc_data.topics import topics

    found: dict[str, None] = {}
    for name in sorted(topics):
        for paragraph in re.split(r"\n\s*\n", topics[name]):
            for sentence in re.split(r"(?<=[.!?])\s+", " ".join(paragraph.split())):
                if 8 <= len(sentence.split()) <= 30 and re.fullmatch(r"[A-Z][\w ,;:'()-]*\.", sentence):
                    found[sentence] = None
    return list(found)


def names_of(model: Transformer, tokenizer: "Tokenizer") -> tuple[str, ...]:
    """Return the names of every method that a model can be asked.

    Args:
        model: the model.
        tokenizer: its tokenizer.
    """
    return (*methods_of(model.config, baselines_of(tokenizer)), *LEAVE_ONE_OUT.values(), RANDOM)


def _seconds(call: Callable[[], Any]) -> float:
    """Return how long a call takes, the fastest of several; the first one, which compiles, isn't counted."""
    # What else a processor does in the meantime is no cost of ours.
    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    taken = []
    for _ in range(REPEATS + 1):
        began = clock()
        call()
        taken.append(clock() - began)
    return min(taken[1:])


def _costs(
    model: Transformer, methods: Mapping[str, Method], names: Sequence[str], questions: Sequence[Question]
) -> dict[str, float]:
    """Return how long each method takes, in forward passes over the same texts."""
    forward_pass = _seconds(lambda: settled(model, questions))
    values, asked = settled(model, questions)
    calls = {name: partial(scores_of, name, method, model, asked) for name, method in methods.items()} | {
        name: partial(leave_one_out, model, asked, values, removal) for removal, name in LEAVE_ONE_OUT.items()
    }
    return {name: _seconds(calls[name]) / forward_pass if name in calls else 0.0 for name in names}


def _tried(
    model: Transformer,
    methods: Mapping[str, Method],
    names: Sequence[str],
    questions: Sequence[Question],
    places: Sequence[int],
    seed: int,
) -> list[dict[str, Any]]:
    """Return of each text what its curves and rank agreements are, as plain data."""
    values, asked = settled(model, questions)
    alone = {removal: leave_one_out(model, asked, values, removal) for removal in REMOVALS}
    random = [
        np.random.default_rng([seed, place]).normal(size=one.removable.sum())
        for place, one in zip(places, asked, strict=True)
    ]
    known = {RANDOM: random} | {name: alone[removal] for removal, name in LEAVE_ONE_OUT.items()}
    scores = {name: known[name] if name in known else scores_of(name, methods[name], model, asked) for name in names}
    found: list[dict[str, Any]] = [
        {"value": float(value), "tokens": int(one.removable.sum())} for value, one in zip(values, asked, strict=True)
    ]
    for removal in REMOVALS:
        tried = curves(model, asked, scores, removal)
        for i, one in enumerate(found):
            one[removal] = {
                name: {
                    "numbers": tried[name][i].tolist(),
                    "agreement": agreement(scores[name][i], alone[removal][i]),
                }
                for name in names
            }
    return found


def _timed(*asked: Any) -> dict[str, Any]:
    began = time.perf_counter()
    return {"texts": _tried(*asked), "seconds": time.perf_counter() - began}


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield places of texts that are tried at once, of like lengths among each `SORTED`, so that little is padding.

    What comes first doesn't depend on how many there are: more texts go on where fewer ended.
    """
    for first in range(0, len(lengths), SORTED):
        places = sorted(range(first, min(first + SORTED, len(lengths))), key=lambda i: lengths[i])
        yield from (places[start : start + AT_ONCE] for start in range(0, len(places), AT_ONCE))


def compared(of_texts: Sequence[Mapping[str, Any]], names: Sequence[str], removal: str) -> dict[str, Row]:
    """Return what all texts say of methods.

    Args:
        of_texts: of each text and method the numbers of both curves, `[2, sizes]`, and the rank agreements.
        names: the methods; the others are compared with the first one.
        removal: a name in `REMOVALS`.
    """
    numbers = {name: np.array([one[removal][name]["numbers"] for one in of_texts]) for name in names}
    gaps = {name: of.mean(-1) @ (-1.0, 1.0) for name, of in numbers.items()}

    def row(name: str) -> Row:
        most_first, least_first = numbers[name].transpose(1, 0, 2)
        spearman, kendall = np.array([one[removal][name]["agreement"] for one in of_texts]).T
        return Row(
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
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Study:
    """Try how faithful methods are on texts drawn from a list.

    Args:
        model: a language model or a sentence encoder.
        tokenizer: its tokenizer.
        texts: the texts, in order.
        names: the methods, of `names_of`; the others are compared with the first one. All of them if there are none.
        count: how many texts are drawn, at least 2.
        longest: of a language model's text at most so many tokens are read.
        seed: which texts, and what *random* ranks them by.
        work: a file that keeps what is finished, with which a killed run goes on.
        progress: called with the number of texts finished and that of all.

    Raises:
        BadText: if there are too few texts, the model is of another kind or hasn't a method, or the file holds other
            work.
        NotFinite: if a method's scores aren't.
    """
    known = names_of(model, tokenizer)
    names = tuple(names) or known
    if unknown := [name for name in names if name not in known]:
        raise BadText(f"the model has no method {', '.join(map(repr, unknown))}: choose among {'; '.join(known)}")
    methods = methods_of(model.config, baselines_of(tokenizer))
    questions = questions_of(model, tokenizer, texts, count, longest=longest, seed=seed)
    asked = {
        "texts": crc32("\n".join(texts).encode()),
        "longest": longest,
        "methods": list(names),
        "seed": seed,
        "sizes": list(SIZES),
        "model": fingerprint(model, model.config, tokenizer.to_str()),
    }
    journal = Journal(work, asked)
    tried: dict[int, dict[str, Any]] = {}
    seconds = 0.0
    for places in _batches([len(one.removable) for one in questions]):
        # The last texts are filled up, so that one program scores all.
        some = (places * AT_ONCE)[:AT_ONCE]
        piece = partial(_timed, model, methods, names, [questions[i] for i in some], some, seed)
        found = journal.once(f"texts {places}", piece)
        tried |= dict(zip(places, found["texts"], strict=False))
        seconds += found["seconds"]
        progress(len(tried), count)
    costs = journal.once("costs", partial(_costs, model, methods, names, (questions * AT_ONCE)[:AT_ONCE]))
    of_texts = [tried[i] for i in range(count)]
    return Study(
        count,
        float(np.mean([one["tokens"] for one in of_texts])),
        float(np.mean([one["value"] for one in of_texts])),
        {removal: compared(of_texts, names, removal) for removal in REMOVALS},
        costs,
        seconds,
    )
