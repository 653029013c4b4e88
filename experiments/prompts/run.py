"""Do the parameters at the text's tokens, which the prompt changes, carry the task?

The papers explain one model's several tasks by a text that is the same and a function that differs: "when summarizing,
translating, or continuing the same text, the input functions are nearly identical, with only minor variations in the
prompt" (4.1); `001` says that "the function space remains entirely the same except for minor variations in prompt
words".

SmolLM2-135M-Instruct reads 20 pieces of 32 tokens of Python's reference manual in its chat template, each after prompts
of eight tokens, so that all texts stand at the same places: *Please continue the following text in English.*, *Please
summarize the following text in English.*, *Please translate the following text into French.*, and a second wording of
each (*Now continue the next passage in English.*).  Two wordings differ in three tokens, as translating differs from
the other two tasks.  Answers are the eight most probable tokens, one after another.

The number is the mean log-probability of a token of the own answer minus that of the other prompt's answer.  *The way*
is this number under the own prompt minus under the other one; a share is how far a run goes on it: the ratio of the
means over texts, both directions of a pair together.

*Exchanged* parameters are set to their values under the other prompt, at the text's tokens or at the instruction's
(with the template before it and the blank line after it), and the rest is run again: everything that moves (patterns,
scales, factors of gated MLPs, pre-activations), or one group.  The last token isn't among them, because its values
decide the answer by themselves.  With patterns, scales and factors exchanged at all tokens, both prompts are read with
the same weights.  In the closed form all parameters of the other prompt are taken at the own input, and the other way
around.  Control: parameters of the own task's other wording, which should go none of the way.

Distances of parameters at the text's tokens are `‖A − B‖ / √((‖A‖² + ‖B‖²) / 2)`, the mean over layers: between tasks,
between wordings, and between two texts after one prompt.

Bounds were stated before the run, after a trial with other wordings and two texts.  No prediction is decided if the
interval of the way includes zero.  Translating differs from the other tasks in the word *French* as well; the model's
translations begin in French and soon make no sense, and it mostly ignores the second wording of translating.
"""

from collections.abc import Callable
from functools import partial
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Int

import duat_jax as duat
from duat_jax.models.transformer import Transformer
from duat_jax.processes import on_host
from experiments import smollm2
from experiments.estimate import Estimate, ratio
from experiments.markdown import table
from experiments.prompts.exchanged import (
    ALL,
    BIASES,
    EVERYWHERE,
    EXCHANGED,
    FACTORS,
    FUNCTION,
    INPUT,
    OTHER,
    OWN,
    PATTERNS,
    TEXT,
    WEIGHTS,
    WORDS,
    distances,
    scores,
)
from experiments.prompts.texts import CONTINUE, INSTRUCTIONS, SUMMARIZE, TRANSLATE, Prompts, draw_prompts
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study
from experiments.table import Frames
from experiments.verdict import Verdict, above, decide

TEXTS, LENGTH, ANSWER = 20, 32, 8
"""The number of texts, the tokens of each, and those of an answer."""
TASKS = list(INSTRUCTIONS)
ANOTHER_TASK, ANOTHER_WORDING = "the other task", "another wording"
BETWEEN_TEXTS, WORDINGS = "texts", "wordings"
JUDGED = (PATTERNS, FACTORS, BIASES)
PAIRS = ((CONTINUE, TRANSLATE), (SUMMARIZE, TRANSLATE), (CONTINUE, SUMMARIZE))
WITH_TRANSLATION = PAIRS[:2]
SMALL, LARGE, HALF = 0.25, 0.5, 0.5
"""Distances as multiples of those between texts: below the first the function stays, above the second it doesn't; and
the share from which on something carries the task."""
AT = {WORDS: "the instruction", TEXT: "the text", EVERYWHERE: "all tokens"}
RUNS = {
    FUNCTION: "all parameters of the other prompt, at the own input",
    INPUT: "the other prompt's input, at all own parameters",
    **{f"{place}, {group}": f"run again, {group} exchanged at {AT[place]}" for place, group in EXCHANGED},
}
"""The kinds of runs, and the names that tables give them."""


@jax.jit
def _next(model: Transformer, ids: Int[Array, "texts tokens"], place: int) -> Int[Array, "texts"]:
    return jax.vmap(model)(ids)[:, place - 1].argmax(-1)


def answers(model: Transformer, ids: Int[np.ndarray, "texts tokens"]) -> list[Row]:
    """Return the most probable tokens after texts, one after another."""
    tokens = ids.shape[1]
    whole = np.concatenate([ids, np.zeros((len(ids), ANSWER), ids.dtype)], 1)
    for place in range(tokens, tokens + ANSWER):
        whole[:, place] = np.asarray(_next(model, jnp.asarray(whole), place))
    return [{"text": text, "tokens": answer} for text, answer in enumerate(whole[:, tokens:].tolist())]


def between(model: Transformer, prompts: Prompts, answered: np.ndarray, own: int, other: int, role: int) -> list[Row]:
    """Return the scores of every kind of run with two prompts' answers, text by text."""
    number = jnp.arange(prompts.ids.shape[-1] + answered.shape[-1])
    places = {
        WORDS: number < prompts.text.start,
        TEXT: (number >= prompts.text.start) & (number < prompts.text.stop),
        EVERYWHERE: number >= 0,
    }
    rows = []
    for text in range(prompts.ids.shape[1]):
        pairs = [
            jnp.array([np.concatenate([prompts.ids[prompt, text], answered[of, text]]) for of in (own, other)])
            for prompt in (own, role)
        ]
        rows.append({"text": text, **on_host(scores(model, *pairs, places, count=answered.shape[-1]))})
    return rows


def apart(model: Transformer, prompts: Prompts, first: int, second: int) -> list[Row]:
    """Return how far apart parameters are at the tokens of every text, after two prompts or of two texts."""
    ids = prompts.ids[first]
    others = np.roll(ids, 1, 0) if first == second else prompts.ids[second]
    place = {"first": prompts.text.start, "last": prompts.text.stop}
    found = on_host(distances(model, jnp.asarray(ids), jnp.asarray(others), **place))
    return [{"text": text, **{group: of[text] for group, of in found.items()}} for text in range(len(ids))]


def measure() -> Measurements:
    """Yield the answers after every prompt, the runs of every pair of tasks, and the distances of parameters."""
    model = duat.load(smollm2.path())
    prompts = draw_prompts(duat.load_tokenizer(smollm2.path()), TEXTS, LENGTH, seed=0)
    answered = []
    for ids, (task, wording) in zip(prompts.ids, prompts.names, strict=True):
        rows = yield Piece("answers", {"task": task, "wording": wording}, partial(answers, model, ids))
        answered.append([row["tokens"] for row in rows])
    every, place = np.array(answered, np.int32), {name: i for i, name in enumerate(prompts.names)}
    for own, other in permutations(TASKS, 2):
        a, b = place[own, 0], place[other, 0]
        for parameters, role in ((ANOTHER_TASK, b), (ANOTHER_WORDING, place[own, 1])):
            keys = {"prompt": own, "towards": other, "parameters": parameters}
            yield Piece("runs", keys, partial(between, model, prompts, every, a, b, role))
    for i, first in enumerate(TASKS):
        seconds = {WORDINGS: place[first, 1], BETWEEN_TEXTS: place[first, 0]}
        seconds |= {task: place[task, 0] for task in TASKS[i + 1 :]}
        for second, b in seconds.items():
            yield Piece("apart", {"first": first, "second": second}, partial(apart, model, prompts, place[first, 0], b))


def moves(frames: Frames, pairs: tuple[tuple[str, str], ...], parameters: str = ANOTHER_TASK) -> pd.DataFrame:
    """Return how far every run goes from the own answer to the other one, and how far the prompt does, text by text."""
    keys, runs = ["prompt", "towards", "text"], frames["runs"]
    runs = runs[[{*pair} in map(set, pairs) for pair in zip(runs.prompt, runs.towards, strict=True)]]
    plain, changed = (runs[runs.parameters == of].set_index(keys) for of in (ANOTHER_TASK, parameters))
    moved = -changed[list(RUNS)].sub(plain[OWN], axis=0)
    return moved.assign(way=plain[OWN] - plain[OTHER]).groupby("text").mean()


def share(run: str, frames: Frames) -> Estimate:
    """Return the share of the way to the other answer, in pairs with translation."""
    moved = moves(frames, WITH_TRANSLATION)
    return ratio(moved[run], moved["way"])


def apart_by(frames: Frames, group: str, pairs: tuple[tuple[str, str], ...]) -> pd.Series:
    """Return the distance of a group of parameters, text by text, the mean over pairs."""
    rows = frames["apart"]
    return rows[[pair in pairs for pair in zip(rows["first"], rows.second, strict=True)]].groupby("text")[group].mean()


BETWEEN = {
    "tasks": WITH_TRANSLATION,
    "wordings": tuple((task, WORDINGS) for task in TASKS),
    "texts": tuple((task, BETWEEN_TEXTS) for task in TASKS),
}
"""The pairs between which parameters are apart."""


def _lead(group: str, frames: Frames) -> pd.Series:
    return apart_by(frames, group, BETWEEN["tasks"]) - apart_by(frames, group, BETWEEN["wordings"])


def _multiple(group: str, frames: Frames) -> Estimate:
    return ratio(apart_by(frames, group, BETWEEN["tasks"]), apart_by(frames, group, BETWEEN["texts"]))


WAY = Measure("the way, nats a token", lambda frames: moves(frames, WITH_TRANSLATION)["way"], 2)


def share_of(place: str, group: str) -> Measure:
    """Return the measure of the share that parameters go which are exchanged at some tokens."""
    return Measure(f"share of the way, {group} exchanged at {AT[place]}", partial(share, f"{place}, {group}"), 2)


def _of_groups(name: str, values: Callable[..., pd.Series | Estimate], sign: str = "") -> tuple[Measure, ...]:
    return tuple(Measure(name.format(group), partial(values, group), 3, sign) for group in JUDGED)


def if_there_is_a_way(rule: Callable[..., Verdict]) -> Callable[..., Verdict]:
    """Return a rule that leaves a prediction undecided if the way, its last estimate, may be zero."""

    def decided(*estimates: Estimate) -> Verdict:
        *of_rule, way = estimates
        return rule(*of_rule) if way.low > 0 else Verdict.UNDECIDED

    return decided


def all_above_zero(*leads: Estimate) -> Verdict:
    """Return whether all estimates are above zero; refuted if all are below."""
    return decide(all(lead.low > 0 for lead in leads), all(lead.high < 0 for lead in leads))


def stays(*multiples: Estimate) -> Verdict:
    """Return whether all distances are below the small bound; refuted if one is above the large one."""
    return decide(all(of.high < SMALL for of in multiples), any(of.low > LARGE for of in multiples))


def _carried(name: str, place: str, group: str = ALL) -> Prediction:
    rule = "confirmed if the share's interval is above a half, refuted if it is below"
    return Prediction(name, rule, (share_of(place, group), WAY), if_there_is_a_way(lambda of: above(of, HALF)))


def _shares(frames: Frames) -> list[str]:
    columns = {"with translation": moves(frames, WITH_TRANSLATION)}
    columns |= {f"{first} and {second}": moves(frames, ((first, second),)) for first, second in PAIRS}
    columns["the other wording, with translation"] = moves(frames, WITH_TRANSLATION, ANOTHER_WORDING)
    rows = [
        [name, *(ratio(moved[run], moved["way"]).written(2) for moved in columns.values())]
        for run, name in RUNS.items()
    ]
    return [
        *table(["run", *columns], rows),
        "",
        f"*Intervals by bootstrap over {len(columns['with translation'])} texts.*",
    ]


SHARES = "Shares of the way to the other answer"

STUDY = Study(
    protocol=__doc__,
    page="in-context",
    claim="one text after several prompts is read by several functions, which moving parameters give (Section 4.1)",
    unit="texts",
    stated="before the run, after a trial with two texts",
    predictions=(
        _carried("the task is carried by the parameters at the text's tokens (a reading of the papers)", TEXT),
        _carried("the task is carried at the instruction's tokens (the opposite view)", WORDS),
        _carried("moving weights are needed: with one prompt's, most of the way is gone", EVERYWHERE, WEIGHTS),
        Prediction(
            "another task moves the parameters at the text's tokens more than another wording does",
            "confirmed if it does for patterns, factors and biases, refuted if it moves all three less",
            (*_of_groups("{}: distance between tasks − between wordings", _lead, "+"), WAY),
            if_there_is_a_way(all_above_zero),
        ),
        Prediction(
            "the function stays at the text's tokens (`001`)",
            "confirmed if distances between tasks are below a quarter of those between texts for all three, refuted if"
            " above a half for one",
            (*_of_groups("{}: distance between tasks, of that between texts", _multiple), WAY),
            if_there_is_a_way(stays),
        ),
    ),
    control=share_of(WORDS, ALL),
    headline="With another prompt's parameters at the text's tokens SmolLM2-135M keeps its own answer ({outcome} of the"
    " way to the other); at the instruction's, where alone prompts differ, it all but must give the other ({control});"
    f" the other's weights at all tokens take it {{{SHARES} / run again, patterns, scales and factors exchanged at all"
    " tokens / with translation} of the way ({n} texts).",
    against="Parameters that move are needed, at other tokens; and at the text's they do move more with the task than"
    " with another wording, though no answer follows from it.",
    limits="The model only answers in French or in English. The prompts differ nowhere but at the instruction, so that"
    " the control, which replaces everything there, is nearly certain.",
    tables={
        SHARES: _shares,
    },
    measure=measure,
    settings={"texts": TEXTS, "length": LENGTH, "answer": ANSWER, "instructions": INSTRUCTIONS},
)
