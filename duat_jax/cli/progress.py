"""Progress bars on standard error."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from duat_jax.live.work import COMPILED, LOWERED, program_name

if TYPE_CHECKING:
    from rich.progress import ProgressColumn
    from rich.text import Text

MINUTE = 60.0

_BAR: ContextVar[bool] = ContextVar("_BAR", default=False)
"""Whether a bar is shown, which already says that work goes on."""


class Compiling:
    """The name of the program that JAX is compiling, as a text that live displays show.

    Args:
        title: what stands before it.
    """

    def __init__(self, title: str = "") -> None:
        from jax.monitoring import register_event_duration_secs_listener

        self.title, self.name = title, ""
        register_event_duration_secs_listener(self._heard)

    def _heard(self, event: str, duration_secs: float | int, **more: str | int) -> None:
        if event in (LOWERED, COMPILED):
            self.name = program_name(more) if event == LOWERED else ""

    def __rich__(self) -> "Text":
        from rich.text import Text

        return Text(", ".join(filter(None, (self.title, self.name and f"compiling {self.name!r}"))))


@contextmanager
def working(title: str) -> Iterator[None]:
    """Show in a terminal, on standard error, that work goes on, and what is compiled."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal or _BAR.get():
        yield
        return
    with console.status(Compiling(title)):
        yield


def loading_bar() -> AbstractContextManager[Callable[[int, int], None]]:
    """Show the number of a model's tensors that are loaded."""
    return progress_bar("Loading", "tensors")


@contextmanager
def progress_bar(title: str, unit: str, *, rate: tuple[int, str] | None = None) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of a task on standard error: as a bar in a terminal, elsewhere as a line every minute."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        RenderableColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(title, unit, rate)
        return
    times = TextColumn("elapsed"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()
    counts = TextColumn(title), BarColumn(), MofNCompleteColumn(), TextColumn(unit)
    columns = *counts, *([] if rate is None else [_speed_column(*rate)]), *times, RenderableColumn(Compiling())
    period = 30.0 if rate is None else math.inf  # a unit may take longer than the 30 seconds that are averaged over
    with Progress(*columns, console=console, transient=True, speed_estimate_period=period) as bar:
        task, shown = bar.add_task(""), _BAR.set(True)
        try:
            yield lambda done, total: bar.update(task, completed=done, total=total)
        finally:
            _BAR.reset(shown)


def _speed_column(each: int, name: str) -> "ProgressColumn":
    """Return a column of a bar that says how many are done in a second, each unit having as many."""
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text("" if task.speed is None else f"{task.speed * each:,.0f} {name}/s")

    return Speed()


def _lines(title: str, unit: str, rate: tuple[int, str] | None = None) -> Callable[[int, int], None]:
    """Return a function that prints a line at most once a minute, for logs and notebooks."""
    began = last = time.monotonic()
    before = 0 if rate is None else None

    def report(done: int, total: int) -> None:
        nonlocal last, before
        before = done if before is None else before
        now = time.monotonic()
        if now - last >= MINUTE:
            last = now
            left = (now - began) / max(done - before, 1) * (total - done)
            speed = "" if rate is None else f"{(done - before) * rate[0] / (now - began):,.0f} {rate[1]}/s, "
            print(
                f"{title}: {done} of {total} {unit}, {speed}{(now - began) / MINUTE:.0f} min elapsed, about"
                f" {left / MINUTE:.0f} min left",
                file=sys.stderr,
                flush=True,
            )

    return report
