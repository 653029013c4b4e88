"""Work on one question: it says what it does, and can be stopped."""

import threading
from collections.abc import Callable
from functools import cache
from types import TracebackType

TRACED = "/jax/core/compile/jaxpr_trace_duration"
LOWERED, COMPILED = "/jax/core/compile/jaxpr_to_mlir_module_duration", "/jax/core/compile/backend_compile_duration"
"""JAX's events: when a program was traced, before it is compiled, and when it was."""

_here = threading.local()


class Stopped(Exception):
    """The end of work that was stopped."""


class Work:
    """Work on one question, in one thread.

    JAX can't be interrupted. The work ends between two steps, and where a program was traced or compiled.

    Args:
        tell: is called with what is being done, in that thread.

    Example:
        >>> said = []
        >>> with Work(said.append) as work:
        ...     work.step("explaining")
        >>> said
        ['explaining']
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell, self._stopped, self._doing = tell, threading.Event(), ""

    def stop(self) -> None:
        """End the work as soon as it can."""
        self._stopped.set()

    def step(self, doing: str) -> None:
        """Begin a step."""
        if self._stopped.is_set():
            raise Stopped
        self._doing = doing
        self._tell(doing)

    def heard(self, event: str, program: str) -> None:
        """Take in an event of JAX's compilation."""
        if event == LOWERED:
            self._tell(f"{self._doing}: compiling {program!r}, once for texts of about this length")
        elif event in (TRACED, COMPILED):
            self.step(self._doing)

    def __enter__(self) -> "Work":
        _listen()
        _here.work = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _here.work = None


def program_name(event: dict[str, str | int]) -> str:
    """Return the name of the program of an event."""
    name = str(event.get("fun_name", "")).removeprefix("jit(").removesuffix(")")
    return name.strip("_").replace("_", " ")


@cache
def _listen() -> None:
    """Register the listener, once in a process: JAX calls it in the thread that compiles."""
    from jax.monitoring import register_event_duration_secs_listener

    def heard(event: str, duration_secs: float | int, **more: str | int) -> None:  # some of JAX's libraries give counts
        work: Work | None = getattr(_here, "work", None)
        if work is not None:
            work.heard(event, program_name(more))

    register_event_duration_secs_listener(heard)
