"""A result that shows itself: as a table in a terminal and in a notebook."""

import io
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH = 110
"""How wide a table is where there is no terminal."""


class Shown(ABC):
    """A result that `print` and a notebook show as its table."""

    @abstractmethod
    def _table(self) -> "RenderableType": ...

    def __str__(self) -> str:
        return as_text(self._table())

    def _repr_html_(self) -> str:
        return as_html(self._table())


def as_text(table: "RenderableType") -> str:
    """Return a table as plain text.

    Args:
        table: what `render` returns.
    """
    from rich.console import Console

    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, force_jupyter=False)
    with console.capture() as captured:
        console.print(table, soft_wrap=False)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def as_html(table: "RenderableType") -> str:
    """Return a table for a notebook.

    Args:
        table: what `render` returns.
    """
    from rich.console import Console

    console = Console(file=io.StringIO(), width=WIDTH, record=True, force_jupyter=False)
    console.print(table)
    return console.export_html(
        inline_styles=True,
        code_format='<pre style="font-family:monospace;line-height:1.25;white-space:pre">{code}</pre>',
    )
