"""Do rank-one updates of the MLPs' weights give back most of what demonstrations add to an answer?

Dherin et al. (2025, Theorem 2.2; for norms, any layer and any token Innocenti & Achour, 2025) say that a context equals
an update of an MLP's first weights by a matrix of rank one.  Let `r` be the stream after a layer's attention,
`z = norm(r)` the MLP's input and `r + f(z W + b)` the layer's output, each with demonstrations (`C`) and without.  With
`Δz = z_C − z`, `Δr = r_C − r` and `ΔW = zᵀ (Δz W) / ‖z‖²` the output is `r + Δr + f(z (W + ΔW) + b)`.  It follows from
`z zᵀ = ‖z‖²`: any vector but zero is mapped to any other one by a matrix of rank one.  So the identity holds for
unrelated text in place of the demonstrations and for random vectors as well, and is no evidence of learning.

The updates are computed layer after layer, each in the run that the earlier ones leave; `Δr` is then the difference of
attention's outputs, a bias.  They are made from the last token of one query after four demonstrations and applied to
that token, or to all tokens as changed weights would be: at the same query, and at four other queries of the task with
other answers.  *At once* are updates from the two plain runs.  Controls are updates from exchanged demonstrations, from
another task's, and from shuffled tokens.  SmolLM2-135M-Instruct, 8 draws of each of three tasks; the number is what the
right answer's first token gains over the query alone.

Stated beforehand: if context is a weight update, the updates of all MLPs by themselves give back most of the gain at
the same query, and all updates add at other queries what demonstrations in view add there, where the first query's
answer gains no more than in view.  If it rewrites one activation, the MLPs give back little; at other queries all
updates add little, and make the first query's answer likelier.  The theorem itself is of one query.  At first each draw
of each task was a unit, and the prediction was refuted; afterwards the draws, each a mean over the tasks, became the
units, as tasks aren't drawn.

The closed form writes the same change of a pre-activation as moved `W'_{i,2}` and moved bias `b'_{i,2}`.
"""

from functools import partial

import pandas as pd

from duat_jax.inputs.few_shot_tasks import PAIRS
from experiments.estimate import Estimate, ratio
from experiments.in_context.models import DRAWS, EMBEDDED, SMOLLM2, added, model_of, per_cent, seed_of, texts_of
from experiments.in_context.rank_one_identity import Composed, measure_closed_form, measure_identity
from experiments.in_context.rank_one_study import (
    ATTENTIONS,
    BOTH,
    DEMONSTRATIONS,
    IN_VIEW,
    MLPS,
    OTHER,
    OTHER_QUERIES,
    OWN,
    RIGHT,
    measure_updates,
)
from experiments.markdown import table
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study, in_frames
from experiments.table import Cell, Frames, Table, rows_of
from experiments.verdict import Verdict, above, below, decide, together

BAND = 5
LAST, ALL = "last token", "all tokens"


def identity(name: str, task: str, draw: int) -> list[Row]:
    """Return the errors of the identity after every context."""
    found = measure_identity(*model_of(name), task, seed_of(task, draw), texts_of(name)[draw])
    return [{"context": context, **of} for context, of in found.items()]


def closed_form(name: str, task: str, draw: int) -> Row:
    """Return how the change of pre-activations splits over the closed form's parameters."""
    return measure_closed_form(*model_of(name), task, seed_of(task, draw))


def measure() -> Measurements:
    """Yield the updates, the errors of the identity, and the parts of pre-activations."""
    for draw in range(DRAWS):
        for task in PAIRS:
            keys = {"task": task, "draw": draw}
            compute = partial(measure_updates, *model_of(SMOLLM2), task, seed_of(task, draw))
            yield from in_frames(("gains", "single", "updates"), keys, compute)
            for name in (SMOLLM2, EMBEDDED):
                yield Piece("identity", {"model": name, **keys}, partial(identity, name, task, draw))
                yield Piece("form", {"model": name, **keys}, partial(closed_form, name, task, draw))


def gain(query: str, name: str, frames: Frames, kind: str = RIGHT, field: str = "answer") -> pd.Series:
    """Return what updates gain over the query alone, by task and draw."""
    rows = rows_of(frames["gains"], query=query, updated=name, demonstrations=kind)
    return rows.set_index(["task", "draw"])[field]


def over_tasks(by_task_and_draw: pd.Series) -> pd.Series:
    """Return the mean over the tasks of every draw."""
    return by_task_and_draw.groupby("draw").mean()


def share(query: str, name: str, frames: Frames) -> Estimate:
    """Return the gain by updates, of that by demonstrations in view."""
    return ratio(*(over_tasks(gain(query, of, frames)) for of in (name, IN_VIEW)))


def first_answers(frames: Frames) -> pd.Series:
    """Return how much more the first query's answer gains at other queries than with demonstrations in view."""
    by_updates, in_view = (gain(OTHER, of, frames, field="own answer") for of in (f"{BOTH}, {ALL}", IN_VIEW))
    return over_tasks(by_updates - in_view)


def _of_gain(name: str, query: str, updates: str) -> Measure:
    return Measure(name, partial(share, query, updates), 2)


BY_WEIGHTS = _of_gain("gain by updated weights alone, of the whole", OWN, f"{MLPS}, {LAST}")
BY_BIASES = _of_gain("by attention's differences", OWN, f"{ATTENTIONS}, {LAST}")
ELSEWHERE = _of_gain("gain by all updates at other queries, of that in view", OTHER, f"{BOTH}, {ALL}")
FIRST = Measure("the first query's answer at other queries, updates − in view", first_answers, 2, "+")


def serves(share: Estimate, first: Estimate) -> Verdict:
    """Return whether updates add what demonstrations add, and no more to the first query's answer."""
    as_much = decide(share.low <= 1 <= share.high, share.high < 1)
    return together(as_much, decide(first.high <= 0, first.low > 0))


def rewrites(share: Estimate, first: Estimate) -> Verdict:
    """Return whether updates add little, and make the first query's answer likelier."""
    return together(below(share, 0.5), above(first))


def _gains(gains: pd.DataFrame) -> pd.DataFrame:
    return gains.assign(at=gains["query"] + ": " + gains.demonstrations)


def _largest(column: str) -> Cell:
    return Cell(lambda rows: f"{rows[column].max():.0e}")


def _by_task(frames: Frames) -> list[str]:
    """Return the gain at the same query by updates, of that by demonstrations in view, task by task."""
    of = {name: gain(OWN, f"{name}, {LAST}", frames) for name in (MLPS, ATTENTIONS)}
    whole = gain(OWN, IN_VIEW, frames)
    rows = [[task, *(ratio(by[task], whole[task]).written(2) for by in of.values())] for task in PAIRS]
    return [*table(["task", *of], rows), "", f"*Intervals by Student's t over {DRAWS} draws of each task.*"]


BY_TASK = "Shares of the gain at the same query, by task"
STUDY = Study(
    protocol=__doc__,
    page="in-context",
    claim="none: context is a rank-one update of weights (Dherin et al., 2025)",
    unit="draws, each of three tasks",
    stated="before the run; that draws are the units, afterwards",
    predictions=(
        Prediction(
            "the updates of all MLPs by themselves give back most of the gain at the same query",
            "confirmed if their share is above a half, refuted if it is below",
            (BY_WEIGHTS,),
            lambda share: above(share, 0.5),
        ),
        Prediction(
            "all updates, at all tokens of other queries, add what demonstrations in view add there, and the first"
            " query's answer gains no more",
            "confirmed if the share's interval has 1 in it and the difference of the first query's answer is below 0,"
            " refuted if the share is below 1 and the difference above 0",
            (ELSEWHERE, FIRST),
            serves,
        ),
        Prediction(
            "the opposite view: they add little there, and make the first query's answer likelier",
            "confirmed if the share is below a half and the difference of the first query's answer above 0",
            (ELSEWHERE, FIRST),
            rewrites,
        ),
    ),
    control=BY_BIASES,
    headline="Rank-one updates of the MLPs' weights give back {outcome} of what demonstrations add to an answer,"
    " differences of attention's outputs {control} ({n} draws of three tasks each).",
    against=f"By task the weights give back between {{{BY_TASK} / antonyms / {MLPS}}} (antonyms) and"
    f" {{{BY_TASK} / capitals / {MLPS}}} (capitals)."
    " Both together pass on {Run again with updated weights / MLPs and attention, all tokens / other queries:"
    " right} of {Run again with updated weights / in view / other queries: right} nats to other queries.",
    limits="The identity holds for random vectors, too, and is no evidence. Three tasks that the model knows.",
    tables={
        BY_TASK: _by_task,
        "Run again with updated weights": Table(
            "gains", ("updated",), {"": added("answer")}, columns="at", unit="draw", prepare=_gains
        ),
        "The identity": Table(
            "identity",
            ("model", "context"),
            {
                **{f"largest {name}": _largest(name) for name in ("error of the MLP", "error of the layer")},
                "change of the MLP's output": per_cent("change"),
            },
        ),
        "Parts of pre-activations in the closed form": Table(
            "form",
            ("model",),
            {
                **{part: per_cent(part) for part in Composed._fields},
                "largest error": Cell(lambda rows: f"{rows.error.max():.0e}"),
            },
        ),
    },
    measure=measure,
    settings={"draws": DRAWS, "demonstrations": DEMONSTRATIONS, "other queries": OTHER_QUERIES},
)
