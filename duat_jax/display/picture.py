"""The picture of a result: a function of its view.

Red raises the value, blue lowers it. Rows by tokens are a heat map with the sums of its rows and columns; a table is a
panel of bars, or a heat map if it has many columns; over an image lies what its patches contribute.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from duat_jax.display.colours import NEGATIVE, POSITIVE
from duat_jax.display.image_picture import draw_over_image, draw_panel_over_image
from duat_jax.display.page.graph_view import MovesView
from duat_jax.display.pictures import (
    HEADING,
    add_colour_bar,
    colour_scale,
    draw_heat,
    label_tokens,
    styled,
    titled,
    wrapped,
)
from duat_jax.display.shown_tokens import tokens_of_picture
from duat_jax.display.terminal import rows_of, token_labels
from duat_jax.display.view import Curves, Map, Table, View

BARS = 6
"""The largest number of columns of a table that are bars; more are a heat map."""

HEADS = 64
"""The largest number of units whose sums have a panel."""

ARROWS, THINNEST = 40, 0.02
"""The number of moves of heads that are drawn as arrows, and the least share of the largest that one of them has."""

ARROW_LEGEND = (
    "arrows: what a head brings from token to token; red raises the number, blue lowers it; the wider, the more"
)

Panel = tuple[float, float, Callable[[SubFigure], None]]
"""Width and height of a panel in inches, and the function that draws it."""


@styled
def draw(view: View) -> Figure:
    """Return the picture of a result."""
    if view.image is not None:
        return draw_over_image(view, view.image, *title(view))
    panels = [*_panels_of_rows(view), *(_panel_of_map(each) for each in view.maps)]
    panels += [_panel_of_table(table) for table in view.tables if table.drawn]
    panels += [_panel_of_curves(curves) for curves in view.curves]
    widths = [width for width, _, _ in panels]
    figure = Figure(figsize=(min(26.0, max(7.0, sum(widths))), 1.0 + max(height for _, height, _ in panels)))
    subfigures = figure.subfigures(1, len(panels), width_ratios=widths, squeeze=False)[0]
    for subfigure, (_, _, draw_in) in zip(subfigures, panels, strict=True):
        draw_in(subfigure)
    titled(figure, *title(view))
    return figure


def draw_panel(axes: Axes, view: View) -> None:
    """Draw the main panel of a result in given axes."""
    heading = wrapped(f"{view.target} = {view.value:z.4f}", HEADING)
    if view.image is not None and (view.colourings or view.maps):
        add_colour_bar(draw_panel_over_image(axes, view, view.image), axes, "part")
    elif view.rows:
        add_colour_bar(_draw_rows(axes, view), axes, "part")
    elif view.maps:
        add_colour_bar(_draw_map(axes, view.maps[0]), axes, "part")
    else:
        _draw_table(axes, next(table for table in view.tables if table.drawn))
    axes.set_title(heading)


def title(view: View) -> tuple[str, str]:
    """Return the lines of the title: the target with its value, and how it sums."""
    if view.completeness is None:
        account = ""
    elif view.completeness.verdict == "fails":
        account = "the parts don't sum to it"
    elif view.row_sums:
        account = f"every row sums to {view.value:+z.4f}" + (
            ", with what moved or jumped after it" if view.later else ""
        )
    else:
        added = [(listed.title.lower(), sum(part for _, part in listed.entries)) for listed in view.added]
        cells = [("all cells", float(view.parts.sum()))] if view.rows else []
        account = "   ".join(f"{name} {part:+z.4f}" for name, part in (*cells, *added))
    runs = "   ".join(f"{run.name} {run.value:+z.4f}" for run in view.runs[:2]) if len(view.runs) > 1 else ""
    error = "" if view.completeness is None else f"(error {float(view.completeness.error):+.1e})"
    return f"{view.target} = {view.value:z.4f}", "   ".join(filter(None, (runs, account, error)))


def _panels_of_rows(view: View) -> list[Panel]:
    """Return the heat map of rows and tokens, and of each kind of few units their sums in each row."""
    if not view.rows:
        return []
    table = np.array([parts for _, parts in rows_of(view)])
    columns, rows = len(tokens_of_picture(table).labels(view.tokens)), len(table)
    panels: list[Panel] = [(3.0 + max(0.34 * columns, 3.6), 2.4 + 0.28 * max(rows, 6), lambda f: _draw_whole(f, view))]
    for units in view.units if view.graph is None else ():
        most = max((each.columns[0].shape[1] for each in units.parts), default=0)
        if units.name == "head" and 0 < most <= HEADS:
            sums = np.full((len(view.rows), most), np.nan)
            for each in units.parts:
                if each.row is not None:
                    sums[each.row, : each.columns[0].shape[1]] = each.columns[0].sum(0)
            of_units = Map(
                "sums of heads over tokens",
                sums,
                tuple(row.name for row in view.rows),
                tuple(map(str, range(most))),
                ("head", ""),
            )
            panels.append(_panel_of_map(of_units, margins=False))
    return panels


def _draw_whole(figure: SubFigure, view: View) -> None:
    """Draw rows by tokens with the sums of columns and rows, as far as these aren't all the value."""
    heat, above, right = _axes_with_margins(figure, sums=not view.row_sums and view.graph is None)
    drawn = _draw_rows(heat, view)
    if above is not None and right is not None:
        shown = tokens_of_picture(np.array([parts for _, parts in rows_of(view)]))
        _bars(above, right, shown.gathered(view.parts))
        above.set_ylabel(view.colourings[0].name, fontsize="small")
        right.set_xlabel("sum over tokens", fontsize="small")
        for colouring in view.all_colourings[1:]:
            heights = np.pad(shown.gathered(np.asarray(colouring.parts, float)), 1)
            above.step(
                np.arange(-1, len(heights) - 1), heights, where="mid", color="0.35", linewidth=1, label=colouring.name
            )
            above.legend()
    add_colour_bar(drawn, heat if right is None else right, "part")


def _draw_rows(axes: Axes, view: View) -> AxesImage:
    """Draw the rows, the first at the bottom; of a graph the largest moves of heads as arrows over it."""
    names = [row.name for row in view.rows] if view.graph is None else view.graph.rows
    every = np.array([parts for _, parts in rows_of(view)])
    shown = tokens_of_picture(every)
    table = shown.gathered(every[: len(names)])
    drawn = draw_heat(axes, table, colour_scale(table), origin="lower", alpha=None if view.graph is None else 0.6)
    label_tokens(axes.xaxis, shown.labels(token_labels(view, "\n")), rotation=90)
    for label in axes.get_xticklabels():
        label.set_fontweight("bold" if "\n" in label.get_text() else "normal")
    axes.set_yticks(range(len(names)), names)
    moves = view.moves if view.graph is None else view.graph.moves
    if moves:
        places = {int(token): column for column, token in enumerate(shown.alone)}
        _draw_arrows(axes, moves, places)
    return drawn


def _draw_arrows(axes: Axes, of_rows: Sequence[MovesView | None], places: dict[int, int]) -> None:
    moves = [
        (row, int(source), int(token), part)
        for row, moved in enumerate(of_rows)
        if moved is not None
        for source, token, *parts in moved.edges.tolist()
        for part in parts
        if source != token and {source, token} <= places.keys()
    ]
    moves = sorted(moves, key=lambda move: -abs(move[-1]))[:ARROWS]
    for row, source, token, part in (each for each in moves if abs(each[-1]) >= THINNEST * abs(moves[0][-1])):
        width = float(np.clip(3 * abs(part / (moves[0][-1] or 1.0)), 0.3, 3))
        colour = POSITIVE if part > 0 else NEGATIVE
        arrow = {"arrowstyle": "-|>", "lw": width, "color": colour, "shrinkA": 4, "shrinkB": 4}
        axes.annotate("", (places[token], row), (places[source], row - 1), arrowprops=arrow)
    if moves:
        # A legend would take the room of the picture; the width of an axis' label takes none.
        axes.set_xlabel(wrapped(ARROW_LEGEND, HEADING), fontsize="small")


def _axes_with_margins(figure: SubFigure, *, sums: bool) -> tuple[Axes, Axes | None, Axes | None]:
    """Return axes for a heat map, and those above it and on its right for the sums."""
    if not sums:
        return figure.subplots(), None, None
    grid = figure.add_gridspec(2, 2, width_ratios=(6, 1), height_ratios=(1, 5))
    heat = figure.add_subplot(grid[1, 0])
    return heat, figure.add_subplot(grid[0, 0], sharex=heat), figure.add_subplot(grid[1, 1], sharey=heat)


def _bars(above: Axes, right: Axes, table: Float[np.ndarray, "rows columns"]) -> None:
    """Draw the sums of columns and rows as bars."""
    of_columns, of_rows = table.sum(0), table.sum(1)
    above.bar(range(len(of_columns)), of_columns, color=np.where(of_columns < 0, NEGATIVE, POSITIVE))
    above.axhline(0, color="black", linewidth=0.6)
    above.set_ylabel("sum of column", fontsize="small")
    above.tick_params(labelbottom=False)
    right.barh(range(len(of_rows)), of_rows, color=np.where(of_rows < 0, NEGATIVE, POSITIVE))
    right.axvline(0, color="black", linewidth=0.6)
    right.set_xlabel("sum of row", fontsize="small")
    right.tick_params(labelleft=False)


def _panel_of_map(each: Map, *, margins: bool = True) -> Panel:
    rows, columns = each.numbers.shape

    def draw_in(figure: SubFigure) -> None:
        heat, above, right = _axes_with_margins(figure, sums=margins)
        drawn = _draw_map(heat, each)
        if above is not None and right is not None:
            _bars(above, right, each.numbers)
        add_colour_bar(drawn, heat if right is None else right, "part")

    return 3.0 + 0.28 * min(max(columns, 6), 60), 2.6 + 0.28 * min(max(rows, 8), 60), draw_in


def _draw_map(axes: Axes, each: Map) -> AxesImage:
    rows, columns = each.axes
    present = each.numbers[~np.isnan(each.numbers)]
    drawn = draw_heat(axes, each.numbers, colour_scale(present), origin="upper" if columns else "lower")
    if each.columns:
        label_tokens(axes.xaxis, each.columns, rotation=90, fontsize="small")
    if each.rows:
        label_tokens(axes.yaxis, each.rows, fontsize="small")
    axes.set_ylabel(rows if columns else "")
    axes.set_xlabel(columns or rows)
    axes.set_title(wrapped(each.title, HEADING), fontsize="small")
    return drawn


def _panel_of_table(table: Table) -> Panel:
    def draw_in(figure: SubFigure) -> None:
        _draw_table(figure.subplots(), table)

    return 5.5, 2.4 + 0.26 * max(len(table.rows), 8), draw_in


def _draw_table(axes: Axes, table: Table) -> None:
    """Draw the columns of numbers of a table by the names of its rows: as bars, or many of them as a heat map."""
    places = [table.columns.index(column) for column in table.drawn]
    rows = [row for row in table.rows if all(isinstance(row[i], float) for i in places)]
    cells, names = np.array([[row[i] for i in places] for row in rows], float), [str(row[0]) for row in rows]
    if len(places) > BARS:
        drawn = draw_heat(axes, cells, colour_scale(cells))
        axes.set_yticks(range(len(names)), names, fontsize="small")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        add_colour_bar(drawn, axes, "part")
    else:
        for k, i in enumerate(places):
            shift = (k - (len(places) - 1) / 2) * 0.8 / len(places)
            axes.barh(np.arange(len(names)) + shift, cells[:, k], 0.8 / len(places), label=table.columns[i])
        axes.set_yticks(range(len(names)), names, fontsize="small")
        axes.invert_yaxis()
        axes.axvline(0, color="black", linewidth=0.6)
        axes.locator_params(axis="x", nbins=5)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.06), ncols=2)
    axes.set_title(wrapped(table.title, HEADING), fontsize="small")


def _panel_of_curves(curves: Curves) -> Panel:
    def draw_in(figure: SubFigure) -> None:
        axes = figure.subplots()
        for label, (places, values) in curves.curves.items():
            axes.plot(places, values, ".-", label=label)
        axes.axhline(0, color="black", linewidth=0.6)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel(curves.places)
        axes.set_ylabel(curves.number)
        axes.legend()

    return 5.5, 3.6, draw_in
