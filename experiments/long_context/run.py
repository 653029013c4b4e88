"""Do tokens 1,024 or more back have more than a tenth of what SmolLM2 reads?

**Model and texts.**  SmolLM2-135M-Instruct in four bits, which was trained to 8,192 tokens.  Six documents of which the
first 8,192 tokens are taken: three chapters of Python's manual, and three modules of its standard library that the
embedded model wasn't trained on.  SmolLM2's training text may have them.  Shorter texts are the end of these, so that
texts of all lengths end with the same tokens.  The three documents of a kind are each other's replacements, and so not
quite independent.

**Read.**  A token's weight at a position is the norm of the vector that attention writes from one to the other.  Its
share is measured of the norms, of their squares, and along the sum of all vectors, where it may be negative; at 64
positions of a text's later half, as a mean over layers, and without the first token.  Beside the model stand text whose
tokens are shuffled, random weights, and equal shares of all visible tokens.

**Replaced.**  16 neighbouring tokens after an eighth of the text, or at its beginning, are replaced by those of the
next document, and the model is run again.  The divergence `KL(p ‖ q)` of the next token is between the run before, `p`,
and the run after, `q`.  Controls are the same 16 tokens in another order, and the same in a text whose tokens but the
first are shuffled, which keeps their frequencies and is no null.  Last, the first three quarters but the very first
token are replaced.  In texts of 128 and 512 tokens the growth of the loss of the last 16 tokens, with all but the last
32 replaced, is split exactly by the secant, and each group of distances is also replaced alone.

**Stated beforehand** were the four predictions and their bounds, with intervals by Student's t over the six texts.
The papers say that each element of attention's output has information from the entire input.  That can't fail, because
a softmax gives no visible token the weight zero; so it is measured by bounds.  The opposite view is that far tokens are
read at small weights that change nothing.  The norms were to decide whether far tokens are read, and a
prediction on which measures differ was to be called one that depends on the measure; it is called mixed here.  The
question asked "however it is weighed" at first, which this rule doesn't decide.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

import duat_jax as duat
from duat_jax.models.transformer import Transformer
from experiments import smollm2
from experiments.estimate import Estimate
from experiments.long_context.documents import documents, repeated
from experiments.long_context.picture import distances_in_numbers, draw_distances
from experiments.long_context.reading import MEASURES, ROWS, Read, measure_reading
from experiments.long_context.replacing import SPAN, by_distance, compare, losses, replaced, split_and_again, states
from experiments.long_context.tables import (
    COLUMNS,
    EIGHTH,
    FAR,
    FIRST,
    FROM,
    LAST,
    LONG,
    MIDDLE,
    MODEL,
    ORDER,
    SECOND,
    SHORT,
    SHUFFLED,
    SHUFFLED_TEXT,
    TABLES,
    UNTRAINED,
    divergences,
    far_shares,
    gains,
    more_than_shuffled,
)
from experiments.study import Measure, Measurements, Picture, Piece, Prediction, Row, Study
from experiments.table import Frames
from experiments.verdict import Verdict, above, below, decide, every

LENGTHS = (128, 512, 2048, 8192)
SPLIT = (128, 512)
"""Lengths at which the secant is computed."""
ORDERED = (128, 512, 2048)
"""Lengths at which tokens are also replaced by the same ones in another order."""
STORED = 1024
"""The number of a text's last tokens whose losses are kept, and of those that a mean is taken of along a text."""
TENTH, LITTLE = 0.1, 50
"""The share from which on far tokens are read, and the gain in thousandths of a nat below which it is little."""


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


def layer_rows(read: Read) -> list[Row]:
    """Return what each layer reads."""
    return [
        {
            "layer": layer,
            **{COLUMNS[measure]: read.shares[measure][layer] for measure in MEASURES},
            **{f"{COLUMNS[measure]}_rest": read.rest[measure][layer] for measure in MEASURES},
            "concentration": read.tokens[layer],
            "distance": read.distance[layer],
            "distance_rest": read.distance_rest[layer],
            "largest": read.largest[layer],
        }
        for layer in range(len(read.tokens))
    ]


def losses_of(looped: Transformer, ids: np.ndarray) -> Row:
    """Return the losses at a text's end and along it."""
    own = jnp.asarray(ids)
    of_tokens = np.asarray(losses(looped, states(looped, own), own), np.float64)
    return {
        "losses": of_tokens[-STORED:],
        "by_position": [of_tokens[i : i + STORED].mean() for i in range(0, len(of_tokens), STORED)],
        "repeated": repeated(ids),
    }


def changes(looped: Transformer, ids: np.ndarray, other: np.ndarray) -> list[Row]:
    """Return what replaced tokens change by distance, in the text and in shuffled text."""

    def change(before: np.ndarray, after: np.ndarray, *span: int) -> dict[str, list[float]]:
        texts = [jnp.asarray(text) for text in (before, after)]
        return by_distance(compare(looped, *(states(looped, text) for text in texts), texts[0]), *span)

    rows = [{"replaced": name, **change(ids, text, *span)} for name, (text, *span) in changed_texts(ids, other).items()]
    (text, instead), eighth = (shuffled(each, 1, len(each)) for each in (ids, other)), len(ids) // 8
    return [*rows, {"replaced": SHUFFLED, **change(text, replaced(text, instead, eighth), eighth)}]


def parts_of(looped: Transformer, ids: np.ndarray, other: np.ndarray) -> list[Row]:
    """Return the parts of replaced tokens by distance, and what replacing each group alone costs."""
    found = split_and_again(looped, ids, other)
    return [{"distance": name, "part": of["part"], "again": of["run again"]} for name, of in found.items()]


@cache
def _model(scanned: bool) -> Transformer:
    return duat.load(smollm2.path(), scanned=scanned)


@cache
def _untrained() -> Transformer:
    return Transformer(_model(False).config, rngs=nnx.Rngs(0))


def reading_of(model: Callable[[], Transformer], ids: np.ndarray) -> list[Row]:
    """Return what each layer of a model reads of a text."""
    return layer_rows(measure_reading(model(), ids)[0])


def measure() -> Measurements:
    """Yield all measurements, all lengths of one text before the next text."""
    for kind, of_kind in documents(duat.load_tokenizer(smollm2.path())).items():
        for text in range(len(of_kind)):
            for tokens in LENGTHS:
                # Texts of all lengths end with the same tokens.
                ids, other = (of_kind[i % len(of_kind), -tokens:] for i in (text, text + 1))
                keys = {"text": f"{kind} {text}", "tokens": tokens}
                yield from pieces_of(keys, ids, other)


def pieces_of(keys: Row, ids: np.ndarray, other: np.ndarray) -> Measurements:
    """Yield the measurements on one text of one length."""
    reads: dict[str, tuple[Callable[[], Transformer], Any]] = {
        MODEL: (partial(_model, False), ids),
        SHUFFLED_TEXT: (partial(_model, False), shuffled(ids, 1, len(ids))),
        UNTRAINED: (_untrained, ids),
    }
    for weights, of in reads.items():
        yield Piece("read", {**keys, "weights": weights}, partial(reading_of, *of))
    yield Piece("losses", keys, lambda: losses_of(_model(True), ids))
    yield Piece("replaced", keys, lambda: changes(_model(True), ids, other))
    if len(ids) in SPLIT:
        yield Piece("split", keys, lambda: parts_of(_model(True), ids, other))


def used(difference: Estimate, positive: Estimate, in_shuffled: Estimate) -> Verdict:
    """Return whether far tokens are used for more than their frequencies."""
    return decide(difference.low > 0 and positive.value == 1, difference.high < TENTH * in_shuffled.value)


def needed(gain: Estimate, positive: Estimate) -> Verdict:
    """Return whether the loss falls with a longer text."""
    return decide(gain.low > 0 and positive.value == 1, gain.high < 0)


def _gain(frames: Frames) -> np.ndarray:
    return gains(frames, MIDDLE, LONG, FROM)


PREDICTIONS = (
    Prediction(
        "tokens 1,024 or more away are read",
        f"confirmed if above {TENTH:.0%} of the norms, the squared norms and the shares along the sum in texts of"
        f" {LONG:,} tokens, without the first token; refuted if below by all three; mixed if it depends on the measure",
        tuple(
            Measure(f"share, {measure}, in %", partial(far_shares, tokens=LONG, weights=MODEL, measure=measure), 1)
            for measure in MEASURES
        ),
        every(above, 100 * TENTH),
    ),
    Prediction(
        "they are used for more than frequencies",
        f"confirmed if the divergence is larger than in shuffled text of {MIDDLE:,} tokens in the mean and every text;"
        " refuted if the difference is below a tenth of the divergence in shuffled text",
        (
            Measure("divergence, more than in shuffled text, thousandths of a nat", more_than_shuffled, 2, "+"),
            Measure("share of texts above zero", lambda of: more_than_shuffled(of) > 0, 2),
            Measure("divergence in shuffled text", partial(divergences, tokens=MIDDLE, place=SHUFFLED), 2),
        ),
        used,
    ),
    Prediction(
        "they are needed",
        f"confirmed if the loss of the last {FROM:,} tokens falls from {MIDDLE:,} to {LONG:,} tokens in the mean and"
        " every text; refuted if it grows",
        (
            Measure("fall of the loss, thousandths of a nat", _gain, 1, "+"),
            Measure("share of texts above zero", lambda of: _gain(of) > 0, 2),
        ),
        needed,
    ),
    Prediction(
        f"little is gained from {SHORT} tokens on (the opposite view)",
        f"confirmed if the loss of the last {LAST} tokens falls by less than {LITTLE} thousandths of a nat from"
        f" {SHORT} to {LONG:,} tokens; refuted if by more",
        (
            Measure(
                "fall of the loss, thousandths of a nat",
                partial(gains, short=SHORT, long=LONG, last=LAST),
                1,
                "+",
            ),
        ),
        lambda gain: below(gain, LITTLE),
    ),
)

STUDY = Study(
    protocol=__doc__,
    page="long-context",
    claim='"each element in the output … contains global information" (Section 4.1)',
    unit="texts",
    stated="before the run",
    predictions=PREDICTIONS,
    control=Measure("share, norms, in shuffled text, in %", partial(far_shares, tokens=LONG, weights=SHUFFLED_TEXT), 1),
    headline="The first token aside, those 1,024 or more back have {outcome} % of what SmolLM2 reads by norms, in"
    " shuffled text {control} %; by squared norms {Tokens 1,024 or more away, by measure / SmolLM2-135M / squared norms"
    " / value} %, along all vectors' sum {Tokens 1,024 or more away, by measure / SmolLM2-135M / along the sum} %"
    " ({n} texts).",
    against="Replacing 16 such tokens moves predictions by {Divergence after replaced tokens, in thousandths of a nat /"
    " 2,048, after an eighth / 1,024 to 4,095 / value} thousandths of a nat, in shuffled text by {Divergence after"
    " replaced tokens, in thousandths of a nat / 2,048, after an eighth, shuffled text / 1,024 to 4,095 / value}; by"
    " norms untrained weights give them {Tokens 1,024 or more away, by measure / untrained / norms} %.",
    limits="One small model in four bits, and six texts of two kinds that are each other's replacements and may be in"
    " its training text. Means over positions hide a name that comes again.",
    tables=TABLES,
    measure=measure,
    pictures={
        "long-context": Picture(
            distances_in_numbers,
            draw_distances,
            "Left: the share of written norms by distance, without the first token. Middle: the divergence of"
            " predictions behind 16 replaced tokens. Right: the growth of the last quarter's loss by the distance to"
            " the replaced three quarters. Texts of 8,192 tokens; lines are 95 % intervals over {n} texts.",
        )
    },
    settings={
        "lengths": LENGTHS,
        "split": SPLIT,
        "ordered": ORDERED,
        "stored": STORED,
        "span": SPAN,
        "rows": ROWS,
    },
)
