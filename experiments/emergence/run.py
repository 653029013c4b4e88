"""Does freezing moving patterns and norms' scales undo more than half of the fall of a small Transformer's loss?

The papers describe a trained Transformer as a *dynamic* approximator, whose closed form has parameters that depend on
the input (Section 4.1).  At its beginning a Transformer reads all visible tokens nearly alike, so that its patterns
hardly move.  Here one of the embedded model's shape (six layers, 192 features, four heads) is trained again on the same
text, 2,048 steps of eight texts of 128 tokens, none read twice, with three seeds of weights and of texts; states are
kept every 64 steps.

**Numbers.** *Trained-on text*: the mean loss of 64 texts that the run reads, in steps that aren't measured alone.
*Held-out text*: that of 32 texts of other files.  *Repetition*: of 32 held-out texts of 64 tokens, the mean loss of a
text's tokens after the text itself, minus that after its own tokens in another order; its fall is what induction heads
are known for (Olsson et al. 2022).  Beside it, the same after another text.

**Splitting.** Each number's change in every segment of 64 steps is split by one secant over all weights; also in
segments of 128 steps, and by gradients at both ends and the middle (Simpson's rule).  For the first seed the change is
traced back to every token of every step.  A weight *helps* in a step if its part is negative.

**Freezing** sets attention patterns, norms' scales, both, or the terms' biases to their means over 32 held-out texts of
32 tokens and runs the model again on 32 others; its cost is how much the loss grows.  References on these are the
losses of a model of single tokens and of one of pairs, counted in what the run reads.

**Run again.** *Set back*: a part of the network or a head gets its first weights in the trained model.  *Trained
again*, first seed only: without the losses of tokens after one that stands in the text before, and without those of as
many tokens drawn from all.

Two measurements were added after the rest had come out, without a prediction: the closed form's parts of the last
states (Eq. 11), and the losses of texts that one seed alone read.  Heads, parts that are set back, tokens and these two
are in the kept results, and in no table.  If repetition falls by less than 0.2 nats in a seed, *abrupt*, *by attention*
and *by what stands before* have no verdict.
"""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np

from experiments.emergence.courses import (
    FOLLOWED_TRAINING,
    SECANT,
    SIMPSON,
    Course,
    courses,
    hurting,
)
from experiments.emergence.followed import Followed
from experiments.emergence.ledgers import largest_texts, ledger_of_tokens, of_kinds, of_single_steps, of_whole, set_back
from experiments.emergence.moving import BIASES
from experiments.emergence.picture import draw_parts, parts_along
from experiments.emergence.tables import along, frozen
from experiments.emergence.texts import Sizes
from experiments.emergence.training import DRAWN, HELD_OUT, REPETITION, TRAINED_ON, WITHOUT
from experiments.estimate import Estimate, estimate
from experiments.run import FOLDER
from experiments.study import Measure, Measurements, Picture, Piece, Prediction, Study
from experiments.table import Frames
from experiments.verdict import Verdict, above, below, decide

SIZES, SEEDS = Sizes(), (5, 6, 7)
LEAST = 0.2
"""The smallest fall of repetition that is judged, in nats."""
WORK = FOLDER / "work" / "emergence"
"""The folder of kept states."""


def measure(sizes: Sizes = SIZES, seeds: tuple[int, ...] = SEEDS, work: Path = WORK) -> Measurements:
    """Yield every measurement of every seed, and the other trainings of the first one."""
    followed = cache(partial(Followed, sizes, work=work))
    for seed in seeds:
        of = followed(seed)
        for frame, keys, compute in (
            ("numbers", {"training": FOLLOWED_TRAINING}, of.along),
            ("frozen", {}, of.frozen),
            ("heads", {}, of.heads),
            ("form", {}, of.form),
            ("counts", {}, of.counts),
            ("parts", {}, of.parts),
            ("head parts", {}, of.parts_of_heads),
            ("helping", {"steps": "whole segments"}, of.helping),
            ("helping", {"steps": "single"}, lambda of=of: of_single_steps(of.kept(), of.numbers)),
            ("set back", {}, lambda of=of: set_back(of.network, of.kept(), of.numbers)),
            ("texts", {}, lambda of=of: of.read_or_not([followed(other) for other in seeds])),
        ):
            yield Piece(frame, {"seed": seed, **keys}, compute)
    first = followed(seeds[0])
    for kind in (WITHOUT, DRAWN):
        yield Piece("numbers", {"seed": seeds[0], "training": kind}, partial(first.again, kind))
    explained = cache(lambda: ledger_of_tokens(first.kept(), first.numbers))
    yield Piece("tokens", {}, lambda: of_kinds(explained(), first.texts, seeds[0]))
    yield Piece("training ledger", {}, lambda: of_whole(explained(), first.texts))
    yield Piece("training texts", {}, lambda: largest_texts(explained(), first.texts))


def over_seeds(name: str, of: Callable[[Course], float], digits: int = 3, sign: str = "") -> Measure:
    """Return a measure that has one number for each seed."""
    return Measure(name, lambda frames: [of(course) for course in courses(frames)], digits, sign)


def _first(name: str, of: Callable[[Course], float]) -> Measure:
    """Return a measure of the first seed alone."""
    return Measure(name, lambda frames: [of(courses(frames)[0])], 2)


def _steps_of_repetition(frames: Frames) -> Estimate:
    """Return the steps in which repetition forms, as a multiple of those of held-out text: a geometric mean."""
    logarithms = estimate([np.log(of.width(REPETITION) / of.width(HELD_OUT)) for of in courses(frames)])
    value, low, high = (float(np.exp(of)) for of in logarithms[:3])
    return logarithms._replace(value=value, low=low, high=high)


def _of_attention(rule: str) -> tuple[Measure, Measure]:
    """Return attention's share of the fall of repetition by a rule, and its lead over that of held-out text."""
    return (
        over_seeds(f"share, {rule}", lambda of: of.shares(REPETITION, rule)["attention"], 2),
        over_seeds(f"lead, {rule}", lambda of: of.lead_of_attention(rule), 2, "+"),
    )


def _abrupt(least_fall: Estimate, steps: Estimate, late: Estimate) -> Verdict:
    judged = least_fall.value >= LEAST and late.value <= 0.1
    return decide(judged and steps.high < 0.5, judged and steps.low > 1)


def _by_attention(fall: Estimate, *measured: Estimate) -> Verdict:
    shares, leads = measured[::2], measured[1::2]
    confirmed = all(share.low > 0.5 for share in shares) and all(lead.low > 0 for lead in leads)
    judged = fall.value >= LEAST
    return decide(judged and confirmed, judged and all(share.high < 0.5 for share in shares))


def _by_what_stands_before(fall: Estimate, without: Estimate, drawn: Estimate) -> Verdict:
    judged = fall.value >= LEAST
    return decide(judged and without.value < 0.5 and drawn.value > 0.75, judged and without.value > 0.75)


def _half_help(share: Estimate) -> Verdict:
    return decide(share.low > 0.5 and share.high < 0.55, share.high < 0.5 or share.low > 0.55)


def _parts_that_hurt(number: Estimate) -> Verdict:
    # Nothing was said beforehand of what refutes it.
    return decide(number.value > 0, refuted=False)


def _undone_at_pairs(course: Course) -> float:
    """Return the share that freezing undoes at the first state below the loss of pairs; all of it if there is none."""
    return 1.0 if course.below_pairs is None else course.undone(state=course.below_pairs)


def _late_share(frames: Frames) -> list[float]:
    return [max(of.later(REPETITION, 0.75) for of in courses(frames))]


LEAST_FALL = Measure(
    "smallest fall of repetition, nats", lambda frames: [min(of.fall(REPETITION) for of in courses(frames))], 2
)
DYNAMIC = over_seeds(
    "share of the fall from the loss of single tokens that freezing patterns and scales undoes", Course.undone
)
PREDICTIONS = (
    Prediction(
        "dynamic (the papers): freezing patterns and scales undoes more than half of what is learned",
        "confirmed if the interval of the share lies above a half, refuted if below",
        (DYNAMIC,),
        lambda share: above(share, 0.5),
    ),
    Prediction(
        "static first (the opposite view): less than a tenth is undone at the first state that is better than pairs",
        "confirmed if the interval lies below a tenth, refuted if above",
        (over_seeds("share that freezing patterns and scales undoes then", _undone_at_pairs),),
        lambda share: below(share, 0.1),
    ),
    Prediction(
        "abrupt: repetition forms in less than half of the steps in which held-out text falls",
        "confirmed if the interval lies below a half, refuted if above one; undecided if in a seed more than a tenth of"
        " the fall is in the last quarter of the steps",
        (
            LEAST_FALL,
            Measure("steps, as a multiple of held-out text's", _steps_of_repetition, 2),
            Measure("largest share of the fall in the last quarter", _late_share, 2),
        ),
        _abrupt,
    ),
    Prediction(
        "by attention: more than half of the fall of repetition is attention's, and more than of held-out text's",
        "confirmed if so by the secant and by Simpson's rule, refuted if both shares' intervals lie below a half",
        (LEAST_FALL, *_of_attention(SECANT), *_of_attention(SIMPSON)),
        _by_attention,
    ),
    Prediction(
        "by what stands before (one seed): repetition is taught by tokens after one that stands before",
        "confirmed if less than half of its fall remains without their losses and more than three quarters without as"
        " many drawn ones, refuted if more than three quarters remain without the former",
        (
            LEAST_FALL,
            _first("remains without them", lambda of: of.remaining(WITHOUT)),
            _first("remains without drawn ones", lambda of: of.remaining(DRAWN)),
        ),
        _by_what_stands_before,
    ),
    Prediction(
        "barely half help: in a step little more than half of the weights lower the loss (Lan et al. 2019)",
        "confirmed if the interval lies within 0.5 and 0.55, refuted if outside",
        (
            over_seeds(
                "share of weights",
                lambda of: float(np.mean(of.row("helping", number=TRAINED_ON, steps="single", way="exact")["weights"])),
            ),
        ),
        _half_help,
    ),
    Prediction(
        "parts that hurt: a part of the network raises the loss of trained-on text (Lan et al. 2019)",
        "confirmed if by all three rules and in all seeds by more than a hundredth of its fall",
        (Measure("parts that do", lambda frames: [float(hurting(courses(frames)) is not None)], 0),),
        _parts_that_hurt,
    ),
)


STUDY = Study(
    protocol=__doc__,
    page="emergence",
    claim="a trained Transformer's abilities come from weights that move with the input (our reading of Section 4.1,"
    " which names biases, too)",
    unit="seeds",
    stated="before the run",
    predictions=PREDICTIONS,
    control=over_seeds("the same with the terms' biases frozen", lambda of: of.undone(BIASES), 2),
    headline="Attention patterns and norms' scales that are frozen at their means undo {outcome} of the fall of"
    " a small Transformer's loss below what single tokens give; frozen biases of the closed form's terms, which depend"
    " on the input as well, undo {control} ({n} seeds, texts of 32 tokens).",
    against="The terms' biases contain earlier terms, so that most of the fall may rest on parameters that move with"
    " the input; and frozen patterns alone cost {Parameters that are frozen / patterns / at the end} nats at the end.",
    limits="Three seeds of one shape, one text and one optimiser, two million tokens; texts of 32 tokens. A frozen"
    " mean is a value that no text has, so that shares may be too large, or too small: patterns and scales of another"
    " text cost {Parameters that are frozen / patterns and scales of another text / at the end} nats at the end, means"
    " {Parameters that are frozen / patterns and scales / at the end}. To which part of the network a fall is"
    " assigned depends on the segments and on the rule.",
    tables={
        "Numbers along the training": along,
        "Parameters that are frozen": frozen,
    },
    pictures={
        "emergence": Picture(
            parts_along,
            draw_parts,
            "Parts of the network (rows) in the change of two losses, every 64 steps; blue lowers them. A column sums"
            " to the mean change of the curves below, one of each seed. The loss of held-out text falls first by"
            " embeddings; repetition is used after"
            " {Numbers along the training / steps at 10% of the fall / repetition} steps, by layer 0 and by attention"
            " of layer 5.",
        )
    },
    measure=measure,
    settings={"sizes": SIZES._asdict(), "seeds": SEEDS},
)
