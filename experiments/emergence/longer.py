"""Question: does a Transformer come to use repetition in a stage that ends, while it learns on?

Run `python -m experiments emergence_longer`; it writes experiments/results/emergence_longer.json and the tables in
docs/findings/emergence.md, which states beforehand what decides.  The training and what is measured are kept in
experiments/results/work as they are finished: a run that was stopped goes on.
"""

from typing import Any

import jax
import numpy as np
from flax import nnx
from jaxtyping import Float

import duat_jax as duat
from experiments import kept_results
from experiments.emergence.ledgers import of_segments
from experiments.emergence.moving import BIASES, WEIGHTS
from experiments.emergence.run import Followed
from experiments.emergence.seeds import EARLY, HALF, LATE, RULES, Found, Seed, last_crossing
from experiments.emergence.texts import Sizes
from experiments.emergence.training import COPY, HELD_OUT, REPETITION, Network, numbers_of
from experiments.emergence.verdicts import CONFIRMED, NONE, REFUTED, UNDECIDED
from experiments.kept_results import journal_of, kept, store
from experiments.markdown import Fields, cells, table
from experiments.significant import significant

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


class Longer:
    """The training that goes on, and what follows from it.

    Args:
        results: what was kept.
    """

    def __init__(self, results: Found) -> None:
        self.seed = Seed(results, results["seed"])
        self.steps, self.numbers = results["sizes"]["steps"], self.seed.numbers
        self.embedded = results[EMBEDDED]

    def values(self, name: str) -> Float[np.ndarray, "states"]:
        """Return a number at every state, each averaged with those beside it."""
        return smoothed(self.seed.values(name))

    def at(self, name: str, steps: float) -> float:
        """Return a number after so many steps, between states by straight lines."""
        return float(np.interp(steps, self.numbers, self.values(name)))

    def later(self, name: str, share: float = HALF, end: float | None = None) -> float:
        """Return the share of a number's fall after a share of the steps."""
        start, middle, last = (self.at(name, (end or self.steps) * part) for part in (0.0, share, 1.0))
        return (middle - last) / (start - last)

    def crossing(self, name: str, share: float) -> float:
        """Return the last number of steps at which a share of a number's fall is passed."""
        return last_crossing(self.values(name), self.numbers, share)

    def width(self, name: str) -> float:
        """Return the steps from a tenth to nine tenths of a number's fall."""
        return self.crossing(name, LATE) - self.crossing(name, EARLY)

    def verdicts(self) -> list[list[str]]:
        """Return every claim with its verdict, and what it is by."""
        later, held = self.later(REPETITION), self.later(HELD_OUT)
        ends = CONFIRMED if later < ENDS else REFUTED if later > GOES_ON else UNDECIDED
        ratio = self.width(REPETITION) / self.width(HELD_OUT)
        own = self.width(REPETITION) / self.crossing(REPETITION, EARLY)
        abrupt = "abrupt" if ratio < HALF else "gradual" if ratio > 1 else UNDECIDED
        half = (self.steps / 2, float(self.steps))
        shares = [
            [self.seed.by_kind(name, rule, half)["attention"] for name in (REPETITION, HELD_OUT)]
            for rule in ("parts", "simpson")
        ]
        attention = UNDECIDED
        if all(of > HALF and of > beside for of, beside in shares):
            attention = CONFIRMED
        elif all(of < HALF for of, _ in shares):
            attention = REFUTED
        third, of_held = (self.later(name, 2 / 3) for name in (REPETITION, HELD_OUT))
        stopped = [self.later(REPETITION, end=end) for end in self.numbers if end >= self.steps * 2 / 3]
        of_each = ", ".join(f"{of:.2f} of repetition, {beside:.2f} of held-out text" for of, beside in shares)
        return [
            ["ends", ends, f"{later:.2f} of the fall in the second half of the steps, of held-out text {held:.2f}"],
            ["afterwards: ends, stopped in the last third", "", f"from {min(stopped):.2f} to {max(stopped):.2f}"],
            ["afterwards: the last third", "", f"{third:.2f} of the fall, of held-out text {of_held:.2f}"],
            [
                "abrupt",
                abrupt if ends == CONFIRMED else NONE,
                f"{ratio:.2f} times the steps of held-out text, {own:.2f} times those to a tenth of the fall",
            ],
            ["by attention, in the second half", attention, f"by secant and by Simpson's rule: {of_each}"],
        ]


def fields(results: Found) -> Fields:
    """Return the fields of the documentation page."""
    longer = Longer(results)
    sections = {
        "Verdicts on a training that goes on": table(["claim", "verdict", "by"], longer.verdicts()),
        "Numbers along a training that goes on": _along(longer),
        "Shares of the falls in a training that goes on": _shares(longer),
    }
    text = "\n".join(line for title, lines in sections.items() for line in (f"#### {title}", "", *lines, ""))
    return {"tables": text, **cells(text)}


def _along(longer: Longer) -> list[str]:
    names, seed = (HELD_OUT, REPETITION, COPY), longer.seed
    rows = [
        [
            f"{seed.numbers[state]:,.0f}",
            *(f"{longer.values(name)[state]:.2f}" for name in names),
            f"{seed.cost(state, WEIGHTS):+.2f}",
            f"{seed.undone(WEIGHTS, state):.2f}" if seed.frozen(state) < seed.counts["single tokens"] else "",
            f"{seed.cost(state, BIASES):+.2f}",
        ]
        for state in np.unique(np.linspace(0, len(seed.numbers) - 1, 9).astype(int))
    ]
    shorter = Seed(kept("emergence"), SEED)
    end = shorter.numbers[-1]
    rows.append([f"{end:,.0f}, between states", *(f"{longer.at(name, end):.2f}" for name in names), "", "", ""])
    of_shorter = [f"{shorter.values(name)[-1]:.2f}" for name in names]
    rows.append([f"{end:,.0f}, with the rate that falls", *of_shorter, "", "", ""])
    rows.append([EMBEDDED, *(f"{longer.embedded[name]:.2f}" for name in names), "", "", ""])
    for share in (EARLY, HALF, LATE):
        at = [f"{longer.crossing(name, share):,.0f}" for name in names]
        rows.append([f"steps at {share:.0%} of the fall", *at, "", "", ""])
    frozen = [f"cost of {WEIGHTS}", "share of the fall from single tokens that it undoes", f"cost of {BIASES}"]
    return table(["steps", *names, *frozen], rows)


def _shares(longer: Longer) -> list[str]:
    kinds = {"attention": "attention", "mlp": "MLPs", "embedding": "embeddings", "norms": "norms", "all": "all"}
    ends = {
        f"from {EARLY:.0%} to {HALF:.0%} of the fall of repetition": [
            longer.crossing(REPETITION, share) for share in (EARLY, HALF)
        ],
        "in the second half of the steps": [longer.steps / 2, float(longer.steps)],
    }
    rows = [
        [
            f"{number}, {when}, {RULES[rule]}",
            *(f"{longer.seed.by_kind(number, rule, (a, b))[kind]:.2f}" for kind in kinds),
        ]
        for number in (REPETITION, HELD_OUT)
        for when, (a, b) in ends.items()
        for rule in ("parts", "simpson")
    ]
    return table(["fall of", *kinds.values()], rows)


def of_embedded(of: Followed) -> dict[str, float]:
    """Return the numbers of the embedded model."""
    graph, values = nnx.split(duat.load())
    network = Network(nnx.to_pure_dict(values), lambda weights: nnx.merge(graph, nnx.State(weights)))
    found: dict[str, Any] = {
        name: jax.jit(number)(network.weights) for name, number in numbers_of(network, of.texts).items()
    }
    return {name: float(significant(value)) for name, value in found.items()}


def main() -> None:
    """Run what isn't measured yet, and store the results."""
    settings: Found = {"sizes": SIZES._asdict(), "seed": SEED}
    journal = journal_of("emergence_longer", settings)
    of = Followed(SIZES, SEED, kept_results.FOLDER / "work" / "emergence_longer", decays=False)
    split = {name: of.numbers[name] for name in (HELD_OUT, REPETITION)}
    pieces = {
        "states": of.states,
        "counts": of.counts,
        "segments": lambda: of_segments(of.network, of.kept(), split),
    }
    found = {f"seed {SEED}, {name}": journal.once(name, compute) for name, compute in pieces.items()}
    store("emergence_longer", {**settings, EMBEDDED: of_embedded(of), "pieces": found})
