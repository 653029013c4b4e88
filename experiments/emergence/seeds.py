"""The measurements of each seed of a training that is followed, and what follows from them."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from jaxtyping import Float

from duat_jax.evaluation.statistics import IntervalEstimate, students_mean
from experiments.emergence.moving import FORM, MOVEMENT, NOTHING, SHARE, WEIGHTS
from experiments.emergence.parts import part_of
from experiments.emergence.texts import Sizes, steps_of_trained_on
from experiments.emergence.training import HELD_OUT, REPETITION, TRAINED_ON

RULES = {"parts": "secant", "double": "secant, 128 steps", "simpson": "Simpson's rule"}
"""The ways by which a change is split, and what tables call them."""
EARLY, HALF, LATE, LAST = 0.1, 0.5, 0.9, 0.75
"""The shares of a change at which it begins, is half done and is done; where the last quarter of the steps begins."""
RAISED = 0.01
"""The least rise of a loss, as a share of its fall, by a part of the network that is said to hurt."""

Found = dict[str, Any]


def of_parts(segments: Found, rule: str = "parts") -> dict[str, Float[np.ndarray, "segments"]]:
    """Return the parts of a number's change over parts of the network, segment by segment."""
    found: dict[str, Any] = {}
    for name, parts in segments[rule].items():
        found[part_of(name)] = found.get(part_of(name), 0) + np.array(parts)
    return found


def raising(segments: list[Found], rules: Iterable[str]) -> dict[str, float]:
    """Return the parts of the network that raise the loss of trained-on text in all seeds, by all of some rules."""
    raised: dict[str, list[float]] = {}
    for of_seed in segments:
        of = of_seed[TRAINED_ON]
        fall = of["values"][0] - of["values"][-1]
        for rule in rules:
            for name, parts in of_parts(of, rule).items():
                raised.setdefault(name, []).append(float(parts.sum()) / fall)
    return {name: float(np.mean(shares)) for name, shares in raised.items() if min(shares) > RAISED}


def hurting(segments: list[Found]) -> str | None:
    """Return the part of the network that raises the loss of trained-on text most, if it does so in all seeds."""
    hurt = raising(segments, RULES)
    return max(hurt, key=lambda name: hurt[name], default=None)


def last_crossing(values: Float[np.ndarray, "states"], numbers: Float[np.ndarray, "states"], share: float) -> float:
    """Return the last number of steps at which a share of the whole change is passed, between states by lines.

    Example:
        >>> last_crossing(np.array([1.0, 1.0, 0.0, 0.0]), np.array([0.0, 10.0, 20.0, 30.0]), 0.5)
        15.0
    """
    done = (values[0] - values) / (values[0] - values[-1]) - share
    place = int(np.flatnonzero((done[:-1] < 0) & (done[1:] >= 0))[-1])
    return float(np.interp(0.0, done[place : place + 2], numbers[place : place + 2]))


class Seed:
    """The measurements of one seed, and what follows from those that were made.

    Args:
        results: what was kept.
        seed: the seed.
    """

    def __init__(self, results: Found, seed: int) -> None:
        def read_piece(name: str) -> Any:
            return results["pieces"].get(f"seed {seed}, {name}")

        self.states, self.counts, self.segments = read_piece("states"), read_piece("counts"), read_piece("segments")
        self.single, self.back, self.form = read_piece("single steps"), read_piece("set back"), read_piece(FORM)
        sizes = Sizes(**results["sizes"])
        self.numbers = np.arange(0, sizes.steps + 1, sizes.every, dtype=float)
        self.after_trained_on = steps_of_trained_on(sizes) + 1

    def values(self, name: str) -> np.ndarray:
        """Return a number at every state."""
        return np.array(self.states["numbers"][name])

    def fall(self, name: str) -> float:
        """Return by how much a number falls along the whole training."""
        return float(self.values(name)[0] - self.values(name)[-1])

    def crossings(self, name: str) -> tuple[float, float]:
        """Return the steps at a tenth and at nine tenths of a number's fall."""
        early, late = (last_crossing(self.values(name), self.numbers, share) for share in (EARLY, LATE))
        return early, late

    def width(self) -> float:
        """Return the logarithm of the steps in which repetition forms, as a multiple of those of held-out text."""
        spans = [np.diff(self.crossings(name))[0] for name in (REPETITION, HELD_OUT)]
        return float(np.log(spans[0] / spans[1]))

    @property
    def late_share(self) -> float:
        """The share of repetition's fall in the last quarter of the steps."""
        values, start = self.values(REPETITION), self.numbers[-1] * LAST
        return float((np.interp(start, self.numbers, values) - values[-1]) / self.fall(REPETITION))

    def by_kind(self, number: str, rule: str, between: tuple[float, float] | None = None) -> dict[str, float]:
        """Return the shares of attention, MLPs, embeddings and norms in a number's fall between two steps."""
        early, late = between or self.crossings(REPETITION)
        ends = self.numbers[:: 2 if rule == "double" else 1]
        # A segment at the edge counts for as much of it as lies within.
        within = np.clip(np.minimum(ends[1:], late) - np.maximum(ends[:-1], early), 0, None) / np.diff(ends)
        found: dict[str, float] = {}
        for name, parts in of_parts(self.segments[number], rule).items():
            kind = next((kind for kind in ("attention", "mlp", "embedding") if kind in name), "norms")
            found[kind] = found.get(kind, 0.0) - float(parts @ within)
        start, end = np.interp([early, late], self.numbers, self.values(number))
        return {kind: part / float(start - end) for kind, part in found.items()} | {
            "all": sum(found.values()) / float(start - end)
        }

    def helping(self, number: str, way: str = "exact") -> np.ndarray:
        """Return the shares of weights that help, of every step that is measured alone."""
        return np.array([step[number][way]["weights"] for step in self.single])

    def mean_helping(self, number: str, way: str = "exact", *, apart: bool = False) -> float:
        """Return the mean share of weights that help in a step, or in those not right after some of trained-on text."""
        steps = np.array([step["step"] for step in self.single])
        counted = ~np.isin(steps, self.after_trained_on) if apart else slice(None)
        return float(self.helping(number, way)[counted].mean())

    def lead_of_attention(self, rule: str) -> float:
        """Return attention's share in the fall of repetition minus that in the fall of held-out text."""
        return self.by_kind(REPETITION, rule)["attention"] - self.by_kind(HELD_OUT, rule)["attention"]

    def share(self, number: str, rule: str, kind: str) -> float:
        """Return the share of a kind of weights in a number's fall while repetition forms."""
        return self.by_kind(number, rule)[kind]

    def part_in(self, number: str, part: str) -> float:
        """Return the part of the network in a number's change."""
        return float(of_parts(self.segments[number])[part].sum())

    def set_back(self, number: str, part: str) -> float:
        """Return what is lost of a number's change with a part of the network set back."""
        return float(self.back[part][number])

    def frozen(self, state: int, group: str = NOTHING) -> float:
        """Return the loss with a group of parameters frozen."""
        return float(self.states["frozen"][group][state])

    def cost(self, state: int, group: str) -> float:
        """Return by how much the loss grows with a group of parameters frozen."""
        return self.frozen(state, group) - self.frozen(state)

    def movement(self, state: int, group: str) -> float:
        """Return the mean movement of a group's parameters."""
        return float(np.mean([of[state] for of in self.states["movement"][group]]))

    def share_of_states(self, state: int, kind: str) -> float:
        """Return how much of the last states a kind of parts of the closed form is."""
        return float(np.sum(self.form[SHARE][kind][state]))

    def movement_of_states(self, state: int, kind: str) -> float:
        """Return how far a kind of parts of the closed form moves in the last states, of terms the mean."""
        return float(np.mean(self.form[MOVEMENT][kind][state]))

    def undone(self, group: str, state: int) -> float:
        """Return the share of the fall from single tokens to a state that freezing a group undoes."""
        return self.cost(state, group) / (float(self.counts["single tokens"]) - self.frozen(state))

    @property
    def below_pairs(self) -> int | None:
        """The first state with a loss below that of pairs."""
        below = np.flatnonzero(np.array(self.states["frozen"][NOTHING]) < self.counts["pairs"])
        return int(below[0]) if len(below) else None

    def undone_at_pairs(self) -> float:
        """Return the share that freezing patterns and scales undoes at the first state below the loss of pairs."""
        return self.undone(WEIGHTS, self.below_pairs or 0)


def over_seeds(seeds: list[Seed], of: Callable[..., float], *arguments: Any) -> IntervalEstimate:
    """Return the mean over seeds of a number, with its interval by Student's t."""
    return students_mean(np.array([of(seed, *arguments) for seed in seeds]))


def with_seeds(seeds: list[Seed], of: Callable[..., float], *arguments: Any) -> str:
    """Format a mean over seeds with its interval, and the seeds' own values."""
    each = ", ".join(f"{of(seed, *arguments):.3f}" for seed in seeds)
    return f"{over_seeds(seeds, of, *arguments).written()} ({each})"
