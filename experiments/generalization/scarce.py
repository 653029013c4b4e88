"""Are a fixed network's error outside of dense regions and its rise there at least twice a Transformer's?

**Dense regions**, the papers' Figure 2.  A prompt of two digits names one of 16 functions of one number between −1 and
1, each a sum of three sine waves of variance 1.  Each function has a region, one of four intervals of width .4.
*Dense*: in training 95 % of the numbers are from the region of the prompt's function, so that a number inside is 96
times as dense as one outside.  *Even*, the control: all numbers are equally dense.  *Weighted*: numbers are equally
dense and the loss is weighted by the dense ones' density.  Errors are on equally dense numbers inside, and outside.
The *slope* of outputs is the sum of products of the differences between two prompts' outputs with those of their
targets, over the sum of squares of the latter: 1 if outputs differ as they should, 0 if they are the same.  *Blind* is
the best output independent of the prompt, in closed form.  The same with four functions is for the picture.

**Few functions**: 4 and 16 named functions.  **Longer prompts**: six further tokens stand before the sixteen
functions' two digits: all the digit 0 (*constant*), random digits (*random*), or five random digits around the name and
a mark directly before it at a random place (*marked*).

The seven networks of the study of functions that a prompt gives, at equal parameters, as large as Transformers of
width 4 to 32.  Norms or none and the rates .003, .01, .03 and .1 are tuned at the middle width with half of the steps
and one seed, on curves by the error on equally dense numbers.  Adam, 4,000 steps of 64 new examples (6,000 for 16 named
functions and longer prompts), five seeds; four networks also train four times as long on dense curves.

Ratios are means of logarithms over seeds; errors and slopes below .02 count as .02, and a network that has diverged
writes zero.  Errors outside and slopes are compared at equal parameters, in the mean over four widths; rises at the
width at which a network's error outside after even training is nearest to .1, of those between .03 and .3.  Parameters
below the smallest or above the largest size give bounds; a case that is undecided for this reason compares errors at
the middle width.

Before the run one network for each of four rates was seen, with a seed that isn't measured: that the single layer has
the largest error was known.  While the networks trained, and before a result was looked at, what is compared where
numbers aren't known, and at which widths, was changed.  Until after the run the first prediction was the second one of
the list: now it is the error and its rise for the single layer alone, whose error is large after even training at all
widths, and can't rise much.  As before, one refuted part refutes.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from experiments.estimate import Estimate
from experiments.generalization import curves, ratios
from experiments.generalization.curves import DENSE, EVEN, REGIONS, WEIGHTED, Curves, thinned
from experiments.generalization.measures import measured
from experiments.generalization.networks import KINDS, TRANSFORMER
from experiments.generalization.padded import CONSTANT, MARKED, RANDOM, Padded
from experiments.generalization.picture import draw_dense_regions
from experiments.generalization.plan import Functions, choices_of, network, settings_of
from experiments.generalization.ratios import CONFIRMED, FLOOR, REFUTED, TARGET, Ratio, known, logs, logs_needed
from experiments.generalization.tasks import Named
from experiments.run import frames_of
from experiments.study import Measure, Measurements, Picture, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table
from experiments.verdict import joined

RATES = 3e-3, 1e-2, 3e-2, 1e-1
FEW = "4 functions", "16 functions"
LENGTHS = {filling: f"6 further tokens, {filling}" for filling in (CONSTANT, RANDOM, MARKED)}
CURVES = {density: f"curves, {density}" for density in (EVEN, DENSE, WEIGHTED)}
FUNCTIONS: dict[str, Functions] = {
    FEW[0]: Functions(Named(digits=1, base=4), (4, 8, 16)),
    FEW[1]: Functions(Named(digits=2, base=4), (4, 8, 16), 6000),
    **{
        name: Functions(Padded(named=Named(digits=2, base=4), further=6, filling=filling), (8, 16, 32), 6000)
        for filling, name in LENGTHS.items()
    },
    CURVES[EVEN]: Functions(Curves(digits=2, base=4, density=EVEN), (4, 8, 16, 32)),
    CURVES[DENSE]: Functions(Curves(digits=2, base=4, density=DENSE), (4, 8, 16, 32)),
    CURVES[WEIGHTED]: Functions(Curves(digits=2, base=4, density=WEIGHTED), (16,)),
    **{f"4 {CURVES[of]}": Functions(Curves(digits=1, base=4, density=of), (4, 8, 16)) for of in (EVEN, DENSE)},
}
LONGER, TIMES = ("one layer", "perceptron", "fixed pattern", TRANSFORMER), 4
"""The networks that also train longer on dense curves, at the width of the tuning, and how many times."""
LEARNED, AIM = (0.03, 0.3), 0.1
"""The errors after even training of which a multiple says something, and the one that widths are chosen by."""
TUNED, FIXED = 16, "one layer"
"""The width at which curves were tuned, and the theorem's fixed network."""


def blind(task: Curves) -> list[Row]:
    """Return the errors of the best output independent of the prompt, and of an output of zero."""
    y = np.asarray(task.blind())
    return [{"output": name, **curves.errors(task, of)} for name, of in (("blind", y), ("zero", 0 * y))]


def drawn(task: Curves) -> list[Row]:
    """Return what is drawn beside the networks' outputs: points, regions, functions and the best blind outputs."""
    functions, x = task.grid()
    values, best = (
        thinned(np.asarray(of).reshape(task.functions, -1)) for of in (task.values(functions, x), task.blind())
    )
    points, centres = thinned(np.asarray(x[: curves.POINTS])), np.asarray(task.centres()).round(3).tolist()
    return [
        {"function": i, "x": points, "centre": centres[i], "values": values[i], "blind": best[i]}
        for i in range(task.functions)
    ]


def measure() -> Measurements:
    """Yield the trainings of every network on all functions, and what the best blind outputs have."""
    chosen = yield from choices_of(FUNCTIONS, RATES)
    yield [
        network(name, of, kind, width, chosen[name, kind], measured)
        for name, of in FUNCTIONS.items()
        for kind in KINDS
        for width in of.widths
    ]
    name = CURVES[DENSE]
    yield [network(name, FUNCTIONS[name], kind, TUNED, chosen[name, kind], measured, TIMES) for kind in LONGER]
    for name, (task, *_) in FUNCTIONS.items():
        if isinstance(task, Curves):
            yield Piece("blind", {"functions": name}, partial(blind, task))
            if task.functions == REGIONS and task.density == DENSE:
                yield Piece("drawn", {}, partial(drawn, task))


def _or_errors(case: Ratio, logarithms: pd.Series, *, says: bool) -> Ratio:
    """Return a case, or that of errors, if they say something, where the first one is undecided for want of bounds."""
    ratio = case.estimate()
    if case.bounded or not says or ratio.low >= CONFIRMED or ratio.high < REFUTED:
        return case
    return known(f"{case.name} (errors)", logarithms)


def _middle(networks: pd.DataFrame, functions: str) -> pd.DataFrame:
    """Return the logarithms of errors of the middle width, by network."""
    of = logs(networks, functions)
    return of.xs(sorted(of.columns.unique("width"))[1], axis=1, level="width")


def few(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return the ratios of the parameters for the target, or of errors at the middle width."""
    networks, cases = frames["networks"], []
    for functions in FEW:
        (low, high), errors = logs_needed(networks, functions, mover), _middle(networks, functions)
        for rival in rivals:
            rival_low, rival_high = logs_needed(networks, functions, rival)
            case = Ratio(f"{functions}, {rival}", rival_low - high, rival_high - low)
            says = np.exp(errors[[rival, mover]]).mean().max() > FLOOR
            cases.append(_or_errors(case, errors[rival] - errors[mover], says=says))
    return cases


def length(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return the ratios of two multiples: parameters with further tokens over those with constant ones."""
    networks, cases = frames["networks"], []

    def multiple(kind: str, filling: str) -> tuple[np.ndarray, np.ndarray]:
        (low, high), (low_before, high_before) = (
            logs_needed(networks, LENGTHS[of], kind) for of in (filling, CONSTANT)
        )
        return low - high_before, high - low_before

    before = _middle(networks, LENGTHS[CONSTANT])
    for filling in (RANDOM, MARKED):
        (low, high), after = multiple(mover, filling), _middle(networks, LENGTHS[filling])
        for rival in rivals:
            rival_low, rival_high = multiple(rival, filling)
            rises = (after - before)[rival] - (after - before)[mover]
            learned_before, apart = (np.exp(of[[rival, mover]]).mean().max() for of in (before, after))
            case = Ratio(f"{filling}, {rival}", rival_low - high, rival_high - low)
            cases.append(_or_errors(case, rises, says=learned_before <= TARGET and apart > FLOOR))
    return cases


def learned(networks: pd.DataFrame, kind: str) -> int | None:
    """Return the width at which a network learns curves after even training, and not perfectly, or `None`."""
    # Of several it is the one with the error nearest to `AIM`.
    means = np.exp(logs(networks, CURVES[EVEN], "outside")[kind]).mean()
    within = means[means.between(*LEARNED)]
    return None if within.empty else int(np.abs(np.log(within / AIM)).idxmin())


def rises(networks: pd.DataFrame, name: str = "curves") -> pd.DataFrame:
    """Return the logarithms of errors outside after dense training over those after even training."""
    return logs(networks, f"{name}, {DENSE}", "outside") - logs(networks, f"{name}, {EVEN}", "outside")


def over_widths(frames: Frames, column: str) -> pd.DataFrame:
    """Return the logarithms of a number after dense training, the mean over widths, by network."""
    return logs(frames["networks"], CURVES[DENSE], column).T.groupby("network").mean().T


def dense(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return the ratios of errors outside of the regions, and of their multiples of those after even training."""
    # Errors are compared at equal parameters, multiples at the widths at which each network has learned.
    networks, errors = frames["networks"], over_widths(frames, "outside")
    cases = [known(f"error, {rival}", errors[rival] - errors[mover]) for rival in rivals]
    of, own = rises(networks), learned(networks, mover)
    for rival in rivals:
        at = learned(networks, rival)
        if at is None or own is None:
            cases.append(Ratio(f"rise, {rival}", np.full(2, -np.inf), np.full(2, np.inf)))
        else:
            cases.append(known(f"rise, {rival}", of[rival, at] - of[mover, own]))
    return cases


def single_over_transformer(part: int, frames: Frames) -> Estimate:
    """Return one of both ratios of the theorem's single layer to the Transformer."""
    return dense(frames, TRANSFORMER, [FIXED])[part].estimate()


def alike(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return how much less rivals' outputs differ in some other prompt's region, in the mean over widths."""
    slopes = over_widths(frames, "slope, some other's")
    return [known(rival, slopes[mover] - slopes[rival]) for rival in rivals]


def over_inside(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return outside over inside after dense training, divided by the same after even training, of each network."""
    over = [
        logs(frames["networks"], CURVES[of], "outside") - logs(frames["networks"], CURVES[of], "inside")
        for of in (DENSE, EVEN)
    ]
    return [known(kind, over[0][kind, TUNED] - over[1][kind, TUNED]) for kind in KINDS]


def reading(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return the error of the best output independent of the prompt over that of the single layer, outside."""
    own, of = ratios.largest(logs(frames["networks"], CURVES[DENSE], "outside"))[FIXED], frames["blind"]
    best = of[(of.functions == CURVES[DENSE]) & (of.output == "blind")].outside.item()
    return [known(FIXED, np.log(best) - own)]


def rare(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return the single layer's error outside over that after longer training."""
    own, longer = (logs(frames["networks"], CURVES[DENSE], "outside", times)[FIXED, TUNED] for times in (1, TIMES))
    return [known(FIXED, own - longer)]


def numbers_for_picture() -> dict[str, Any]:
    """Return functions with networks' outputs, and errors inside and outside of the regions by size."""
    frames = frames_of("generalization_scarce")
    networks, of_functions = frames["networks"], frames["drawn"]
    first = networks[(networks.functions == f"4 {CURVES[DENSE]}") & (networks.width == 8) & (networks.seed == 0)]
    outputs = first.set_index("network").outputs

    def by_size(density: str, where: str) -> dict[str, list[list[float]]]:
        of = networks[(networks.functions == CURVES[density]) & (networks.times == 1)]
        means = of.groupby(["network", "parameters"])[where].mean()
        return {kind: [[int(size), round(mean, 6)] for size, mean in means[kind].items()] for kind in KINDS}

    return {
        "x": of_functions.x[0],
        "centres": of_functions.centre.tolist(),
        "outputs": {
            "functions": of_functions["values"].tolist(),
            "the best that doesn't read the prompt": of_functions.blind.tolist(),
            **{kind: outputs[kind] for kind in (FIXED, TRANSFORMER)},
        },
        "errors": {
            "outside, even training": by_size(EVEN, "outside"),
            "outside, dense training": by_size(DENSE, "outside"),
            "inside, dense training": by_size(DENSE, "inside"),
        },
    }


def all_rises(networks: pd.DataFrame) -> pd.DataFrame:
    """Return the logarithms of rises in rows, by functions, network, width and seed."""
    of_both = {name: rises(networks, name) for name in ("curves", "4 curves")}
    return pd.concat([of.melt(value_name="rise").assign(functions=name) for name, of in of_both.items()])


DECIDING = {"dense regions": dense, "few functions": few, "longer prompts": length, "outputs alike": alike}
PARTS = (
    ("dense regions", "outside, a rival's error is, and rises, at least twice as much", dense),
    ("few functions", "with 4 and with 16 a rival needs at least twice the parameters for .05", few),
    ("longer prompts", "with random and marked tokens a rival needs twice the multiple of parameters", length),
    ("outputs alike", "in some other prompt's region the slope of a rival is at most half as large", alike),
)
OPPOSITE = (
    ("outside over inside rises at least twofold by dense training for every network", over_inside),
    ("the single layer reads the prompt: the best output that doesn't has at least twice its error outside", reading),
    ("the single layer's error outside falls at least by half in four times the training", rare),
)
RISES, DECIDE = "Rise of errors outside by dense training", "Ratios that decide"
ERROR, RISE = (
    Measure(f"{name} outside: the single layer over the transformer", partial(single_over_transformer, part), 2)
    for part, name in enumerate(("error", "rise of the error"))
)

STUDY = Study(
    protocol=__doc__,
    page="generalization",
    claim='a fixed network "often results in fitting only the densest regions of the data distribution" (Section 2.3)',
    unit="seeds",
    stated="before the run; that the first prediction has two parts, afterwards",
    predictions=(
        Prediction(
            "where numbers are few the single layer's error is at least twice a Transformer's, and so is its rise",
            "confirmed if both intervals are at least 2, refuted if one is below 1.2",
            (RISE, ERROR),
            lambda *parts: joined(*map(ratios.large, parts)),
        ),
        *(prediction for part in PARTS for prediction in ratios.predictions(*part)),
        *(ratios.prediction(f"the opposite view: {name}", "opposite view", cases) for name, cases in OPPOSITE),
    ),
    control=ERROR,
    headline="Training on dense regions multiplies the single layer's error elsewhere {outcome} times as much as a"
    " Transformer's on sixteen functions, which it fits badly anyway ({control} times the error); on four (width 8) by"
    f" {{{RISES} / 4 curves, one layer / 8}}, a Transformer's by {{{RISES} / 4 curves, transformer / 8}} ({{n}}"
    " seeds).",
    against="Networks of several layers with fixed mixing fit sixteen functions, and their errors rise more than a"
    f" Transformer's: with a fixed pattern {{{DECIDE} / dense regions, rise, fixed pattern / transformer}} times as"
    f" much, though to {{{DECIDE} / dense regions, error, fixed pattern / transformer}} times its error.",
    limits="Rises are compared at the widths at which each network has learned, which the single layer hardly has;"
    " rates were tuned at one width.",
    tables={
        DECIDE: partial(ratios.ratios_table, DECIDING),
        "Parameters for an error of .05": Table(
            "networks",
            ("functions",),
            {"": Cell(ratios.parameters_needed)},
            columns="network",
            prepare=lambda networks: networks[networks.functions.isin([*FEW, *LENGTHS.values()])],
            note="Medians and ranges over seeds.",
        ),
        "Inside and outside of dense regions, width 16": Table(
            "networks",
            ("functions", "network"),
            {of: Cell(of) for of in ("inside", "outside", "slope, some other's", "slope, nobody's")},
            prepare=lambda networks: ratios.labelled(
                networks[networks.functions.isin(CURVES.values()) & (networks.width == TUNED)]
            ),
        ),
        RISES: Table(
            "networks",
            ("functions", "network"),
            {"": Cell(lambda rows: ratios.geometric(rows.rise), 1)},
            columns="width",
            prepare=all_rises,
        ),
    },
    measure=measure,
    pictures={
        "dense-regions": Picture(
            numbers_for_picture,
            draw_dense_regions,
            "Above: each colour is a prompt: dotted its function, shaded its dense region, drawn the output. Below:"
            " errors by size.",
        )
    },
    settings=settings_of(FUNCTIONS, RATES, [LONGER, TIMES])
    | {"regions": [REGIONS, curves.WIDTH, curves.INSIDE, curves.WAVES, curves.POINTS]},
    parallel=True,
)
