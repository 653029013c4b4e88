"""The table of the closed form's moved parameters, for terminal and notebook."""

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from duat_jax.display.tables import NumberTable
from duat_jax.lora.parameters import Moved


def render_moved(moved: Moved) -> RenderableType:
    """Return the table of the relative changes of the closed form's parameters, layer by layer, in percent."""
    columns = "W'₁  input map", "b'₃  bias", "W'₂  inner maps", "b'₂  inner biases", "W'₃  outer maps"
    table = NumberTable("layer", *columns)
    terms = list(moved.inner_maps)
    # A term of the head has no stream of a layer.
    rows = max(len(terms), len(moved.input_maps) - 1)
    streams = list(moved.input_maps)[1:]

    def percent(value: float | None) -> Text:
        if value is None:
            return Text("")
        return Text("0", style="dim") if value == 0 else Text(f"{100 * value:z.2f} %")

    for i in range(rows):
        stream, term = (keys[i] if i < len(keys) else None for keys in (streams, terms))
        numbers = (
            None if stream is None else moved.input_maps[stream].value,
            None if stream is None else moved.biases[stream],
            None if term is None else moved.inner_maps[term].value,
            None if term is None else moved.inner_biases[term],
            None if term is None else moved.outer_maps[term].value,
        )
        cells = (percent(None if value is None else float(np.asarray(value))) for value in numbers)
        table.add_row(str(term or stream), *cells)
    return Group(Text("How far every parameter of the closed form moved, of its size", style="bold"), table)
