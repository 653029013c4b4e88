"""The picture of maps over an image."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

from duat_jax.display.colours import NEGATIVE, POSITIVE
from duat_jax.display.pictures import overlay, show, styled, titled
from duat_jax.inputs.images import SeenImage
from duat_jax.interpret.images.result import ImageMaps

Map = Float[np.ndarray, "rows columns"]

ACROSS = 6
"""The number of small pictures in a row."""


@styled
def draw(maps: ImageMaps) -> Figure:
    """Return the maps over the image: through all layers, and term by term at each term's resolution.

    Red raises the value, blue lowers it, and the stronger a colour, the more of the image it covers.

    Args:
        maps: what to draw.
    """
    whole = {"through everything\n(collapse)": maps.collapse}
    whole |= {} if maps.change is None else {"what another image changes\n(secant)": maps.change}
    parts = {"pixels, past all terms": maps.path, **{str(key): part for key, part in maps.terms.items()}}
    lines = -(-len(parts) // ACROSS)
    figure = Figure(figsize=(2.2 * ACROSS, 4.2 + 2.6 * lines))
    above, below = figure.subfigures(2, 1, height_ratios=(4.0, 2.6 * lines), squeeze=False).reshape(-1)

    seen, *others, bars = above.subplots(1, 2 + len(whole))
    show(seen, maps.image)
    seen.set_title("what the network read")
    for axes, (name, numbers) in zip(others, whole.items(), strict=True):
        _lay_over(above, [axes], maps.image, {name: numbers}, location="bottom")
    sums = np.array([*(part.sum() for part in parts.values()), sum(maps.biases.values())])
    bars.barh(np.arange(len(sums)), sums, color=np.where(sums < 0, NEGATIVE, POSITIVE))
    bars.axvline(0, color="black", linewidth=0.6)
    bars.set_yticks(np.arange(len(sums)), [*parts, "biases"], fontsize="small")
    bars.invert_yaxis()
    bars.set_title("sums")

    panels = below.subplots(lines, ACROSS, squeeze=False).reshape(-1)
    for axes in panels[len(parts) :]:
        axes.set_axis_off()
    _lay_over(below, panels[: len(parts)].tolist(), maps.image, parts)
    titled(figure, f"value {float(maps.completeness.value):z.4f}   (error {float(maps.completeness.error):+.1e})")
    return figure


def draw_panel(axes: Axes, maps: ImageMaps) -> None:
    """Draw the contributions of all pixels through everything over the image.

    Args:
        axes: where.
        maps: what to draw.
    """
    _lay_over(axes.figure, [axes], maps.image, {"through everything (collapse)": maps.collapse})


def _lay_over(
    figure: Figure | SubFigure, axes: list[Axes], image: SeenImage, maps: dict[str, Map], location: str = "right"
) -> None:
    """Lay maps over an image, one colour scale for all."""
    limit = max(float(np.abs(numbers).max()) for numbers in maps.values()) or 1.0
    for panel, (name, numbers) in zip(axes, maps.items(), strict=True):
        rows, columns = numbers.shape
        drawn = overlay(panel, image._replace(rows=rows, columns=columns), numbers.ravel(), limit)
        panel.set_title(f"{name}\n{numbers.sum():+z.4f}", fontsize="small")
    ticks = MaxNLocator(4)  # more would run into each other below a small picture
    figure.colorbar(drawn, ax=axes, label="contribution of a place", shrink=0.8, location=location, ticks=ticks)
