"""Is attention's matrix dense, and does a position read at least half of the tokens in view?

The papers conclude from a "dense matrix (almost devoid of zero elements)" that each output "encapsulates comprehensive
information" (Section 4.2), and contrast attention with a convolution, which learns in chunks (Appendix C).

Of `W'_HVO = Σ_h H_h ⊗ (W_{V,h} W_{O,h})ᵀ` the share of entries that aren't zero follows from the patterns' zeros; a
softmax has none, trained or not.  A token's weight at a position is the norm of the vector that attention writes from
one to the other (Kobayashi et al., 2020), and a share is that of its square.  *Tokens read* are `1 / Σ share²`: as many
tokens of equal shares are as concentrated.  The norm of the map alone weighs a token by the attention that it gets.
Shares are means over layers and over the later half of 8 texts of 128 tokens; *k or more away* counts places on either
side.  The control reads every visible token alike.  The path around attention isn't counted.

Windows: every layer's pattern is cut to the last tokens and made to sum to one.  Cut this way a model also loses the
first token, so a second row keeps it (Xiao et al., 2024), and a third one keeps the ninth token instead.  The model
isn't trained again, so a cost is an upper bound.

At first the prediction was called mixed, as one part is confirmed; the question needs both, and so it is refuted.
"""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pandas as pd

from duat_jax.in_context.reach import Reach, Weight, measure_reach
from experiments.estimate import Estimate, estimate, ratio
from experiments.in_context.models import (
    EMBEDDED,
    ENCODER,
    SMOLLM2,
    TEXTS,
    TOKENS,
    added,
    in_per_cent,
    model_of,
    per_cent,
    texts_of,
)
from experiments.in_context.windows import window, window_losses
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table, rows_of
from experiments.verdict import Verdict, above, decide, joined

KERNELS = (2, 4, 8, 16, 32, 64, 128)
BEYOND = (4, 16, 64)
"""Distances of the table's columns."""
KEPT = {"nothing else": (), "and the first token": (0,), "and the ninth token": (8,)}
EQUAL = "Equal shares"
WEIGHTS: tuple[tuple[bool, Weight], ...] = ((True, "written"), (True, "map"), (False, "written"))


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


def equal_shares(tokens: int, masked: bool) -> Row:
    """Return the same measurements for equal attention to every visible token."""
    visible = np.tri(tokens) if masked else np.ones((tokens, tokens))
    along = visible / visible.sum(-1, keepdims=True)
    measured = later_half(Reach(np.array([visible.mean()]), visible[None], along[None]))
    return {name: float(value[0]) for name, value in measured.items()}


def reached(name: str, masked: bool, weight: Weight) -> list[Row]:
    """Return each text's mean over layers, and each layer's mean over texts."""
    model = model_of(name)[0]
    halves = [
        later_half(measure_reach(model, jnp.asarray(ids), masked=masked, weight=weight)) for ids in texts_of(name)
    ]
    stacked = {field: np.array([half[field] for half in halves]) for field in halves[0]}
    return [
        {"by": by, "number": i, **{field: of[i] for field, of in means.items()}}
        for by, axis in (("text", 1), ("layer", 0))
        for means in [{field: of.mean(axis) for field, of in stacked.items()}]
        for i in range(len(means["density"]))
    ]


def windowed(name: str, kernel: int, kept: str) -> list[Row]:
    """Return the loss of every text with attention cut to a window."""
    losses = window_losses(model_of(name)[0], texts_of(name), window(TOKENS, kernel, KEPT[kept]))
    return [{"text": text, "loss": loss} for text, loss in enumerate(losses)]


def measure() -> Measurements:
    """Yield the losses with windows, and the reach of every model."""
    for name in (SMOLLM2, EMBEDDED):
        for kernel in KERNELS:
            for kept in KEPT if kernel < TOKENS else ("nothing else",):
                keys = {"model": name, "window": kernel, "kept": kept}
                yield Piece("windows", keys, partial(windowed, name, kernel, kept))
    for name in (SMOLLM2, ENCODER, EMBEDDED):
        for masked, weight in WEIGHTS:
            if masked or name != ENCODER:
                keys = {"model": name, "masked": masked, "weight": weight}
                yield Piece("reach", keys, partial(reached, name, masked, weight))


def _with_equal_shares(reach: pd.DataFrame) -> pd.DataFrame:
    """Return what is written, with its spread over layers, and equal shares beside it."""
    equal = [
        {"model": EQUAL, "masked": masked, "by": "text"} | equal_shares(TOKENS, masked) for masked in (True, False)
    ]
    shown = pd.concat([rows_of(reach, weight="written"), pd.DataFrame(equal)])
    mask = shown.masked.map({True: "with mask", False: "without"}).where(shown.model != ENCODER, "it has none")
    return shown.assign(mask=mask, **{"entries not zero": shown.density})


def _spread(column: str) -> Cell:
    """Return the cell of a number over texts, with the smallest and the largest layer in parentheses."""

    def of(rows: pd.DataFrame) -> str:
        layers = rows_of(rows, by="layer")[column]
        spread = f" ({layers.min():.1f} to {layers.max():.1f})" if len(layers) else ""
        return estimate(rows_of(rows, by="text")[column]).written(1) + spread

    return Cell(of)


def without_first(rows: pd.DataFrame, kernel: int) -> Estimate:
    """Return the share of tokens from some distance on, relative to all but the first token."""
    # Over the later half the first token is at least half a text away: its share is in every `beyond` up to that.
    return ratio(rows[f"beyond {kernel}"] - rows["first"], 1 - rows["first"])


def _of_texts(column: str) -> Cell:
    return Cell(lambda rows: in_per_cent(column, rows_of(rows, by="text")))


def _left_out(kernel: int) -> Cell:
    return Cell(lambda rows: f"{without_first(rows_of(rows, by='text'), kernel).scaled(100).written(1)} %")


def _rise(windows: pd.DataFrame) -> pd.DataFrame:
    """Return the losses with windows beside what they are above the loss with the whole text."""
    whole = rows_of(windows, window=TOKENS).set_index(["model", "text"]).loss
    return windows.assign(
        rise=windows.loss - whole.loc[pd.MultiIndex.from_frame(windows[["model", "text"]])].to_numpy()
    )


def tokens_read(name: str, frames: Frames) -> pd.Series:
    """Return as how many tokens of equal shares a position reads, text by text."""
    return rows_of(frames["reach"], model=name, masked=True, weight="written", by="text").tokens


def entries(name: str, frames: Frames) -> pd.Series:
    """Return the share of the entries in view that differ from zero, text by text."""
    rows = rows_of(frames["reach"], model=name, masked=True, weight="written", by="text")
    return rows.density / equal_shares(TOKENS, True)["density"]


def dense_and_wide(read: Estimate, smaller: Estimate, visible: Estimate, dense: Estimate) -> Verdict:
    """Return whether the matrix is dense, and a position reads half of the tokens in view."""
    return joined(
        decide(dense.value > 0.99, dense.value < 0.5), *(above(tokens, visible.value / 2) for tokens in (read, smaller))
    )


WEIGHED = "The first token's share, by what it is weighed"
READ = Measure("tokens read", partial(tokens_read, SMOLLM2), 1)
SMALLER = Measure("tokens read, embedded model", partial(tokens_read, EMBEDDED), 1)
DENSE = Measure("entries in view that differ from zero, share", partial(entries, SMOLLM2), 2)
VISIBLE = Measure("tokens in view", lambda frames: [equal_shares(TOKENS, True)["tokens"]], 1)
STUDY = Study(
    protocol=__doc__,
    page="in-context",
    claim='a dense matrix, with which each output "encapsulates comprehensive information" (Section 4.2)',
    unit="texts",
    stated="after the run",
    predictions=(
        Prediction(
            "the matrix is dense, and a position reads at least half of the tokens in view",
            "confirmed if nearly all entries that the mask permits differ from zero and the tokens read are above half"
            " of those in view in both causal models, refuted if one of these fails",
            (READ, SMALLER, VISIBLE, DENSE),
            dense_and_wide,
        ),
    ),
    control=VISIBLE,
    headline="Attention of SmolLM2-135M is as concentrated as if a position read {outcome} tokens equally, of {control}"
    " in view ({n} texts).",
    against="Nearly all entries differ from zero, and the text counts: cut to 16 tokens and the first,"
    " SmolLM2 loses {Windows / SmolLM2-135M-Instruct, and the first token / 16,"
    " added} nats.",
    limits="Shares are of the norms of what attention writes. The path around it isn't counted.",
    tables={
        "How dense, how far": Table(
            "reach",
            ("model", "mask"),
            {
                "entries not zero": _of_texts("density"),
                "tokens read": _spread("tokens"),
                "mean distance": _spread("distance"),
                "on the first token": _of_texts("first"),
                "on itself": _of_texts("itself"),
                **{f"{kernel} or more away": _of_texts(f"beyond {kernel}") for kernel in BEYOND},
                **{f"{kernel} or more away, first token left out": _left_out(kernel) for kernel in BEYOND[1:]},
            },
            prepare=_with_equal_shares,
            note="95 % intervals by Student's t over 8 texts; in parentheses the smallest and the largest layer.",
        ),
        WEIGHED: Table(
            "reach",
            ("model", "weight"),
            {
                **{name: per_cent(name) for name in ("first", "first, norms not squared", "first, along the sum")},
                "tokens": Cell("tokens", 1),
                "distance": Cell("distance", 1),
            },
            prepare=lambda reach: rows_of(reach, masked=True, by="text"),
        ),
        "Windows": Table(
            "windows",
            ("model", "kept"),
            {"loss": Cell("loss", 2), "added": added("rise")},
            columns="window",
            prepare=_rise,
            note="Each layer sees the last tokens, so many as the column says; losses in nats.",
        ),
    },
    measure=measure,
    settings={"texts": TEXTS, "tokens": TOKENS, "windows": KERNELS},
)
