"""Question: what does SmolLM2 read of texts of up to 8,192 tokens, by distance, and what does it change?

Run `python -m experiments long_context`; it writes experiments/results/long_context.json and the tables in
docs/findings/long-context.md, which states beforehand what decides.  What is measured is kept in
experiments/results/work as it
is finished: a run that was stopped goes on.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import duat_jax as duat
from duat_jax.evaluation.journal import Journal
from duat_jax.models.transformer import Transformer
from experiments import smollm2
from experiments.kept_results import store
from experiments.long_context.documents import documents, repeated
from experiments.long_context.reading import ROWS, measure_reading
from experiments.long_context.replacing import SPAN, by_distance, compare, losses, replaced, split_and_again, states
from experiments.long_context.report import tables
from experiments.long_context.verdicts import EIGHTH, SHUFFLED
from experiments.markdown import Fields, cells

WORK = Path("experiments/results/work")
LENGTHS = (128, 512, 2048, 8192)
SPLIT = (128, 512)
"""Lengths at which the secant is computed."""
ORDERED = (128, 512, 2048)
"""Lengths at which tokens are also replaced by the same ones in another order."""
STORED = 1024
"""The number of a text's last tokens whose losses are kept, and of those that a mean is taken of along a text."""
DIGITS = 10
VERSION = 2
"""Of the measurements; results of another one aren't gone on with."""

ORDER, FIRST, SECOND, FAR = (
    "after an eighth, order alone",
    "first tokens",
    "without the very first",
    "all but the last quarter and the very first",
)
"""The replaced tokens: 16 after an eighth of the text, in another order; the 16 that the text begins with, and these
without the very first one; and all of the text's first three quarters but the very first one."""

Found = dict[str, Any]
"""Measurements, as plain data."""


def _rounded(values: Any) -> Any:
    return jax.tree.map(lambda leaf: np.round(np.asarray(leaf, float), DIGITS).tolist(), values)


def shuffled(ids: np.ndarray, begin: int, end: int) -> np.ndarray:
    """Return a text with the order of some neighbouring tokens shuffled."""
    order = np.arange(len(ids))
    order[begin:end] = np.random.default_rng(0).permutation(order[begin:end])
    return ids[order]


def changed_texts(ids: np.ndarray, other: np.ndarray) -> dict[str, tuple[np.ndarray, int, int]]:
    """Return the text with something replaced, in every way, the first replaced token, and how many are."""
    eighth = len(ids) // 8
    far = len(ids) - len(ids) // 4 - 1
    spans = {EIGHTH: (eighth, SPAN), FIRST: (0, SPAN), SECOND: (1, SPAN - 1), FAR: (1, far)}
    texts = {name: (replaced(ids, other, *span), *span) for name, span in spans.items()}
    if len(ids) in ORDERED:
        texts[ORDER] = shuffled(ids, eighth, eighth + SPAN), eighth, SPAN
    return texts


def measure(model: Transformer, looped: Transformer, ids: np.ndarray, other: np.ndarray) -> Found:
    """Return what a text's positions read, the losses at its end, and what replaced tokens change."""
    read, before = measure_reading(model, ids)
    own = jnp.asarray(ids)
    of_tokens = np.asarray(losses(looped, before, own), np.float64)
    found = {
        "read": _rounded(read._asdict()),
        "losses": _rounded(of_tokens[-STORED:]),
        "by position": _rounded([of_tokens[i : i + STORED].mean() for i in range(0, len(of_tokens), STORED)]),
        "repeated": round(repeated(ids), DIGITS),
        "replaced": {
            name: _rounded(by_distance(compare(looped, before, states(looped, jnp.asarray(text)), own), *span))
            for name, (text, *span) in changed_texts(ids, other).items()
        },
    }
    if len(ids) in SPLIT:
        found["split"] = _rounded(split_and_again(looped, ids, other))
    return found


def measure_controls(
    untrained: Transformer, model: Transformer, looped: Transformer, ids: np.ndarray, other: np.ndarray
) -> Found:
    """Return what an untrained model reads, and what is read and replaced tokens change in shuffled text."""
    (text, instead), eighth = (shuffled(each, 1, len(each)) for each in (ids, other)), len(ids) // 8
    read, before = measure_reading(model, text)
    after = states(looped, jnp.asarray(replaced(text, instead, eighth)))
    change = compare(looped, before, after, jnp.asarray(text))
    return {
        "read": _rounded(measure_reading(untrained, ids)[0]._asdict()),
        "read, shuffled text": _rounded(read._asdict()),
        "replaced": {SHUFFLED: _rounded(by_distance(change, eighth))},
    }


@cache
def _model(scanned: bool) -> Transformer:
    return duat.load(smollm2.path(), scanned=scanned)


@cache
def _untrained() -> Transformer:
    return Transformer(_model(False).config, rngs=nnx.Rngs(0))


def _pieces() -> Iterator[tuple[str, Callable[[], Found]]]:
    """Yield the measurements, all lengths of one text before the next text."""
    texts = documents(duat.load_tokenizer(smollm2.path()))
    for kind, ids in texts.items():
        for text in range(len(ids)):
            for tokens in LENGTHS:
                # Texts of all lengths end with the same tokens.
                own, other = (ids[i % len(ids), -tokens:] for i in (text, text + 1))
                yield f"{kind} {text}, {tokens}", partial(_measured, own, other)
                yield f"{kind} {text}, {tokens}, controls", partial(_controls, own, other)


def _measured(ids: np.ndarray, other: np.ndarray) -> Found:
    return measure(_model(False), _model(True), ids, other)


def _controls(ids: np.ndarray, other: np.ndarray) -> Found:
    return measure_controls(_untrained(), _model(False), _model(True), ids, other)


def fields(results: Found) -> Fields:
    """Return the fields of the documentation pages."""
    text = tables(results["pieces"])
    return {"tables": text, **cells(text)}


def main() -> None:
    """Run what isn't measured yet, and store the results."""
    WORK.mkdir(parents=True, exist_ok=True)
    sizes = {"lengths": LENGTHS, "split": SPLIT, "ordered": ORDERED, "stored": STORED, "span": SPAN, "rows": ROWS}
    journal = Journal(WORK / "long_context.jsonl", {"version": VERSION, "digits": DIGITS, **sizes})
    pieces = {}
    for name, compute in _pieces():
        pieces[name] = journal.once(name, compute)
        print(name, flush=True)
    store("long_context", {"pieces": pieces})
