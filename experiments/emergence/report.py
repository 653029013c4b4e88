"""Verdicts on a training that was followed, by the rules of the page, and its tables."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

import duat_jax as duat
from duat_jax.evaluation.statistics import Estimate, agreement, students_mean
from experiments.emergence.moving import BIASES, NOTHING, OTHER_TEXT, PATTERNS, SCALES, WEIGHTS
from experiments.emergence.parts import part_of
from experiments.emergence.training import COPY, FOLLOWED, HELD_OUT, REPETITION, TRAINED_ON
from experiments.pages import Fields, cells, table

RULES = {"parts": "secant", "double": "secant, 128 steps", "simpson": "Simpson's rule"}
"""The ways by which a change is split, and what tables call them."""
WITHOUT, DRAWN, UNCHANGED = "without tokens after one that stands before", "without as many drawn tokens", "unchanged: "
"""The trainings of the first seed beside the one that is followed."""
LEAST, EARLY, LATE, LAST = 0.2, 0.1, 0.9, 0.75
"""The smallest fall of repetition that is judged; the shares of it between which it forms; the beginning of the last
quarter of the steps."""
CONFIRMED, REFUTED, UNDECIDED, NONE = "confirmed", "refuted", "undecided", "no verdict"

Found = dict[str, Any]


def of_parts(segments: Found, rule: str = "parts") -> dict[str, Float[np.ndarray, "segments"]]:
    """Return the parts of a number's change over parts of the network, segment by segment.

    Args:
        segments: what was kept of a number.
        rule: a name in `RULES`.
    """
    found: dict[str, Any] = {}
    for name, parts in segments[rule].items():
        found[part_of(name)] = found.get(part_of(name), 0) + np.array(parts)
    return found


def hurting(segments: list[Found]) -> str | None:
    """Return the part of the network that raises the loss of trained-on text most, if it does so in all seeds.

    Args:
        segments: of every seed.
    """
    raised: dict[str, list[float]] = {}
    for of_seed in segments:
        of = of_seed[TRAINED_ON]
        fall = of["values"][0] - of["values"][-1]
        for rule in RULES:
            for name, parts in of_parts(of, rule).items():
                raised.setdefault(name, []).append(float(parts.sum()) / fall)
    hurt = {name: np.mean(shares) for name, shares in raised.items() if min(shares) > 0.01}
    return max(hurt, key=lambda name: hurt[name], default=None)


def last_crossing(values: Float[np.ndarray, "states"], numbers: Float[np.ndarray, "states"], share: float) -> float:
    """Return the last number of steps at which a share of the whole change is passed, between states by lines.

    Args:
        values: at every state.
        numbers: of steps before each.
        share: of the change.

    Example:
        >>> last_crossing(np.array([1.0, 1.0, 0.0, 0.0]), np.array([0.0, 10.0, 20.0, 30.0]), 0.5)
        15.0
    """
    done = (values[0] - values) / (values[0] - values[-1]) - share
    place = int(np.flatnonzero((done[:-1] < 0) & (done[1:] >= 0))[-1])
    return float(
        numbers[place] + (numbers[place + 1] - numbers[place]) * -done[place] / (done[place + 1] - done[place])
    )


class Seed:
    """What was measured of one seed, and what follows from it.

    Args:
        results: what was kept.
        seed: the seed.
    """

    def __init__(self, results: Found, seed: int) -> None:
        def of(name: str) -> Any:
            return results["pieces"][f"seed {seed}, {name}"]

        self.states, self.counts, self.segments = of("states"), of("counts"), of("segments")
        self.single, self.back = of("single steps"), of("set back")
        sizes = results["sizes"]
        self.numbers = np.arange(0, sizes["steps"] + 1, sizes["every"], dtype=float)

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

    @property
    def width(self) -> float:
        """The logarithm of the steps in which repetition forms, as a multiple of those of held-out text."""
        spans = [np.diff(self.crossings(name))[0] for name in (REPETITION, HELD_OUT)]
        return float(np.log(spans[0] / spans[1]))

    @property
    def late_share(self) -> float:
        """The share of repetition's fall in the last quarter of the steps."""
        values, start = self.values(REPETITION), self.numbers[-1] * LAST
        return float((np.interp(start, self.numbers, values) - values[-1]) / self.fall(REPETITION))

    def by_kind(self, number: str, rule: str) -> dict[str, float]:
        """Return the shares of attention, MLPs, embeddings and norms in a number's fall while repetition forms."""
        early, late = self.crossings(REPETITION)
        ends = self.numbers[:: 2 if rule == "double" else 1]
        within = (ends[1:] > early) & (ends[:-1] < late)
        found: dict[str, float] = {}
        for name, parts in of_parts(self.segments[number], rule).items():
            kind = next((kind for kind in ("attention", "mlp", "embedding") if kind in name), "norms")
            found[kind] = found.get(kind, 0.0) - float(parts[within].sum())
        total = sum(found.values())
        return {kind: part / total for kind, part in found.items()}

    def helping(self, number: str, way: str) -> np.ndarray:
        """Return the shares of weights that help, of every step that is measured alone."""
        return np.array([step[number][way]["weights"] for step in self.single])

    def undone(self, group: str, state: int) -> float:
        """Return the share of the fall from single tokens to a state that freezing a group undoes."""
        frozen = self.states["frozen"]
        loss = frozen[NOTHING][state]
        return float((frozen[group][state] - loss) / (self.counts["single tokens"] - loss))

    @property
    def below_pairs(self) -> int | None:
        """The first state with a loss below that of pairs."""
        below = np.flatnonzero(np.array(self.states["frozen"][NOTHING]) < self.counts["pairs"])
        return int(below[0]) if len(below) else None


def _side(estimate: Estimate, bound: float, *, below: bool = False) -> str:
    """Return whether an interval lies above a bound, below it, or neither."""
    above, under = (REFUTED, CONFIRMED) if below else (CONFIRMED, REFUTED)
    return above if estimate.low > bound else under if estimate.high < bound else UNDECIDED


def _of_seeds(seeds: list[Seed], of: Callable[[Seed], float]) -> Estimate:
    return students_mean(np.array([of(seed) for seed in seeds]))


def _with_seeds(seeds: list[Seed], of: Callable[[Seed], float], digits: int = 3) -> str:
    each = ", ".join(f"{of(seed):.{digits}f}" for seed in seeds)
    return f"{_of_seeds(seeds, of).written(digits)} ({each})"


def fields(results: Found) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: what was kept.
    """
    seeds = [Seed(results, seed) for seed in results["seeds"]]
    first = results["seeds"][0]
    again = {
        name.removeprefix(f"seed {first}, "): found
        for name, found in results["pieces"].items()
        if any(word in name for word in (WITHOUT, DRAWN, UNCHANGED))
    }
    tokens = results["pieces"][f"seed {first}, tokens"]
    sections = {
        "Verdicts": _verdicts(seeds, again),
        "Numbers along the training": _along(seeds),
        "Shares of the falls while repetition forms": _shares(seeds),
        "Weights that help in a step": _helping(seeds),
        "Parts of the network": _parts(seeds),
        "Heads": _heads(seeds),
        "Parameters that are frozen": _frozen(seeds),
        "Trained again": _again(seeds[0], again),
        "Tokens of the training": _tokens(tokens),
        "Texts with the largest parts in repetition": _texts(tokens),
    }
    text = "\n".join(line for title, lines in sections.items() for line in (f"### {title}", "", *lines, ""))
    return {"tables": text, **cells(text)}


def _verdicts(seeds: list[Seed], again: dict[str, Found]) -> list[str]:
    formed = min(seed.fall(REPETITION) for seed in seeds) >= LEAST
    width = _of_seeds(seeds, lambda seed: seed.width)
    late = max(seed.late_share for seed in seeds)
    abrupt = "abrupt" if width.high < np.log(0.5) else "gradual" if width.low > 0 else UNDECIDED
    shares = {
        rule: (
            _of_seeds(seeds, lambda seed, rule=rule: seed.by_kind(REPETITION, rule)["attention"]),
            _of_seeds(
                seeds,
                lambda seed, rule=rule: (
                    seed.by_kind(REPETITION, rule)["attention"] - seed.by_kind(HELD_OUT, rule)["attention"]
                ),
            ),
        )
        for rule in ("parts", "simpson")
    }
    attention = UNDECIDED
    if all(share.low > 0.5 and lead.low > 0 for share, lead in shares.values()):
        attention = CONFIRMED
    if all(share.high < 0.5 for share, _ in shares.values()):
        attention = REFUTED
    remains = {kind: _remains(seeds[0], again[kind]) for kind in (WITHOUT, DRAWN)}
    taught = UNDECIDED
    if remains[WITHOUT] < 0.5 and remains[DRAWN] > 0.75:
        taught = CONFIRMED
    if remains[WITHOUT] > 0.75:
        taught = REFUTED
    half = _of_seeds(seeds, lambda seed: float(seed.helping(TRAINED_ON, "exact").mean()))
    barely = CONFIRMED if half.low > 0.5 and half.high < 0.55 else UNDECIDED
    barely = REFUTED if half.high < 0.5 or half.low > 0.55 else barely
    part = hurting([seed.segments for seed in seeds])
    dynamic = _of_seeds(seeds, lambda seed: seed.undone(WEIGHTS, -1))
    states = [seed.below_pairs for seed in seeds]
    static, by_static = UNDECIDED, "no state below the loss of pairs in a seed"
    if all(state is not None for state in states):
        of_state = lambda seed: seed.undone(WEIGHTS, seed.below_pairs)  # noqa: E731
        static, by_static = _side(_of_seeds(seeds, of_state), 0.1, below=True), _with_seeds(seeds, of_state)
    harm = "none does"
    if part is not None:
        deviation = float(np.std([seed.values(TRAINED_ON)[-1] for seed in seeds], ddof=1))
        gained = seeds[0].values(TRAINED_ON)[-1] - again[UNCHANGED + part][TRAINED_ON]
        does = "does harm" if gained > 2 * deviation else "does no harm"
        harm = f"{part}, unchanged: loss lower by {gained:.4f}, two standard deviations {2 * deviation:.4f}: {does}"
    rows = [
        [
            "abrupt",
            (UNDECIDED if late > 0.1 else abrupt) if formed else NONE,
            f"{_exponential(width)} times the steps; {late:.2f} of the fall in the last quarter",
        ],
        ["by attention", attention if formed else NONE, f"share {shares['parts'][0].written(2)}"],
        [
            "by what stands before (one seed)",
            taught if formed else NONE,
            f"{remains[WITHOUT]:.2f} of the fall remains, without drawn tokens {remains[DRAWN]:.2f}",
        ],
        ["barely half help", barely, _with_seeds(seeds, lambda seed: float(seed.helping(TRAINED_ON, "exact").mean()))],
        ["parts that hurt", CONFIRMED if part is not None else REFUTED, harm],
        ["dynamic", _side(dynamic, 0.5), _with_seeds(seeds, lambda seed: seed.undone(WEIGHTS, -1))],
        ["static first (the opposite view)", static, by_static],
    ]
    return table(["claim", "verdict", "by"], rows)


def _exponential(estimate: Estimate) -> str:
    return Estimate(*(float(np.exp(number)) for number in estimate)).written(2)


def _remains(seed: Seed, again: Found) -> float:
    """Return the share of repetition's fall that another training has."""
    return float((seed.values(REPETITION)[0] - again[REPETITION]) / seed.fall(REPETITION))


def _along(seeds: list[Seed]) -> list[str]:
    places = np.unique(np.linspace(0, len(seeds[0].numbers) - 1, 9).astype(int))
    names = (*FOLLOWED, COPY)

    def cells_of(of: Callable[[Seed, str], float], digits: int = 2) -> list[str]:
        return [_of_seeds(seeds, lambda seed, name=name: of(seed, name)).written(digits) for name in names]

    rows = [[f"{seeds[0].numbers[i]:,.0f}", *cells_of(lambda seed, name, i=i: seed.values(name)[i])] for i in places]
    crossings = [
        [f"steps at {share:.0%} of the fall", *cells_of(lambda seed, name, k=k: seed.crossings(name)[k], 0)]
        for k, share in enumerate((EARLY, LATE))
    ]
    return table(["steps", *names], rows + crossings)


def _shares(seeds: list[Seed]) -> list[str]:
    rows = [
        [f"{number}, {RULES[rule]}"]
        + [
            _of_seeds(seeds, lambda s, kind=kind, rule=rule, number=number: s.by_kind(number, rule)[kind]).written(2)
            for kind in ("attention", "mlp", "embedding", "norms")
        ]
        for number in FOLLOWED
        for rule in RULES
    ]
    return table(["fall of", "attention", "MLPs", "embeddings", "norms"], rows)


def _helping(seeds: list[Seed]) -> list[str]:
    names = [name for name in seeds[0].single[0] if name != "step"]
    rows = []
    for name in names:
        ways = [
            _of_seeds(seeds, lambda s, name=name, way=way: float(s.helping(name, way).mean())).written(4)
            for way in ("exact", "first order")
        ]
        least, most = (float(of([of(seed.helping(name, "exact")) for seed in seeds])) for of in (np.min, np.max))
        lower = np.mean([[step[name]["change"] < 0 for step in seed.single] for seed in seeds])
        rows.append([name, *ways, f"{least:.3f} to {most:.3f}", f"{lower:.2f}"])
    for name in FOLLOWED:
        of_segments = _of_seeds(seeds, lambda s, name=name: float(np.mean(s.segments[name]["helping"]["weights"])))
        rows.append([f"{name}, whole segments", of_segments.written(4), "", "", ""])
    return table(["loss", "weights that help", "to first order", "of single steps", "steps that lower it"], rows)


def _parts(seeds: list[Seed]) -> list[str]:
    names = list(of_parts(seeds[0].segments[HELD_OUT]))

    def part_in(seed: Seed, number: str, part: str) -> float:
        return float(of_parts(seed.segments[number])[part].sum())

    def back_in(seed: Seed, number: str, part: str) -> float:
        return float(seed.back[part][number])

    asked = [(part_in, number) for number in FOLLOWED] + [(back_in, number) for number in (HELD_OUT, REPETITION)]
    rows = [
        [part, *(_of_seeds(seeds, partial(of, number=number, part=part)).written(3, "+") for of, number in asked)]
        for part in names
    ]
    main = [part for part in names if part.endswith(("attention", "mlp"))]
    ranks = [
        _of_seeds(
            seeds,
            lambda s, number=number: agreement(
                np.array([part_in(s, number, part) for part in main]),
                np.array([back_in(s, number, part) for part in main]),
            )[0],
        ).written(2)
        for number in (HELD_OUT, REPETITION)
    ]
    rows.append(["rank agreement over attentions and MLPs", "", "", "", *ranks])
    head = ["part of the network", *(f"part in {number}" for number in FOLLOWED)]
    return table([*head, f"set back, {HELD_OUT}", f"set back, {REPETITION}"], rows)


def _heads(seeds: list[Seed]) -> list[str]:
    rows = []
    for index, seed in enumerate(seeds):
        scores = np.array(seed.states["heads"])
        layers, heads = scores.shape[1:]
        parts = {
            (layer, head): sum(
                np.sum(of, 0)[head]
                for name, of in seed.segments[REPETITION]["heads"].items()
                if name.startswith(f"layers.{layer}.")
            )
            for layer in range(layers)
            for head in range(heads)
        }
        order = sorted(parts, key=lambda place: -scores[-1][place])
        for layer, head in order[:3]:
            back = seed.back[f"head {layer}:{head}"]
            rows.append(
                [
                    f"seed {index + 1}, head {layer}:{head}",
                    f"{scores[0][layer, head]:.3f}",
                    f"{scores[len(scores) // 2][layer, head]:.3f}",
                    f"{scores[-1][layer, head]:.3f}",
                    f"{parts[layer, head]:+.3f}",
                    f"{back[REPETITION]:+.3f}",
                    f"{back[HELD_OUT]:+.3f}",
                ]
            )
        places = list(parts)
        sizes = [np.array([of[place] for place in places]) for of in (parts, scores[-1])]
        back = np.array([seed.back[f"head {layer}:{head}"][REPETITION] for layer, head in places])
        ranks = [agreement(-sizes[1], back)[0], agreement(sizes[0], back)[0]]
        rows.append(
            [f"seed {index + 1}, rank agreement with set back", "", "", f"{ranks[0]:.2f}", f"{ranks[1]:.2f}", "", ""]
        )
    head = ["head", "to the copy's next token, at first", "half-way", "at last", "part in repetition"]
    return table([*head, f"set back, {REPETITION}", f"set back, {HELD_OUT}"], rows)


def _frozen(seeds: list[Seed]) -> list[str]:
    places = np.unique(np.linspace(0, len(seeds[0].numbers) - 1, 9).astype(int))
    groups, moving = (PATTERNS, SCALES, WEIGHTS, OTHER_TEXT, BIASES), (PATTERNS, SCALES, BIASES)

    def loss(seed: Seed, state: int) -> float:
        return float(seed.states["frozen"][NOTHING][state])

    def cost(seed: Seed, state: int, group: str) -> float:
        return float(seed.states["frozen"][group][state]) - loss(seed, state)

    def movement(seed: Seed, state: int, group: str) -> float:
        return float(np.mean([of[state] for of in seed.states["movement"][group]]))

    rows = [
        [
            f"{seeds[0].numbers[i]:,.0f}",
            _of_seeds(seeds, partial(loss, state=i)).written(2),
            *(_of_seeds(seeds, partial(cost, state=i, group=group)).written(2, "+") for group in groups),
            *(_of_seeds(seeds, partial(movement, state=i, group=group)).written(2) for group in moving),
        ]
        for i in places
    ]
    references = [
        [name, _of_seeds(seeds, lambda s, key=key: s.counts[key]).written(2), *[""] * 8]
        for name, key in (("counted single tokens", "single tokens"), ("counted pairs", "pairs"))
    ]
    head = ["steps", "loss", *(f"cost of {group}" for group in groups)]
    return table([*head, *(f"movement of {group}" for group in moving)], rows + references)


def _again(seed: Seed, again: dict[str, Found]) -> list[str]:
    kinds = {"as it was": {name: seed.values(name)[-1] for name in (*FOLLOWED, COPY)}, **again}
    rows = [
        [kind, *(f"{found[name]:.3f}" for name in (*FOLLOWED, COPY)), f"{_remains(seed, found):.2f}"]
        for kind, found in kinds.items()
    ]
    return table(["training", *FOLLOWED, COPY, "share of repetition's fall"], rows)


def _tokens(tokens: Found) -> list[str]:
    numbers = REPETITION, HELD_OUT
    rows = []
    for kind, count in tokens["tokens"].items():
        parts = [float(np.sum(tokens[number]["by kind"][kind])) for number in numbers]
        each = [f"{1e6 * part / count:+.3f}" for part in parts]
        rows.append([kind, f"{count:,}", *(f"{part:+.3f}" for part in parts), *each])
    for kind in tokens[REPETITION]["parts"]:
        parts = [tokens[number]["parts"][kind] for number in numbers]
        rows.append([f"all parts of the kind {kind}", "", *(f"{part:+.4f}" for part in parts), "", ""])
    shares = [f"{tokens[number]['agreement']:+.3f}" for number in numbers]
    rows.append(["rank agreement of a text's part and its share of such tokens", "", *shares, "", ""])
    head = ["tokens", "number", *(f"part in {number}" for number in numbers)]
    return table([*head, *(f"millionths a token in {number}" for number in numbers)], rows)


def _texts(tokens: Found) -> list[str]:
    tokenizer = duat.load_tokenizer()

    def shown(ids: Iterable[float]) -> str:
        text = tokenizer.decode([int(i) for i in ids])
        return "`" + " ".join(text.split())[:90].replace("|", "\\|").replace("`", "'") + "`"

    rows = [[f"{of['step']:.0f}", f"{of['part']:+.4f}", shown(of["ids"])] for of in tokens[REPETITION]["texts"]]
    return table(["step", "part", "the text's beginning"], rows)
