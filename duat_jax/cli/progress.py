"""Progress bars on standard error."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


def loading_bar() -> AbstractContextManager[Callable[[int, int], None]]:
    """Show the number of a model's tensors that are loaded."""
    return progress_bar("Loading", "tensors")


@contextmanager
def progress_bar(title: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of a task, on standard error and only if that is a terminal.

    Args:
        title: the title of the task.
        unit: the unit that is counted.

    Yields:
        A function of the number done so far and the number of all.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    columns = TextColumn(title), BarColumn(), MofNCompleteColumn(), TextColumn(unit)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("")
        yield lambda done, total: bar.update(task, completed=done, total=total)
