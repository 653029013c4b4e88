"""Do right answers in demonstrations also raise the last token of a longer answer?

The papers say that every output reads the whole context through moved parameters (Section 4.2).

Two tasks have answers of several tokens: *number words*, `47 -> forty-seven`, three tokens of which the middle one is
the same in every answer; and *swapped words*, `apple river -> river apple`.  The number is the log-probability of each
token of the answer after the right earlier ones; *whole* is the sum.  Four demonstrations are right, exchanged in a
cycle, or redrawn, each compared with the same demonstrations hidden, in 12 draws with different questions.
SmolLM2-135M-Instruct.  Ledgers over the whole answer, and over its first token, sum to these differences.

Stated beforehand: by the papers' view the mapping, right − exchanged, adds to the last token in both tasks.  If
demonstrations tell the task's form, and the beginning of an answer its rest, it can't be told from zero in both.
Anything else decides for neither.
"""

from functools import partial
from random import Random
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Bool, Float, Int

from duat_jax.in_context.compute import ledger
from duat_jax.in_context.prompts import EXCHANGED, REDRAWN, FewShotQuestion, question_of
from duat_jax.in_context.runs import Task, logits_of
from duat_jax.inputs.few_shot_tasks import WORDS
from duat_jax.models.transformer import Transformer
from duat_jax.processes import on_host
from experiments.in_context.models import SMOLLM2, added, model_of
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study
from experiments.table import Frames, Table, rows_of
from experiments.verdict import above, decide, every

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DEMONSTRATIONS, DRAWS, LENGTH, PLACES = 4, 12, 64, 6
"""The numbers of demonstrations and of draws; the length to which texts are padded, and the number of places to which
those of a ledger are repeated, so that few programs are compiled."""

MAPPING, FORMAT = "right − exchanged", "exchanged − hidden"
WHOLE, FIRST = "whole", "first"
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
LEDGER = (
    *("difference", "moved inputs", "parameters at the part", "attention", "norm scales", "gates and others"),
    *("closed form: inputs", "`W'_1`", "`W'_3`", "`W'_2`", "`c_j`"),
)
RIGHT = "right"
KINDS = (RIGHT, EXCHANGED, REDRAWN)
NUMBERS, SWAPPED = "number words", "swapped words"

TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
ONES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def _swapped() -> list[tuple[str, str]]:
    words = Random("swapped words").sample(WORDS.split(), len(WORDS.split()))
    return [(f"{first} {second}", f"{second} {first}") for first, second in zip(words[::2], words[1::2], strict=True)]


PAIRS: dict[str, list[tuple[str, str]]] = {
    NUMBERS: [
        (f"{10 * i + j}", f"{ten}-{one}") for i, ten in enumerate(TENS, start=2) for j, one in enumerate(ONES, start=1)
    ],
    SWAPPED: _swapped(),
}
"""The pairs of question and answer of each task; all answers of a task have as many tokens."""


def padded(question: FewShotQuestion) -> Task:
    """Return the task of a question's whole answer, its text of `LENGTH` tokens."""
    task = question.whole
    ids, hidden = (jnp.pad(of, (0, LENGTH - len(task.ids))) for of in (task.ids, task.hidden))
    return task._replace(ids=ids, hidden=hidden)


def draw(tokenizer: "Tokenizer", task: str, seed: int) -> dict[str, FewShotQuestion]:
    """Return a drawn question after each kind of demonstrations; every seed has another question."""
    order = Random(task).sample(PAIRS[task], len(PAIRS[task]))
    (word, answer), rest = order[seed], order[:seed] + order[seed + 1 :]
    drawn = Random(f"{seed} {task}").sample(rest, 2 * DEMONSTRATIONS)
    shown, others = drawn[:DEMONSTRATIONS], drawn[DEMONSTRATIONS:]
    answers = [right for _, right in shown]
    # A cycle leaves no answer at its place.
    by_kind = {
        RIGHT: answers,
        EXCHANGED: answers[1:] + answers[:1],
        REDRAWN: [right for _, right in others],
    }
    return {
        kind: question_of(
            tokenizer,
            [f"{line} -> {right}" for (line, _), right in zip(shown, of_kind, strict=True)],
            f"{word} ->",
            f" {answer}",
        )
        for kind, of_kind in by_kind.items()
    }


@jax.jit
def _logs(
    model: Transformer, ids: Int[Array, "tokens"], seen: Bool[Array, "tokens"], places: Int[Array, "asked"]
) -> Float[Array, "asked vocab"]:
    return jax.nn.log_softmax(logits_of(model, model.states(model.embed(ids), seen)[places]))


def _replies(model: Transformer, asked: FewShotQuestion, hidden: bool) -> list[Row]:
    task = padded(asked)
    logs = np.asarray(on_host(_logs(model, task.ids, ~(task.hidden & hidden), task.places)), float)
    answers = np.asarray(task.answers)
    right = logs.argmax(-1) == answers
    of_answers = logs[np.arange(len(answers)), answers]
    return [
        {"token": token, "log": log, "most probable": bool(first)}
        for token, log, first in zip(ORDINALS, of_answers, right, strict=False)
    ]


def measure_answers(model: Transformer, tokenizer: "Tokenizer", task: str, seed: int) -> list[Row]:
    """Return the log-probability of every token of the answer, with each kind of demonstrations, visible and hidden."""
    return [
        {"demonstrations": kind, "where": where, **of_token}
        for kind, asked in draw(tokenizer, task, seed).items()
        for where, hidden in (("in view", False), ("hidden", True))
        for of_token in _replies(model, asked, hidden)
    ]


def split(model: Transformer, task: Task, tokens: int | None = None) -> Row:
    """Return the sums of a ledger over the answer's tokens, or over its first ones, in nats."""
    # A ledger is of the mean over the places, so that its parts times the number of tokens are sums over them; a place
    # that stands there several times, as all do, doesn't change the mean.
    count = len(task.places[:tokens])
    places, answers = (jnp.tile(of[:tokens], max(1, PLACES // count)) for of in (task.places, task.answers))
    account = ledger(model, task._replace(places=places, answers=answers), run_again=False)
    form, totals = account.form, account.totals
    sums = {
        "difference": account.difference,
        "moved inputs": 0.0 if account.inputs is None else account.inputs.sum(),
        "parameters at the part": totals["parameters at the part"],
        # Only the sum of both is determined, as in the other ledgers.
        "attention": totals["attention to the part"] + totals["attention to other tokens"],
        "norm scales": totals["norm scales"],
        "gates and others": totals["gates and others"],
        "closed form: inputs": form.inputs.sum() + form.inner_inputs.sum(),
        "`W'_1`": form.path.sum(),
        "`W'_3`": form.outer.sum(),
        "`W'_2`": form.inner.sum(),
        "`c_j`": form.inner_bias.sum() + form.bias,
        "error": account.completeness.error,
    }
    return {name: count * float(part) for name, part in sums.items()}


def measure_ledgers(model: Transformer, tokenizer: "Tokenizer", task: str, seed: int) -> list[Row]:
    """Return the ledgers of the mapping, right against exchanged, and of the format, exchanged against hidden."""
    asked = draw(tokenizer, task, seed)
    right, exchanged = padded(asked[RIGHT]), padded(asked[EXCHANGED])
    runs = {MAPPING: right._replace(other=exchanged.ids), FORMAT: exchanged}
    return [
        {"part": part, "tokens": tokens, **split(model, both, count)}
        for part, both in runs.items()
        for tokens, count in ((WHOLE, None), (FIRST, 1))
    ]


def measure() -> Measurements:
    """Yield the answers' tokens and the ledgers of every draw."""
    for frame, of in (("answers", measure_answers), ("ledgers", measure_ledgers)):
        for seed in range(DRAWS):
            for task in PAIRS:
                keys = {"task": task, "draw": seed}
                yield Piece(frame, keys, partial(of, *model_of(SMOLLM2), task, seed))


def gains(answers: pd.DataFrame) -> pd.DataFrame:
    """Return what demonstrations add to every token of the answer, and to all together."""
    keys = ["task", "draw", "token", "demonstrations"]
    logs = answers.pivot(index=keys, columns="where", values="log")
    wide = (logs["in view"] - logs["hidden"]).unstack().reset_index()
    whole = wide.groupby(["task", "draw"])[list(KINDS)].sum().reset_index().assign(token=WHOLE)
    both = pd.concat([whole, wide])
    return both.assign(
        **{
            "added in all": both[RIGHT],
            "exchanged ones add": both[EXCHANGED],
            "mapping: right − exchanged": both[RIGHT] - both[EXCHANGED],
            "right − redrawn": both[RIGHT] - both[REDRAWN],
        }
    ).sort_values("task", kind="stable")


def mapping(task: str, token: str, frames: Frames, column: str = "mapping: right − exchanged") -> pd.Series:
    """Return what the mapping adds to a token, draw by draw."""
    return rows_of(gains(frames["answers"]), task=task, token=token)[column]


NUMBER, SWAP = (
    Measure(
        f"nats that right answers add beyond exchanged ones, last token, {task}", partial(mapping, task, token), 2, "+"
    )
    for task, token in ((NUMBERS, ORDINALS[2]), (SWAPPED, ORDINALS[1]))
)
STUDY = Study(
    protocol=__doc__,
    page="in-context",
    claim="every output reads the whole context (Section 4.2)",
    unit="draws",
    stated="before the run",
    predictions=(
        Prediction(
            "the mapping adds to the last token in both tasks",
            "confirmed if both intervals are above zero, refuted if both are below",
            (NUMBER, SWAP),
            every(above),
        ),
        Prediction(
            "the opposite view: at the last token the mapping can't be told from zero",
            "confirmed if both intervals have zero in them, refuted if neither has",
            (NUMBER, SWAP),
            every(lambda of: decide(of.low <= 0 <= of.high, of.low > 0 or of.high < 0)),
        ),
    ),
    control=Measure(
        "beyond redrawn ones",
        partial(mapping, NUMBERS, ORDINALS[2], column="right − redrawn"),
        2,
        "+",
    ),
    headline="Right answers in demonstrations add {outcome} nats more to a number word's last token than exchanged"
    " ones, {control} more than redrawn ones ({n} draws).",
    against="Most of a number word's gain comes with exchanged answers: {Answers of several tokens / number words,"
    " whole / exchanged ones add} nats.",
    limits="Two rules that the model follows. Later tokens are read after right earlier ones.",
    tables={
        "Answers of several tokens": Table(
            "answers",
            ("task", "token"),
            {
                name: added(name)
                for name in ("added in all", "exchanged ones add", "mapping: right − exchanged", "right − redrawn")
            },
            prepare=gains,
        ),
    },
    measure=measure,
    settings={"draws": DRAWS, "demonstrations": DEMONSTRATIONS},
)
