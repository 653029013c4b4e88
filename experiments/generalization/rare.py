"""Is the majority of texts fitted alone, so that a hundredth of rare ones brings hardly anything?

Language models of 213 thousand parameters, those with full attention of limited reach, read bytes of Python's standard
library (without the file that holds the manual) and, as a rare kind, of its reference manual in English: none, a
hundredth, a tenth or a half of the texts.  Tested are 224 windows of other chapters, which share few lines with those
of training, and 224 of other sources.  1,500 steps of eight texts of 192 bytes, three seeds.

The papers' view was stated as: the 120 rare texts among 12,000 lower the loss on their kind by less than .05 nats a
byte.  Beside it the same 120 texts stand among 1,200, with a tenth of the steps: if the majority crowds them out, they
bring more there.
"""

from functools import cache, partial

import jax.numpy as jnp
import numpy as np
import pandas as pd
from flax import nnx
from jaxtyping import Int

from duat_jax.evaluation.running_text import windows
from experiments.estimate import Estimate, estimate
from experiments.long_context.choice import sizes_of
from experiments.long_context.networks import FULL, losses_of, network, train
from experiments.long_context.tasks import TRAINING, held_out_stream
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table
from experiments.texts import manual
from experiments.verdict import above, below
from training.corpus import sources, split, unseen

SEEDS, STEPS, RATE, TESTED = range(3), 1500, 0.5, 224
SHARES = 0.0, 0.01, 0.1, 0.5
"""The shares of training texts that are of the rare kind."""
FEWER = 150
"""The steps in which as many rare texts as in a hundredth are also read, with a tenth as many others."""
BOUND = 0.05
"""The fall of the loss on the rare kind from which on it counts as fitted, in nats a byte."""
ITSELF = "pydoc_data/topics.py"
"""The file of the frequent kind that holds the rare one."""


@cache
def rare_streams() -> tuple[Int[np.ndarray, "trained"], Int[np.ndarray, "tested"]]:
    """Return the bytes of chapters of Python's manual to train on, and of others that share few lines with them."""
    chapters = {str(i): text for i, text in enumerate(dict.fromkeys(manual()))}
    trained = {name: text for name, text in chapters.items() if int(name) % 4}
    tested = unseen(trained, {name: text for name, text in chapters.items() if not int(name) % 4})
    return _bytes(trained), _bytes(tested)


@cache
def frequent_streams() -> tuple[Int[np.ndarray, "trained"], Int[np.ndarray, "tested"]]:
    """Return the bytes of sources to train on, without the file that holds the rare kind, and of others."""
    trained = {name: text for name, text in split(sources())[0].items() if name != ITSELF}
    return _bytes(trained), held_out_stream()


def _bytes(texts: dict[str, str]) -> Int[np.ndarray, "bytes"]:
    return np.frombuffer("".join(texts.values()).encode(), np.uint8).astype(np.int32)


def texts_of(share: float, steps: int, seed: int) -> Int[np.ndarray, "steps batch tokens"]:
    """Return the texts of every step, of which a share is of the rare kind, at random places."""
    number = steps * TRAINING.batch
    texts = windows(frequent_streams()[0], number, TRAINING.tokens, seed=seed)
    places = np.random.default_rng(seed).permutation(number)[: round(share * number)]
    texts[places] = rare_texts(len(places), seed)
    return texts.reshape(steps, TRAINING.batch, -1)


def rare_texts(number: int, seed: int) -> Int[np.ndarray, "number tokens"]:
    """Return texts of the rare kind, in passes over all of them."""
    once = windows(rare_streams()[0], None, TRAINING.tokens, seed=seed)
    return np.resize(once, (number, once.shape[1])) if number else once[:0]


def measured(share: float, steps: int, seed: int) -> Row:
    """Return the losses of a trained network: on the rare kind and on the frequent one."""
    model = train(
        network(sizes_of(FULL), nnx.Rngs(seed)), jnp.asarray(texts_of(share, steps, seed)), jnp.asarray(RATE)
    )[0]
    tested = {"rare": rare_streams()[1], "frequent": frequent_streams()[1]}
    return {
        kind: float(losses_of(model, windows(stream, TESTED, TRAINING.tokens, seed=0)).mean())
        for kind, stream in tested.items()
    }


def trainings() -> list[tuple[float, int]]:
    """Return the share of rare texts and the number of steps of every training."""
    # As many rare texts in a tenth of the steps are ten times the share.
    return [*((share, STEPS) for share in SHARES), (SHARES[0], FEWER), (SHARES[1] * STEPS / FEWER, FEWER)]


def measure() -> Measurements:
    """Yield every training."""
    for share, steps in trainings():
        for seed in SEEDS:
            yield Piece(
                "trained", {"share": share, "steps": steps, "seed": seed}, partial(measured, share, steps, seed)
            )


def with_gains(trained: pd.DataFrame) -> pd.DataFrame:
    """Return trainings with the fall of the loss on the rare kind, also as a part of that by the largest share."""

    def rare_loss(share: float) -> pd.Series:
        """Return every row's loss after training with another share, by the same seed and in as many steps."""
        return trained.merge(trained[trained.share == share], on=["steps", "seed"], how="left").rare_y

    gain, most = rare_loss(0.0) - trained.rare, rare_loss(0.0) - rare_loss(SHARES[-1])
    return trained.assign(
        gain=gain.where(trained.share > 0),
        part=(gain / most).where(trained.share > 0),
        number=(trained.share * trained.steps * TRAINING.batch).round().astype(int),
        **{"rare texts": trained.share.map("{:.0%}".format)},
    )


def gains(share: float, frames: Frames) -> np.ndarray:
    """Return the fall of the loss on the rare kind of every seed."""
    trained = with_gains(frames["trained"])
    return trained[np.isclose(trained.share, share) & (trained.steps == STEPS)].gain.to_numpy()


def part(rows: pd.DataFrame) -> Estimate | str:
    """Return the part of the gain by the largest share, which has none itself."""
    parts = rows.part.dropna()
    return estimate(parts) if len(parts) else ""


FEW, MORE = (
    Measure(f"nats a byte saved by {what}", partial(gains, share), 3, "+")
    for what, share in (("a hundredth", SHARES[1]), ("a tenth", SHARES[2]))
)
BELOW, ABOVE = (
    f"confirmed if the whole interval is {side}, refuted if it is {other}"
    for side, other in (("below", "above"), ("above", "below"))
)
LOSSES = "Losses by the share of rare texts"

STUDY = Study(
    protocol=__doc__,
    page="generalization",
    claim='language models are "confined to function fitting based on the majority of corpora" (version 001, Section'
    " 4.5)",
    unit="seeds",
    stated="before the run",
    predictions=tuple(
        Prediction(name, f"{rule} .05 nats a byte", (gain,), partial(of, bound=BOUND))
        for name, rule, gain, of in (
            ("the majority alone is fitted: a hundredth of rare texts saves less than .05", BELOW, FEW, below),
            ("the opposite view: a hundredth of rare texts is fitted", ABOVE, FEW, above),
            ("a tenth of rare texts is fitted", ABOVE, MORE, above),
        )
    ),
    control=MORE,
    headline="A hundredth of the training texts saves {outcome} nats a byte on its kind, a tenth"
    " {control} ({n} seeds).",
    against=f"Among a tenth as many others the same rare texts save {{{LOSSES} / 10%, 150 / gain on the rare kind}}"
    " nats a byte, after a tenth of the training.",
    limits="One pair of kinds, one size, one length of training.",
    tables={
        LOSSES: Table(
            "trained",
            ("rare texts", "steps"),
            {
                "number of them": Cell(lambda rows: f"{rows.number.iloc[0]:,}"),
                "loss, rare kind": Cell("rare"),
                "loss, frequent kind": Cell("frequent"),
                "gain on the rare kind": Cell("gain", 3, "+"),
                "part of the gain by a half": Cell(part, 2),
            },
            prepare=with_gains,
        )
    },
    measure=measure,
    settings={"seeds": len(SEEDS), "rate": RATE, "tested": TESTED, "trainings": trainings()},
)
