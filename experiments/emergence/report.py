"""Verdicts on a training that was followed, by the rules of the page, and its tables."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from jaxtyping import Float

import duat_jax as duat
from duat_jax.evaluation.statistics import Estimate, agreement, students_mean
from experiments.emergence.moving import BIASES, NOTHING, OTHER_TEXT, PATTERNS, SCALES, WEIGHTS
from experiments.emergence.parts import part_of
from experiments.emergence.texts import SINGLE
from experiments.emergence.training import COPY, FOLLOWED, HELD_OUT, REPETITION, TRAINED_ON
from experiments.pages import Fields, cells, table

OWN = "the step's own batch"
"""The loss that a step lowers, in the place of a number that is followed."""
RULES = {"parts": "secant", "double": "secant, 128 steps", "simpson": "Simpson's rule"}
"""The ways by which a change is split, and what tables call them."""
WITHOUT, DRAWN, UNCHANGED = "without tokens after one that stands before", "without as many drawn tokens", "unchanged: "
"""The trainings of the first seed beside the one that is followed."""
LEAST, EARLY, LATE, LAST = 0.2, 0.1, 0.9, 0.75
"""The smallest fall of repetition that is judged; the shares of it between which it forms; the beginning of the last
quarter of the steps."""
READ = 256
"""The distance in steps between those that read some of trained-on text, with the sizes of the study."""
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


def raising(segments: list[Found], rules: Iterable[str]) -> dict[str, float]:
    """Return the parts of the network that raise the loss of trained-on text in all seeds, by all of some rules.

    Args:
        segments: of every seed.
        rules: names in `RULES`.

    Returns:
        By name, the mean over seeds and rules as a share of the loss's fall.
    """
    raised: dict[str, list[float]] = {}
    for of_seed in segments:
        of = of_seed[TRAINED_ON]
        fall = of["values"][0] - of["values"][-1]
        for rule in rules:
            for name, parts in of_parts(of, rule).items():
                raised.setdefault(name, []).append(float(parts.sum()) / fall)
    return {name: float(np.mean(shares)) for name, shares in raised.items() if min(shares) > 0.01}


def hurting(segments: list[Found]) -> str | None:
    """Return the part of the network that raises the loss of trained-on text most, if it does so in all seeds.

    Args:
        segments: of every seed.
    """
    hurt = raising(segments, RULES)
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
    """The measurements of one seed, and what follows from them.

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
        return float(self.helping(number, way)[(steps - SINGLE) % READ != 0 if apart else slice(None)].mean())

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


def _side(estimate: Estimate, bound: float, *, below: bool = False) -> str:
    """Return whether an interval lies above a bound, below it, or neither."""
    above, under = (REFUTED, CONFIRMED) if below else (CONFIRMED, REFUTED)
    return above if estimate.low > bound else under if estimate.high < bound else UNDECIDED


def _of_seeds(seeds: list[Seed], of: Callable[..., float], *arguments: Any) -> Estimate:
    return students_mean(np.array([of(seed, *arguments) for seed in seeds]))


def _with_seeds(seeds: list[Seed], of: Callable[..., float], *arguments: Any) -> str:
    each = ", ".join(f"{of(seed, *arguments):.3f}" for seed in seeds)
    return f"{_of_seeds(seeds, of, *arguments).written()} ({each})"


def picture(results: Found) -> Found:
    """Return the numbers of the picture: of two numbers the parts by place and segment, and their course by seed.

    Args:
        results: what was kept.
    """
    seeds = [Seed(results, seed) for seed in results["seeds"]]
    found: Found = {"steps": seeds[0].numbers.tolist()}
    for number in (HELD_OUT, REPETITION):
        rows: dict[str, Any] = {}
        for seed in seeds:
            for name, parts in of_parts(seed.segments[number]).items():
                row = name if name.endswith(("attention", "mlp", "token", "position")) else "norms"
                rows[row] = rows.get(row, 0) + parts / len(seeds)
        found[number] = {
            "parts": {name: np.round(row, 5).tolist() for name, row in rows.items()},
            "values": [seed.values(number).tolist() for seed in seeds],
        }
    return found


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
            _of_seeds(seeds, Seed.share, REPETITION, rule, "attention"),
            _of_seeds(seeds, Seed.lead_of_attention, rule),
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
    half = _of_seeds(seeds, Seed.mean_helping, TRAINED_ON)
    barely = CONFIRMED if half.low > 0.5 and half.high < 0.55 else UNDECIDED
    barely = REFUTED if half.high < 0.5 or half.low > 0.55 else barely
    part = hurting([seed.segments for seed in seeds])
    dynamic = _of_seeds(seeds, Seed.undone, WEIGHTS, -1)
    states = [seed.below_pairs for seed in seeds]
    static, by_static = UNDECIDED, "no state below the loss of pairs in a seed"
    if all(state is not None for state in states):
        static = _side(_of_seeds(seeds, Seed.undone_at_pairs), 0.1, below=True)
        by_static = _with_seeds(seeds, Seed.undone_at_pairs)
    every = [seed.segments for seed in seeds]
    by_rule = [f"by {words} {', '.join(raising(every, [rule])) or 'none'}" for rule, words in RULES.items()]
    harm = f"by all three none; {'; '.join(by_rule)}"
    if part is not None:
        deviation = float(np.std([seed.values(TRAINED_ON)[-1] for seed in seeds], ddof=1))
        gained, of_held_out = (
            float(seeds[0].values(name)[-1] - again[UNCHANGED + part][name]) for name in (TRAINED_ON, HELD_OUT)
        )
        does = "does harm" if gained > 2 * deviation else "isn't shown to do harm"
        harm = f"{part}, unchanged: loss lower by {gained:+.4f}, two standard deviations {2 * deviation:.4f}: {does};"
        harm += f" that of held-out text by {of_held_out:+.4f}"
    widths = ", ".join(f"{np.exp(seed.width):.2f}" for seed in seeds)
    said = [f"{RULES[rule]}: {share.written(2)}, lead {lead.written(2, '+')}" for rule, (share, lead) in shares.items()]
    rows = [
        [
            "abrupt",
            (UNDECIDED if late > 0.1 else abrupt) if formed else NONE,
            f"{_exponential(width)} times the steps ({widths}); {late:.2f} of the fall in the last quarter",
        ],
        ["by attention", attention if formed else NONE, "; ".join(said)],
        [
            "by what stands before (one seed)",
            taught if formed else NONE,
            f"{remains[WITHOUT]:.2f} of the fall remains, without drawn tokens {remains[DRAWN]:.2f}",
        ],
        ["barely half help", barely, _with_seeds(seeds, Seed.mean_helping, TRAINED_ON)],
        ["parts that hurt", CONFIRMED if part is not None else "not confirmed", harm],
        ["dynamic", _side(dynamic, 0.5), _with_seeds(seeds, Seed.undone, WEIGHTS, -1)],
        ["static first (the opposite view)", static, by_static],
    ]
    return table(["claim", "verdict", "by"], rows)


def _exponential(estimate: Estimate) -> str:
    return Estimate(*(float(np.exp(number)) for number in estimate)).written(2)


def _remains(seed: Seed, again: Found) -> float:
    """Return the share of repetition's fall that another training has."""
    return float((seed.values(REPETITION)[0] - again[REPETITION]) / seed.fall(REPETITION))


def _along(seeds: list[Seed]) -> list[str]:
    names = (*FOLLOWED, COPY)
    rows = [
        [f"{seeds[0].numbers[i]:,.0f}"]
        + [_of_seeds(seeds, lambda seed, name, i: float(seed.values(name)[i]), name, i).written(2) for name in names]
        for i in _places(seeds)
    ]
    crossings = [
        [f"steps at {share:.0%} of the fall"]
        + [_of_seeds(seeds, lambda seed, name, k: seed.crossings(name)[k], name, k).written(0) for name in names]
        for k, share in enumerate((EARLY, LATE))
    ]
    return table(["steps", *names], rows + crossings)


def _places(seeds: list[Seed]) -> list[int]:
    """Return the states that tables show."""
    return np.unique(np.linspace(0, len(seeds[0].numbers) - 1, 9).astype(int)).tolist()


def _shares(seeds: list[Seed]) -> list[str]:
    kinds = {"attention": "attention", "mlp": "MLPs", "embedding": "embeddings", "norms": "norms", "all": "all"}
    rows = [
        [f"{number}, {words}", *(_of_seeds(seeds, Seed.share, number, rule, kind).written(2) for kind in kinds)]
        for number in FOLLOWED
        for rule, words in RULES.items()
    ]
    return table(["fall of", *kinds.values()], rows)


def _helping(seeds: list[Seed]) -> list[str]:
    rows = []
    for name in (TRAINED_ON, HELD_OUT, OWN):
        ways = [_of_seeds(seeds, Seed.mean_helping, name, way).written(4) for way in ("exact", "first order")]
        every = np.concatenate([seed.helping(name) for seed in seeds])
        lower = np.mean([[step[name]["change"] < 0 for step in seed.single] for seed in seeds])
        rows.append([name, *ways, f"{every.min():.3f} to {every.max():.3f}", f"{lower:.2f}"])
    apart = _of_seeds(seeds, lambda seed: seed.mean_helping(TRAINED_ON, apart=True)).written(4)
    rows.append([f"{TRAINED_ON}, without the steps right after some of it", apart, "", "", ""])
    for name in FOLLOWED:
        whole = _of_seeds(seeds, lambda seed, name: float(np.mean(seed.segments[name]["helping"]["weights"])), name)
        rows.append([f"{name}, whole segments", whole.written(4), "", "", ""])
    return table(["loss", "weights that help", "to first order", "of single steps", "steps that lower it"], rows)


def _parts(seeds: list[Seed]) -> list[str]:
    names = list(of_parts(seeds[0].segments[HELD_OUT]))
    asked = [(Seed.part_in, number) for number in FOLLOWED]
    asked += [(Seed.set_back, number) for number in (HELD_OUT, REPETITION)]
    rows = [[part, *(_of_seeds(seeds, of, number, part).written(3, "+") for of, number in asked)] for part in names]
    main = [part for part in names if part.endswith(("attention", "mlp"))]

    def rank(seed: Seed, number: str) -> float:
        of = [np.array([way(seed, number, part) for part in main]) for way in (Seed.part_in, Seed.set_back)]
        return agreement(*of)[0]

    ranks = [_of_seeds(seeds, rank, number).written(2) for number in (HELD_OUT, REPETITION)]
    rows.append(["rank agreement over attentions and MLPs", "", "", "", *ranks])
    head = ["part of the network", *(f"part in {number}" for number in FOLLOWED)]
    return table([*head, f"set back, {HELD_OUT}", f"set back, {REPETITION}"], rows)


def _heads(seeds: list[Seed]) -> list[str]:
    rows = []
    for number, seed in enumerate(seeds, 1):
        scores = np.array(seed.states["heads"])
        parts: dict[tuple[int, int], float] = {}
        for name, of_segments in seed.segments[REPETITION]["heads"].items():
            layer = int(name.split(".")[1])
            for head, part in enumerate(np.sum(of_segments, 0).tolist()):
                parts[layer, head] = parts.get((layer, head), 0.0) + part
        back = {(layer, head): seed.back[f"head {layer}:{head}"] for layer, head in parts}
        last = {place: float(scores[-1][place]) for place in parts}
        for layer, head in sorted(parts, key=lambda place: -last[place])[:3]:
            along = [f"{scores[state][layer, head]:.3f}" for state in (0, len(scores) // 2, -1)]
            lost = [f"{back[layer, head][name]:+.3f}" for name in (REPETITION, HELD_OUT)]
            rows.append([f"seed {number}, head {layer}:{head}", *along, f"{parts[layer, head]:+.3f}", *lost])
        of_back = np.array([back[place][REPETITION] for place in parts])
        ranks = [
            f"{agreement(np.array([of[place] for place in parts]), sign * of_back)[0]:.2f}"
            for of, sign in ((last, -1), (parts, 1))
        ]
        rows.append([f"seed {number}, rank agreement with set back", "", "", *ranks, "", ""])
    columns = ["head", "to the copy's next token, at first", "half-way", "at last", "part in repetition"]
    return table([*columns, f"set back, {REPETITION}", f"set back, {HELD_OUT}"], rows)


def _frozen(seeds: list[Seed]) -> list[str]:
    groups, moving = (PATTERNS, SCALES, WEIGHTS, OTHER_TEXT, BIASES), (PATTERNS, SCALES, BIASES)
    rows = [
        [
            f"{seeds[0].numbers[i]:,.0f}",
            _of_seeds(seeds, Seed.frozen, i).written(2),
            *(_of_seeds(seeds, Seed.cost, i, group).written(2, "+") for group in groups),
            *(_of_seeds(seeds, Seed.movement, i, group).written(2) for group in moving),
        ]
        for i in _places(seeds)
    ]
    for name in ("single tokens", "pairs"):
        counted = _of_seeds(seeds, lambda seed, name: float(seed.counts[name]), name)
        rows.append([f"counted {name}", counted.written(2), *[""] * 8])
    head = ["steps", "loss", *(f"cost of {group}" for group in groups)]
    return table([*head, *(f"movement of {group}" for group in moving)], rows)


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
