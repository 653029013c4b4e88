"""Is a Transformer at least twice as good as a layer of fixed parameters on many, on rare and on new functions?

**Named functions.**  A prompt of digits of base 4, a token each, names one of 4, 16, 64 or 256 functions of four
numbers between −1 and 1.  Each function moves the numbers to other places and changes signs, or, if *dense*, is a
random orthogonal matrix, so that none follows from the others.  The error is the root mean square over functions; the
number of parameters for an error of .05 lies on a line in logarithms between two sizes, or is only known to be below
the smallest one or above the largest.  Where a Transformer doesn't reach that error, errors at the largest size are
compared instead, as on 256 functions.  *Unequal*: of the same sixteen functions the rarest is a hundredth as frequent
in training as the most frequent one.  *Distance of outputs* is that of outputs for the same numbers after two prompts,
divided by that of the targets.

**Demonstrated functions.**  After Garg et al. (2022): each token has a point and the function's value there, the last
one a point alone.  Functions are new in every example of training and of tests: linear ones of three numbers, sparse
linear ones of six numbers of which two count, networks of four hidden units on three numbers, and sines of one number.
Values have variance 1.  Training has 1 to 16 demonstrations; tests have 1 to 32.  Linear functions are also drawn from
a pool of 64 in training, and tested on new ones.  References are the value of the nearest demonstration, and least
squares.

**Networks**, all with as many parameters as the Transformer of the same width (8, 16 and 32, or 32 alone): the
theorem's sum with a linear path in *one layer*; with two layers and a residual stream a *perceptron* of the whole
input, the *mean* of all tokens, a *fixed pattern* that is learned and the same for every input, a *convolution*,
*linear attention* and a *Transformer*.  Mixing moves with the prompt in the last two alone.  Norms or none and the
rates .003, .01 and .03 are tuned with half of the steps, one seed and the middle width.  Adam, 4,000 steps of 64 new
examples (6,000 for 64 functions, 16,000 for 256), five seeds; functions and test examples are the same for all.  The
network of fixed mixing that is closest in tuning also trains four times as long on two tasks.

Before the predictions networks of 200 to 300 steps were seen for their time; the first plan, with eight numbers, was
stopped in its tuning, as no network had learned 64 functions, and single networks were tried for the new one.  That
attention learns 256 functions later than the perceptron was thus known.  The predictions and bounds weren't changed.
The first prediction, which joins three, was called mixed at first; its question needs all three, and so it is refuted;
that the question says *at least twice*, as the rules do, was also stated afterwards.
Ratios are means of logarithms over seeds, and errors below .02 count as .02; intervals hold one at a time.

**Parameters frozen.** The model is run again with a group of parameters frozen at its mean over 16 prompts: attention
patterns, scales of norms, both (all that moves the weights), or the biases of hidden units.  There is nothing to decide
in this: any part that a trained network uses breaks it.  These numbers, and those of the references, are kept with the
results; no table shows them.
"""

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import pandas as pd

from experiments.estimate import Estimate, estimate
from experiments.generalization import ratios
from experiments.generalization.measures import COUNTS, UNSEEN_COUNTS, dissected, measured, references
from experiments.generalization.networks import FIXED, KINDS, MOVING, TRANSFORMER, WHOLE
from experiments.generalization.picture import draw_errors
from experiments.generalization.plan import Chosen, Functions, choices_of, network, settings_of
from experiments.generalization.ratios import REFUTED, Ratio, known, largest, logs, logs_needed
from experiments.generalization.tasks import FAMILIES, Demonstrated, Named
from experiments.run import frames_of
from experiments.study import Measure, Measurements, Picture, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table
from experiments.verdict import joined

RATES, DEMONSTRATIONS, WIDEST = (3e-3, 1e-2, 3e-2), 16, 32
EQUAL, RARE, MANY = "16 functions", "16 functions, unequal", ("64 functions", "256 functions", "64 dense functions")
UNEQUAL = Named(digits=2, base=4, rarest=0.01)
"""The functions of `RARE`, which are the same as those of `EQUAL`."""
FUNCTIONS: dict[str, Functions] = {
    "4 functions": Functions(Named(digits=1, base=4)),
    EQUAL: Functions(Named(digits=2, base=4)),
    "64 functions": Functions(Named(digits=3, base=4), (8, 16, 32), 6000),
    "256 functions": Functions(Named(digits=4, base=4), (8, 16, 32), 16000),
    "16 dense functions": Functions(Named(digits=2, base=4, dense=True)),
    "64 dense functions": Functions(Named(digits=3, base=4, dense=True), (8, 16, 32), 6000),
    RARE: Functions(UNEQUAL),
    **{family: Functions(Demonstrated(family=family, demonstrations=DEMONSTRATIONS)) for family in FAMILIES},
    "linear, 64 in training": Functions(Demonstrated(family="linear", demonstrations=DEMONSTRATIONS, pool=64)),
}
LONGER, TIMES = ("64 functions", "two layers"), 4
"""The functions on which the closest network of fixed mixing also trains longer, and how many times as long."""
QUARTERS = "most frequent quarter", "second", "third", "rarest quarter"


def closest(chosen: Chosen, name: str) -> str:
    """Return the network of fixed mixing with the smallest error in tuning."""
    return min(WHOLE + FIXED, key=lambda kind: chosen[name, kind].error)


def blind(task: Named) -> Row:
    """Return the error of the best output that doesn't depend on the prompt."""
    return {"error": task.blind()}


def measure() -> Measurements:
    """Yield the trainings of every network on all functions."""
    chosen = yield from choices_of(FUNCTIONS, RATES)
    yield [
        network(name, of, kind, width, chosen[name, kind], dissected if width == of.widths[-1] else measured)
        for name, of in FUNCTIONS.items()
        for kind in KINDS
        for width in of.widths
    ]
    yield [
        network(name, FUNCTIONS[name], kind, WIDEST, chosen[name, kind], measured, TIMES)
        for name in LONGER
        for kind in [closest(chosen, name)]
    ]
    for name, (task, *_) in FUNCTIONS.items():
        if isinstance(task, Named):
            yield Piece("blind", {"functions": name}, partial(blind, task))
        elif isinstance(task, Demonstrated) and task.pool is None:
            yield Piece("references", {"functions": name}, partial(references, task))


def many(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return the parameters that rivals need for the target; where the mover doesn't reach it, their errors."""
    networks, cases = frames["networks"], []
    for functions in MANY:
        (low, high), errors = logs_needed(networks, functions, mover), largest(logs(networks, functions))
        for rival in rivals:
            rival_low, rival_high = logs_needed(networks, functions, rival)
            if np.isinf(high).any():
                cases.append(known(f"{functions}, {rival} (errors)", errors[rival] - errors[mover]))
            else:
                cases.append(Ratio(f"{functions}, {rival}", rival_low - high, rival_high - low))
    return cases


def with_quarters(networks: pd.DataFrame) -> pd.DataFrame:
    """Return networks on sixteen functions with the error on every quarter, by their frequency in `RARE`."""
    of = networks[networks.functions.isin([EQUAL, RARE])]
    squares = np.array(of["by function"].tolist())[:, np.argsort(-np.asarray(UNEQUAL.shares()))] ** 2
    quarters = np.sqrt(squares.reshape(len(of), 4, -1).mean(-1)).T
    return of.assign(**dict(zip(QUARTERS, quarters, strict=True)))


def rare(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return the errors on the rarest quarter, and how much larger they are than where all are equally frequent."""
    networks = with_quarters(frames["networks"])
    errors, equal = (largest(logs(networks, of, QUARTERS[-1])) for of in (RARE, EQUAL))
    rises = largest(logs(networks, RARE, QUARTERS[-1], floor=0)) - equal
    numbers = {"error": errors, "rise": rises}
    return [known(f"{name}, {rival}", of[rival] - of[mover]) for rival in rivals for name, of in numbers.items()]


def new(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return the errors on new functions after as many demonstrations as training had."""
    errors = {family: largest(logs(frames["networks"], family)) for family in FAMILIES}
    return [known(f"{family}, {rival}", of[rival] - of[mover]) for family, of in errors.items() for rival in rivals]


def longer(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return the errors after 16 demonstrations over those after 32."""
    after = {
        family: [largest(logs(frames["networks"], family, f"after {count}"))[mover] for count in (16, 32)]
        for family in FAMILIES
    }
    return [known(family, before - then) for family, (before, then) in after.items()]


def more_training(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return a network's errors over those of the closest one of fixed mixing, trained longer."""
    networks = frames["networks"]
    of_longer = {name: largest(logs(networks, name, times=TIMES)) for name in LONGER}
    return [
        known(f"{name}, {kind}", largest(logs(networks, name))[mover] - of[kind])
        for name, of in of_longer.items()
        for kind in of
    ]


def over_transformer(rows: pd.DataFrame) -> Estimate:
    """Return the single layer's error over a Transformer's of the same size."""
    errors = np.log(rows.pivot(index="seed", columns="network", values="error").clip(lower=ratios.FLOOR))
    return ratios.geometric(errors[SINGLE] - errors[TRANSFORMER])


def widest(names: Iterable[str], networks: pd.DataFrame) -> pd.DataFrame:
    """Return the largest networks on some functions."""
    return ratios.labelled(networks[networks.functions.isin([*names]) & (networks.width == WIDEST)])


def numbers_for_picture() -> dict[str, dict[str, tuple[float, ...]]]:
    """Return every network's error on named functions, and on new functions that 16 demonstrations give."""
    networks = frames_of("generalization")["networks"]
    titles = {name: f"{name}, named" for name in MANY[:2]} | {family: f"{family}, demonstrated" for family in FAMILIES}
    shown: dict[str, dict[str, tuple[float, ...]]] = {title: {} for title in titles.values()}
    once = networks[(networks.width == WIDEST) & (networks.times == 1) & networks.functions.isin([*titles])]
    for (name, kind), of in once.groupby(["functions", "network"], sort=False):
        shown[titles[name]][kind] = tuple(round(number, 3) for number in estimate(of.error)[:3])
    return shown


DECIDING = {"many functions": many, "rare functions": rare, "new functions": new}
NAMES = [name for name, of in FUNCTIONS.items() if isinstance(of.task, Named) and name != RARE]
DEMONSTRATED = [name for name, of in FUNCTIONS.items() if isinstance(of.task, Demonstrated)]
AFTER = {str(count): Cell(f"after {count}") for count in (*COUNTS, *UNSEEN_COUNTS)}
BY_COUNT = "New functions by number of demonstrations"
PARTS = (
    (
        "many functions",
        "to fit 64, 256 and 64 dense ones with an error of .05 a rival needs at least twice the parameters",
        many,
    ),
    ("rare functions", "a rival's error on the rarest quarter is at least twice as large, and so is its rise", rare),
    ("new functions", "after 16 demonstrations a rival's error is at least twice as large, in four families", new),
)
(SINGLE,), BY_SIZE = WHOLE, "The single layer's error over a Transformer's, by width"
RATIOS = "Ratios that decide"
RIVAL = "the single layer over the transformer, smallest ratio"

STUDY = Study(
    protocol=__doc__,
    page="generalization",
    claim='a fixed network "can only fit a single, fixed data distribution" (Section 2.3)',
    unit="seeds",
    stated="before the run; that the first prediction joins three of them, afterwards",
    predictions=(
        Prediction(
            "a Transformer is at least twice as good as the single layer on many, on rare and on new functions",
            "by the three predictions below, which were stated beforehand: confirmed if all are, refuted if one is",
            tuple(
                Measure(f"{name}: {RIVAL}", partial(ratios.worst, cases, TRANSFORMER, WHOLE, REFUTED), 2)
                for name, _, cases in PARTS
            ),
            lambda *worst: joined(*map(ratios.large, worst)),
        ),
        *(prediction for part in PARTS for prediction in ratios.predictions(*part)),
        *(
            ratios.prediction(
                f"longer prompts, {mover}: after 32 demonstrations the error isn't larger than after 16",
                f"longer prompts: after 16 over after 32 demonstrations, {mover}",
                longer,
                mover,
                confirmed=1,
                refuted=1,
            )
            for mover in reversed(MOVING)
        ),
        *(
            ratios.prediction(
                f"the opposite view: trained longer, the closest network of fixed mixing is no worse than the {mover}",
                f"the {mover} over the closest of fixed mixing, trained longer",
                more_training,
                mover,
                confirmed=1,
                refuted=1 / REFUTED,
            )
            for mover in reversed(MOVING)
        ),
    ),
    control=Measure(f"new functions: {RIVAL}", partial(ratios.worst, new, TRANSFORMER, WHOLE, REFUTED), 2),
    headline=f"On named functions the theorem's single layer makes {{{BY_SIZE} / 64 dense functions / 32 / value}} to"
    f" {{{BY_SIZE} / 64 functions / 8 / value}} times a Transformer's error in eight of nine cases, {{outcome}} in one"
    f" (256 functions, largest size); on rare ones {{{RATIOS} / rare functions, error, one layer / transformer}}, on"
    " new, demonstrated ones at least {control} ({n} seeds).",
    short="On named functions a layer of fixed parameters makes about a Transformer's error, {outcome / value} times it"
    " in one case of nine; on new ones a larger one.",
    against="A pattern that is the same for every input comes close on new functions: for sines its error is"
    f" {{{BY_COUNT} / sine, fixed pattern / 16 / value}}, a Transformer's {{{BY_COUNT} / sine, transformer / 16 /"
    f" value}}, the single layer's {{{BY_COUNT} / sine, one layer / 16 / value}}.",
    limits="Rates were tuned at the middle size. On 256 functions neither network reaches the stated error of .05;"
    " errors at the largest size decide there.",
    tables={
        RATIOS: partial(ratios.ratios_table, DECIDING),
        "Errors on named functions by size": Table(
            "networks",
            ("functions", "network"),
            "error",
            columns="width",
            prepare=lambda networks: ratios.labelled(networks[networks.functions.isin(NAMES)]),
        ),
        BY_SIZE: Table(
            "networks",
            ("functions",),
            {"": Cell(over_transformer, 2)},
            columns="width",
            prepare=lambda networks: networks[
                networks.functions.isin(MANY) & networks.network.isin([SINGLE, TRANSFORMER]) & (networks.times == 1)
            ].sort_values("width", kind="stable"),
        ),
        "Parameters for an error of .05": Table(
            "networks",
            ("functions",),
            {"": Cell(ratios.parameters_needed)},
            columns="network",
            prepare=lambda networks: networks[networks.functions.isin(MANY) & (networks.times == 1)],
            note="Medians and ranges over seeds.",
        ),
        BY_COUNT: Table(
            "networks",
            ("functions", "network"),
            {**AFTER, "as in training": Cell("as in training")},
            prepare=partial(widest, DEMONSTRATED),
        ),
    },
    measure=measure,
    pictures={
        "generalization": Picture(
            numbers_for_picture,
            draw_errors,
            "Red: mixing of tokens that moves with the prompt, which helps on demonstrated functions and not on named"
            " ones. Lines: 95 % intervals over {n} seeds.",
        )
    },
    settings=settings_of(FUNCTIONS, RATES, [LONGER, TIMES]),
    parallel=True,
)
