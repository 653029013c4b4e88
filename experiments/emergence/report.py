"""Tables and the picture of a training that was followed."""

from collections.abc import Iterable
from typing import Any

import numpy as np

import duat_jax as duat
from duat_jax.evaluation.statistics import agreement
from experiments.emergence.moving import BIAS, BIASES, INPUT, OTHER_TEXT, PATTERNS, SCALES, TERMS, WEIGHTS
from experiments.emergence.own_texts import MEASURED, table_of_texts
from experiments.emergence.seeds import EARLY, HALF, LATE, RULES, Found, Seed, last_crossing, of_parts, over_seeds
from experiments.emergence.training import (
    COPY,
    DRAWN,
    FOLLOWED,
    HELD_OUT,
    OWN,
    REPETITION,
    TRAINED_ON,
    UNCHANGED,
    WITHOUT,
)
from experiments.emergence.verdicts import remaining, verdicts
from experiments.markdown import Fields, cells, sections, table


def picture(results: Found) -> Found:
    """Return the numbers of the picture: of two numbers the parts by place and segment, and their course by seed."""
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
    """Return the fields of the documentation pages."""
    seeds = [Seed(results, seed) for seed in results["seeds"]]
    first = results["seeds"][0]
    again = {
        name.removeprefix(f"seed {first}, "): found
        for name, found in results["pieces"].items()
        if any(word in name for word in (WITHOUT, DRAWN, UNCHANGED))
    }
    tokens = results["pieces"][f"seed {first}, tokens"]
    read = {seed: results["pieces"][f"seed {seed}, {MEASURED}"] for seed in results["seeds"]}
    parts = {
        "Verdicts": table(["claim", "verdict", "by"], verdicts(seeds, again)),
        "Numbers along the training": _along(seeds),
        "Texts that were read, and others": table_of_texts(read),
        "Shares of the falls while repetition forms": _shares(seeds),
        "Weights that help in a step": _helping(seeds),
        "Parts of the network": _parts(seeds),
        "Heads": _heads(seeds),
        "Parameters that are frozen": _frozen(seeds),
        "Parts of the closed form": _form(seeds),
        "Trained again": _again(seeds[0], again),
        "Steps of the training": _steps(tokens),
        "Tokens of the training": _tokens(tokens),
        "Texts with the largest parts in repetition": _texts(tokens),
    }
    text = sections(parts)
    return {"tables": text, **cells(text)}


def _along(seeds: list[Seed]) -> list[str]:
    names = (*FOLLOWED, COPY)
    rows = [
        [f"{seeds[0].numbers[i]:,.0f}"]
        + [over_seeds(seeds, lambda seed, name, i: float(seed.values(name)[i]), name, i).written(2) for name in names]
        for i in _places(seeds)
    ]
    crossings = [
        [f"steps at {share:.0%} of the fall"]
        + [over_seeds(seeds, lambda seed, name, k: seed.crossings(name)[k], name, k).written(0) for name in names]
        for k, share in enumerate((EARLY, LATE))
    ]
    return table(["steps", *names], rows + crossings)


def _places(seeds: list[Seed]) -> list[int]:
    """Return the states that tables show."""
    return np.unique(np.linspace(0, len(seeds[0].numbers) - 1, 9).astype(int)).tolist()


def _shares(seeds: list[Seed]) -> list[str]:
    kinds = {"attention": "attention", "mlp": "MLPs", "embedding": "embeddings", "norms": "norms", "all": "all"}
    rows = [
        [f"{number}, {words}", *(over_seeds(seeds, Seed.share, number, rule, kind).written(2) for kind in kinds)]
        for number in FOLLOWED
        for rule, words in RULES.items()
    ]
    return table(["fall of", *kinds.values()], rows)


def _helping(seeds: list[Seed]) -> list[str]:
    rows = []
    for name in (TRAINED_ON, HELD_OUT, OWN):
        ways = [over_seeds(seeds, Seed.mean_helping, name, way).written(4) for way in ("exact", "first order")]
        every = np.concatenate([seed.helping(name) for seed in seeds])
        lower = np.mean([[step[name]["change"] < 0 for step in seed.single] for seed in seeds])
        rows.append([name, *ways, f"{every.min():.3f} to {every.max():.3f}", f"{lower:.2f}"])
    apart = over_seeds(seeds, lambda seed: seed.mean_helping(TRAINED_ON, apart=True)).written(4)
    rows.append([f"{TRAINED_ON}, without the steps right after some of it", apart, "", "", ""])
    for name in FOLLOWED:
        whole = over_seeds(seeds, lambda seed, name: float(np.mean(seed.segments[name]["helping"]["weights"])), name)
        rows.append([f"{name}, whole segments", whole.written(4), "", "", ""])
    return table(["loss", "weights that help", "to first order", "of single steps", "steps that lower it"], rows)


def _parts(seeds: list[Seed]) -> list[str]:
    names = list(of_parts(seeds[0].segments[HELD_OUT]))
    asked = [(Seed.part_in, number) for number in FOLLOWED]
    asked += [(Seed.set_back, number) for number in (HELD_OUT, REPETITION)]
    rows = [[part, *(over_seeds(seeds, of, number, part).written(3, "+") for of, number in asked)] for part in names]
    main = [part for part in names if part.endswith(("attention", "mlp"))]

    def rank(seed: Seed, number: str) -> float:
        of = [np.array([way(seed, number, part) for part in main]) for way in (Seed.part_in, Seed.set_back)]
        return agreement(*of)[0]

    ranks = [over_seeds(seeds, rank, number).written(2) for number in (HELD_OUT, REPETITION)]
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
            rise = scores[:, layer, head]
            along = [f"{rise[0]:.3f}", f"{rise[-1]:.3f}"]
            along += [f"{last_crossing(rise, seed.numbers, share):.0f}" for share in (EARLY, HALF, LATE)]
            lost = [f"{back[layer, head][name]:+.3f}" for name in (REPETITION, HELD_OUT)]
            rows.append([f"seed {number}, head {layer}:{head}", *along, f"{parts[layer, head]:+.3f}", *lost])
        of_back = np.array([back[place][REPETITION] for place in parts])
        ranks = [
            f"{agreement(np.array([of[place] for place in parts]), sign * of_back)[0]:.2f}"
            for of, sign in ((last, -1), (parts, 1))
        ]
        rows.append([f"seed {number}, rank agreement with set back", "", ranks[0], "", "", "", ranks[1], "", ""])
    columns = ["head", "to the copy's next token, at first", "at last"]
    columns += [f"steps at {share:.0%} of the rise" for share in (EARLY, HALF, LATE)]
    return table([*columns, "part in repetition", f"set back, {REPETITION}", f"set back, {HELD_OUT}"], rows)


def _frozen(seeds: list[Seed]) -> list[str]:
    groups, moving = (PATTERNS, SCALES, WEIGHTS, OTHER_TEXT, BIASES), (PATTERNS, SCALES, BIASES)
    rows = [
        [
            f"{seeds[0].numbers[i]:,.0f}",
            over_seeds(seeds, Seed.frozen, i).written(2),
            *(over_seeds(seeds, Seed.cost, i, group).written(2, "+") for group in groups),
            *(over_seeds(seeds, Seed.movement, i, group).written(2) for group in moving),
        ]
        for i in _places(seeds)
    ]
    for name in ("single tokens", "pairs"):
        counted = over_seeds(seeds, lambda seed, name: float(seed.counts[name]), name)
        rows.append([f"counted {name}", counted.written(2), *[""] * 8])
    head = ["steps", "loss", *(f"cost of {group}" for group in groups)]
    return table([*head, *(f"movement of {group}" for group in moving)], rows)


def _form(seeds: list[Seed]) -> list[str]:
    kinds = {INPUT: "the input, linear", TERMS: "the terms", BIAS: "the bias"}
    rows = [
        [
            f"{seeds[0].numbers[i]:,.0f}",
            *(over_seeds(seeds, Seed.share_of_states, i, kind).written(2) for kind in kinds),
            *(over_seeds(seeds, Seed.movement_of_states, i, kind).written(2) for kind in kinds),
        ]
        for i in _places(seeds)
    ]
    columns = [f"{what} {words}" for what in ("share of", "movement of") for words in kinds.values()]
    return table(["steps", *columns], rows)


def _steps(tokens: Found) -> list[str]:
    """Return what steps did, by eighths of the training and in all: the sums, signs and sizes of their parts."""
    numbers = REPETITION, HELD_OUT
    parts = [np.array(tokens[number]["of steps"]) for number in numbers]
    steps = len(parts[0])
    bounds = [(eighth * steps // 8, (eighth + 1) * steps // 8) for eighth in range(8)]
    stretches = {f"{first:,} to {last - 1:,}": slice(first, last) for first, last in bounds} | {"all": slice(None)}
    rows = []
    for name, stretch in stretches.items():
        of = [each[stretch] for each in parts]
        sums, lower = [f"{each.sum():+.3f}" for each in of], [f"{(each < 0).mean():.2f}" for each in of]
        rows.append([name, *sums, *lower, *(f"{np.abs(each).sum():.2f}" for each in of)])
    columns = [
        f"{what} {number}" for what in ("part in", "steps that lower", "sizes of parts in") for number in numbers
    ]
    return table(["steps", *columns], rows)


def _again(seed: Seed, again: dict[str, Found]) -> list[str]:
    kinds = {"as it was": {name: seed.values(name)[-1] for name in (*FOLLOWED, COPY)}, **again}
    rows = [
        [kind, *(f"{found[name]:.3f}" for name in (*FOLLOWED, COPY)), f"{remaining(seed, found):.2f}"]
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
