"""Numbers along a training that was followed, derived from its kept measurements."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from experiments.emergence.moving import NOTHING, WEIGHTS
from experiments.emergence.training import HELD_OUT, REPETITION, TRAINED_ON
from experiments.table import Frames, rows_of

FOLLOWED_TRAINING = "followed"
SECANT, DOUBLE, SIMPSON = RULES = "secant", "secant, 128 steps", "Simpson's rule"
"""The ways by which a change is split over weights."""
EARLY, HALF, LATE, LAST = 0.1, 0.5, 0.9, 0.75
"""The shares of a change at which it begins, is half done and is done; where the last quarter of the steps begins."""
RAISED = 0.01
"""The least rise of a loss, as a share of its fall, by a part of the network that is said to hurt."""


def part_of(name: str) -> str:
    """Return the part of the network that an array belongs to: a layer's attention or MLP, an embedding or a norm.

    Example:
        >>> part_of("stack.blocks.0.attention.query.kernel"), part_of("stack.blocks.3.norm_1.scale")
        ('layer 0 attention', 'layer 3 norm_1')
        >>> part_of("embedding.token"), part_of("final_norm.scale")
        ('embedding.token', 'final_norm')
    """
    steps = name.split(".")
    if steps[0] == "stack":
        return f"layer {steps[2]} {steps[3]}"
    return ".".join(steps[:2]) if steps[0] == "embedding" else steps[0]


def kind_of(part: str) -> str:
    """Return the kind of a part of the network."""
    return next((kind for kind in ("attention", "mlp", "embedding") if kind in part), "norms")


def last_crossing(values: Float[np.ndarray, "states"], steps: Float[np.ndarray, "states"], share: float) -> float:
    """Return the last number of steps at which a share of the whole change is passed, between states by lines.

    Example:
        >>> last_crossing(np.array([1.0, 1.0, 0.0, 0.0]), np.array([0.0, 10.0, 20.0, 30.0]), 0.5)
        15.0
    """
    done = (values[0] - values) / (values[0] - values[-1]) - share
    place = int(np.flatnonzero((done[:-1] < 0) & (done[1:] >= 0))[-1])
    return float(np.interp(0.0, done[place : place + 2], steps[place : place + 2]))


class Course:
    """One training that was followed.

    Args:
        frames: the measurements of a study.
        seed: the seed of the training.
        smooth: averages the values of a number along the training; they stay as they are if absent.
    """

    def __init__(self, frames: Frames, seed: int, smooth: Callable[[np.ndarray], np.ndarray] = np.asarray) -> None:
        self.seed, self.smooth = seed, smooth
        self.frames = {name: frame[frame.seed == seed] for name, frame in frames.items() if "seed" in frame}
        states = self.row("numbers", training=FOLLOWED_TRAINING, number=REPETITION)
        self.steps = np.arange(len(states["values"])) * float(states["every"])

    def row(self, frame: str, **keys: Any) -> pd.Series:
        """Return the one row of a frame that has given keys."""
        return rows_of(self.frames[frame], **keys).squeeze(0)

    def values(self, number: str, training: str = FOLLOWED_TRAINING) -> Float[np.ndarray, "states"]:
        """Return a number at every state, averaged as the course says."""
        return self.smooth(self._measured(number, training))

    def _measured(self, number: str, training: str = FOLLOWED_TRAINING) -> Float[np.ndarray, "states"]:
        return np.array(self.row("numbers", training=training, number=number)["values"])

    def fall(self, number: str) -> float:
        """Return by how much a number falls along the training."""
        return float(self.values(number)[0] - self.values(number)[-1])

    def remaining(self, training: str) -> float:
        """Return the share of repetition's fall that another training has."""
        again = self.row("numbers", training=training, number=REPETITION)["values"][-1]
        return float((self.values(REPETITION)[0] - again) / self.fall(REPETITION))

    def crossing(self, number: str, share: float) -> float:
        """Return the last number of steps at which a share of a number's fall is passed."""
        return last_crossing(self.values(number), self.steps, share)

    def width(self, number: str) -> float:
        """Return the steps from a tenth to nine tenths of a number's fall."""
        return self.crossing(number, LATE) - self.crossing(number, EARLY)

    def later(self, number: str, share: float = HALF, end: float | None = None) -> float:
        """Return the share of a number's fall after a share of the steps."""
        at = np.array([0.0, share, 1.0]) * (end or self.steps[-1])
        start, middle, last = np.interp(at, self.steps, self.values(number))
        return float((middle - last) / (start - last))

    def parts(self, number: str, rule: str = SECANT) -> dict[str, Float[np.ndarray, "segments"]]:
        """Return the parts of a number's change over parts of the network, segment by segment."""
        rows = rows_of(self.frames["parts"], number=number, rule=rule)
        return {part: np.array(parts) for part, parts in zip(rows.part, rows.parts, strict=True)}

    def shares(self, number: str, rule: str, between: tuple[float, float] | None = None) -> dict[str, float]:
        """Return the shares of attention, MLPs, embeddings and norms in a number's fall between two steps."""
        early, late = between or (self.crossing(REPETITION, EARLY), self.crossing(REPETITION, LATE))
        ends = self.steps[:: 2 if rule == DOUBLE else 1]
        # A segment at the edge counts for as much of it as lies within.
        within = np.clip(np.minimum(ends[1:], late) - np.maximum(ends[:-1], early), 0, None) / np.diff(ends)
        start, end = np.interp([early, late], self.steps, self._measured(number))
        found = dict.fromkeys(("attention", "mlp", "embedding", "norms"), 0.0)
        for part, parts in self.parts(number, rule).items():
            found[kind_of(part)] -= float(parts @ within) / float(start - end)
        return found | {"all": sum(found.values())}

    def lead_of_attention(self, rule: str) -> float:
        """Return attention's share in the fall of repetition minus that in the fall of held-out text."""
        repetition, held_out = (self.shares(number, rule)["attention"] for number in (REPETITION, HELD_OUT))
        return repetition - held_out

    def raising(self, rule: str) -> dict[str, float]:
        """Return what each part of the network adds to the loss of trained-on text, as a share of its fall."""
        return {part: float(of.sum()) / self.fall(TRAINED_ON) for part, of in self.parts(TRAINED_ON, rule).items()}

    def loss(self, model: str) -> float:
        """Return the loss of a counted model."""
        return float(self.row("counts", model=model)["loss"])

    def frozen(self, group: str = NOTHING) -> Float[np.ndarray, "states"]:
        """Return the loss with a group of parameters frozen, at every state."""
        return np.array(self.row("frozen", group=group)["losses"])

    def undone(self, group: str = WEIGHTS, state: int = -1) -> float:
        """Return the share of the fall from single tokens to a state that freezing a group undoes."""
        whole = self.frozen()[state]
        return float((self.frozen(group)[state] - whole) / (self.loss("single tokens") - whole))

    @property
    def below_pairs(self) -> int | None:
        """The first state with a loss below that of pairs."""
        below = np.flatnonzero(self.frozen() < self.loss("pairs"))
        return int(below[0]) if len(below) else None


def courses(frames: Frames) -> list[Course]:
    """Return the training of every seed."""
    return [Course(frames, seed) for seed in frames["numbers"].seed.drop_duplicates()]


def hurting(of_seeds: Iterable[Course], rules: Iterable[str] = RULES) -> str | None:
    """Return the part of the network that raises the loss of trained-on text most, if it does so in all seeds."""
    raised = pd.DataFrame([of.raising(rule) for of in of_seeds for rule in rules])
    hurt = raised.mean()[raised.min() > RAISED]
    return None if hurt.empty else str(hurt.idxmax())
