"""A heat map for notebooks: signed numbers on the colour of their sign, readable on dark and on light."""

from collections.abc import Sequence
from html import escape

import numpy as np
from jaxtyping import Float

from duat_jax.display.colours import NEGATIVE, POSITIVE
from duat_jax.display.shown_tokens import tokens_of_picture

STRONGEST = 0.55
"""The opacity of the largest number's colour: text in the notebook's own colour stays readable on it."""


def heat_map(rows: Sequence[str], columns: Sequence[str], numbers: Float[np.ndarray, "rows columns"]) -> str:
    """Return a heat map as HTML; of a long text the largest tokens, and the sum of all others.

    Example:
        >>> heat_map(["a"], ["x", "y"], np.array([[0.5, -1.0]])).count("<td")
        2
    """
    shown = tokens_of_picture(numbers)
    columns, numbers = shown.labels(columns), shown.gathered(numbers)
    largest = float(np.abs(numbers).max(initial=0.0)) or 1.0

    def cell(number: float) -> str:
        if abs(number) < 0.005:
            return f'<td title="{number:+z.4f}" style="{CELL}opacity:0.4">0</td>'
        colour = POSITIVE if number > 0 else NEGATIVE
        opacity = round(255 * STRONGEST * min(abs(number) / largest, 1.0))
        return f'<td title="{number:+z.4f}" style="{CELL}background:{colour}{opacity:02x}">{number:+z.2f}</td>'

    head = "".join(f'<th style="{CELL}">{escape(column)}</th>' for column in ("", *columns))
    body = "".join(
        f'<tr><th style="{CELL}text-align:left">{escape(row)}</th>{"".join(map(cell, map(float, values)))}</tr>'
        for row, values in zip(rows, numbers, strict=True)
    )
    return f'<div style="overflow-x:auto"><table style="{TABLE}"><tr>{head}</tr>{body}</table></div>'


TABLE = "border-collapse:collapse;background:transparent;color:inherit;font-size:85%"
CELL = "padding:2px 5px;text-align:right;white-space:pre;font-family:monospace;font-weight:normal;"
