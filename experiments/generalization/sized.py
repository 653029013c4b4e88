"""Has a Transformer of 1,697 parameters less than a third of the gain by demonstrations of one of 25,217?

"Vast scale" is said to bring learning in context.  No family of language models of several sizes comes with packages,
so this is asked of networks that can be trained here: Transformers of two layers of width 4, 8, 16 and 32 on new
linear functions of three numbers, in units of the standard deviation of values.  Norms or none and the rates .001,
.003, .01 and .03 are tuned at every size, with half of the steps and one seed; Adam, 4,000 steps of 64 new examples,
five seeds; the two smallest networks are also trained for 16,000 steps.

The *gain* is by how much smaller the error is after 16 demonstrations of the function than after 16 of another one at
the same points.  Width 8 decides; width 4 stands beside it: its heads have one number each, and a token's five numbers
don't fit into its stream.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array

from experiments.estimate import Estimate, estimate
from experiments.generalization.networks import TRANSFORMER, Network, Sizes
from experiments.generalization.plan import BATCH, NORMS, SEEDS, TESTED, choices, trained, tuning
from experiments.generalization.ratios import opposite
from experiments.generalization.tasks import Demonstrated, Examples, Task
from experiments.generalization.training import error, outputs
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table
from experiments.verdict import Verdict, decide

TASK = Demonstrated(family="linear", demonstrations=16)
RATES, STEPS, WIDTHS, DECIDES = (1e-3, 3e-3, 1e-2, 3e-2), 4000, (4, 8, 16, 32), 8
LONGER = 4
"""The factor by which the two smallest networks are also trained longer."""
LACKS, HAS = 1 / 3, 2 / 3
"""The part of the largest network's gain below which a smaller one lacks it, and above which it has it."""


def sizes_of(width: int, norms: bool) -> Sizes:
    """Return the sizes of a Transformer."""
    return Sizes(kind=TRANSFORMER, norms=norms, layers=2, features=width, neurons=4 * width)


@jax.jit
def examples(key: Array) -> tuple[Examples, Examples]:
    """Return new functions with all their demonstrations, and with another function's at the same points."""
    own_keys, other_keys, point_keys = (jax.random.split(of, TESTED) for of in jax.random.split(key, 3))
    draw = jax.vmap(TASK.given, (0, 0, None))
    own, other = (draw(keys, point_keys, jnp.asarray(TASK.demonstrations)) for keys in (own_keys, other_keys))
    return own, other._replace(targets=own.targets)


def measured(task: Task, sizes: Sizes, network: Network) -> Row:
    """Return the error on new functions after their own demonstrations, and after another function's."""
    of_both = zip(("own", "other"), examples(jax.random.key(SEEDS + 2)), strict=True)
    return {name: float(error(outputs(network, of), of)) for name, of in of_both}


def measure() -> Measurements:
    """Yield trainings of every size."""
    chosen = yield from choices(
        [tuning({"width": width}, TASK, partial(sizes_of, width), NORMS, STEPS, RATES) for width in WIDTHS]
    )
    yield [
        Piece(
            "networks",
            {"width": width, "steps": steps},
            partial(trained, TASK, sizes_of(width, of.norms), steps, of.rate, SEEDS, measured),
        )
        for width, of in zip(WIDTHS, chosen, strict=True)
        for steps in ((STEPS, LONGER * STEPS) if width <= DECIDES else (STEPS,))
    ]


def _gains(networks: pd.DataFrame) -> pd.DataFrame:
    """Return the networks with their gains, also as a part of the largest network's."""
    gain = networks.other - networks.own
    return networks.assign(gain=gain, part=gain / gain[networks.width == max(WIDTHS)].mean())


def of_width(column: str, width: int, frames: Frames) -> np.ndarray:
    """Return a number of every seed of a width."""
    networks = _gains(frames["networks"])
    return networks[(networks.width == width) & (networks.steps == STEPS)][column].to_numpy()


def lacks(part: Estimate) -> Verdict:
    """Return whether a network lacks most of the largest network's gain."""
    return decide(part.high < LACKS, part.low > HAS)


def _part(rows: pd.DataFrame) -> Estimate | str:
    return "1.00" if rows.width.iloc[0] == max(WIDTHS) else estimate(rows.part)


PART = Measure(f"part of the gain that width {DECIDES} has", partial(of_width, "part", DECIDES), 2)

STUDY = Study(
    protocol=__doc__,
    page="generalization",
    claim='large scale "lays the foundation" for in-context learning (Section 1)',
    unit="seeds",
    stated="before the run",
    predictions=(
        Prediction(
            "small networks lack it: the gain of width 8 is below a third of that of width 32",
            "confirmed if the whole interval of the part is below a third, refuted if it is above two thirds",
            (PART,),
            lacks,
        ),
        Prediction(
            "the opposite view: a few thousand parameters are enough for simple functions",
            "confirmed if the whole interval of the part is above two thirds, refuted if it is below a third",
            (PART,),
            lambda part: opposite(lacks(part)),
        ),
    ),
    control=Measure("gain of width 32", partial(of_width, "gain", max(WIDTHS)), 2, "+"),
    headline="A Transformer of {Gain by demonstrations by size / 8, 4000 / parameters} parameters has {outcome} of the"
    " gain by demonstrations ({control}) that one of {Gain by demonstrations by size / 32, 4000 / parameters} has ({n}"
    " seeds).",
    against="With {Gain by demonstrations by size / 4, 4000 / parameters} parameters it is {Gain by demonstrations by"
    " size / 4, 4000 / part of the largest's}; and size lowers the error, from {Gain by demonstrations by size / 8,"
    " 4000 / error, its own demonstrations / value} to {Gain by demonstrations by size / 32, 4000 / error, its own"
    " demonstrations / value}.",
    limits="One simple family of functions, of networks trained on nothing else.",
    tables={
        "Gain by demonstrations by size": Table(
            "networks",
            ("width", "steps"),
            {
                "parameters": Cell(lambda rows: f"{rows.parameters.iloc[0]:,}"),
                "rate": Cell(lambda rows: f"{rows.rate.iloc[0]:g}"),
                "error, its own demonstrations": Cell("own", 2),
                "error, another function's": Cell("other", 2),
                "gain": Cell("gain", 2, "+"),
                "part of the largest's": Cell(_part, 2),
            },
            prepare=_gains,
        )
    },
    measure=measure,
    settings={"rates": RATES, "steps": STEPS, "widths": WIDTHS, "seeds": SEEDS, "batch": BATCH, "tested": TESTED},
    parallel=True,
)
