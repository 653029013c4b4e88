"""Do heads that see slices of the features lose what heads of the whole stream have?

The papers write heads that see slices of the features, `x_h = x S_h`, each with projections of `M/h × M/h` (Eq. 7), and
`001` asks whether a word that is fragmented like this still has its full meaning (Section 4.5).  Trained models have
heads that project the whole stream.

**Networks.**  Language models of three layers with four heads are trained on bytes of Python's standard library.  Their
queries, keys and values see the whole stream (*full attention*) or a quarter of the features each (*slices*), with MLPs
so wide that the parameters are as many.  Rotary positions, the scale of scores, the size of the first queries, keys and
values, the texts and the rule of training are the same.  Factors of .5, 1 and 2 on the embedded model's rates are tried
for both with a quarter of the steps; three seeds are trained with the best one.

**What is measured.**  The *loss* is that of bytes with at least 128 bytes before them.  The *gain by far bytes* is its
growth with the first 96 bytes cut off.  A *second copy* of a random word stands 64 bytes after the first.

**Stated beforehand.**  One answer to the question: the full meaning isn't in a slice, and the loss is higher by more
than .02 nats a byte.  The other: the output matrix and the MLPs mix all features in every layer, so that each slice can
be given what its head needs.  The difference of both networks is taken seed by seed, with equal texts.

A first training was stopped after three trials of rates and before any result was looked at: its rule trained slices by
Adam and full attention by Muon.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from flax import nnx
from jaxtyping import Array, Float

from duat_jax.models.layer_parts import blocks
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import PRECISION, alike, initial
from duat_jax.papers import matched
from experiments.long_context import measures
from experiments.long_context.choice import SEEDS, best, sizes_of
from experiments.long_context.networks import FULL, Sizes, losses_of, network, train
from experiments.long_context.networks import count as count_of
from experiments.long_context.tasks import TRAINING, held_out_texts, training_texts
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table
from experiments.verdict import above

RATES, STEPS, TRIAL_SEED = (0.5, 1.0, 2.0), 6000, 3
SLICED = "slices"
NETWORKS = FULL, SLICED
BOUND = 0.02
"""The difference of losses from which on it counts as one, in nats a byte."""
DISTANCE = 64
"""The distance of a word's second copy that is shown."""
LOSS, GAIN, COPY = "loss", "gain by far bytes", "loss of a word's second copy"


@final
class SlicedProjection(nnx.Module):
    """Project each head's slice of the features: `y_h = x_h W_h`, with matrices of `M/h × M/h` (Wang & Li, Eq. 7).

    Args:
        features: width `M` of the stream.
        heads: number of heads `h`.
        rngs: source of the random initial weights; zeros without it.
    """

    def __init__(self, features: int, heads: int, *, rngs: nnx.Rngs | None) -> None:
        size = features // heads
        # Fewer inputs, of which outputs shall be as large as those of the whole stream.
        self.kernel = initial((heads, size, size), jnp.float32, rngs)
        self.kernel[...] *= heads**0.5

    def __call__(self, x: Float[Array, "... tokens features"]) -> Float[Array, "... tokens features"]:
        """Project the slices."""
        kernel = alike(self.kernel[...], x)
        slices = x.reshape(*x.shape[:-1], len(kernel), -1)
        return jnp.einsum("...hd,hde->...he", slices, kernel, precision=PRECISION).reshape(x.shape)


def sliced(sizes: Sizes, rngs: nnx.Rngs | None) -> Transformer:
    """Return a language model whose heads' queries, keys and values are made from slices of the features."""
    model = network(sizes, rngs)
    for block in blocks(model):
        attention: Any = block.attention
        for part in ("query", "key", "value"):
            setattr(attention, part, SlicedProjection(sizes.features, sizes.heads, rngs=rngs))
    return model


def count(sizes: Sizes) -> int:
    """Return the number of parameters of a network whose heads see slices."""
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(partial(sliced, sizes, None))))


def sizes() -> Sizes:
    """Return the sizes of a network whose heads see slices, with as many parameters as full attention has."""
    full = sizes_of(FULL)
    return matched(replace(full, neurons=1), count_of(full), count)


def trained(kind: str, rate: float, seed: int, steps: int) -> Transformer:
    """Return a trained network."""
    rngs = nnx.Rngs(seed)
    model = network(sizes_of(FULL), rngs) if kind == FULL else sliced(sizes(), rngs)
    return train(model, jnp.asarray(training_texts(TRAINING, steps, seed)), jnp.asarray(rate))[0]


def trial(kind: str, rate: float) -> Row:
    """Return the validation loss after a quarter of the steps."""
    model = trained(kind, rate, TRIAL_SEED, STEPS // 4)
    return {"loss": measures.rounded(losses_of(model, held_out_texts(TRAINING.tokens, 0)[0]).mean())}


def measured(kind: str, rate: float, seed: int) -> Row:
    """Return the losses of a trained network: by position, text by text, and of words by their distance."""
    return {
        "rate": rate,
        "parameters": count_of(sizes_of(FULL)) if kind == FULL else count(sizes()),
        **measures.measure(trained(kind, rate, seed, STEPS)),
    }


def measure() -> Measurements:
    """Yield the trials of rates, and then every network with the best of them."""
    for kind in NETWORKS:
        trials = yield [Piece("trials", {"network": kind, "rate": rate}, partial(trial, kind, rate)) for rate in RATES]
        rate = best({row["rate"]: row["loss"] for rows in trials for row in rows})
        for seed in SEEDS:
            yield Piece("networks", {"network": kind, "seed": seed}, partial(measured, kind, rate, seed))


def losses(networks: pd.DataFrame) -> pd.DataFrame:
    """Return every network's mean losses, and by how much those of slices are more than full attention's."""
    found = networks.assign(
        **{
            LOSS: networks.late.map(np.mean),
            GAIN: networks.gain.map(np.mean),
            COPY: networks.recall.map(lambda of: of[measures.DISTANCES.index(DISTANCE)]),
        }
    )
    full = found[found.network == FULL].set_index("seed")
    for name in (LOSS, GAIN, COPY):
        more = found[name] - found.seed.map(full[name])
        found[f"{name}, more than full attention's"] = more.where(found.network != FULL)
    return found


def loss(kind: str, frames: Frames) -> pd.Series:
    """Return the loss of every seed of a network."""
    found = losses(frames["networks"])
    return found[found.network == kind][LOSS]


def more(name: str, frames: Frames) -> pd.Series:
    """Return by how much a loss of slices is more than full attention's, seed by seed."""
    return losses(frames["networks"])[f"{name}, more than full attention's"].dropna()


def _text(column: str, form: str) -> Callable[[pd.DataFrame], str]:
    return lambda rows: format(rows[column].iloc[0], form)


STUDY = Study(
    protocol=__doc__,
    page="heads",
    claim='a question: "Does this fragmentation still capture the full meaning of words comprehensively?"'
    " (001, Section 4.5)",
    unit="seeds",
    stated="before the run",
    predictions=(
        Prediction(
            "the full meaning isn't in a slice: heads that see slices have a higher loss",
            f"confirmed if the interval of the difference lies above {BOUND} nats a byte, refuted if below",
            (Measure("loss of slices, more than full attention's, nats a byte", partial(more, LOSS), sign="+"),),
            partial(above, bound=BOUND),
        ),
    ),
    control=Measure("loss of full attention, nats a byte", partial(loss, FULL)),
    headline="Heads that see a quarter of the features each add {outcome} nats a byte to the loss of heads that see the"
    " whole stream, {control} ({n} seeds): slices cost something; whether more than the stated bound is"
    " undecided.",
    against="Reading far bytes isn't shown to suffer: the gain by them differs from full attention's by {Heads that"
    " read slices / slices / gain by far bytes, more than full attention's}, and the loss of a word's second copy by"
    " {Heads that read slices / slices / loss of a word's second copy, more than full attention's}.",
    limits="Three layers of 64 features, one text, three seeds, and of three rates the lowest is full attention's best."
    " Whole heads of a lower rank, which would tell slices from fewer weights in attention, weren't trained.",
    tables={
        "Heads that read slices": Table(
            "networks",
            ("network",),
            {
                "parameters": Cell(_text("parameters", ",")),
                "rate": Cell(_text("rate", "g")),
                **{
                    heading: Cell(heading, 3, sign)
                    for name in (LOSS, GAIN, COPY)
                    for heading, sign in ((name, ""), (f"{name}, more than full attention's", "+"))
                },
            },
            prepare=losses,
        ),
        "Loss of every seed": Table("networks", ("seed",), LOSS, columns="network", prepare=losses),
        "Trials of rates": Table(
            "trials", ("network",), "loss", columns="rate", note="Validation losses after a quarter of the steps."
        ),
    },
    measure=measure,
    settings={"rates": RATES, "steps": STEPS, "seeds": SEEDS, "training": TRAINING._asdict()},
)
