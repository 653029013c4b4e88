"""Does a small model follow a question of two steps in any order of facts?

Section 4.2: "ICL, multi-step reasoning, and instruction following are intuitive manifestations of this contextual
interaction"; Appendix D colours by hand the words that "primarily affected the generated content", such as
"gravitation → Isaac Newton".

Two prompts differ at *deciding words*, which the right answer depends on, and in most tasks at *other words*, which it
doesn't depend on, exchanged between both prompts; the deciding words stand first in half of 16 draws and last in the
other half.  One instruction: "What is the capital of Peru?", or "language".  Instruction: two such questions, "The
answer to A is".  Two steps: "Susan is from Peru.  Tom is from Japan.  The language that Susan speaks is"; from memory:
"The language of the country whose capital is Paris is".  One step, a control: "The country that Susan is from is".
Invented sentence: "Nui zi created relativity.  But in truth it is the work of".

The number is the difference of the logits of both right first tokens between the prompts (SmolLM2-135M-Instruct),
split exactly over tokens at every layer.  *Run again*: the deciding or the other words alone are replaced; or one
token's stream before a layer is set to that of the other prompt, beside one at random, and one that moves as far (by a
factor of at most 1.5).

Stated beforehand.  The papers: in both orders the difference is above zero, the deciding words' part above the others',
and both prompts are answered rightly in more than half of the draws; most of the parts' sizes before layer 15 of 30 are
between the words that differ and the last token.  The opposite view: with other words in the prompt the difference
can't be told from zero in one order at least; before layer 15 fewer than four tokens' worth carry it.  The part of the
deciding words above the others' was a bad test: it holds for a model that counts words, too.

To the papers' own two sentences the model writes a reply; nothing then attends to one of the words, and the reply's
log-probability is read again.
"""

from functools import partial

import pandas as pd

from experiments.estimate import Estimate
from experiments.in_context.contrasts import (
    BETWEEN,
    DECIDING,
    LAST,
    OTHERS,
    PATCHED,
    SENTENCES,
    measure_pair,
    measure_sentence,
)
from experiments.in_context.models import SMOLLM2, added, model_of, per_cent
from experiments.in_context.pairs import (
    DRAWS,
    FIRST,
    INSIDE,
    INVENTED,
    ONE_PROPERTY,
    ONE_STEP,
    PROPERTIES,
    TASKS,
    TWO_STEPS,
    WORDS,
)
from experiments.in_context.pairs import LAST as STANDS_LAST
from experiments.study import Measure, Measurements, Piece, Prediction, Study, in_frames
from experiments.table import Cell, Frames, Table, rows_of
from experiments.verdict import Verdict, above, below, decide, every, together

MIDDLE = 15
"""The layer before which it is judged where the difference is."""
ORDERS = FIRST, STANDS_LAST
WITH_OTHERS = PROPERTIES, WORDS, TWO_STEPS, INVENTED
ANSWERED = ONE_PROPERTY, INSIDE, TWO_STEPS, INVENTED
PARTS = ("part of the deciding words", "part of the others")
SHOWN = ("difference", *PARTS, "deciding − others", "run again: deciding", "run again: others")


def measure() -> Measurements:
    """Yield every pair of prompts, and the papers' sentences."""
    for draw in range(DRAWS):
        for task in TASKS:
            compute = partial(measure_pair, *model_of(SMOLLM2), task, draw)
            yield from in_frames(("pairs", "rows", "single"), {"task": task, "draw": draw}, compute)
    for sentence in SENTENCES:
        yield Piece("sentences", {"sentence": sentence}, partial(measure_sentence, *model_of(SMOLLM2), sentence))


def _pairs(pairs: pd.DataFrame) -> pd.DataFrame:
    both_right = (pairs["first"] > 0) & (pairs["second"] < 0)
    shown = pairs.assign(**{"both right": both_right, "deciding − others": pairs[PARTS[0]] - pairs[PARTS[1]]})
    return shown.sort_values(["task", "order"], key=lambda of: of.map((*TASKS, "alone", *ORDERS).index), kind="stable")


def of_pairs(task: str, order: str, column: str, frames: Frames) -> pd.Series:
    """Return a number of every draw of a task with the deciding words at one place."""
    return rows_of(_pairs(frames["pairs"]), task=task, order=order)[column]


def spread(task: str, column: str, frames: Frames) -> pd.Series:
    """Return where the difference is before the middle layer, draw by draw."""
    return rows_of(frames["rows"], task=task, layer=MIDDLE)[column]


def _of(task: str, order: str, column: str) -> Measure:
    name = f"{column}, {task}, deciding words {order}"
    return Measure(name, partial(of_pairs, task, order, column), 2, "" if column == "both right" else "+")


def follows(*estimates: Estimate) -> Verdict:
    """Return whether a task is followed: by differences, parts and right answers of both orders."""
    bounds = [bound for bound in (0.0, 0.0, 0.5) for _ in ORDERS]
    pairs = list(zip(estimates, bounds, strict=True))
    return decide(all(of.low > bound for of, bound in pairs), any(of.high < bound for of, bound in pairs))


def one_may_be_zero(*estimates: Estimate) -> Verdict:
    """Return whether in every task, of two estimates each, one can't be told from zero."""
    zero = [of.low <= 0 <= of.high for of in estimates]
    tasks = [a or b for a, b in zip(zero[::2], zero[1::2], strict=True)]
    return together(*(decide(some, not some) for some in tasks))


def _follows(task: str) -> Prediction:
    measures = [_of(task, order, of) for of in ("difference", "deciding − others", "both right") for order in ORDERS]
    return Prediction(
        f"the model follows: {task}",
        "confirmed if in both orders the difference and the deciding words' part less the others' are above zero, and"
        " both prompts are answered rightly in more than half of the draws; refuted if one of them is below its bound",
        tuple(measures),
        follows,
    )


def _sentences(sentences: pd.DataFrame) -> pd.DataFrame:
    return sentences.assign(shown=[f"{lost:+.2f}" for lost in sentences.lost])


STUDY = Study(
    protocol=__doc__,
    page="in-context",
    claim="none: whether a small model has the abilities that the papers name (Section 4.2)",
    unit="draws",
    stated="before the run",
    predictions=(
        *(_follows(task) for task in (TWO_STEPS, PROPERTIES, WORDS, INVENTED)),
        Prediction(
            "the opposite view: with other words in the prompt the difference can't be told from zero in one order",
            "confirmed if in every task one order's interval has zero in it, refuted if in none",
            tuple(_of(task, order, "difference") for task in WITH_OTHERS for order in ORDERS),
            one_may_be_zero,
        ),
        Prediction(
            "the difference is spread over the text: before layer 15 most of its parts' sizes are between",
            "confirmed if the share is above a half in every task that is answered, refuted if below",
            tuple(Measure(f"between, {task}", partial(spread, task, BETWEEN), 2) for task in ANSWERED),
            every(above, 0.5),
        ),
        Prediction(
            "few tokens carry it: before layer 15 fewer than four tokens' worth",
            "confirmed if it is below four in every task that is answered, refuted if above",
            tuple(Measure(f"tokens' worth, {task}", partial(spread, task, "tokens"), 1) for task in ANSWERED),
            every(below, 4.0),
        ),
    ),
    control=_of(ONE_STEP, FIRST, "difference"),
    headline="Of two persons SmolLM2 prefers the last-named: the right language's lead is {outcome} if the person is"
    " first, {Two prompts / two steps: whose language, last / difference} if last; the right country's, one step,"
    " {control} and {Two prompts / one step: whose country, last / difference} ({n} draws).",
    against="It reads the words: those on which the answer depends have the larger part, by"
    " {Two prompts / two steps: whose language, first / deciding − others}. With the first step from memory both"
    " answers are right in {Two prompts / two steps: language of a capital's country, alone / both right} of pairs.",
    limits="A single step fails alike, so that nothing is shown of two. What the abilities come from isn't decided by a"
    " model that lacks them. One wording of each task, judged by two first tokens.",
    tables={
        "Two prompts": Table(
            "pairs",
            ("task", "order"),
            {"both right": per_cent("both right"), **{name: added(name) for name in SHOWN}},
            prepare=_pairs,
        ),
        "Where the difference is": Table(
            "rows",
            ("task", "layer"),
            {**{of: per_cent(of) for of in (DECIDING, OTHERS, BETWEEN, LAST)}, "tokens": Cell("tokens", 1)},
            prepare=lambda rows: rows.sort_values(
                ["task", "layer"], key=lambda of: of.map(TASKS.index) if of.name == "task" else of
            ),
            note="Shares of the sizes of parts before a layer; tokens: as many of equal shares are as concentrated.",
        ),
        "The papers' sentences": Table(
            "sentences", ("sentence", "word"), {"nats that the reply loses": Cell("shown")}, prepare=_sentences
        ),
    },
    measure=measure,
    settings={"draws": DRAWS, "layers run again": PATCHED},
)
