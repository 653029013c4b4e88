"""The token and the unit with the largest parts of a result, in words."""

import numpy as np

from duat_jax.display.view import View


def largest_token(view: View) -> str:
    """Return the token with the largest part in the last colouring of the text; empty without one."""
    if not view.colourings:
        return ""
    index = int(np.argmax(np.abs(view.colourings[-1].parts)))
    return f"token {index}, {view.tokens[index]}"


def largest_unit(view: View) -> str:
    """Return the first row of a ranked table, or the neuron or head with the largest part; empty without either."""
    for table in view.tables:
        if table.ranked and table.rows:
            cells = zip(table.columns, table.rows[0], strict=True)
            return " ".join(f"{column} {cell}".strip() for column, cell in cells if not isinstance(cell, float))
    units = next((each for each in view.units if each.parts), None)
    if units is None:
        return ""
    part = max(units.parts, key=lambda each: np.max(np.abs(each.columns[0]), initial=0))
    token, unit = np.unravel_index(np.argmax(np.abs(part.columns[0])), part.columns[0].shape)
    return f"{part.label}, {units.name} {part.ids[int(unit)]} at token {token}"
