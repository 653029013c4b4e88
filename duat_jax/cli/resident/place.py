"""The Unix socket of the resident process, in a folder that only the user can open."""

import os
import socket
import struct
from contextlib import suppress

SECONDS = 2.0
"""The time within which an idle process answers, and a client sends its command."""

LENGTH = struct.Struct("Q")
"""The length of a command's message, which follows it."""

ACCEPTED, PRINTS = b"accepted\n", b"prints\n"
"""Answers to a client before the exit status: its command is run; it prints, so that it can't be run again."""

_PEER = struct.Struct("3i")


def open_folder() -> int:
    """Open the folder of the socket, made if needed; raise if another user could open it."""
    homes = os.environ.get("XDG_RUNTIME_DIR", ""), os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")
    home = next(filter(os.path.isabs, homes), None)
    if home is None:
        raise FileNotFoundError("there is no home directory")
    path = os.path.join(home, "duat-jax", "resident")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    status = os.fstat(folder)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        os.close(folder)
        raise PermissionError(path)
    return folder


def address(folder: int) -> str:
    """Return the address of the socket in an open folder, whose own path may be too long for one."""
    return f"/proc/self/fd/{folder}/socket"


def peer(connection: socket.socket) -> int:
    """Return the process at the other end of a connection; raise if it is another user's."""
    received = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    process, user, _ = _PEER.unpack(received)
    if user != os.geteuid() or process <= 0:  # 0 is a process that can't be seen from here
        raise PermissionError(f"process {process} of user {user}")
    return process
