"""A bar on standard error while a model is loaded, or something else takes its time."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


def loading_bar() -> AbstractContextManager[Callable[[int, int], None]]:
    """Show how many of a model's tensors are read."""
    return progress_bar("Loading", "tensors")


@contextmanager
def progress_bar(doing: str, what: str) -> Iterator[Callable[[int, int], None]]:
    """Show how much of something is done, on standard error and only if that is a terminal.

    Args:
        doing: what is done.
        what: what is counted.

    Yields:
        What is called with the number done so far and that of all.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    columns = TextColumn(doing), BarColumn(), MofNCompleteColumn(), TextColumn(what)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("")
        yield lambda done, total: bar.update(task, completed=done, total=total)
