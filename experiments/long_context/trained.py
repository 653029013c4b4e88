"""Do small networks with full attention gain by bytes beyond the reach of a window, and of a convolution?

**Text.**  That of the embedded model, Python's standard library, in bytes.  Of files that aren't trained on, 256
windows choose the learning rates, and 2,048 others test; shuffled text and recall are tested on 256 of these.  In every
training text a random word of twelve letters stands two to four times, at most once in each quarter; held-out texts
have none.

**Networks.**  Three pre-norm blocks as Llama's of 64 features on texts of 192 bytes, and in the place of attention:

- *full attention*, with four heads and rotary positions;
- *attention, window of 8*, which reaches 22 bytes in three layers;
- *attention, shifted groups of 16*, LongLoRA's, whose first half group is one of its own;
- *convolution of 8 tokens* (Section 4.1), `y_t = Σ_{j<8} x_{t−j} W_j + b`, which reaches 22 bytes;
- *convolution along the features* of all tokens (Appendix C, Figure 5), whose channels are the tokens, and which is
  made causal here by leaving out the weights of later tokens;
- *fixed pattern of the distance*, a softmax of a learned score of each distance, with attention's values and outputs;
- *no mixing*.

MLPs are so wide that all have the parameters of full attention, within half a per cent.  All have the same steps of 8
texts, the embedded model's rule (Muon for the matrices inside the blocks, Adam for all else), and a factor of its rates
of .5, 1 or 2, chosen for each kind by a training of a quarter of the steps with another seed.  There were to be 3,000
steps, or 6,000 if full attention at the middle rate hadn't learned to recall after 3,000; so there are 6,000.

**What is measured.**  The *loss* in nats by the position of the byte.  The *gain* by more context, of the same bytes:
the last 64 of a text, with the 128 bytes before them and with only the last 32 of these.  *Recall*: texts that end with
the second copy of a word, 16 to 160 bytes after the first; the loss of its letters from the fourth on, beside that of
the same letters in the first copy.

**Stated beforehand** were the predictions and bounds below, after trainings of full attention alone, by which sizes and
steps were chosen.  The opposite view was that most of what can be predicted is near, and attention adds recall alone.
Each difference has an interval over three seeds and one over texts, by Student's t; both, and every seed, have to be on
one side of a bound.  Intervals over texts are rather too narrow, as windows of a file aren't independent.  The
convolution along the features doesn't decide, as its MLPs have a fifth of the neurons.

**Added once the results were seen**: further learning rates for the networks beside full attention on which a verdict
rests, until the best one has others on both sides.  Predictions are judged at the stated rates.
"""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pandas as pd
from flax import nnx

from duat_jax.models.transformer import Transformer
from experiments.estimate import Estimate
from experiments.long_context.choice import SEEDS, searched, sizes_of
from experiments.long_context.measures import DISTANCES, rounded
from experiments.long_context.measures import measure as measured_losses
from experiments.long_context.networks import (
    FEATURES,
    FULL,
    KINDS,
    NONE,
    PATTERN,
    TOKENS,
    WINDOW,
    count,
    losses_of,
    network,
    train,
)
from experiments.long_context.picture import reach_in_numbers
from experiments.long_context.tasks import HELD_OUT, TESTED, TRAINING, held_out_texts, training_texts
from experiments.long_context.units import (
    FURTHER,
    STATED,
    TRIALS,
    Units,
    both,
    by_position,
    compared,
    differences,
    units,
)
from experiments.pictures.panels import draw_panels
from experiments.study import Measure, Measurements, Picture, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table, rows_of
from experiments.verdict import Verdict, below, decide

TRIAL_SEED, STEPS = 3, 6000
RATES = 0.5, 1.0, 2.0
"""Factors of the embedded model's learning rates that are tried."""
LADDER = 0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0
"""The factors from which further ones are taken."""
WIDENED = TOKENS, PATTERN, WINDOW
"""The networks beside full attention on which a verdict rests."""
ZERO = 1e-4
"""Up to rounding, in nats."""
BINS = 8
"""Bins of positions of a text."""


def trained(kind: str, rate: float, seed: int, steps: int) -> Transformer:
    """Return a trained network."""
    model = network(sizes_of(kind), nnx.Rngs(seed))
    return train(model, jnp.asarray(training_texts(TRAINING, steps, seed)), jnp.asarray(rate))[0]


def trial(kind: str, rate: float) -> Row:
    """Return the validation loss of a network that is trained with a rate, in a quarter of the steps."""
    model = trained(kind, rate, TRIAL_SEED, STEPS // 4)
    return {"loss": rounded(losses_of(model, held_out_texts(TRAINING.tokens, 0)[0]).mean())}


def measured(kind: str, rate: float, seed: int) -> Row:
    """Return what is measured on a trained network."""
    return {"rate": rate, **measured_losses(trained(kind, rate, seed, STEPS))}


def untrained(kind: str) -> Row:
    """Return what is measured on a network before its training, and the number of its parameters."""
    sizes = sizes_of(kind)
    return {
        "parameters": count(sizes),
        "neurons": sizes.neurons,
        **measured_losses(network(sizes, nnx.Rngs(0))),
    }


def measure() -> Measurements:
    """Yield the trials of rates of all kinds of networks, and then one seed after another."""
    chosen = {}
    for kind in KINDS:

        def tried(rate: float, kind: str = kind) -> Piece:
            return Piece("trials", {"network": kind, "rate": rate}, partial(trial, kind, rate))

        yield Piece("untrained", {"network": kind}, partial(untrained, kind))
        stated, further = yield from searched(RATES, LADDER if kind in WIDENED else RATES, tried)
        chosen[kind] = {STATED: stated} | ({FURTHER: further} if further != stated else {})
    for seed in SEEDS:
        for kind, rates in chosen.items():
            for name, rate in rates.items():
                keys = {"network": kind, "rates": name, "seed": seed}
                yield Piece("networks", keys, partial(measured, kind, rate, seed))


def gain(kind: str, frames: Frames, column: str = "gain") -> Units:
    """Return what each seed and text gains by 96 more bytes before the last 64."""
    return units(frames["networks"], kind, column)


def more(first: str, second: str, frames: Frames) -> Units:
    """Return how much higher the loss of one network is than that of another at bytes 128 to 191."""
    return units(frames["networks"], first) - units(frames["networks"], second)


def recalls(frames: Frames) -> np.ndarray:
    """Return for every seed and distance whether full attention recalls: at less than half of the first copy's loss."""
    rows = rows_of(frames["networks"], network=FULL, rates=STATED)
    return np.array([*rows.recall]) < np.array([*rows["recall, first copy"]]) / 2


def _every(frames: Frames) -> np.ndarray:
    return np.array([of.all() for of in recalls(frames)])


def _some(frames: Frames) -> np.ndarray:
    return np.array([of.any() for of in recalls(frames)])


def beyond_reach(frames: Frames) -> np.ndarray:
    """Return for every seed the largest gain of a network that can't see further."""
    return np.max([np.abs(gain(kind, frames)).max(1) for kind in (WINDOW, TOKENS, NONE)], 0)


def _recalled(every: Estimate, some: Estimate) -> Verdict:
    return decide(every.value == 1, some.value == 0)


def long_enough(seeds: Estimate, texts: Estimate, every: Estimate, some: Estimate) -> bool:
    """Return whether full attention gains or recalls: otherwise the training was too short to tell."""
    return Verdict.CONFIRMED in (compared(seeds, texts), _recalled(every, some))


def by_reach(*full: Estimate) -> Verdict:
    """Return whether full attention gains."""
    return compared(*full[:2]) if long_enough(*full) else Verdict.UNDECIDED


def recalling(*full: Estimate) -> Verdict:
    """Return whether full attention recalls."""
    return _recalled(*full[2:]) if long_enough(*full) else Verdict.UNDECIDED


def beside_full(seeds: Estimate, texts: Estimate, *full: Estimate) -> Verdict:
    """Return whether the loss of another network is higher than full attention's."""
    return compared(seeds, texts) if long_enough(*full) else Verdict.UNDECIDED


OF_FULL = (
    *both("gain of full attention by 96 bytes, nats", partial(gain, FULL)),
    Measure("share of seeds that recall at every distance", _every, 2),
    Measure("share of seeds that recall at some distance", _some, 2),
)
BOTH_SIDES = (
    "confirmed if above zero by the intervals over seeds and over texts and in every seed; refuted if below zero so, or"
    " between −0.01 and 0.01 nats"
)
TOO_SHORT = "undecided if full attention neither gains nor recalls, as its training was then too short to tell"
PREDICTIONS = (
    Prediction(
        "full attention gains by 96 bytes that lie further back than 32",
        f"{BOTH_SIDES}; {TOO_SHORT}",
        OF_FULL,
        by_reach,
    ),
    Prediction(
        "a fixed pattern, which reaches as far, has a higher loss than full attention at bytes 128 to 191",
        f"{BOTH_SIDES}; {TOO_SHORT}",
        (*both("fixed pattern − full attention, nats", partial(more, PATTERN, FULL)), *OF_FULL),
        beside_full,
    ),
    Prediction(
        "at equal reach a convolution of 8 tokens has a higher loss than attention with a window of 8",
        BOTH_SIDES,
        both("convolution − window, nats", partial(more, TOKENS, WINDOW)),
        compared,
    ),
    Prediction(
        "full attention recalls words at every distance",
        "confirmed if the loss of recalled letters is below half of the first copy's in every seed at every distance;"
        f" refuted if in none at any; {TOO_SHORT}",
        OF_FULL,
        recalling,
    ),
    Prediction(
        "what reaches 22 bytes at most gains nothing by bytes further back (a check of the program)",
        "confirmed if no gain is above rounding, a ten-thousandth of a nat",
        (Measure("largest gain of windows, convolutions along tokens and no mixing, nats", beyond_reach, 6),),
        partial(below, bound=ZERO),
    ),
)


def gains(networks: pd.DataFrame) -> pd.DataFrame:
    """Return rows of what every network of the stated rates gains by more context, and of its recall."""
    stated = rows_of(networks, rates=STATED)
    return stated.assign(**{column: stated[column].map(np.mean) for column in ("gain", "gain, shuffled")})


def recall_by_distance(networks: pd.DataFrame) -> pd.DataFrame:
    """Return a row of every network, seed and distance."""
    columns = {"recall": "second copy", "recall, first copy": "first copy"}
    stated = rows_of(networks, rates=STATED).explode([*columns]).rename(columns=columns)
    stated["distance"] = np.resize(DISTANCES, len(stated))
    return stated.astype(dict.fromkeys(columns.values(), float))


STUDY = Study(
    protocol=__doc__,
    page="long-context",
    claim="attention reads the context as a whole, a 1D convolution in fragments as large as its kernel (Section 4.1;"
    " Appendix C, Figure 5)",
    unit="seeds",
    stated="before the run",
    predictions=PREDICTIONS,
    control=Measure(
        "gain in shuffled text, nats, over seeds", lambda of: gain(FULL, of, "gain, shuffled").mean(1), 4, "+"
    ),
    headline="By 96 bytes beyond a window's reach small networks with full attention gain {outcome} nats a byte, and"
    " {control} in shuffled text, where these bytes tell frequencies alone ({n} seeds): undecided.",
    against="A fixed pattern with the same reach has a higher loss than full attention, by {Differences of losses /"
    " fixed pattern of the distance − full attention, stated / over seeds} nats, and a convolution of 8 tokens than a"
    " window of 8, by {Differences of losses / convolution of 8 tokens − attention, window of 8, stated / over seeds};"
    " one of three seeds learned to copy words.",
    limits="Networks of a fifth of a million parameters: nothing follows for those that see enough to learn what is"
    " rare. One kernel, one window, and every stated rate that was chosen is the lowest or highest of three.",
    tables={
        "Loss by position": by_position(BINS, TRAINING.tokens - 1, {"rate": Cell(lambda of: f"{of.rate.iloc[0]:g}")}),
        "Gain by 96 bytes more": Table(
            "networks",
            ("network",),
            {"text": Cell("gain", 4, "+"), "shuffled text": Cell("gain, shuffled", 4, "+")},
            prepare=gains,
            note="The convolution along the features has weights for every position, so that bytes of a cut text meet"
            " other weights: its gain isn't one of context alone.",
        ),
        "Before training": Table(
            "untrained",
            ("network",),
            {
                "parameters": Cell(lambda of: f"{of.parameters.iloc[0]:,}"),
                "neurons": Cell(lambda of: str(of.neurons.iloc[0])),
                "gain by 96 bytes more": Cell(lambda of: [np.mean(of.gain.iloc[0])], 4, "+"),
            },
        ),
        "Recall by distance": Table(
            "networks",
            ("network",),
            {"second copy": Cell("second copy", 2), "first copy": Cell("first copy", 2)},
            columns="distance",
            prepare=recall_by_distance,
            note="One of three seeds learned to copy. Of two trainings of a fourth seed, by which the steps were"
            " chosen, one had begun to copy after 3,000 steps, and the other, of other rounding, hadn't after 6,000.",
        ),
        "Differences of losses": differences(
            [
                (PATTERN, FULL, STATED),
                (PATTERN, FULL, FURTHER),
                (FEATURES, FULL, STATED),
                (TOKENS, WINDOW, STATED),
                (WINDOW, PATTERN, STATED),
                (WINDOW, PATTERN, FURTHER),
            ]
        ),
        "Trials of learning rates": TRIALS,
    },
    measure=measure,
    pictures={
        "limited-reach": Picture(
            reach_in_numbers,
            draw_panels,
            "Left: networks of one size by what mixes their tokens; without any mixing the loss is {Loss by position /"
            " no mixing / 128 to 191}. Right: networks with full attention, fine-tuned to longer texts, or read in"
            " groups without fine-tuning. Lines are 95 % intervals by Student's t over {n} seeds.",
        )
    },
    settings={
        "training": TRAINING._asdict(),
        "steps": STEPS,
        "rates": RATES,
        "ladder": LADDER,
        "seeds": SEEDS,
        "texts": [HELD_OUT, TESTED],
    },
)
