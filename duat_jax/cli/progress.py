"""A bar on standard error while a model is loaded."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def loading_bar() -> Iterator[Callable[[int, int], None]]:
    """Show how many of a model's tensors are read, on standard error and only if that is a terminal.

    Yields:
        What is called with the number of tensors read so far and that of all.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    columns = TextColumn("Loading"), BarColumn(), MofNCompleteColumn(), TextColumn("tensors")
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("")
        yield lambda done, total: bar.update(task, completed=done, total=total)
