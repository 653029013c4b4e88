"""Tables of docs/findings/long-context.md on trained networks."""

from typing import Any

import numpy as np

from experiments.long_context.afterwards import IN_GROUPS, SAME_TEXTS
from experiments.long_context.networks import FULL, PATTERN, TOKENS, WINDOW
from experiments.long_context.reading import label
from experiments.long_context.trained_verdicts import SHORT_TEXTS, Found, numbers, of_seeds, verdicts
from experiments.markdown import interval, table


def _columns(seeds: list[Any]) -> list[list[float]]:
    """Return of each column a number of each seed."""
    return [list(column) for column in zip(*seeds, strict=True)]


def _cells(seeds: list[Any], digits: int = 3, sign: str = "") -> list[str]:
    return [interval(column, digits, sign) for column in _columns(seeds)]


def _rate(found: Found) -> str:
    """Return the chosen learning rate, and whether it is the lowest or the highest that was tried."""
    if found["rate"] is None:
        return ""
    return f"{found['rate']:g}{' (at the edge)' if found['at the edge'] else ''}"


def positions(kinds: Found, tokens: int) -> list[str]:
    """Return the table of the loss by position, and of what the same bytes gain by more context."""
    rows = []
    for kind, found in kinds.items():
        before = found["untrained"]
        gained = [of_seeds(found, of).mean(1) for of in ("gain", "gain, shuffled")] + [[np.mean(before["gain"])]]
        sizes = [f"{before['parameters']:,}", str(before["neurons"]), _rate(found)]
        of_bins = _cells([seed["positions"] for seed in found["seeds"]])
        rows.append([kind, *sizes, *of_bins, *(interval(gain, 4, "+") for gain in gained)])
    bins = len(next(iter(kinds.values()))["untrained"]["positions"])
    labels = [label(i, 2, longest=tokens - 1) for i in range(1, bins + 1)]
    gain = "gain of the same bytes by 96 more before them"
    head = ["tokens are mixed by", "parameters", "neurons", "rate", *labels]
    return table([*head, gain, f"{gain}, shuffled", f"{gain}, untrained"], rows)


def recall(kinds: Found) -> list[str]:
    """Return the table of the loss of recalled letters, by distance."""
    columns = list(next(iter(kinds.values()))["untrained"]["recall"])
    rows = [
        [kind, *_cells([[seed["recall"][name] for name in columns] for seed in found["seeds"]], 2)]
        for kind, found in kinds.items()
    ]
    return table(["tokens are mixed by", *columns], rows)


def longer(ways: Found) -> list[str]:
    """Return the table of the loss on long texts after fine-tuning, with full attention."""
    full = of_seeds(ways["full attention, all weights"], "late").mean(1)
    rows = []
    for name, found in ways.items():
        late = of_seeds(found, "late").mean(1)
        of_bins = _cells([seed["positions"] for seed in found["seeds"]])
        rows.append([name, _rate(found), *of_bins, interval(late, 3), interval(late - full, 3, "+")])
    labels = [label(i, 2) for i in range(1, len(next(iter(ways.values()))["seeds"][0]["positions"]) + 1)]
    head = ["fine-tuned with", "rate", *labels, "128 and more", "128 and more, above full attention with all weights"]
    return table(head, rows)


def trials(results: Found) -> list[str]:
    """Return the table of the losses by which learning rates were chosen, the further ones among them."""
    every = results["kinds"] | results["afterwards"] | results["longer"] | results["longer, afterwards"]
    rows = [
        [name, "; ".join(f"{rate:g}: {loss:.3f}" for rate, loss in sorted(found["trials"]))]
        for name, found in every.items()
        if found.get("trials")
    ]
    return table(["network or fine-tuning", "rate: loss"], rows)


def afterwards(results: Found) -> list[str]:
    """Return the table of losses and differences at the best of further learning rates, and on equal texts."""
    found = results["kinds"] | results["afterwards"] | results["longer, afterwards"]
    pairs = [(PATTERN, FULL), (TOKENS, WINDOW), (WINDOW, PATTERN)]
    for trained in ("all weights", "adapters"):
        full, groups, shifted = (f"{way}, {trained}" for way in ("full attention", "groups", "shifted groups"))
        pairs += [(shifted, full), (groups, shifted), (IN_GROUPS, shifted), (IN_GROUPS, full)]
    pairs += [(SHORT_TEXTS, "shifted groups, all weights"), ("groups, all weights", SAME_TEXTS)]
    rows = []
    for pair in pairs:
        first, second = (of_seeds(found[name], "late") for name in pair)
        both = [f"{found[name]['rate']:g}" if found[name]["rate"] else "" for name in pair]
        losses = [interval(of.mean(1), 3) for of in (first, second)]
        rows.append([" − ".join(pair), *both, *losses, *numbers(first - second)])
    of_both = [f"{what} of the {which}" for what in ("rate", "loss") for which in ("first", "second")]
    return table(["first − second", *of_both, "over seeds", "over texts", "seeds above zero"], rows)


def costs(found: Found) -> list[str]:
    """Return the table of the cost of a step of training."""
    rows = [[*name.split(", "), f"{of['seconds']:.2f}", f"{of['megabytes']:,.0f}"] for name, of in found.items()]
    return table(["tokens see", "tokens of a text", "seconds of a step", "megabytes beside the weights"], rows)


def tables(results: Found) -> str:
    """Return all tables."""
    return "\n".join(
        [
            *("### Verdicts on trained networks", "", *verdicts(results), ""),
            *("### Loss by position", "", *positions(results["kinds"], results["work"]["training"]["tokens"]), ""),
            *("### Recall by distance", "", *recall(results["kinds"]), ""),
            *("### Losses after fine-tuning", "", *longer(results["longer"]), ""),
            *("### Afterwards: further learning rates and equal texts", "", *afterwards(results), ""),
            *("### Trials of learning rates", "", *trials(results), ""),
            *("### Cost of a training step", "", *costs(results["costs"])),
        ]
    )
