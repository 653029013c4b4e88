"""Tables of docs/findings/in-context.md on the reach of attention, and on the loss with attention windows."""

from typing import Any

import numpy as np

from duat_jax.in_context.reach import Reach
from experiments.in_context.cells import MODELS, Pieces, Row, mean, plain, ratio, share, table

KERNELS = (2, 4, 8, 16, 32, 64, 128)
BEYOND = (4, 16, 64)
"""Distances of the first table's columns."""
KEPT = ("nothing else", "and the first token", "and the ninth token")
EQUAL = "Equal shares"
MASKED = ((True, "with mask"), (False, "without"))


def later_half(reach: Reach) -> dict[str, np.ndarray]:
    """Return a text's measurements for each layer, as means over the positions of the later half."""
    late = slice(reach.norms.shape[-1] // 2, None)
    sizes = reach.norms / reach.norms.sum(-1, keepdims=True)
    return {
        "density": reach.density,
        "distance": reach.distance[:, late].mean(1),
        "tokens": reach.tokens_read[:, late].mean(1),
        "first": reach.shares[:, late, 0].mean(1),
        "first, norms not squared": sizes[:, late, 0].mean(1),
        "first, along the sum": reach.along[:, late, 0].mean(1),
        "itself": np.diagonal(reach.shares, axis1=1, axis2=2)[:, late].mean(1),
        **{f"beyond {kernel}": reach.beyond(kernel)[:, late].mean(1) for kernel in KERNELS},
    }


def equal_shares(tokens: int, masked: bool) -> dict[str, Any]:
    """Return the same measurements for equal attention to every visible token."""
    visible = np.tri(tokens) if masked else np.ones((tokens, tokens))
    along = visible / visible.sum(-1, keepdims=True)
    measured = later_half(Reach(np.array([visible.mean()]), visible[None], along[None]))
    return {name: {"texts": [float(value[0])], "layers": value.tolist()} for name, value in measured.items()}


def without_first(piece: dict[str, Any], kernel: int) -> str:
    """Return the share of tokens from some distance on, relative to all but the first token."""
    # Over the later half the first token is at least half a text away, so that its share is in every `beyond` up to
    # that.
    beyond, first = (np.asarray(piece[name]["texts"]) for name in (f"beyond {kernel}", "first"))
    return ratio(beyond - first, 1 - first)


def density(pieces: Pieces, tokens: int) -> list[str]:
    """Return the table on density and reach, compared with equal shares."""
    measured = [
        (name, "it has none" if name == MODELS[2] else which, piece)
        for name in MODELS
        for masked, which in MASKED
        if (piece := pieces.get(f"reach, {name}, {masked}, written")) is not None
    ]
    if measured:
        measured += [(EQUAL, which, equal_shares(tokens, masked)) for masked, which in MASKED]
    rows = []
    for name, which, piece in measured:
        read = []
        for column in ("tokens", "distance"):
            layers = piece[column]["layers"]
            spread = f" ({min(layers):.1f} to {max(layers):.1f})" if len(layers) > 1 else ""
            read.append(plain(piece[column]["texts"]) + spread)
        shares = [share(piece[column]["texts"]) for column in ("first", "itself")]
        beyond = [share(piece[f"beyond {kernel}"]["texts"]) for kernel in BEYOND]
        left = [without_first(piece, kernel) for kernel in BEYOND[1:]]
        rows.append([name, which, f"{100 * np.mean(piece['density']['texts']):.1f} %", *read, *shares, *beyond, *left])
    return table(
        [
            *("model", "mask", "entries not zero", "tokens read", "mean distance", "on the first token", "on itself"),
            *(f"{kernel} or more away" for kernel in BEYOND),
            *(f"{kernel} or more away, first token left out" for kernel in BEYOND[1:]),
        ],
        rows,
    )


def weights(pieces: Pieces) -> list[str]:
    """Return the table on the first token's share, by the kind of weight."""
    rows = []
    for name in MODELS:
        written, of_map = (pieces.get(f"reach, {name}, True, {weight}") for weight in ("written", "map"))
        if written and of_map:
            names = ("first", "first, norms not squared", "first, along the sum")
            shares = [share(written[what]["texts"]) for what in names]
            read = [plain(of_map[what]["texts"]) for what in ("tokens", "distance")]
            rows.append([name, share(of_map["first"]["texts"]), *shares, *read])
    return table(
        [
            *("the first token's share", "map alone", "what is written", "the same, norms not squared"),
            *("the same, along the sum", "tokens read, map alone", "distance, map alone"),
        ],
        rows,
    )


def windows(pieces: Pieces) -> list[str]:
    """Return the table of losses with each layer's attention restricted to a window."""
    rows: list[Row] = []
    for name in MODELS[:2]:
        everything = pieces.get(f"windowed, {name}, 128, nothing else")
        for kept in KEPT:
            row = []
            for kernel in KERNELS:
                losses = pieces.get(f"windowed, {name}, {kernel}, {kept}")
                cell = "" if losses is None else f"{np.mean(losses):.2f}"
                if losses is not None and everything is not None and kernel < 128:
                    cell += f" ({mean(np.subtract(losses, everything))})"
                row.append(cell)
            if any(row):
                rows.append([name, kept, *row])
    return table(["model", "each layer sees the last … tokens", *map(str, KERNELS[:-1]), "all 128"], rows)


def numbers_of_reading(pieces: Pieces) -> dict[str, str]:
    """Return single numbers of these tables for the text, by name."""
    fields = {}
    for name in MODELS:
        if (written := pieces.get(f"reach, {name}, True, written")) is not None:
            first = float(np.mean(written["first"]["texts"]))
            for column in ("first", "beyond 16"):
                fields[f"{name}, {column}"] = f"{100 * np.mean(written[column]['texts']):.1f} %"
            fields[f"{name}, beyond 16 without the first"] = without_first(written, 16).partition(" ")[0] + " %"
            fields[f"{name}, tokens"] = f"{np.mean(written['tokens']['texts']):.1f}"
            fields[f"{name}, distance"] = f"{np.mean(written['distance']['texts']):.1f}"
            # Over the later half of 128 tokens the first one is 64 to 127 tokens away.
            fields[f"{name}, least distance of the first"] = f"{64 * first:.0f}"
            fields[f"{name}, largest distance of the first"] = f"{127 * first:.0f}"
        everything = pieces.get(f"windowed, {name}, 128, nothing else")
        for kernel in (16, 64):
            for kept in KEPT:
                losses = pieces.get(f"windowed, {name}, {kernel}, {kept}")
                if losses is not None and everything is not None:
                    fields[f"{name}, the last {kernel} {kept}"] = f"{np.mean(np.subtract(losses, everything)):.2f}"
    return fields
