"""The picture of a result over an image or a sound: the parts of patches or frames, and beside them those of a text."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from duat_jax.display.colours import NEGATIVE, POSITIVE
from duat_jax.display.pictures import (
    ACROSS,
    add_colour_bar,
    colour_scale,
    draw_heat,
    label_tokens,
    overlay,
    show,
    titled,
)
from duat_jax.display.shown_tokens import tokens_of_picture
from duat_jax.display.terminal import token_labels
from duat_jax.display.view import View
from duat_jax.inputs.images import SeenImage

WIDTH, WIDEST = 2.1 * ACROSS, 26.0
"""The width of a picture in inches, and the largest one, of a long text."""

BARS = 5.5
"""The width of the sums beside a text in inches."""

TITLE = 0.3
"""The height of the title in inches."""

GROUPS = "#7a4fb5", "#9aa1ac", "#2a9d8f"
"""The colours of the sums of the patches, of the tokens before them, and of the text."""


class Layer(NamedTuple):
    """The parts of a row of the table, or of a map.

    Args:
        name: its title.
        over: the parts that lie over the image: of patches, and of the text's tokens in whose place they stand.
        before: the parts of the tokens before the patches.
        text: the parts of the text's tokens.
    """

    name: str
    over: Float[np.ndarray, "..."]
    before: Float[np.ndarray, "before"]
    text: Float[np.ndarray, "text"]

    @property
    def entries(self) -> Float[np.ndarray, "entries"]:
        """The sum of the parts that lie over the image, and the parts of all other tokens."""
        return np.array([self.over.sum(), *self.before, *self.text])

    @property
    def title(self) -> str:
        """The name, and the sum of what lies over the image."""
        return f"{self.name}\n{self.over.sum():+z.4f}"


def draw_over_image(view: View, image: SeenImage, *title: str) -> Figure:
    """Return the picture of parts over an image, in all and row by row or map by map, with their sums as bars."""
    rows, whole = layers_of(view, image)
    with_text = len(text_beside(view, image)) > 0
    # A layer that reads the text alone has nothing at the patches, and so has a difference between texts.
    over, over_whole = ([each for each in layers if each.over.any() or not with_text] for layers in (rows, whole))
    texts = _Text(view, image, rows, whole) if with_text else None
    width = WIDTH if texts is None else min(WIDEST, max(WIDTH, texts.width))
    panels: list[tuple[float, Callable[[SubFigure], Axes | None]]] = []
    if image.sound:
        panels.append((1.2 * (1 + len(over_whole)), lambda figure: _draw_strips(figure, image, over_whole)))
        panels.append((1.2 + 0.28 * len(over) if over else 0.0, lambda figure: _draw_frames(figure, image, over)))
    else:
        panels.append((4.2, lambda figure: _draw_whole(figure, image, over_whole, bars=texts is None)))
        panels.append((2.5 * -(-len(over) // ACROSS), lambda figure: _draw_panels(figure, image, over)))
    if texts is not None:
        panels.append((texts.height, texts.draw))
    panels = [panel for panel in panels if panel[0]]
    heights = [TITLE, *(height for height, _ in panels)]
    figure = Figure(figsize=(width, sum(heights)))
    # Nothing is drawn in the first subfigure: titles of images have reached into that of the figure.
    _, *subfigures = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False).reshape(-1)
    for subfigure, (_, draw_in) in zip(subfigures, panels, strict=True):
        bars = draw_in(subfigure)
        if bars is not None:
            _draw_sums(bars, view, image, rows)
    titled(figure, *title)
    return figure


def draw_panel_over_image(axes: Axes, view: View, image: SeenImage) -> AxesImage:
    """Draw what all layers together contribute over an image in given axes."""
    _, whole = layers_of(view, image)
    layer = (whole or layers_of(view, image)[0])[0]
    if len(layer.text):
        sums = "   ".join(f"{name} {part:+z.4f}" for name, part, _ in _groups(image, layer))
        axes.text(0.5, -0.03, sums, transform=axes.transAxes, ha="center", va="top", fontsize="small")
    return lay_over(axes, image, layer.over, _limit(layer.over))


def layers_of(view: View, image: SeenImage) -> tuple[list[Layer], list[Layer]]:
    """Return the rows or maps that sum to the value together with what is added, and those that do alone."""

    def of_tokens(name: str, parts: Float[np.ndarray, "tokens"]) -> Layer:
        numbers = np.asarray(parts, float)
        over = numbers[image.patches] + (numbers[image.in_text] if image.slots is not None else 0)
        return Layer(name, over, numbers[: image.before], numbers[text])

    text = text_beside(view, image)

    maps = [(Layer(each.title, np.asarray(each.numbers, float), *[np.zeros(0)] * 2), each.whole) for each in view.maps]
    rows = [of_tokens(row.name, row.parts) for row in view.rows]
    whole = [of_tokens(each.name, each.parts) for each in view.all_colourings]
    return rows + [layer for layer, alone in maps if not alone], whole + [layer for layer, alone in maps if alone]


def text_beside(view: View, image: SeenImage) -> list[int]:
    """Return the tokens of the text that don't stand for patches."""
    tokens = range(len(view.tokens))
    return [token for token in tokens[image.text] if token not in tokens[image.in_text]]


def lay_over(axes: Axes, image: SeenImage, numbers: Float[np.ndarray, "..."], limit: float) -> AxesImage:
    """Lay a map, or the parts of the patches, over an image."""
    rows, columns = numbers.shape if numbers.ndim == 2 else (image.rows, image.columns)
    return overlay(axes, image._replace(rows=rows, columns=columns), numbers.ravel(), limit)


def _limit(*numbers: Float[np.ndarray, "..."]) -> float:
    """Return the largest size of numbers, which has the full colour."""
    return max(float(np.abs(each).max()) for each in numbers) or 1.0


def _draw_whole(figure: SubFigure, image: SeenImage, whole: Sequence[Layer], *, bars: bool) -> Axes | None:
    """Draw the image and what all layers together contribute over it; return axes for the sums if they stand here."""
    axes = figure.subplots(1, 1 + len(whole) + bars, squeeze=False)[0]
    show(axes[0], image)
    axes[0].set_title("what the model read")
    for each, layer in zip(axes[1:], whole, strict=False):
        drawn = lay_over(each, image, layer.over, _limit(layer.over))
        each.set_title(layer.title, fontsize="small")
        add_colour_bar(drawn, each, "part", location="bottom", shrink=0.9)
    return axes[-1] if bars else None


def _draw_panels(figure: SubFigure, image: SeenImage, layers: Sequence[Layer]) -> None:
    """Draw what each layer contributes over an image."""
    limit = _limit(*(layer.over for layer in layers))
    across = min(ACROSS, len(layers))
    panels = figure.subplots(-(-len(layers) // across), across, squeeze=False).reshape(-1)
    for axes, layer in zip(panels, layers, strict=False):
        drawn = lay_over(axes, image, layer.over, limit)
        axes.set_title(layer.title, fontsize="small")
    for axes in panels[len(layers) :]:
        axes.set_axis_off()
    add_colour_bar(drawn, panels.tolist(), "part of a place", shrink=0.8)


def _draw_strips(figure: SubFigure, image: SeenImage, whole: Sequence[Layer]) -> None:
    """Draw the spectrogram of a sound, and what all layers together contribute over it."""
    heard, *axes = figure.subplots(1 + len(whole), 1, squeeze=False)[:, 0]
    show(heard, image)
    heard.set_title("what the model heard, low frequencies at the bottom", loc="left", fontsize="small")
    for each, layer in zip(axes, whole, strict=True):
        drawn = lay_over(each, image, layer.over, _limit(layer.over))
        each.set_title(layer.title.replace("\n", " "), loc="left", fontsize="small")
        add_colour_bar(drawn, each, "part")


def _draw_frames(figure: SubFigure, image: SeenImage, layers: Sequence[Layer]) -> None:
    """Draw what each layer contributes at each frame of a sound."""
    axes = figure.subplots()
    frames = image.pixels.shape[-1]
    table = np.array([layer.over for layer in layers])
    drawn = draw_heat(axes, table, colour_scale(table), origin="lower", extent=(0, frames, -0.5, len(layers) - 0.5))
    axes.set_yticks(range(len(layers)), [layer.title.replace("\n", " ") for layer in layers], fontsize="small")
    axes.set_xlabel("frame")
    add_colour_bar(drawn, axes, "part of a place")


class _Text:
    """The heat map of the text's tokens beside the sum of what lies over the image, with the sums as bars."""

    def __init__(self, view: View, image: SeenImage, rows: Sequence[Layer], whole: Sequence[Layer]) -> None:
        labels = token_labels(view, "\n")
        beside = [*labels[: image.before], *(labels[token] for token in text_beside(view, image))]
        self.rows, self.whole = rows, whole
        self.shown = tokens_of_picture(np.array([layer.entries for layer in (*rows, *whole)]))
        self.labels = self.shown.labels([f"all {'frames' if image.sound else 'patches'}", *beside])

    @property
    def width(self) -> float:
        """The width in inches that all labels fit."""
        return 3.0 + 0.34 * len(self.labels) + BARS

    @property
    def height(self) -> float:
        """The height in inches."""
        return 2.2 + 0.3 * (len(self.rows) + len(self.whole))

    def draw(self, figure: SubFigure) -> Axes:
        """Draw the rows, and above them what all of them contribute; return axes for the sums."""
        widths = min(WIDEST, max(WIDTH, self.width)) - BARS, BARS
        left, right = figure.subfigures(1, 2, width_ratios=widths, squeeze=False)[0]
        above, below = left.subplots(2, 1, sharex=True, height_ratios=(max(2, len(self.whole)), len(self.rows)))
        above.set_title("the text's tokens, beside the sum of what lies over the image", fontsize="small")
        for axes, layers in ((above, self.whole), (below, self.rows)):
            table = self.shown.gathered(np.array([layer.entries for layer in layers]))
            drawn = draw_heat(axes, table, colour_scale(table), origin="lower")
            add_colour_bar(drawn, axes, "part", ticks=MaxNLocator(2 + len(layers)))
            axes.set_yticks(range(len(layers)), [layer.name for layer in layers], fontsize="small")
            axes.axvline(0.5, color="black", linewidth=0.6)
        label_tokens(below.xaxis, self.labels, rotation=90)
        return right.subplots()


def _groups(image: SeenImage, layer: Layer) -> list[tuple[str, float, str]]:
    """Return the sums of a layer's patches, of the tokens before them, and of the text, with their colours."""
    names = ("frames", "", "text") if image.sound else ("patches", "whole image", "text")
    sums = (float(part.sum()) for part in layer[1:])
    return [each for each, part in zip(zip(names, sums, GROUPS, strict=True), layer[1:], strict=True) if part.size]


def _draw_sums(axes: Axes, view: View, image: SeenImage, layers: Sequence[Layer]) -> None:
    """Draw the sums of each row's patches, of its other tokens, and of what belongs to no token."""
    names = [layer.name for layer in layers]
    for place, layer in enumerate(layers):
        left = {True: 0.0, False: 0.0}
        groups = _groups(image, layer)
        for name, part, colour in groups:
            colour = colour if view.rows else NEGATIVE if part < 0 else POSITIVE
            label = name if place == 0 and view.rows else None
            axes.barh(place, part, 0.7, left=left[part < 0], color=colour, alpha=0.8, label=label)
            left[part < 0] += part
        if view.rows:
            total = sum(part for _, part, _ in groups)
            axes.plot([total], [place], "k|", markersize=9, label="sum" if place == 0 else None)
    for listed in view.added:
        part = sum(part for _, part in listed.entries)
        axes.barh(len(names), part, 0.7, color=NEGATIVE if part < 0 else POSITIVE, alpha=0.6)
        names.append(listed.title.lower())
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set_yticks(range(len(names)), names, fontsize="small")
    axes.locator_params(axis="x", nbins=5)
    axes.set_title("sums")
    if view.rows:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=4)
