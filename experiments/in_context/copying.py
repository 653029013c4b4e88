"""Does a model lose as much without the head with the largest part in copying as that part says?

"These competencies are enabled by the Transformer's MHA to learn from context" (Section 5).

25 random tokens stand twice; nothing after the first occurrence attends to it in the second run.  The gain by seeing it
is split exactly over moved parameters and over heads.  The heads with the largest parts are then removed, one, two,
four or eight of them, and the model is run again.  The unit is the sequence.
"""

from functools import partial

import pandas as pd

from duat_jax.in_context.copying import measure_copying
from duat_jax.in_context.prompts import START
from experiments.estimate import Estimate, ratio
from experiments.in_context.models import EMBEDDED, SMOLLM2, added, model_of
from experiments.in_context.run import PARAMETERS, SUMS, sums_of
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table, rows_of
from experiments.verdict import Verdict, decide, together

COPIED, SEQUENCES, HEADS = 25, 8, 8
SHOWN = (1, 2, 4, 8)
NEAR = (0.8, 1.2)
"""Shares of a part between which a loss is as large as the part."""
KEPT = ("difference", *SUMS[1:], "error", *PARAMETERS[1:])


def copied(name: str, sequence: int) -> Row:
    """Return the gain by seeing a sequence for the second time, its parts, and what is lost without heads."""
    model, tokenizer = model_of(name)
    result = measure_copying(model, tokenizer.encode(START).ids, COPIED, seed=sequence, heads=HEADS)
    sums = sums_of(result.ledger)
    return {
        "loss, first time": result.first.mean(),
        "loss, second time": result.second.mean(),
        **{column: sums[column] for column in KEPT},
        "heads": result.removed,
        "their parts": result.predicted,
        "lost without them": result.measured,
    }


def measure() -> Measurements:
    """Yield every sequence of both models."""
    for name in (EMBEDDED, SMOLLM2):
        for sequence in range(SEQUENCES):
            yield Piece("sequences", {"model": name, "sequence": sequence}, partial(copied, name, sequence))


def _heads(sequences: pd.DataFrame) -> pd.DataFrame:
    rows = sequences.explode(["heads", "their parts", "lost without them"])
    return rows[rows.heads.isin(SHOWN)].astype({"their parts": float, "lost without them": float})


def lost(name: str, frames: Frames) -> Estimate:
    """Return what is lost without the head with the largest part, relative to its part."""
    rows = rows_of(_heads(frames["sequences"]), model=name, heads=1)
    return ratio(rows["lost without them"], rows["their parts"])


def as_much(share: Estimate) -> Verdict:
    """Return whether as much is lost as the part says."""
    low, high = NEAR
    return decide(low < share.low and share.high < high, share.high < low or share.low > high)


LOST, ELSEWHERE = (
    Measure(f"lost without the largest head, of its part, {name}", partial(lost, of), 2)
    for name, of in (("SmolLM2", SMOLLM2), ("embedded model", EMBEDDED))
)
STUDY = Study(
    protocol=__doc__,
    page="in-context",
    claim="multi-head attention enables in-context learning (Section 5)",
    unit="sequences",
    stated="after the run",
    predictions=(
        Prediction(
            "without the head with the largest part as much is lost as its part says, in both models",
            "confirmed if both shares lie between 0.8 and 1.2, refuted if both lie outside; mixed if one does",
            (LOST, ELSEWHERE),
            lambda *shares: together(*map(as_much, shares)),
        ),
    ),
    control=ELSEWHERE,
    headline="Without the head with the largest part in copying SmolLM2-135M loses {outcome} of that part, the embedded"
    " model {control} ({n} sequences).",
    against="Without eight heads SmolLM2 loses {Heads / SmolLM2-135M-Instruct, 8 / lost without them} of"
    " {Copying / SmolLM2-135M-Instruct / gain by seeing the first} nats.",
    limits="The tokens are random. Two models, one of each kind.",
    tables={
        "Copying": Table(
            "sequences",
            ("model",),
            {
                "loss, first time": Cell("loss, first time", 2),
                "loss, second time": Cell("loss, second time", 2),
                "gain by seeing the first": added("difference"),
                **{name: added(name) for name in (*SUMS[1:], *PARAMETERS[1:])},
            },
        ),
        "Heads": Table(
            "sequences",
            ("model", "heads"),
            {name: added(name) for name in ("their parts", "lost without them")},
            prepare=_heads,
        ),
    },
    measure=measure,
    settings={"tokens": COPIED, "sequences": SEQUENCES, "heads": HEADS},
)
