"""Files that are written completely or not at all."""

import os
import signal
import subprocess
import sys

from duat_jax.files import write_file

KILLED = """
import os, pathlib, signal, sys
from duat_jax.files import write_file
os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)
write_file(pathlib.Path(sys.argv[1]), b"new")
"""


def test_what_a_killed_writer_leaves_is_removed_after_a_day_and_what_another_one_writes_is_kept(tmp_path):
    target, day = tmp_path / "target", 24 * 3600
    write_file(target, b"old")
    killed = subprocess.run([sys.executable, "-c", KILLED, target], check=False)
    assert killed.returncode == -signal.SIGKILL and target.read_bytes() == b"old"
    (left,) = tmp_path.glob(".duat-*.part")
    living = tmp_path / ".duat-00.part"
    living.touch()
    now = living.stat().st_mtime
    for age, there in ((0, {left, living}), (day - 60, {left, living}), (day + 60, {living})):
        os.utime(left, (now - age, now - age))
        write_file(target, b"whole")
        assert target.read_bytes() == b"whole" and set(tmp_path.iterdir()) == {target, *there}
