"""Tables and verdicts of trainings with planted pieces of text."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import binomtest

from duat_jax.evaluation.statistics import students_mean
from experiments.emergence.verdicts import CONFIRMED, REFUTED, UNDECIDED, side
from experiments.markdown import Fields, cells, counted, proportion, table

TAUGHT, TWIN, WRONG, DECOY = "taught", "twin", "wrong answer", "decoy"
"""The planted pieces: a line again and again, the same once more, the same with another answer, and its tokens in
another order."""
ORDINARY, LARGEST = "an ordinary piece", "the ordinary piece with the largest part"
"""Ordinary pieces that are left out: one that is drawn beforehand, and one that the exact ledger chooses."""
BOTH, REPLACED = "taught and twin", "taught, an ordinary piece in its place"
"""Other trainings: without two pieces, and with another one in the place of one."""
ALONE, TWINS, CONTRADICTED = "alone", "twins", "contradicted"
WORLDS = {ALONE: (TAUGHT, DECOY), TWINS: (TAUGHT, DECOY, TWIN), CONTRADICTED: (TAUGHT, DECOY, WRONG)}
"""The planted pieces of every training."""
OTHER_NAME = "the same answer after another name"
EXACT, ELSEWHERE = "exact ledger", "exact ledger, after other text"
FIRST, LAST = "first order at the beginning", "gradient after all"
TRACIN, COSINE, ALIKE = "TracIn", "cosine of gradients after all", "control: alike tokens"
METHODS = (EXACT, ELSEWHERE, FIRST, LAST, TRACIN, COSINE, ALIKE)
"""The scores of pieces."""
FOUND = 0.75
"""The share of draws above which pieces are said to be found."""
HALF, LITTLE = 0.5, 0.1
"""Shares of a fall, or of a part."""
ALIKE_IN_SIZE = (0.8, 1.25)
"""The ratios of two numbers that are said to be alike."""
ALL = "all three"

Found = dict[str, Any]


def is_found(training: Found, method: str, world: str) -> bool:
    """Return whether a method has the planted pieces of a training at the ends of its order."""
    places = training["places"][method]
    if world == TWINS:
        return max(places[TAUGHT][0], places[TWIN][0]) == 2
    return places[TAUGHT][0] == 1 and (world == ALONE or places[WRONG][1] == 1)


class Draws:
    """The trainings of all draws.

    Args:
        results: what was kept.
    """

    def __init__(self, results: Found) -> None:
        self.of = {
            world: [results["trainings"][f"draw {seed}, {world}"] for seed in range(results["draws"])]
            for world in WORLDS
        }

    def found(self, method: str, world: str) -> Bool[np.ndarray, "draws"]:
        """Return for every draw whether a method finds the planted pieces, of one training or of all three."""
        if world == ALL:
            return np.all([self.found(method, each) for each in self.of], axis=0)
        return np.array([is_found(each, method, world) for each in self.of[world]])

    def over(self, world: str, of: Callable[[Found], float]) -> Float[np.ndarray, "draws"]:
        """Return a number of every draw's training."""
        return np.array([of(each) for each in self.of[world]])

    def fall(self, world: str) -> Float[np.ndarray, "draws"]:
        """Return by how much the loss of the answer falls, in nats."""
        return self.over(world, lambda each: each["before"] - each["after"])

    def lost(self, world: str, piece: str) -> Float[np.ndarray, "draws"]:
        """Return by how much higher the loss of the answer ends without a piece, in nats."""
        return self.over(world, lambda each: each["without"][piece] - each["after"])

    def part(self, world: str, piece: str) -> Float[np.ndarray, "draws"]:
        """Return by how much a piece lowers the loss by the exact ledger, in nats."""
        return self.over(world, lambda each: -each["parts"][piece])

    def of_answer(self, world: str, piece: str) -> Float[np.ndarray, "draws"]:
        """Return by how much a piece's answer lowers the loss by the exact ledger, in nats."""
        return self.over(world, lambda each: -each["of answers"][piece])


def fields(results: Found) -> Fields:
    """Return the fields of the documentation page."""
    draws = Draws(results)
    sections = {
        "Verdicts on planted pieces": table(["claim", "verdict", "by"], _verdicts(draws)),
        "Planted pieces at the ends of the order": _found(draws),
        "The exact ledger beside other methods": _beside(draws),
        "Parts of planted pieces, and trainings without them": _parts(draws),
        "Trainings with planted pieces": _trainings(draws),
        "Every piece left out once": _left_out(results),
    }
    text = "\n".join(line for title, lines in sections.items() for line in (f"#### {title}", "", *lines, ""))
    return {"tables": text, **cells(text)}


def _verdicts(draws: Draws) -> list[list[str]]:
    """Return every claim with its verdict, and what it is by; a claim of several sentences needs each of them."""
    rows = []
    for method in (EXACT, ELSEWHERE):
        hits = draws.found(method, ALL)
        rows.append([f"found, {method}", side(proportion(hits), FOUND), counted(hits)])

    def claim(name: str, *asked: tuple[str, np.ndarray, float, bool]) -> None:
        estimates = [(words, students_mean(of), bound, below) for words, of, bound, below in asked]
        each = [side(of, bound, below=below) for _, of, bound, below in estimates]
        verdict = REFUTED if REFUTED in each else UNDECIDED if UNDECIDED in each else CONFIRMED
        rows.append([name, verdict, "; ".join(f"{words} {of.written(2)}" for words, of, _, _ in estimates)])

    alone, twins = draws.fall(ALONE), draws.fall(TWINS)
    ordinary = np.abs([draws.lost(ALONE, piece) for piece in (ORDINARY, LARGEST)]).max(0)
    claim(
        "the taught piece alone teaches",
        ("of the fall, lost without it", draws.lost(ALONE, TAUGHT) / alone, HALF, False),
        ("without ordinary pieces", ordinary / alone, LITTLE, True),
    )
    claim(
        "order, not tokens",
        ("part of the decoy, of the taught piece's", draws.part(ALONE, DECOY) / draws.part(ALONE, TAUGHT), HALF, True),
        ("lost without it, the same", draws.lost(ALONE, DECOY) / draws.lost(ALONE, TAUGHT), HALF, True),
    )
    one = np.maximum(draws.lost(TWINS, TAUGHT), draws.lost(TWINS, TWIN))
    least = np.minimum(draws.part(TWINS, TAUGHT), draws.part(TWINS, TWIN))
    claim(
        "twins stand in for each other",
        ("of the fall, lost without one", one / twins, HALF, True),
        ("without both", draws.lost(TWINS, BOTH) / twins, HALF, False),
        ("the smaller part minus what is lost without one", (least - one) / twins, 0.0, False),
    )
    claim(
        "the wrong answer unteaches",
        ("regained without it", -draws.lost(CONTRADICTED, WRONG), 0.0, False),
        ("raised by its answer's tokens", -draws.of_answer(CONTRADICTED, WRONG), 0.0, False),
    )
    answer = draws.of_answer(ALONE, TAUGHT) / draws.part(ALONE, TAUGHT)
    claim("by the answer's tokens", ("of the taught piece's part", answer, HALF, False))
    ratio = students_mean(draws.lost(ALONE, TAUGHT) / draws.part(ALONE, TAUGHT))
    low, high = ALIKE_IN_SIZE
    size = CONFIRMED if ratio.low > low and ratio.high < high else UNDECIDED
    if ratio.high < low or ratio.low > high:
        size = f"{REFUTED}: a part is {'larger' if ratio.high < low else 'smaller'}"
    return [*rows, ["a part is what its absence costs", size, f"{ratio.written(2)} of the taught piece's part is lost"]]


def _found(draws: Draws) -> list[str]:
    def median(method: str, world: str, piece: str, end: int) -> str:
        return f"{np.median([each['places'][method][piece][end] for each in draws.of[world]]):g}"

    rows = [
        [
            method,
            *(counted(draws.found(method, world)) for world in (*WORLDS, ALL)),
            median(method, ALONE, DECOY, 0),
            median(method, CONTRADICTED, WRONG, 1),
        ]
        for method in METHODS
    ]
    last = ["place of the decoy", "of the wrong answer, from the other end"]
    return table(["method", *WORLDS, ALL, *last], rows)


def _beside(draws: Draws) -> list[str]:
    ours = draws.found(EXACT, ALL)
    margins = {method: np.array([each["margins"][method] for each in draws.of[ALONE]]) for method in METHODS}
    rows = []
    for method in METHODS[1:]:
        theirs = draws.found(method, ALL)
        only = [int((a & ~b).sum()) for a, b in ((ours, theirs), (theirs, ours))]
        differs = sum(only) and binomtest(only[0], sum(only)).pvalue < 0.05
        verdict = ("ahead" if only[0] > only[1] else "behind") if differs else UNDECIDED
        lead = students_mean(margins[EXACT] - margins[method])
        margin = "ahead" if lead.low > 0 else "behind" if lead.high < 0 else UNDECIDED
        own = students_mean(margins[method]).written(1)
        rows.append([method, f"{only[0]} to {only[1]}", verdict, own, lead.written(1, "+"), margin])
    head = ["method", "draws that only the ledger finds, to only the method", "verdict", "margin of the taught piece"]
    own = students_mean(margins[EXACT]).written(1)
    return table([*head, "lead of the ledger's margin", "verdict on margins"], [[EXACT, "", "", own, "", ""], *rows])


def _parts(draws: Draws) -> list[str]:
    rows = []
    for world, trainings in draws.of.items():
        parts, without = trainings[0]["parts"], trainings[0]["without"]
        for piece in dict.fromkeys([*parts, *without]):
            part = students_mean(draws.part(world, piece)).written(2, "+") if piece in parts else ""
            lost = students_mean(draws.lost(world, piece)).written(2, "+") if piece in without else ""
            rows.append([world, piece, part, lost])
        for piece in trainings[0]["of answers"]:
            tokens = students_mean(draws.of_answer(world, piece)).written(2, "+")
            rows.append([world, f"{piece}, its answer's tokens", tokens, ""])
        ordinary = students_mean(draws.over(world, lambda each: -each["of ordinary pieces"])).written(2, "+")
        rows.append([world, "all ordinary pieces", ordinary, ""])
    both = draws.lost(TWINS, BOTH)
    for piece, other in ((TAUGHT, TWIN), (TWIN, TAUGHT)):
        shapley = (both - draws.lost(TWINS, other) + draws.lost(TWINS, piece)) / 2
        rows.append([TWINS, f"{piece}, Shapley value", "", students_mean(shapley).written(2, "+")])
    return table(["training", "piece", "lowered by its part, nats", "lost without it, nats"], rows)


def _trainings(draws: Draws) -> list[str]:
    rows = []
    for world in WORLDS:
        trainings = draws.of[world]
        ends = [students_mean(np.array([each[end] for each in trainings])) for end in ("before", "after")]
        other = list(map(students_mean, np.array([each[OTHER_NAME] for each in trainings]).T))
        floor = np.abs(draws.over(world, lambda each: each["floor"])).max()
        falls = f"{draws.fall(world).min():.2f}"
        rows.append([world, *(of.written(2) for of in (*ends, *other)), falls, f"{floor:.1e}"])
    head = ["loss of the answer before", "after", f"{OTHER_NAME}, before", f"{OTHER_NAME}, after", "smallest fall"]
    return table(["training", *head, "repeated, largest difference"], rows)


def _left_out(results: Found) -> list[str]:
    kept = [of["left out"] for of in results["trainings"].values() if "left out" in of]

    def over(kind: str, method: str) -> str:
        return students_mean(np.array([each[kind][method] for each in kept])).written(2)

    rows = [[method, over("agreement of all", method), over("agreement", method)] for method in METHODS]
    first = sum(each["places"][TAUGHT][0] == 1 for each in kept)
    rows.append(["leaving one out, draws with the taught piece first", f"{first} of {len(kept)}", ""])
    return table(["method", "rank agreement with leaving one out, all pieces", "ordinary pieces"], rows)
