"""Do exact parts choose the matrices that get more bits better than other scores do?

A model whose matrices are rounded to 3 or 4 bits loses much of it where some matrices are rounded. Under a budget, 10,
25 or 50 % of the weights may have eight bits; in the order of a score for each weight, every matrix that still fits is
chosen. The measure is the share of the loss by rounding that is taken back on fresh text: (loss in few bits - loss
with the choice) / (loss in few bits - loss in eight bits); where rounding costs less than .05 nats, nothing is judged.

Models: the embedded model; one of its shape that another training of 2.1 million tokens made, so that these two share
shape and text; SmolLM2-135M-Instruct, whose matrices were in four bits with other steps before. Texts are of 128
tokens, of files that weren't trained on, for SmolLM2 of Python's manual. Scores are computed on 16 texts (12), choices
are judged by the loss of 128 others (24), the same for all; five draws of the texts for scores.

Scores: the exact part of a matrix in the difference that rounding all of them makes (the size of its mean over texts,
which `duat diff --budget` takes; the mean of its sizes; the mean with its sign). From derivatives: the same three with
the gradient of the original model ("first order"), of the rounded one, and of both ("trapezoid"); the diagonal of the
Fisher information, its root, and that of whole matrices. Without derivatives: the squared error of the weights and its
root; that of the outputs, also relative; the model run with one matrix alone rounded, or set back, on eight of the
texts, beside which the exact part is also taken on these eight. Controls: five random choices for each draw; the
smallest, the first and the last matrices first; those of values and outputs first.

The predictions were stated before the run, with an interval from resampling models, draws and texts, corrected for
twelve comparisons. Three models are too few for that: here intervals are over the three models by Student's t, each by
itself, of means over bits, budgets and draws. Level: the whole interval lies within .02 of zero; ahead: .02 or more,
with the interval above zero. A trial on SmolLM2 had shaped the prediction. The other view: what one matrix does alone
is enough, and needs no theory.
"""

from functools import cache, partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd

import duat_jax as duat
from duat_jax.evaluation.running_text import stream, token_losses, windows
from duat_jax.models.transformer import Transformer
from duat_jax.weights.rounded import FINER, rounded, sizes_of_matrices, within_budget
from experiments import smollm2
from experiments.bits.scores import (
    ALONE,
    ERROR,
    EXACT,
    FISHER,
    MEAN_SIZE,
    OUTPUTS,
    ROOT_ERROR,
    ROOT_FISHER,
    SCORES,
    SET_BACK,
    SIGNED,
    SIZE,
    START,
    TRAPEZOID,
    scores_of,
)
from experiments.emergence.followed import Followed
from experiments.emergence.run import SEEDS, SIZES
from experiments.emergence.run import WORK as STATES
from experiments.estimate import Estimate
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table, rows_of
from experiments.texts import held_out_sources, manual
from experiments.verdict import Verdict, decide, together

EMBEDDED, ANOTHER, SMOLLM2 = "embedded model", "its shape, trained on 2 million tokens", "SmolLM2-135M"
BITS, SHARES, DRAWS, RANDOM = (3, 4), (0.1, 0.25, 0.5), 5, 5
"""Bits of a weight, budgets, draws of the texts for the scores, and random choices of each draw."""
TOGETHER = 8
"""Texts that are read together."""


class Settings(NamedTuple):
    """The texts of the measurements on one model.

    Args:
        tokens: of a text.
        texts: that scores are computed on, for each draw.
        run: of these, that the model is run on with single matrices rounded, or set back.
        fresh: others that choices are judged on.
    """

    tokens: int
    texts: int
    run: int
    fresh: int


SETTINGS = {
    EMBEDDED: Settings(128, 16, 8, 128),
    ANOTHER: Settings(128, 16, 8, 128),
    SMOLLM2: Settings(128, 12, 8, 24),
}


@cache
def model_of(name: str) -> Transformer:
    """Return a model."""
    if name == ANOTHER:
        followed = Followed(SIZES, SEEDS[0], STATES)
        return followed.network.model(followed.kept().last)
    return duat.load(smollm2.path() if name == SMOLLM2 else None)


@cache
def texts_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the texts of every draw, and the fresh ones; none is in two of them."""
    settings = SETTINGS[name]
    path, texts = (smollm2.path(), manual()) if name == SMOLLM2 else (None, held_out_sources())
    count = DRAWS * settings.texts + settings.fresh
    drawn = windows(stream(duat.load_tokenizer(path), texts), count, settings.tokens, seed=0)
    return drawn[settings.fresh :].reshape(DRAWS, settings.texts, -1), drawn[: settings.fresh]


def losses(model: Transformer, ids: np.ndarray) -> np.ndarray:
    """Return the loss of every text."""
    rows = [
        token_losses(model, jnp.asarray(ids[start : start + TOGETHER])).mean(-1)
        for start in range(0, len(ids), TOGETHER)
    ]
    return np.concatenate([np.asarray(row) for row in rows])


def references(name: str) -> list[Row]:
    """Return the losses of fresh texts by a model, by it in eight bits, and in few."""
    model, fresh = model_of(name), texts_of(name)[1]
    models = {"original": model} | {str(bits): rounded(model, bits) for bits in (*BITS, FINER)}
    return [{"precision": precision, "losses": losses(of, fresh)} for precision, of in models.items()]


def chosen(name: str, bits: int, draw: int, few: float, eight: float) -> list[Row]:
    """Return the losses of fresh texts with the matrices that every score chooses, for every budget.

    Args:
        name: which model.
        bits: of the matrices that aren't chosen.
        draw: the draw of texts for scores.
        few: the mean loss with so few bits everywhere.
        eight: the mean loss with eight bits everywhere.
    """
    model, fresh = model_of(name), texts_of(name)[1]
    scores, sizes = scores_of_draw(name, bits, draw), sizes_of_matrices(model)
    random = np.random.default_rng([draw, bits])
    orders = [{of: size * random.random() for of, size in sizes.items()} for _ in range(RANDOM)]

    @cache
    def loss(finer: tuple[str, ...]) -> np.ndarray:
        return losses(rounded(model, bits, finer), fresh)

    rows = []
    for share in SHARES:
        sets = {score: tuple(sorted(within_budget(scores[score], sizes, share))) for score in SCORES}
        drawn = [loss(tuple(sorted(within_budget(order, sizes, share)))) for order in orders]
        found = {score: loss(of) for score, of in sets.items()} | {AT_RANDOM: np.mean(drawn, 0)}
        rows += [
            {"share": share, "score": score, "in_few_bits": few, "in_eight_bits": eight, "losses": of}
            for score, of in found.items()
        ]
    return rows


@cache
def scores_of_draw(name: str, bits: int, draw: int) -> dict[str, dict[str, float]]:
    """Return every score of every matrix on one draw of texts."""
    return scores_of(model_of(name), bits, texts_of(name)[0][draw], SETTINGS[name].run)


def scores_kept(name: str, bits: int, draw: int) -> list[Row]:
    """Return every score of every matrix, in the order of matrices."""
    sizes, scores = sizes_of_matrices(model_of(name)), scores_of_draw(name, bits, draw)
    return [{"score": score, "values": [of[each] for each in sizes]} for score, of in scores.items()]


def measure() -> Measurements:
    """Yield every model's losses, and the choices and scores of every draw."""
    for name in SETTINGS:
        whole = yield Piece("references", {"model": name}, partial(references, name))
        mean = {of["precision"]: float(np.mean(of["losses"])) for of in whole}
        for draw in range(DRAWS):
            for bits in BITS:
                keys = {"model": name, "draw": draw, "bits": bits}
                yield Piece("losses", keys, partial(chosen, name, bits, draw, mean[str(bits)], mean[str(FINER)]))
                yield Piece("scores", keys, partial(scores_kept, name, bits, draw))


AT_RANDOM, LEVEL, LEAST = "at random", 0.02, 0.05
"""The name of random choices; the largest lead that is level; the smallest loss by rounding that is judged, in nats."""
OURS = EXACT + SIZE
BEHIND = (START + SIZE, FISHER, ROOT_FISHER, ERROR, ROOT_ERROR, OUTPUTS, AT_RANDOM)
"""The scores that exact parts were predicted to be ahead of."""


def taken_back(losses: pd.DataFrame) -> pd.DataFrame:
    """Return the share of the loss by rounding that every choice takes back; what costs too little isn't judged."""
    gap = losses.in_few_bits - losses.in_eight_bits
    taken = (losses.in_few_bits - losses.losses.map(np.mean)) / gap
    return losses.assign(taken=taken).drop(columns="losses")[gap >= LEAST]


def means_of_models(losses: pd.DataFrame) -> pd.DataFrame:
    """Return every score's mean over bits, budgets and draws of each model, the best score first."""
    means = taken_back(losses).groupby(["score", "model"], sort=False).taken.mean().reset_index()
    return means.assign(rank=-means.groupby("score").taken.transform("mean")).sort_values("rank", kind="stable")


def of_model(name: str) -> Cell:
    """Return the cell of a model's mean."""
    return Cell(lambda rows: f"{rows_of(rows, model=name).taken.mean():.3f}")


def lead_over(score: str) -> Measure:
    """Return the measure of the lead of the sizes of exact parts over another score."""

    def values(frames: Frames) -> np.ndarray:
        taken = means_of_models(frames["losses"]).pivot(index="model", columns="score", values="taken")
        return (taken[OURS] - taken[score]).to_numpy()

    return Measure(f"lead over {score}", values, 3, "+")


AHEAD_RULE = (
    "confirmed if every lead is .02 or more with its interval above zero, refuted if all intervals are below .02, mixed"
    " if some leads are confirmed and others refuted, otherwise undecided"
)


def all_ahead(*found: Estimate) -> Verdict:
    """Return whether all leads are .02 or more."""
    return together(*(decide(lead.low > 0 and lead.value >= LEVEL, lead.high < LEVEL) for lead in found))


def is_level(lead: Estimate) -> Verdict:
    """Return whether a lead is level: refuted where its interval is outside of the bounds."""
    return decide(lead.low >= -LEVEL and lead.high <= LEVEL, lead.low > LEVEL or lead.high < -LEVEL)


def level_or_ahead(lead: Estimate) -> Verdict:
    """Return whether a lead is level or above zero."""
    return decide(lead.low >= -LEVEL, lead.high < 0)


def alone_is_enough(*found: Estimate) -> Verdict:
    """Return whether exact parts are level with or behind what one matrix does alone, in one of two ways."""
    return decide(any(lead.high <= LEVEL for lead in found), all(lead.low > 0 for lead in found))


STUDY = Study(
    protocol=__doc__,
    page="circuits",
    claim="none: bits of a budget for matrices, as in mixed-precision rounding by the Fisher information",
    unit="models",
    stated="before the run",
    predictions=(
        Prediction(
            "ahead of first order, of the Fisher information and its root, of squared errors and of chance",
            AHEAD_RULE,
            tuple(map(lead_over, BEHIND)),
            all_ahead,
        ),
        *(
            Prediction(
                f"level with {score}", "confirmed if the interval lies within ±.02", (lead_over(score),), is_level
            )
            for score in (TRAPEZOID + SIZE, EXACT + MEAN_SIZE)
        ),
        Prediction(
            "level with or ahead of the part with its sign",
            "confirmed if the interval is above -.02, refuted if it is below zero",
            (lead_over(EXACT + SIGNED),),
            level_or_ahead,
        ),
        Prediction(
            "the other view: rounding or setting back one matrix alone is level or ahead",
            "refuted if exact parts are ahead of both, confirmed if they are level or behind",
            (lead_over(ALONE), lead_over(SET_BACK)),
            alone_is_enough,
        ),
    ),
    control=lead_over(AT_RANDOM),
    headline="Eight bits for the matrices with the largest exact parts take back {outcome} more of the loss by rounding"
    " than by first order, {control} more than at random; against the Fisher information it is undecided ({n} models).",
    against="The gradient of the rounded model, for which nothing was predicted, takes back"
    " {The loss that is taken back / gradient of the rounded model, size of the mean / all} of the loss, by the mean"
    " more than exact parts, in each of the three models.",
    limits="Three models, not drawn, of which two share shape and text; rounding to nearest without calibration.",
    tables={
        "The loss that is taken back": Table(
            "losses",
            ("score",),
            {"all": Cell("taken"), **{name: of_model(name) for name in SETTINGS}},
            prepare=means_of_models,
        ),
    },
    measure=measure,
    settings={"settings": SETTINGS, "bits": BITS, "shares": SHARES, "draws": DRAWS, "scores": SCORES},
)
