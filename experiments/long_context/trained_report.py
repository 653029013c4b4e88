"""Tables of docs/long-context.md on trained networks, from the kept results of `experiments.long_context.trained`."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from experiments.long_context.reading import label
from experiments.pages import interval, table

EARLY, LATE = 6, 8
"""Bins of positions between which the gain by context is compared: 32 to 63, beyond the reach of windows and
convolutions over all layers, and 128 to 191, the end of a text."""
SHORT_BINS = 7
"""Bins of positions within 128 tokens, on which networks are trained before they are fine-tuned to longer texts."""

Found = dict[str, Any]
"""Measurements, as plain data."""


def _columns(seeds: list[Any]) -> list[list[float]]:
    """Return of each column a number of each seed."""
    return [list(column) for column in zip(*seeds, strict=True)]


def _cells(seeds: list[Any], digits: int = 3, sign: str = "") -> list[str]:
    return [interval(column, digits, sign) for column in _columns(seeds)]


def _gain(positions: Iterable[list[float]]) -> str:
    return interval([of[EARLY - 1] - of[LATE - 1] for of in positions], 3, "+")


def positions(kinds: Found) -> list[str]:
    """Return the table of the loss by position, and of what is gained beyond the reach of windows.

    Args:
        kinds: what was measured on the networks of each kind.
    """
    rows = []
    for kind, found in kinds.items():
        of_seeds, shuffled = ([seed[of] for seed in found["seeds"]] for of in ("positions", "shuffled"))
        before = found["untrained"]
        sizes = [f"{before['parameters']:,}", str(before["neurons"]), f"{found['rate']:g}"]
        rows.append([kind, *sizes, *_cells(of_seeds), _gain(of_seeds), _gain(shuffled), _gain([before["positions"]])])
    bins = len(next(iter(kinds.values()))["untrained"]["positions"])
    gain = f"{label(EARLY, 2)} − {label(LATE, 2)}"
    head = ["tokens are mixed by", "parameters", "neurons", "rate", *(label(i, 2) for i in range(1, bins + 1))]
    return table([*head, gain, f"{gain}, shuffled", f"{gain}, untrained"], rows)


def recall(kinds: Found) -> list[str]:
    """Return the table of the loss of recalled letters, by distance.

    Args:
        kinds: what was measured on the networks of each kind.
    """
    columns = list(next(iter(kinds.values()))["untrained"]["recall"])
    rows = [
        [kind, *_cells([[seed["recall"][name] for name in columns] for seed in found["seeds"]], 2)]
        for kind, found in kinds.items()
    ]
    return table(["tokens are mixed by", *columns], rows)


def longer(ways: Found) -> list[str]:
    """Return the table of the loss on long texts after fine-tuning, with full attention.

    Args:
        ways: the losses by position of each seed, by the way of fine-tuning.
    """
    full = ways["full attention, all weights"]
    rows = []
    for name, seeds in ways.items():
        late, late_full = (np.array(of)[:, SHORT_BINS:] @ _counts(np.array(of).shape[1]) for of in (seeds, full))
        rows.append([name, *_cells(seeds), interval(late, 3), interval(late - late_full, 3, "+")])
    bins = len(full[0])
    late = f"{2**SHORT_BINS} and more"
    head = ["fine-tuned with", *(label(i, 2) for i in range(1, bins + 1)), late, f"{late}, more than full attention"]
    return table(head, rows)


def _counts(bins: int) -> np.ndarray:
    """Return the share of the positions of 128 and more that each bin has."""
    counts = 2.0 ** np.arange(SHORT_BINS, bins)
    return counts / counts.sum()


def costs(found: Found) -> list[str]:
    """Return the table of the cost of a step of training.

    Args:
        found: seconds and megabytes by way and length.
    """
    rows = [[*name.split(", "), f"{of['seconds']:.2f}", f"{of['megabytes']:,.0f}"] for name, of in found.items()]
    return table(["tokens see", "tokens of a text", "seconds of a step", "megabytes beside the weights"], rows)


def tables(results: Found) -> str:
    """Return all tables.

    Args:
        results: what was kept.
    """
    return "\n".join(
        [
            *("### Loss by position", "", *positions(results["kinds"]), ""),
            *("### Recall by distance", "", *recall(results["kinds"]), ""),
            *("### Fine-tuned to longer texts", "", *longer(results["longer"]), ""),
            *("### Cost of a training step", "", *costs(results["costs"])),
        ]
    )
