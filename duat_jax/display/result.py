"""Results that show themselves: as a table, a picture, a page, JSON and a data frame."""

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from duat_jax.display.named_arrays import NamedArray, as_dataframe, as_dataset
from duat_jax.display.view import View
from duat_jax.errors import DuatError
from duat_jax.files import path_of, write_file
from duat_jax.forms.completeness import Completeness
from duat_jax.saved import write_result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame
    from rich.console import RenderableType
    from xarray import Dataset

    from duat_jax.display.examples import Examples

WIDTH = 110
"""The width of a table without a terminal."""


class Displayed(ABC):
    """A result that shows itself: as a table, a picture, a page, JSON and a data frame.

    A kind of result says in `view` what is shown, and in `arrays` what its numbers are; every renderer is a function of
    these.
    """

    @abstractmethod
    def view(self) -> View:
        """Return the result as it is shown."""

    @abstractmethod
    def arrays(self) -> Iterable[NamedArray]:
        """Return the result's numbers as arrays with named axes."""

    @abstractmethod
    def as_dict(self, *given: Any, **fields: Any) -> dict[str, Any]:
        """Return the result as plain data for JSON.

        Args:
            given: what each kind of result says.
            fields: what the result itself doesn't know, such as the name of the model.
        """

    def part_sums(self) -> Mapping[str, Any]:
        """Return the sums of the parts that each field of completeness is about, by its name; a tuple for several."""
        return {}

    def judged_again(self) -> "Displayed":
        """Return the result with its completeness computed again from its parts, since a file may have been edited."""
        judged = {name: _judged(getattr(self, name), total) for name, total in self.part_sums().items()}
        return replace(self, **judged) if judged else self  # type: ignore[type-var]

    def save(self, path: Path | str) -> None:
        """Write the result to one file, which `duat.open` reads.

        Args:
            path: the file, of any name; it is written completely or not at all.

        Raises:
            DuatError: for a class of one's own, which couldn't be read again.
            OSError: if the file can't be written.
        """
        write_result(self, path)

    def plot(self, ax: "Axes | None" = None) -> "Figure":
        """Return the result as a picture.

        Args:
            ax: Matplotlib axes in which its main panel is drawn alone; a figure of its own if absent.

        Raises:
            DuatError: if `ax` is something else, such as the name of a file.
        """
        from duat_jax.display import picture  # matplotlib takes longer to import than all results

        if ax is None:
            return picture.draw(self.view())
        if not hasattr(ax, "imshow"):
            raise DuatError(f"ax is {ax!r}: give Matplotlib axes; plot().savefig(path) writes a file")
        picture.draw_panel(ax, self.view())
        return ax.figure.figure  # of a subfigure the whole figure

    def html(
        self,
        path: Path | str,
        *others: "Displayed",
        examples: "Examples | None" = None,
        provenance: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Write the result as a page to one file, which a browser opens without a network.

        Its tokens are coloured, and every cell of its table opens; the parts sum on the screen as they do here. A
        contrast's page has heads run again if `duat.contrast` was given `head_runs`, as the command line gives 8.

        Args:
            path: the file; it is written completely or not at all.
            others: further results, such as a contrast of the same text, which the page shows by a switch.
            examples: of the model, from `duat.survey.examples`: the texts in which each neuron is strongest.
            provenance: how the result was made, by name, such as `{"model": "gpt2"}`; the page says it at its end, with
                the version and the date.

        Raises:
            OSError: if the file can't be written.

        Example:
            >>> import duat_jax as duat
            >>> from tempfile import TemporaryDirectory
            >>> model = duat.load()
            >>> with TemporaryDirectory() as folder:
            ...     duat.explain(model, "for i in range(10").html(f"{folder}/page.html")
        """
        file = path_of(path, "a file for a page")
        write_file(file, self.to_html(*others, examples=examples, provenance=provenance).encode())

    def to_html(
        self,
        *others: "Displayed",
        examples: "Examples | None" = None,
        provenance: Mapping[str, str] = MappingProxyType({}),
    ) -> str:
        """Return the page as HTML.

        Args:
            others: further results, which the page shows by a switch.
            examples: as in `html`.
            provenance: as in `html`.

        Raises:
            DuatError: if one of them is no result.
        """
        from duat_jax.display.page.data import page_data
        from duat_jax.display.page.document import document

        if wrong := [each for each in others if not isinstance(each, Displayed)]:
            raise DuatError(f"{type(wrong[0]).__name__} has no page: give results, such as explanations and contrasts")
        return document([page_data(each.view(), examples) for each in (self, *others)], provenance)

    def to_json(self, **fields: Any) -> str:
        """Return what `as_dict` gives as JSON, which `duat.schemas.read` reads; of neurons the largest.

        Args:
            fields: arguments of `as_dict`, such as `model="my model"` and `count=20`.
        """
        return json.dumps(self.as_dict(**fields), ensure_ascii=False)

    def to_dataframe(self) -> "DataFrame":
        """Return the result's numbers as one tidy pandas table: a row for each number.

        Returns:
            A table with the columns `part`, where the number belongs (such as `layer`, `token`, `head` or `neuron`) and
            `value`; which parts sum to what stands at `arrays`.

        Raises:
            DuatError: if pandas isn't installed.
        """
        return as_dataframe(self.arrays())

    def to_xarray(self) -> "Dataset":
        """Return the result's numbers as one xarray data set: a variable with named axes for each part.

        Raises:
            DuatError: if xarray isn't installed.
        """
        return as_dataset(self.arrays())

    def table(self, count: int = 10) -> "RenderableType":
        """Return the result as a table, which rich prints.

        Args:
            count: the number of the largest neurons and heads.
        """
        from duat_jax.display.terminal import render

        return render(self.view(), count)

    def __str__(self) -> str:
        return as_text(self.table())

    def _repr_html_(self) -> str:
        from duat_jax.display.heat_map import heat_map
        from duat_jax.display.page.data import page_data
        from duat_jax.display.page.document import document, frame
        from duat_jax.display.terminal import render, token_labels

        view = self.view()
        heat = heat_map([row.name for row in view.rows], token_labels(view, "\n"), view.parts) if view.rows else ""
        return frame(document([page_data(view)]), heat + as_html(render(view)))


class ResultList(list):
    """Several results, or lists of them, that `print` and a notebook show as a table with a row for each."""

    def __str__(self) -> str:
        return as_text(self._table())

    def _repr_html_(self) -> str:
        return as_html(self._table())

    def _table(self) -> "RenderableType":
        from duat_jax.display.terminal import render_many

        return render_many([(name, result.view()) for name, result in _named(self)])


def _named(results: list[Any], name: str = "") -> Iterator[tuple[str, Displayed]]:
    """Yield every result of a list, or of a list of lists, with its indices."""
    for i, each in enumerate(results):
        if isinstance(each, list):
            yield from _named(each, f"{name}[{i}]")
        else:
            yield f"{name}[{i}]", each


def _judged(completeness: Any, total: Any) -> Any:
    """Return one completeness or several, each judged again by the sum of its parts."""
    if isinstance(completeness, Completeness):
        return completeness.of_parts(total)
    return tuple(each.of_parts(part) for each, part in zip(completeness, total, strict=True))


def as_text(table: "RenderableType") -> str:
    """Return a table as plain text."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, force_jupyter=False)
    with console.capture() as captured:
        console.print(table, soft_wrap=False)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def as_html(table: "RenderableType") -> str:
    """Return a table for a notebook."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=WIDTH, record=True, force_jupyter=False)
    console.print(table)
    return console.export_html(
        inline_styles=True,
        code_format='<pre style="font-family:monospace;line-height:1.25;white-space:pre">{code}</pre>',
    )
