"""The table of maps over an image, for a terminal and a notebook."""

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from duat_jax.display.tables import NumberTable, completeness_line, number, sides
from duat_jax.interpret.images.result import ImageMaps


def render(maps: ImageMaps) -> RenderableType:
    """Return the table of all maps: the sum and the largest entry of each.

    Args:
        maps: what to show.
    """
    table = NumberTable()
    for column in ("part", "sum", "largest", "at row, column", "of"):
        table.add_column(column, justify="left" if column == "part" else "right")
    named = {"pixels, past all terms": maps.path, **{str(key): part for key, part in maps.terms.items()}}
    for name, part in named.items():
        row, column = np.unravel_index(np.abs(part).argmax(), part.shape)
        size = " × ".join(map(str, part.shape))
        table.add_row(name, number(float(part.sum())), number(float(part[row, column])), f"{row}, {column}", size)
    table.add_row("biases", number(sum(maps.biases.values(), 0.0)), "", "", str(len(maps.biases)))
    collapse = Text.assemble(
        ("through everything ", "bold"), f"pixels {maps.collapse.sum():+z.4f}   constant {maps.collapse_bias:+z.4f}"
    )
    change = maps.change_completeness
    return Group(
        table,
        "",
        completeness_line(maps.completeness),
        collapse,
        *([] if change is None else [completeness_line(change, sides("the image", "the reference"))]),
    )
