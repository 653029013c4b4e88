"""Numbers of docs/findings/heads.md, from the stored results of `experiments.heads.run`."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from duat_jax.evaluation.statistics import IntervalEstimate, agreement, bootstrap, bootstrap_of_groups, students_mean
from experiments.heads.pairs import COSINE, GRADIENT, PATTERNS, PRODUCT, SHARES
from experiments.heads.reading import COMPONENTS, HEADS, READS, ROTATED, SPLITS, WRITES
from experiments.markdown import Fields, cells, interval, table

Plain = dict[str, Any]
"""Measurements as plain data."""

TRAINED, UNTRAINED, ANOTHER = "trained", "untrained", " on another task"
SIGNED = SHARES, GRADIENT, PRODUCT, COSINE
RANKINGS = SHARES, GRADIENT, PRODUCT, COSINE, PATTERNS, f"{SHARES}{ANOTHER}", f"{GRADIENT}{ANOTHER}"
DISTANCES = {"in one layer": (0, 0), "in neighbouring layers": (1, 1), "farther apart": (2, 99)}
TOP = {"both of the top": 2, "one of the top": 1, "none of the top": 0}


def _layers(of: Plain, part: str, group: str, measure: str, which: str = TRAINED) -> np.ndarray:
    """Return a measure of every layer."""
    layers = of["fragments"][which]
    return np.array([layer[part][measure] if group == "" else layer[part][group][measure] for layer in layers])


def overlaps(of: Plain) -> list[str]:
    """Return the table of how alike the heads of a layer are."""
    head = [HEADS, SPLITS, ROTATED, COMPONENTS, f"{UNTRAINED}, {HEADS}", f"{UNTRAINED}, {SPLITS}"]
    rows = []
    for part in (*READS, WRITES):
        heads = _layers(of, part, HEADS, "overlap")
        row, ahead = [part, interval(heads, 2)], list[str]()
        for group in (SPLITS, ROTATED, COMPONENTS):
            if group == COMPONENTS and part == WRITES:
                row, ahead = [*row, ""], [*ahead, ""]
                continue
            other = _layers(of, part, group, "overlap")
            row, ahead = [*row, interval(other, 2)], [*ahead, interval(heads - other, 2, "+")]
        row += [interval(_layers(of, part, group, "overlap", UNTRAINED), 2) for group in (HEADS, SPLITS)]
        rows.append([*row, ahead[0], ahead[2]])
    return table(["of each head", *head, f"{HEADS} − {SPLITS}", f"{HEADS} − {COMPONENTS}"], rows)


def readings(of: Plain) -> list[str]:
    """Return the table of how much of the stream, and how often the word, is in what is read."""

    def row(name: str, part: str, group: str, words: str = "words", which: str = TRAINED) -> list[str]:
        stream, kept = (_layers(of, *at, which) for at in (("stream", "", "words"), (part, group, words)))

        def cell(measure: str, digits: int, factor: float = 1.0) -> str:
            layer = of["fragments"][which][0][part]
            known = measure in (layer if group == "" else layer[group]) and words == "words"
            return interval(factor * _layers(of, part, group, measure, which), digits) if known else ""

        share = bootstrap(np.stack([kept, stream], -1), lambda means: 100 * means[..., 0] / means[..., 1])
        return [
            name,
            cell("effective rank", 1),
            cell("recovered", 0, 100),
            interval(100 * kept, 0),
            share.written(0),
        ]

    rows = [
        row("the whole stream", "stream", ""),
        row("all heads' values", "values", "all heads"),
        *(row(f"one head's {part}", part, HEADS) for part in READS),
        row("values, random groups of columns", "values", SPLITS),
        row("values, each head rotated", "values", ROTATED),
        row("a slice of the features", "stream", "", "slices"),
        row("untrained: the whole stream", "stream", "", which=UNTRAINED),
        row("untrained: one head's values", "values", HEADS, which=UNTRAINED),
    ]
    return table(
        ["of a token is read", "effective rank", "of the variance, in %", "same word, in %", "of the stream's, in %"],
        rows,
    )


def thirds(of: Plain) -> Fields:
    """Return how often all heads' values find the word, in percent of the stream, in each third of the layers."""
    kept, stream = (_layers(of, *at) for at in (("values", "all heads", "words"), ("stream", "", "words")))
    parts = [np.array_split(each, 3) for each in (kept, stream)]
    shares = [100 * all_heads.sum() / whole.sum() for all_heads, whole in zip(*parts, strict=True)]
    return dict(zip(("first third", "middle third", "last third"), (f"{share:.0f}" for share in shares), strict=True))


def _pairs(task: Plain) -> tuple[np.ndarray, np.ndarray]:
    return np.triu_indices(len(task["layers"]), 1)


def _over_prompts(of: Plain, unit: Callable[[Plain, Plain], Any], of_means: Any = None) -> IntervalEstimate:
    """Return the mean of a statistic over tasks, with an interval from resampling tasks and prompts."""
    groups = [np.array([unit(task, prompt) for prompt in task["prompts"]], float) for task in of["pairs"].values()]
    return bootstrap_of_groups(groups) if of_means is None else bootstrap_of_groups(groups, of_means)


def _percent(top: Callable[[Any], Any], bottom: int) -> Callable[[Any], Any]:
    """Return the ratio of a sum of columns' means to one column's, in percent."""

    def of_means(means: Any) -> Any:
        columns = np.moveaxis(np.asarray(means), -1, 0)
        # A task may have no pair of a kind.
        return 100 * top(columns) / np.where(columns[bottom] == 0, 1, columns[bottom])

    return of_means


def _selected(task: Plain) -> dict[str, np.ndarray]:
    """Return which pairs are of each kind."""
    a, b = _pairs(task)
    apart, layers = np.abs(np.subtract(*(np.array(task["layers"])[of] for of in (a, b)))), len(a)
    of_top = (a < task["top"]).astype(int) + (b < task["top"])
    kinds = {"all": np.ones(layers, bool)} | {name: of_top == count for name, count in TOP.items()}
    return kinds | {name: (apart >= low) & (apart <= high) for name, (low, high) in DISTANCES.items()}


COLUMNS = (
    (_percent(lambda columns: columns[0] + columns[1], 2), 1, ""),
    (_percent(lambda columns: columns[0] + columns[1], 5), 0, ""),
    (_percent(lambda columns: columns[0], 2), 1, ""),
    (_percent(lambda columns: columns[1], 2), 1, ""),
    (_percent(lambda columns: columns[0] - columns[1], 2), 1, "+"),
    (_percent(lambda columns: columns[3], 4), 0, ""),
)
"""Columns of the table of amounts: of what `unit` returns, with their digits and signs."""


def amounts(of: Plain) -> list[str]:
    """Return the table of how far the effects of two heads are from their sum."""
    rows = []
    for kind in ("all", *TOP, *DISTANCES):

        def unit(task: Plain, prompt: Plain, kind: str = kind) -> list[float]:
            (a, b), chosen = _pairs(task), _selected(task)[kind]
            effects, measured = np.array(prompt["effects"]), np.array(prompt["measured"])[chosen]
            first, second = effects[a][chosen], effects[b][chosen]
            less = measured * np.sign(first + second)
            first, second = np.abs(first), np.abs(second)
            kinds = np.maximum(less, 0).sum(), np.maximum(-less, 0).sum()
            smaller = np.minimum(first, second).sum()
            return [*kinds, (first + second).sum(), (less > 0).sum(), chosen.sum(), smaller]

        count = sum(int(_selected(task)[kind].sum()) for task in of["pairs"].values())
        rows.append(
            [
                kind,
                str(count),
                *(_over_prompts(of, unit, of_means).written(digits, sign) for of_means, digits, sign in COLUMNS),
            ]
        )
    head = ["pairs", "number", "interaction, in %", "of the smaller effect, in %", "less than the sum, in %"]
    return table([*head, "more than the sum, in %", "difference", "pairs with less, in %"], rows)


def together(of: Plain) -> Fields:
    """Return how far the effect of all top heads is from the sum of theirs, in percent of the sizes and of itself."""

    def unit(task: Plain, prompt: Plain) -> list[float]:
        effects = np.array(prompt["effects"][: task["top"]])
        return [abs(effects.sum() - prompt["together"]), np.abs(effects).sum(), abs(prompt["together"])]

    shares = {"of the sizes": _percent(lambda columns: columns[0], 1), "of itself": _percent(lambda of: of[0], 2)}
    return {f"together / {share}": _over_prompts(of, unit, of_means).written(0) for share, of_means in shares.items()}


def _scores(task: Plain, prompt: Plain, ranking: str) -> np.ndarray:
    a, b = _pairs(task)
    effects = np.array(prompt["effects"])
    return effects[a] * effects[b] if ranking == PRODUCT else np.array(prompt[ranking])


def correlation(ranking: str, signs: bool, kind: str = "all") -> Callable[[Plain, Plain], float]:
    """Return the function that gives a prompt's rank correlation, over pairs, of a ranking with interactions."""

    def of_prompt(task: Plain, prompt: Plain) -> float:
        chosen = _selected(task)[kind]
        both = (_scores(task, prompt, ranking)[chosen], np.array(prompt["measured"])[chosen])
        return agreement(*(both if signs else map(np.abs, both)))[0]

    return of_prompt


def _ahead(ranking: str, rival: str) -> Callable[[Plain, Plain], float]:
    """Return the function that gives by how much a ranking's rank correlation is ahead of another's, by size."""
    first, second = correlation(ranking, False), correlation(rival, False)
    return lambda task, prompt: first(task, prompt) - second(task, prompt)


def predictions(results: Plain) -> list[str]:
    """Return the table of rank correlations."""
    columns = [
        (f"{name}: {title}", of, signs, kind)
        for name, of in results.items()
        for title, signs, kind in (("sizes", False, "all"), ("with signs", True, "all"), ("top", False, TOP_PAIRS))
    ]
    rows = [
        [
            ranking,
            *(
                _over_prompts(of, correlation(ranking, signs, kind)).written(2)
                if not signs or ranking.startswith(SIGNED)
                else ""
                for _, of, signs, kind in columns
            ),
        ]
        for ranking in RANKINGS
    ]
    return table(["interaction ranked by", *(title for title, *_ in columns)], rows)


TOP_PAIRS = next(iter(TOP))


def _sections(sections: Iterable[tuple[str, list[str]]]) -> str:
    return "\n\n".join(f"# {title}\n" + "\n".join(lines) for title, lines in sections)


def numbers(results: Plain) -> Fields:
    """Return the fields of the page."""
    fields: Fields = {"predictions": "\n".join(predictions(results))}
    fields |= cells(_sections([("Prediction", predictions(results))]))
    for name, of in results.items():
        parts = {"overlap": overlaps(of), "reading": readings(of), "amount": amounts(of)}
        fields |= {f"{name} / {part}": "\n".join(lines) for part, lines in parts.items()}
        fields |= cells(_sections((f"{name} / {part}", lines) for part, lines in parts.items()))
        fields |= {
            f"{name} / shares against {rival}": _over_prompts(of, _ahead(SHARES, rival)).written(2, "+")
            for rival in RANKINGS[1:]
        }
        for part in (*READS, WRITES):
            rotated = _layers(of, part, HEADS, "overlap") - _layers(of, part, ROTATED, "overlap")
            fields[f"{name} / {part} against {ROTATED}"] = interval(rotated, 2, "+")
        for part in READS:
            unrelated = _layers(of, part, HEADS, "overlap") - _layers(of, part, COMPONENTS, "overlap")
            fields[f"{name} / {part} against {COMPONENTS}, by Student's t"] = students_mean(unrelated).written(2, "+")
        stream = _layers(of, "stream", "", "words")
        for shown, group in (("one head's", HEADS), ("all heads'", "all heads")):
            kept = _layers(of, "values", group, "words")
            # The ratio of means, to first order: the interval is that of the mean of what is left of each layer.
            share = kept.sum() / stream.sum()
            off = students_mean((kept - share * stream) / stream.mean())
            ends = [100 * (share + end) for end in off]
            fields[f"{name} / {shown} values, by Student's t"] = IntervalEstimate(*ends).written(0)
        fields |= {f"{name} / all heads' values, {third}": share for third, share in thirds(of).items()}
        apart = [_layers(of, "values", group, "overlap", UNTRAINED) for group in (HEADS, COMPONENTS)]
        fields[f"{name} / {UNTRAINED} against {COMPONENTS}"] = interval(apart[0] - apart[1], 3, "+")
        own = _layers(of, "values", HEADS, "words")
        compared = {group: ("values", group, "words") for group in (SPLITS, ROTATED)}
        for group, at in {**compared, "a slice": ("stream", "", "slices")}.items():
            fields[f"{name} / words ahead of {group}"] = interval(100 * (own - _layers(of, *at)), 0, "+")
        fields[f"{name} / best of the variance"] = interval(100 * _layers(of, "stream", "", "best"), 0)
        ranks = sorted({f"{rank:.0f}" for rank in _layers(of, "values", "all heads", "rank")}, key=int)
        fields[f"{name} / rank of all values"] = " to ".join(ranks[:: max(1, len(ranks) - 1)])
        fields |= {f"{name} / {size}": f"{of['fragments'][size]:,}" for size in ("tokens", "words")}
        fields |= {f"{name} / {key}": number for key, number in together(of).items()}
        fields[f"{name} / tasks"] = str(len(of["pairs"]))
        fields[f"{name} / prompts"] = str(sum(len(task["prompts"]) for task in of["pairs"].values()))
    return fields
