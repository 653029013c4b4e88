"""A command's own process, which lets the resident process run the command, or runs it and may leave one behind."""

import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from duat_jax.cli.resident.place import ACCEPTED, LENGTH, PRINTS, SECONDS, address, open_folder, peer
from duat_jax.cli.resident.state import common_state

if TYPE_CHECKING:
    from duat_jax.cli.resident.process import Resident

VARIABLE, MINUTES = "DUAT_RESIDENT", 15.0
"""The variable with the idle minutes after which the process ends, and their number if it is absent."""

QUESTIONS = {"explain", "contrast", "attribute", "graph", "attention", "intervene", "steer", "diff", "in-context"}
"""The commands that the process runs: each asks one question, and neither trains nor measures for long."""

ALONE = "/dev/", "/proc/", "float64", "--out"
"""Parts of arguments with which a command runs by itself: files of one process, what configures JAX, many prompts."""

_client: "Client | None" = None
"""The client of the command that this process runs by itself, if it may leave a resident process behind."""

_resident: "Resident | None" = None
"""This process as a resident one, after the fork."""


def run(command: Callable[[], None]) -> None:
    """Run the command of `sys.argv`, in the resident process if there is one.

    Args:
        command: reads `sys.argv`, runs the command and exits.
    """
    global _client
    _client = _usable_client(sys.argv[1:])
    if _client is not None and (status := _client.ask()) is not None:
        sys.exit(status)
    try:
        command()
    except BaseException as ended:
        if _resident is None:
            raise
        if isinstance(ended, SystemExit) and _resident.end_command(ended.code):
            _resident.serve(command)
        os._exit(1)  # after an error the parent runs the command again, and shows it


def stay() -> None:
    """Fork, unless a command has to run by itself: the child runs it and stays, the parent exits with its status."""
    global _client, _resident
    client, _client = _client, None
    if client is None or len(os.listdir("/proc/self/task")) > 1:  # a fork would lose the other threads
        return
    from duat_jax.cli.resident.process import Resident

    inherited = list(_inherited())
    sys.stdout.flush()
    sys.stderr.flush()
    parent, child = socket.socketpair()
    if process := os.fork():
        child.close()
        with parent, _forwarded_signals(process):
            status = _status(parent)
        if status is not None:
            sys.exit(status)
    else:
        parent.close()
        os.close(client.folder)  # the lock is the parent's
        os.setsid()
        _resident = Resident(client.state, client.seconds, child, inherited)


def stays() -> bool:
    """Return whether this process runs other commands after this one."""
    return _resident is not None


def _inherited() -> Iterator[int]:
    """Yield the open descriptors that this process was started with, besides the first three."""
    for number in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            if number > 2 and os.get_inheritable(number):
                yield number


def _usable_client(arguments: list[str]) -> "Client | None":
    """Return a client if the resident process can run the arguments' command, and runs no other."""
    try:
        minutes = float(os.environ.get(VARIABLE, MINUTES))
    except ValueError:
        return None
    if not 0 < minutes < 1e6 or sys.platform != "linux" or None in (sys.stdin, sys.stdout, sys.stderr):
        return None
    if not QUESTIONS & set(arguments[:1]) or {"--help", "-h"} & set(arguments) or sys.gettrace() is not None:
        return None
    # matplotlib reads its settings once, those in the working folder before the user's.
    if any(part in each for each in arguments for part in ALONE) or os.path.exists("matplotlibrc"):
        return None
    import fcntl  # not on every platform

    try:
        folder = open_folder()
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return Client(folder, 60 * minutes)
    except OSError:
        return None


class Client:
    """A command that the resident process may run; no other one does as long as this process has the folder locked.

    Args:
        folder: the folder of the socket.
        seconds: the idle time after which a process that is left behind ends.
    """

    def __init__(self, folder: int, seconds: float) -> None:
        self.folder, self.seconds, self.state = folder, seconds, common_state()

    def ask(self) -> int | None:
        """Return the exit status of the command in the resident process; none if it has to run by itself."""
        umask = os.umask(0)
        os.umask(umask)
        message = json.dumps([self.state, sys.argv, dict(os.environ), umask]).encode()
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(SECONDS)
        try:
            connection.connect(address(self.folder))
            process = peer(connection)
        except OSError:  # also if it hangs, and others wait for it
            return None
        with connection, _forwarded_signals(process):
            try:
                place = os.open(".", os.O_PATH)
                socket.send_fds(connection, [LENGTH.pack(len(message))], [0, 1, 2, place])
                os.close(place)
                connection.sendall(message)
                if connection.recv(len(ACCEPTED), socket.MSG_WAITALL) != ACCEPTED:
                    return None
            except TimeoutError:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)  # it hangs, and runs nobody's command
                return None
            except OSError:
                return None
            connection.settimeout(None)
            return _status(connection)


def _status(connection: socket.socket) -> int | None:
    """Return the exit status that a process sends; none if it ended before it printed anything."""
    printed = False
    with connection.makefile("rb") as answers:
        for answer in answers:
            if answer != PRINTS:
                return int(answer)
            printed = True
    if not printed:
        return None
    print("duat: the resident process ended while it printed: run the command again", file=sys.stderr)
    return 1


@contextmanager
def _forwarded_signals(process: int) -> Iterator[None]:
    """Interrupt, stop and continue another process with this one."""

    def send(number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(process, number)

    def interrupt(*_: Any) -> None:
        send(signal.SIGINT)

    def stop(*_: Any) -> None:
        send(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        send(signal.SIGCONT)

    usual: list[tuple[int, Any, Any]]
    usual = [(signal.SIGINT, signal.default_int_handler, interrupt), (signal.SIGTSTP, signal.SIG_DFL, stop)]
    usual = [(number, before, new) for number, before, new in usual if signal.getsignal(number) == before]
    for number, _, new in usual:
        signal.signal(number, new)
    try:
        yield
    finally:
        for number, before, _ in usual:
            signal.signal(number, before)
