"""Does a Transformer come to use repetition in a stage that ends, while it learns on?

The study `emergence` left *abrupt* undecided, since up to a third of repetition's fall came in the last quarter of its
steps, in which the learning rate falls to nearly nothing.  Here the first seed's network is trained three times as long
with a rate that doesn't fall: the same first weights, texts and order, but for 6,144 steps (6.3 million tokens, each
text read once).  States are kept every 192 steps, and every number is averaged over a state and those beside it, since
a rate that stays high leaves noise; the state before any step stays as it is.  One seed, so verdicts are by size.

Control of the rate: both trainings have read the same texts up to 2,048 steps, so that what differs there is the rate
alone.  Predicted: the stage doesn't end, *ends* is refuted.  The other view: induction heads form in a short phase
(Olsson et al. 2022), after which the use of copies hardly grows.
"""

from functools import partial

import jax
import numpy as np
from flax import nnx
from jaxtyping import Float

import duat_jax as duat
from experiments.emergence.courses import FOLLOWED_TRAINING, HALF, SECANT, SIMPSON, Course
from experiments.emergence.followed import Followed
from experiments.emergence.picture import Numbers, draw_longer
from experiments.emergence.texts import Sizes
from experiments.emergence.training import COPY, HELD_OUT, REPETITION, Network, numbers_of
from experiments.estimate import Estimate
from experiments.markdown import table
from experiments.run import FOLDER, frames_of
from experiments.study import Measure, Measurements, Picture, Piece, Prediction, Row, Study
from experiments.table import Frames
from experiments.verdict import Verdict, decide

SIZES, SEED = Sizes(steps=6144, every=192), 5
ENDS, GOES_ON = 0.1, 0.25
"""The shares of the fall in the second half of the steps below which repetition ends, and above which it goes on."""
EMBEDDED = "the embedded model"


def smoothed(values: Float[np.ndarray, "states"]) -> Float[np.ndarray, "states"]:
    """Return the mean of every value and those beside it, and the first one, which has no noise, as it is.

    Example:
        >>> smoothed(np.array([0.0, 3.0, 6.0, 0.0])).tolist()
        [0.0, 3.0, 3.0, 3.0]
    """
    sums, counts = (np.convolve(each, np.ones(3), "same") for each in (values, np.ones(len(values))))
    return np.concatenate([values[:1], (sums / counts)[1:]])


def course_of(frames: Frames) -> Course:
    """Return the training that goes on."""
    return Course(frames, SEED, lambda values: smoothed(values) if len(values) > 1 else values)


def of_embedded(of: Followed) -> list[Row]:
    """Return the numbers of the embedded model."""
    graph, values = nnx.split(duat.load())
    network = Network(nnx.to_pure_dict(values), lambda weights: nnx.merge(graph, nnx.State(weights)))
    numbers = {name: jax.jit(number)(network.weights) for name, number in numbers_of(network, of.texts).items()}
    return [{"number": name, "every": of.sizes.every, "values": np.array([value])} for name, value in numbers.items()]


def measure() -> Measurements:
    """Yield what is measured of the training, and of the embedded model."""
    work = FOLDER / "work" / "emergence_longer"
    of = Followed(SIZES, SEED, work, decays=False, split=(HELD_OUT, REPETITION))
    for frame, compute in (
        ("frozen", of.frozen),
        ("counts", of.counts),
        ("parts", of.parts),
        ("helping", of.helping),
    ):
        yield Piece(frame, {"seed": SEED}, compute)
    yield Piece("numbers", {"seed": SEED, "training": FOLLOWED_TRAINING}, of.along)
    yield Piece("numbers", {"seed": SEED, "training": EMBEDDED}, partial(of_embedded, of))


def _measure(name: str, value: str, *arguments: object) -> Measure:
    return Measure(name, lambda frames: [getattr(course_of(frames), value)(*arguments)], 2)


def _width(frames: Frames) -> list[float]:
    of = course_of(frames)
    return [of.width(REPETITION) / of.width(HELD_OUT)]


def _attention(number: str, rule: str, frames: Frames) -> list[float]:
    of = course_of(frames)
    return [of.shares(number, rule, (of.steps[-1] / 2, of.steps[-1]))["attention"]]


def ends(later: Estimate) -> Verdict:
    """Return whether the stage ends, by the share of the fall in the second half of the steps."""
    return decide(later.value < ENDS, later.value > GOES_ON)


def _abrupt(later: Estimate, width: Estimate) -> Verdict:
    judged = ends(later) == Verdict.CONFIRMED
    return decide(judged and width.value < HALF, judged and width.value > 1)


def _by_attention(*shares: Estimate) -> Verdict:
    repetition, held_out = shares[::2], shares[1::2]
    more = all(of.value > HALF and of.value > beside.value for of, beside in zip(repetition, held_out, strict=True))
    return decide(more, all(of.value < HALF for of in repetition))


LATER, HELD = (
    _measure(f"share of the fall of {number} in the second half of the steps", "later", number)
    for number in (REPETITION, HELD_OUT)
)


def along(frames: Frames) -> list[str]:
    """Return numbers along the training, at the end of the shorter one, and of the embedded model."""
    of, names = course_of(frames), (HELD_OUT, REPETITION, COPY)
    shorter = Course(frames_of("emergence"), SEED)
    end = float(shorter.steps[-1])
    places = np.unique(np.linspace(0, len(of.steps) - 1, 9).astype(int))
    values = {
        **{f"{of.steps[state]:,.0f}": [of.values(name)[state] for name in names] for state in places},
        f"{end:,.0f}, between states": [np.interp(end, of.steps, of.values(name)) for name in names],
        f"{end:,.0f}, with the rate that falls": [shorter.values(name)[-1] for name in names],
        EMBEDDED: [of.values(name, EMBEDDED)[0] for name in names],
    }
    return table(["steps", *names], [[title, *(f"{value:z.2f}" for value in row)] for title, row in values.items()])


def _along_both() -> Numbers:
    """Return two numbers along the training that goes on and along the shorter one, and of the embedded model."""
    of, shorter = course_of(frames_of("emergence_longer")), Course(frames_of("emergence"), SEED)
    return {
        name: {
            "a rate that stays": [of.steps.tolist(), of.values(name).round(4).tolist()],
            "a rate that falls": [shorter.steps.tolist(), shorter.values(name).round(4).tolist()],
            EMBEDDED: float(of.values(name, EMBEDDED)[0]),
        }
        for name in (HELD_OUT, REPETITION)
    }


STUDY = Study(
    protocol=__doc__,
    page="emergence",
    claim="none: how the use of repetition forms (after Olsson et al. 2022)",
    unit="training",
    stated="before the run",
    predictions=(
        Prediction(
            "ends: less than a tenth of repetition's fall is in the second half of the steps",
            "confirmed below a tenth, refuted above a quarter",
            (LATER,),
            ends,
        ),
        Prediction(
            "abrupt: repetition forms in less than half of the steps in which held-out text falls",
            "only if *ends* is confirmed: confirmed below a half, refuted above one",
            (LATER, Measure("steps, as a multiple of held-out text's", _width, 2)),
            _abrupt,
        ),
        Prediction(
            "by attention: in the second half it has over half of repetition's fall, and more than of held-out text's",
            "confirmed if so by both rules, refuted if it has less than half by both",
            tuple(
                Measure(f"{number}, {rule}", partial(_attention, number, rule), 2)
                for rule in (SECANT, SIMPSON)
                for number in (REPETITION, HELD_OUT)
            ),
            _by_attention,
        ),
    ),
    control=HELD,
    headline="In {n} training three times as long, a share of {outcome} of the gain from repetition is acquired in the"
    " second half of the steps, and {control} of the gain on held-out text.",
    against="It was predicted that the stage goes on, and the share is between both bounds; the embedded model uses"
    " copies after another text more: {Numbers along the training / the embedded model / copy after another text}.",
    limits="One seed and one constant rate. A longer training would read texts twice.",
    tables={"Numbers along the training": along},
    pictures={
        "emergence-longer": Picture(
            _along_both,
            draw_longer,
            "The rate that falls ends at a lower loss of held-out text, and with less use of repetition.",
        )
    },
    measure=measure,
    settings={"sizes": SIZES._asdict(), "seed": SEED},
)
