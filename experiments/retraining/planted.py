"""Does the exact ledger find planted pieces of text in the training that reads them?

The embedded model is trained on 32 pieces of 32 tokens, eight passes in 64 steps of Adam.  One piece, the *taught* one,
is a line with a secret word again and again; a *decoy* has its tokens in another order.  In a second training there is
a *twin* of the taught piece, in a third (*contradicted*) the same line with a wrong answer.  The number is the loss of
the answer's tokens after the line's beginning; also after 32 tokens of ordinary text, which no piece has.  Fourteen
draws of words, ordinary pieces, places and order.

**Scores.** The exact ledger, with segments of eight steps; the same way back with the gradient at the beginning, and
with that after all, for every step; TracIn at every kept state; the cosine of gradients after all.  Control: the cosine
of counts of tokens with the line, of which taught piece and decoy have the same.

**Truth.** Training again from the same weights, in the same steps, with the losses of a piece times zero.  Of three
draws every piece of *alone* is left out once.

A piece is *found* in a draw if the taught piece lowers the number most by its score in *alone* and *contradicted*, both
twins most in *twins*, and the wrong answer raises it most in *contradicted*; of equal scores the worst place counts.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from experiments.estimate import Estimate, estimate
from experiments.markdown import table
from experiments.pictures.panels import draw_panels
from experiments.retraining.planted_texts import (
    ALONE,
    BOTH,
    CONTRADICTED,
    DECOY,
    LARGEST,
    LENGTH,
    ORDINARY,
    PIECES,
    TAUGHT,
    TWIN,
    TWINS,
    WORDS,
    WORLDS,
    WRONG,
)  # fmt: skip
from experiments.retraining.planted_training import (
    BATCH,
    DRAWS,
    ELSEWHERE,
    EVERY,
    EXACT,
    LEFT_OUT,
    METHODS,
    RATE,
    STEPS,
    train_with,
)  # fmt: skip
from experiments.run import frames_of
from experiments.study import Measure, Measurements, Picture, Piece, Prediction, Row, Study
from experiments.table import Frames, rows_of
from experiments.verdict import Verdict, above, below, decide, joined

Rule = Callable[[Estimate, float], Verdict]


def measure() -> Measurements:
    """Yield every training."""
    for seed in range(DRAWS):
        for world in WORLDS:
            left_out = ["left out"] if world == ALONE and seed < LEFT_OUT else []
            for frame in ("trainings", "pieces", "orders", *left_out):
                keys: dict[str, Any] = {"draw": seed, "training": world}
                yield Piece(frame, keys, partial(_rows, seed, world, frame))


def _rows(seed: int, world: str, frame: str) -> list[Row]:
    return train_with(seed, world)[frame]


def selected(frames: Frames, frame: str, training: str, **keys: str) -> pd.DataFrame:
    """Return the rows of a training with given keys, a row for each draw."""
    return rows_of(frames[frame], training=training, **keys).set_index("draw")


def found_by(frames: Frames, method: str, training: str | None = None) -> pd.Series:
    """Return for every draw whether a method finds the planted pieces, of one training or of all three."""
    if training is None:
        found: pd.Series = pd.concat([found_by(frames, method, each) for each in WORLDS], axis=1).all(axis=1)
        return found
    orders = partial(selected, frames, "orders", training, method=method)
    lowest = {piece: orders(piece=piece).from_lowest for piece in WORLDS[training]}
    if training == TWINS:
        return np.maximum(lowest[TAUGHT], lowest[TWIN]) == 2
    first: pd.Series = lowest[TAUGHT] == 1
    if training == CONTRADICTED:
        first &= orders(piece=WRONG).from_highest == 1
    return first


def fall(frames: Frames, training: str) -> pd.Series:
    """Return by how much the loss of the answer falls, in nats."""
    ends = selected(frames, "trainings", training)
    return ends.before - ends.after


def lost(frames: Frames, training: str, piece: str) -> pd.Series:
    """Return by how much higher the loss of the answer ends without a piece, in nats."""
    return selected(frames, "pieces", training, piece=piece).without - selected(frames, "trainings", training).after


def part(frames: Frames, training: str, piece: str, of: str = "part") -> pd.Series:
    """Return by how much a piece, or its answer, lowers the loss by the exact ledger, in nats."""
    return -selected(frames, "pieces", training, piece=piece)[of]


def twins(frames: Frames) -> tuple[pd.Series, pd.Series]:
    """Return what is lost without the twin that matters more, and the smaller of both parts."""
    one = np.maximum(lost(frames, TWINS, TAUGHT), lost(frames, TWINS, TWIN))
    return one, np.minimum(part(frames, TWINS, TAUGHT), part(frames, TWINS, TWIN))


def _ordinary(frames: Frames) -> pd.Series:
    each = [lost(frames, ALONE, piece).abs() for piece in (ORDINARY, LARGEST)]
    return np.maximum(*each) / fall(frames, ALONE)


def claim(name: str, rule: str, *sentences: tuple[str, Callable[[Frames], pd.Series], Rule, float]) -> Prediction:
    """Return the prediction of several sentences, each a measure beside a bound: refuted if one of them is."""

    def decided(*estimates: Estimate) -> Verdict:
        each = [judge(of, bound) for (*_, judge, bound), of in zip(sentences, estimates, strict=True)]
        return joined(*each)

    return Prediction(name, rule, tuple(Measure(label, values, 2) for label, values, *_ in sentences), decided)


FOUND_BY = {
    method: Measure(f"share of draws, {method}", partial(found_by, method=method), 2) for method in (EXACT, ELSEWHERE)
}
PREDICTIONS = (
    *(
        Prediction(
            f"found: the {method} has the planted pieces at the ends of its order",
            "confirmed if the interval of the share of draws lies above 0.75, refuted if below",
            (measure,),
            lambda share: above(share, 0.75),
        )
        for method, measure in FOUND_BY.items()
    ),
    claim(
        "the taught piece alone teaches",
        "without it more than half of the fall is lost, without either of two ordinary pieces less than a tenth",
        ("lost without it", lambda of: lost(of, ALONE, TAUGHT) / fall(of, ALONE), above, 0.5),
        ("without ordinary pieces", _ordinary, below, 0.1),
    ),
    claim(
        "order, not tokens",
        "the decoy's part is less than half of the taught piece's, and so is what is lost without it",
        ("part of the decoy", lambda of: part(of, ALONE, DECOY) / part(of, ALONE, TAUGHT), below, 0.5),
        ("lost without it", lambda of: lost(of, ALONE, DECOY) / lost(of, ALONE, TAUGHT), below, 0.5),
    ),
    claim(
        "twins stand in for each other",
        "without one less than half of the fall is lost, without both more, and the smaller part is larger than what"
        " is lost without one",
        ("lost without one", lambda of: twins(of)[0] / fall(of, TWINS), below, 0.5),
        ("without both", lambda of: lost(of, TWINS, BOTH) / fall(of, TWINS), above, 0.5),
        ("smaller part minus that", lambda of: (twins(of)[1] - twins(of)[0]) / fall(of, TWINS), above, 0.0),
    ),
    claim(
        "the wrong answer unteaches",
        "without it the loss ends lower, and its answer's tokens have a part that raises it",
        ("regained without it, nats", lambda of: -lost(of, CONTRADICTED, WRONG), above, 0.0),
        ("raised by its answer's tokens, nats", lambda of: -part(of, CONTRADICTED, WRONG, "answer"), above, 0.0),
    ),
    claim(
        "by the answer's tokens",
        "of the taught piece's part in *alone* more than half is that of the answer's tokens and the mark",
        ("share", lambda of: part(of, ALONE, TAUGHT, "answer") / part(of, ALONE, TAUGHT), above, 0.5),
    ),
    Prediction(
        "a part is what its absence costs",
        "what is lost without the taught piece in *alone* is between 0.8 and 1.25 of its part",
        (Measure("lost, of its part", lambda of: lost(of, ALONE, TAUGHT) / part(of, ALONE, TAUGHT), 2),),
        lambda share: decide(share.low > 0.8 and share.high < 1.25, share.high < 0.8 or share.low > 1.25),
    ),
)


def orders(frames: Frames) -> list[str]:
    """Return the share of draws in which each method finds the planted pieces, and the taught piece's margin."""
    rows = []
    for method in METHODS:
        margins = selected(frames, "orders", ALONE, method=method, piece=TAUGHT).margin
        hits = [found_by(frames, method, training) for training in (*WORLDS, None)]
        rows.append([method, *(estimate(of).written(2) for of in hits), estimate(margins).written(1)])
    return table(["method", *WORLDS, "all three", "margin of the taught piece"], rows)


def pieces(frames: Frames) -> list[str]:
    """Return by how much each piece lowers the loss by its part, and how much is lost without it."""
    rows = []
    for (training, piece), of in frames["pieces"].groupby(["training", "piece"], sort=False):
        numbers = [
            estimate(values).written(2, "+") if of[column].notna().all() else ""
            for column, values in (
                ("part", part(frames, training, piece)),
                ("without", lost(frames, training, piece)),
                ("answer", part(frames, training, piece, "answer")),
            )
        ]
        rows.append([f"{training}, {piece}", *numbers])
    both = lost(frames, TWINS, BOTH)
    for piece, other in ((TAUGHT, TWIN), (TWIN, TAUGHT)):
        shapley = (both - lost(frames, TWINS, other) + lost(frames, TWINS, piece)) / 2
        rows.append([f"{TWINS}, {piece}, Shapley value", "", estimate(shapley).written(2, "+"), ""])
    columns = "lowered by its part, nats", "lost without it, nats", "lowered by its answer, nats"
    return table(["training and piece", *columns], rows)


def _dots() -> dict[str, Any]:
    """Return by how much planted pieces lower a loss by their parts, and how much of it is lost without them."""
    frames = frames_of("retraining_planted")
    rows = frames["pieces"].dropna(subset=["part", "without"]).drop_duplicates(["training", "piece"])
    names = sorted(zip(rows.training, rows.piece, strict=True))
    return {
        column: ["nats", {f"{a}, {b}": list(estimate(of(frames, a, b).round(6))[:3]) for a, b in names}]
        for column, of in (("lowered by its part, nats", part), ("lost without it, nats", lost))
    }


STUDY = Study(
    protocol=__doc__,
    page="emergence",
    claim="none: whether exact parts of examples find what taught a text",
    unit="draws",
    stated="before the run",
    predictions=PREDICTIONS,
    control=FOUND_BY[ELSEWHERE],
    headline="In {outcome} of {n} draws the exact ledger ranks the planted pieces first when it splits the loss of text"
    " that they contain, and in {control} when it splits the same loss after other text; the cosine of gradients in"
    " {Planted pieces at the ends of the order / cosine of gradients after all / all three}.",
    against="No lead over the cosine of gradients after all is shown. And a part isn't what its absence costs: without"
    " one of two twins only {Parts of planted pieces, and trainings without them / twins, taught / lost without it,"
    " nats} nats are lost.",
    limits="One model of a few million weights, one kind of line, eight passes: a large model that reads a text once"
    " may keep less of it. The same words come in several draws.",
    tables={
        "Planted pieces at the ends of the order": orders,
        "Parts of planted pieces, and trainings without them": pieces,
    },
    pictures={
        "planted": Picture(
            _dots,
            draw_panels,
            "Left: by how much planted pieces lower the loss of the answer by their parts; right: how much higher it"
            " ends without them. Without one of two twins hardly anything is lost,"
            " though each has a large part.",
        )
    },
    measure=measure,
    settings={
        "draws": DRAWS,
        "pieces": PIECES,
        "length": LENGTH,
        "words": list(WORDS),
        "steps": STEPS,
        "batch": BATCH,
        "rate": RATE,
        "every": EVERY,
        "left out": LEFT_OUT,
    },
)
