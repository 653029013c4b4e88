"""Do demonstrations help an untrained Transformer whose read-out is fitted?

Networks of width 32 on new linear functions, with the sizes, norms and rates of the study of functions that a prompt
gives, are drawn, or trained for 125, 500, 1,000 or 4,000 steps, each with a rate that rises and falls over them.  Their
*gain* is by how much smaller the error is with 16 demonstrations than with one, in standard deviations of values.  As
an untrained network's read-out is random, it is also fitted by least squares to the last token's vector, with 4,096
examples for each number of demonstrations; errors are on others.  The mean of the tokens and linear attention stand
beside the Transformer.  A gain counts above .05.  The opposite view says that the gain arises in training.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float

from experiments.generalization.networks import TRANSFORMER, Network, Sizes
from experiments.generalization.plan import SEEDS, TESTED, sizes_of, trained
from experiments.generalization.tasks import Demonstrated, Examples, Task
from experiments.generalization.training import error, outputs
from experiments.run import frames_of
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table
from experiments.verdict import above

TASK = Demonstrated(family="linear", demonstrations=16)
KINDS, STEPS, COUNTS = ("mean", "linear attention", TRANSFORMER), (0, 125, 500, 1000, 4000), (1, 4, 16)
BOUND = 0.05
"""The gain above which demonstrations count as a help, in units of the standard deviation of values."""
AS_IS, FITTED = "as it is", "fitted"


@jax.jit
def features(network: Network, examples: Examples) -> Float[Array, "examples features"]:
    """Return the last token's vector after the last layer, and a one."""

    def read_features(inputs: Array, mask: Array) -> Array:
        return jnp.append(network.stack(network.embed(inputs), mask)[-1], 1.0)

    return jax.vmap(read_features)(examples.inputs, examples.mask)


def measured(task: Task, sizes: Sizes, network: Network) -> Row:
    """Return the error on new functions by number of demonstrations, also with the read-out fitted by least squares."""
    row = {}
    for count in COUNTS:
        fit, test = (TASK.draw_with(jax.random.key(SEEDS + 2 + i), TESTED, count) for i in range(2))
        readout = jnp.linalg.lstsq(features(network, fit), fit.targets)[0]
        row[f"{count}, {AS_IS}"] = float(error(outputs(network, test), test))
        row[f"{count}, {FITTED}"] = float(error(features(network, test) @ readout, test))
    return row


def measure() -> Measurements:
    """Yield the networks, with the norms and rates of the study of new functions."""
    networks = frames_of("generalization")["networks"]
    pieces = []
    for kind in KINDS:
        of = networks[(networks.functions == "linear") & (networks.network == kind)].iloc[0]
        sizes = sizes_of(TASK, kind, 32, bool(of.norms))
        for steps in STEPS:
            given = TASK, sizes, steps, float(of.rate), SEEDS, measured
            pieces.append(Piece("networks", {"network": kind, "steps": steps}, partial(trained, *given)))
    yield pieces


def with_gains(networks: pd.DataFrame) -> pd.DataFrame:
    """Return networks with the gain by demonstrations, as they are and with a fitted read-out."""
    gains = {
        f"gain, {how}": networks[f"{COUNTS[0]}, {how}"] - networks[f"{COUNTS[-1]}, {how}"] for how in (AS_IS, FITTED)
    }
    return networks.assign(**gains)


def gains(kind: str, how: str, frames: Frames, steps: int = 0) -> np.ndarray:
    """Return the gain of every seed."""
    networks = with_gains(frames["networks"])
    return networks[(networks.network == kind) & (networks.steps == steps)][f"gain, {how}"].to_numpy()


INNATE = Measure("gain of an untrained Transformer", partial(gains, TRANSFORMER, FITTED), 2, "+")
ALONG = "Gain by demonstrations along the training"

STUDY = Study(
    protocol=__doc__,
    page="generalization",
    claim='the Transformer has an "innate capacity to learn from context" (version 001, Section 5)',
    unit="draws",
    stated="before the run",
    predictions=(
        Prediction(
            "demonstrations help an untrained Transformer whose read-out is fitted",
            "confirmed if the whole interval of the gain is above .05, refuted if it is below",
            (INNATE,),
            lambda gain: above(gain, BOUND),
        ),
        Prediction(
            "demonstrations help an untrained Transformer as it is",
            "confirmed if the whole interval of the gain is above .05, refuted if it is below",
            (Measure("gain of an untrained Transformer as it is", partial(gains, TRANSFORMER, AS_IS), 2, "+"),),
            lambda gain: above(gain, BOUND),
        ),
    ),
    control=Measure("gain of an untrained mean of tokens", partial(gains, "mean", FITTED), 2, "+"),
    headline="With only its read-out fitted, an untrained Transformer gains {outcome} standard deviations of error by"
    f" 16 demonstrations, a mean of tokens {{control}}; untouched, its gain is undecided and its"
    f" error, {{{ALONG} / transformer, 0 / 16, as it is / value}}, above that of writing zero"
    " ({n} draws).",
    against="Without any fitting it is undecided whether demonstrations help: the error of writing zero is one, and"
    " the gain's interval reaches below the bound. The fitted gain's interval begins at the bound.",
    limits="Fitting the read-out is learning, so little here is innate. Linear functions, one size.",
    tables={
        ALONG: Table(
            "networks",
            ("network", "steps"),
            {
                f"{what}, {shown}": Cell(f"{what}, {how}", 2)
                for how, shown in ((AS_IS, AS_IS), (FITTED, "read-out fitted"))
                for what in (*map(str, COUNTS), "gain")
            },
            prepare=with_gains,
        )
    },
    measure=measure,
    settings={"kinds": KINDS, "steps": STEPS, "counts": COUNTS, "seeds": SEEDS, "tested": TESTED},
    parallel=True,
)
