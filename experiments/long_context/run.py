"""Question: what does SmolLM2 read of texts of up to 8,192 tokens, by distance, and what does it change?

Run `make long_context`; it writes experiments/results/long_context.json and the tables in docs/long-context.md, which
states beforehand what decides.  What is measured is kept in experiments/results/work as it is finished: a run that was
stopped goes on.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import duat_jax as duat
from duat_jax.cli.compiled import keep_compiled
from duat_jax.evaluation.journal import Journal
from duat_jax.models.transformer import Transformer
from experiments import smollm2
from experiments.environment import environment
from experiments.long_context.documents import documents, repeated
from experiments.long_context.reading import measure_reading
from experiments.long_context.replacing import SPAN, by_distance, compare, losses, replaced, split_and_again, states
from experiments.long_context.report import tables
from experiments.pages import Fields, cells, write_pages

RESULTS, WORK = Path("experiments/results/long_context.json"), Path("experiments/results/work")
LENGTHS = (128, 512, 2048, 8192)
SPLIT = (128, 512)
"""Lengths at which the secant is computed."""
CONTROLLED = (128, 512, 2048)
"""Lengths at which controls are run: an untrained model, and texts whose tokens are shuffled."""
LAST = 64
"""The number of a text's last tokens whose loss is compared between lengths."""
DIGITS = 6

EIGHTH, ORDER, FIRST, SECOND = (
    "after an eighth",
    "after an eighth, order alone",
    "first tokens",
    "without the very first",
)
"""The 16 replaced tokens: those after an eighth of the text; the same in another order instead; those that the text
begins with, and these without the very first one."""
SHUFFLED = "after an eighth, shuffled text"

Found = dict[str, Any]
"""Measurements, as plain data."""


def _rounded(values: Any) -> Any:
    return jax.tree.map(lambda leaf: np.round(np.asarray(leaf, float), DIGITS).tolist(), values)


def shuffled(ids: np.ndarray, begin: int, end: int) -> np.ndarray:
    """Return a text with the order of some neighbouring tokens shuffled.

    Args:
        ids: the text.
        begin: the first of them.
        end: the first token after them.
    """
    order = np.arange(len(ids))
    order[begin:end] = np.random.default_rng(0).permutation(order[begin:end])
    return ids[order]


def changed_texts(ids: np.ndarray, other: np.ndarray) -> dict[str, tuple[np.ndarray, int, int]]:
    """Return the text with something replaced, in every way, the first replaced token, and how many are.

    Args:
        ids: the text.
        other: another text.
    """
    eighth = len(ids) // 8
    spans = {EIGHTH: (eighth, SPAN), FIRST: (0, SPAN), SECOND: (1, SPAN - 1)}
    return {
        **{name: (replaced(ids, other, *span), *span) for name, span in spans.items()},
        ORDER: (shuffled(ids, eighth, eighth + SPAN), eighth, SPAN),
    }


def measure(model: Transformer, looped: Transformer, ids: np.ndarray, other: np.ndarray) -> Found:
    """Return what a text's positions read, the losses at its end, and what replaced tokens change.

    Args:
        model: the model, whose layers are written out.
        looped: the same, whose layers are the steps of a loop.
        ids: the text.
        other: another text of the same length.
    """
    read, before = measure_reading(model, ids)
    own = jnp.asarray(ids)
    found = {
        "read": _rounded(read._asdict()),
        "losses": _rounded(losses(looped, before, own)[-LAST:]),
        "repeated": round(repeated(ids), DIGITS),
        "replaced": {
            name: _rounded(by_distance(compare(looped, before, states(looped, jnp.asarray(text)), own), *span))
            for name, (text, *span) in changed_texts(ids, other).items()
        },
    }
    if len(ids) in SPLIT:
        found["split"] = _rounded(split_and_again(looped, ids, other))
    return found


def measure_controls(untrained: Transformer, looped: Transformer, ids: np.ndarray, other: np.ndarray) -> Found:
    """Return what an untrained model reads, and what replaced tokens change in a text whose tokens are shuffled.

    Args:
        untrained: a model of the same shape with random weights.
        looped: the model, whose layers are the steps of a loop.
        ids: the text.
        other: another text of the same length.
    """
    text, eighth = shuffled(ids, 0, len(ids)), len(ids) // 8
    before, after = (states(looped, jnp.asarray(each)) for each in (text, replaced(text, other, eighth)))
    change = compare(looped, before, after, jnp.asarray(text))
    return {
        "read": _rounded(measure_reading(untrained, ids)[0]._asdict()),
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
                if tokens in CONTROLLED:
                    yield f"{kind} {text}, {tokens}, controls", partial(_controls, own, other)


def _measured(ids: np.ndarray, other: np.ndarray) -> Found:
    return measure(_model(False), _model(True), ids, other)


def _controls(ids: np.ndarray, other: np.ndarray) -> Found:
    return measure_controls(_untrained(), _model(True), ids, other)


def fields(results: Found) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: what was kept.
    """
    text = tables(results["pieces"])
    return {"tables": text, **cells(text)}


def main() -> None:
    """Run what isn't measured yet, store the results, and write the page."""
    keep_compiled()
    WORK.mkdir(parents=True, exist_ok=True)
    journal = Journal(WORK / "long_context.jsonl", {"lengths": LENGTHS, "split": SPLIT, "last": LAST})
    pieces = {}
    for name, compute in _pieces():
        pieces[name] = journal.once(name, compute)
        print(name, flush=True)
    RESULTS.write_text(json.dumps({"environment": environment(), "pieces": pieces}, allow_nan=False) + "\n", "utf-8")
    write_pages()


if __name__ == "__main__":
    main()
