"""The resident process: it runs the commands that clients send, one after another."""

import contextvars
import io
import json
import os
import resource
import signal
import socket
import struct
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

from duat_jax.cli.resident.place import ACCEPTED, LENGTH, PRINTS, SECONDS, address, open_folder, peer

MOST_BYTES = 2 * 2**30
"""The most memory with which the process stays."""

INTERRUPTED = 130
"""The exit status after which it ends: what was interrupted may be left unfinished."""

STREAMS = "stdin", "stdout", "stderr"


class _Output(io.FileIO):
    """Standard output, which tells the client before it is written to."""

    client: socket.socket | None = None

    def write(self, data: Any) -> int:
        if self.client is not None:
            self.client.sendall(PRINTS)
            self.client = None
        return super().write(data)


class Resident:
    """The process that stays.

    Args:
        state: what a command has in common with the process.
        seconds: the idle time after which the process ends.
        connection: to the first command's client.
        inherited: descriptors that are closed after the first command.
    """

    def __init__(self, state: str, seconds: float, connection: socket.socket, inherited: list[int]) -> None:
        self.state, self.seconds, self.inherited = state, seconds, inherited
        self.listener: socket.socket | None = None
        self.first = {name: getattr(sys, name) for name in STREAMS}
        self._begin_command(connection)

    def serve(self, command: Callable[[], None]) -> None:
        """Run commands until there is none for some time, or one after which the process can't stay.

        Args:
            command: reads `sys.argv`, runs the command and exits.
        """
        stays = True
        while stays and self.listener is not None:
            try:
                connection, _ = self.listener.accept()
            except TimeoutError:
                return
            try:
                received = self._receive(connection)
            except (OSError, ValueError, struct.error):  # the client has ended
                connection.close()
                continue
            if not received:
                return
            try:
                self._begin_command(connection)
                contextvars.copy_context().run(command)
            except SystemExit as ended:
                stays = self.end_command(ended.code)
            except BaseException:
                return

    def _receive(self, connection: socket.socket) -> bool:
        """Take over what a client sends: its descriptors, arguments, environment, folder and umask."""
        connection.settimeout(SECONDS)
        peer(connection)
        length, descriptors, _, _ = socket.recv_fds(connection, LENGTH.size, 4)
        (size,) = LENGTH.unpack(length)
        state, argv, environment, umask = json.loads(connection.recv(size, socket.MSG_WAITALL))
        if state != self.state:
            return False
        *standard, folder = descriptors
        for number, descriptor in enumerate(standard):
            os.dup2(descriptor, number)
        os.fchdir(folder)
        for descriptor in descriptors:
            os.close(descriptor)
        os.umask(umask)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = argv
        connection.settimeout(None)
        connection.sendall(ACCEPTED)
        return True

    def _begin_command(self, connection: socket.socket) -> None:
        """Make standard streams, as Python does when it is started; end if the client does."""
        self.connection, self.answered, self.undone = connection, threading.Event(), ExitStack()
        self.undone.enter_context(warnings.catch_warnings())
        for number, (name, first) in enumerate(self.first.items()):
            raw = _Output(number, "w" if number else "r", closefd=False)
            raw.client = connection if number == 1 else None
            unbuffered = first.write_through
            buffer: Any = raw if unbuffered else (io.BufferedWriter if number else io.BufferedReader)(raw)
            by_line = not unbuffered and (number == 2 or raw.isatty())
            newline = "\n" if number else None
            stream = io.TextIOWrapper(buffer, first.encoding, first.errors, newline, by_line, unbuffered)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
        threading.Thread(target=_end_with, args=(connection, self.answered), daemon=True).start()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def end_command(self, code: Any) -> bool:
        """Tell the client the exit status, and return whether the process stays.

        Args:
            code: that of the command's `SystemExit`.
        """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.undone.close()
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with suppress(OSError, ValueError):
                stream.flush()
        stays = code != INTERRUPTED and _keeps_little() and (self.listener is not None or self._listens())
        if not stays and self.listener is not None:
            self.listener.close()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nowhere, number)
        os.close(nowhere)
        os.chdir("/")
        self.answered.set()
        with suppress(OSError):
            self.connection.sendall(b"%d\n" % (code or 0))
        self.connection.close()
        return stays

    def _listens(self) -> bool:
        """Open the socket, whose folder the first command's client still has locked; return whether that can be."""
        for number in self.inherited:
            os.close(number)
        listener = socket.socket(socket.AF_UNIX)
        listener.settimeout(self.seconds)
        try:
            folder = open_folder()
            with suppress(FileNotFoundError):
                os.unlink(address(folder))
            listener.bind(address(folder))
            listener.listen()
            os.close(folder)
        except OSError:
            return False
        self.listener = listener
        return True


def _end_with(connection: socket.socket, answered: threading.Event) -> None:
    """End this process when the client ends before it is answered."""
    with suppress(OSError):
        connection.recv(1)
    if not answered.is_set():
        os._exit(1)


def _keeps_little() -> bool:
    """Return whether JAX is started, on no accelerator, whose memory it would take, and with not much memory."""
    if "jax" not in sys.modules:
        return False
    import jax

    with open("/proc/self/statm", encoding="ascii") as pages:
        used = int(pages.read().split()[1]) * resource.getpagesize()
    return used <= MOST_BYTES and jax.default_backend() == "cpu"
