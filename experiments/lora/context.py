"""Does fine-tuning raise the gain by far tokens of a text?

Of training see `python -m experiments emergence`. The *gain* is by how much the loss of the last 20 of 60 tokens is
higher with the first 32 tokens from another text of the kind, on 48 test texts of *English*, the task of `lora_why`,
and on 48 of sources of the kind that the base was trained on.  It is measured after 10, 30 and 100 steps of adapters of
rank 16 and of full fine-tuning, with three seeds, whose mean is taken of every text.

The prediction drawn from the papers is that interaction with the context is part of what is learned.  The opposite view
is that fine-tuning on other texts wears it down on those of the base.  That there is a gain at every step could hardly
be otherwise.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float, Int

import duat_jax as duat
from duat_jax.evaluation.running_text import stream, token_losses, windows
from duat_jax.models.transformer import Transformer
from experiments.estimate import Estimate, ratio
from experiments.lora.tuning import EVERYTHING, LENGTH, METHODS, STEPS, TESTED, Task, english, rate_of, train_along
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table, rows_of
from experiments.texts import held_out_sources
from experiments.verdict import above, every

SEEDS, STOPS, COMPARED = (1, 2, 3), (10, 30, STEPS), ("rank 16", EVERYTHING)
LATE, NEAR = 20, 8
"""The number of last tokens whose loss is compared, and of those before them that stay when far ones are replaced."""
TEXTS = OF_TASK, OF_BASE = "the task's", "the base's"
FALLS = 0.25
"""The part of the gain that is lost, from which on fine-tuning counts as wearing it down."""


def losses(model: Transformer, texts: Int[np.ndarray, "texts tokens"]) -> dict[str, Float[np.ndarray, "texts"]]:
    """Return the loss of every text's last tokens, and by how much its own far tokens lower it."""
    far = LENGTH - LATE - NEAR
    other = np.concatenate([np.roll(texts, 1, axis=0)[:, :far], texts[:, far:]], axis=1)
    whole, misled = (np.asarray(token_losses(model, jnp.asarray(of)))[:, -LATE:].mean(1) for of in (texts, other))
    return {"whole": whole, "gain": misled - whole}


def texts_of(task: Task) -> dict[str, Int[np.ndarray, "texts tokens"]]:
    """Return test texts of the task, and others of the kind that the base model was trained on."""
    sources = windows(stream(duat.load_tokenizer(), held_out_sources()), TESTED, LENGTH, seed=0)
    return dict(zip(TEXTS, (task.test, sources), strict=True))


def before(task: Task) -> list[Row]:
    """Return the base's losses and gains."""
    found = {kind: losses(duat.load(), texts) for kind, texts in texts_of(task).items()}
    return [{"texts": kind, "steps": 0, "before": of["gain"], **of} for kind, of in found.items()]


def along(task: Task, name: str, seed: int, base: list[Row]) -> list[Row]:
    """Return losses and gains after some steps of a fine-tuning, with the gains before."""
    models = train_along(duat.load(), task, METHODS[name], rate_of("English", name), seed, STOPS)
    gains = {row["texts"]: row["gain"] for row in base}
    return [
        {"texts": kind, "steps": steps, "before": gains[kind], **losses(model, texts)}
        for steps, model in zip(STOPS, models, strict=True)
        for kind, texts in texts_of(task).items()
    ]


def measure() -> Measurements:
    """Yield the base, and every fine-tuning."""
    task = english(duat.load_tokenizer())
    base = yield Piece("gains", {"trained": "none", "seed": 0}, partial(before, task))
    for name in COMPARED:
        for seed in SEEDS:
            yield Piece("gains", {"trained": name, "seed": seed}, partial(along, task, name, seed, base))


def of_texts(column: str, rows: pd.DataFrame) -> Float[np.ndarray, "texts"]:
    """Return a number of every text, mean over the seeds."""
    return np.mean(np.stack(rows[column].to_list()), 0)


def more(rows: pd.DataFrame) -> Float[np.ndarray, "texts"]:
    """Return by how much the gain is higher than before."""
    return of_texts("gain", rows) - of_texts("before", rows)


def lost(rows: pd.DataFrame) -> Estimate:
    """Return the part of the gain that is lost."""
    return ratio(-more(rows), of_texts("before", rows))


def at_the_end(texts: str, trained: str, frames: Frames) -> pd.DataFrame:
    """Return the rows of all seeds after the last step."""
    return rows_of(frames["gains"], texts=texts, trained=trained, steps=max(STOPS))


def worn(name: str, frames: Frames) -> Estimate:
    """Return the part of the gain on the base's texts that is lost."""
    return lost(at_the_end(OF_BASE, name, frames))


def grown(name: str) -> Measure:
    """Return by how much the gain on the task's texts grew."""
    said = f"gain after, more than before, {name}"
    return Measure(said, lambda frames: more(at_the_end(OF_TASK, name, frames)), 3, "+")


def before_all(frames: Frames) -> Float[np.ndarray, "texts"]:
    """Return the gain on the task's texts before fine-tuning."""
    return of_texts("before", at_the_end(OF_TASK, COMPARED[0], frames))


def fine_tuned(value: Callable[[pd.DataFrame], Any], rows: pd.DataFrame) -> Any:
    """Return the content of a cell that is empty for the base."""
    return "" if (rows.steps == 0).all() else value(rows)


STUDY = Study(
    protocol=__doc__,
    page="lora",
    claim='"contextual interaction … permeates every phase from training and fine-tuning to prediction" (Section 4.2)',
    unit="test texts",
    stated="before the run",
    predictions=(
        Prediction(
            "on the task's texts the gain grows in 100 steps, by each method",
            "confirmed if the gain after less that before is above zero with both methods, refuted if it is below",
            tuple(map(grown, COMPARED)),
            every(above),
        ),
        Prediction(
            "the opposite view: on the base's texts more than a quarter of it is lost, by each method",
            f"confirmed if the part that is lost is above {FALLS} with both methods, refuted if it is below",
            tuple(Measure(f"part that is lost, {name}", partial(worn, name), 2) for name in COMPARED),
            every(above, FALLS),
        ),
    ),
    control=Measure("gain before", before_all, 3, "+"),
    headline="Before fine-tuning, far tokens of a text lower its loss by {control} nats a token; after fine-tuning by"
    " adapters of rank 16 they lower it by {outcome} more ({n} test texts).",
    against="After ten steps of adapters the gain by far tokens differs from the one before by"
    " {Gain by context along fine-tuning / the task's, rank 16, 10 / more than before}.",
    limits="One model, one task, texts of 60 tokens. Another text's tokens may also mislead.",
    tables={
        "Gain by context along fine-tuning": Table(
            "gains",
            ("texts", "trained", "steps"),
            {
                "loss": Cell(partial(of_texts, "whole")),
                "gain by far tokens": Cell(partial(of_texts, "gain"), 3, "+"),
                "more than before": Cell(partial(fine_tuned, more), 3, "+"),
                "part that is lost": Cell(partial(fine_tuned, lost), 2),
            },
            prepare=lambda gains: gains.sort_values("texts", ascending=False, kind="stable"),
        )
    },
    measure=measure,
    settings={"seeds": SEEDS, "stops": STOPS, "compared": COMPARED, "late": LATE, "near": NEAR},
)
