"""A model divided over two processes: the program of the page, the numbers of one process, what a lost one leaves."""

import os
import re
import signal
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest
from helpers import close
from shown_pages import ROOT, blocks
from test_mesh import PROGRAM, with_devices

import duat_jax as duat
from duat_jax.processes import on_host, put

PAGE = (ROOT / "docs" / "how-to" / "gpu-and-tpu.md").read_text(encoding="utf-8")
(SCRIPT,) = blocks('py title="explain.py"', PAGE)
(COMMAND,) = (block for block in blocks("console", PAGE) if "explain.py" in block)
UNOPTIMISED = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


@pytest.fixture
def folder(tmp_path, port):
    """A folder with the program of the page, at a port that is free."""
    (address,) = re.findall(r'"localhost:(\d+)"', SCRIPT)
    (tmp_path / "explain.py").write_text(SCRIPT.replace(address, str(port)), encoding="utf-8")
    return tmp_path


def test_the_command_of_the_page_explains_as_one_process_does(folder):
    variables = with_devices(2, PATH=os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"])))
    command = COMMAND.removeprefix("$ ")
    done = subprocess.run(command, shell=True, cwd=folder, env=variables | UNOPTIMISED, capture_output=True, text=True)
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        model = duat.load()
        tokenizer = model.tokenizer
        expected = duat.explain(model, "for i in range(10", "):", tokenizer=tokenizer)
    (printed,) = (line for line in done.stdout.splitlines() if "Gloo" not in line)
    assert printed.startswith(f"Explanation({expected.target}"), done.stderr
    found = duat.open(folder / "explanation")
    assert found.completeness.verdict == "holds"
    for one, other in zip(found.arrays(), expected.arrays(), strict=True):
        assert (one.part, one.place) == (other.part, other.place)
        close(np.float32(one.values), np.float32(other.values), layers=model.config.layers)


@pytest.mark.slow
def test_a_process_whose_other_one_is_killed_ends_with_a_line_and_writes_nothing(folder):
    started = [
        subprocess.Popen(
            [sys.executable, "-u", "explain.py", str(i)],
            cwd=folder,
            env=with_devices(2) | UNOPTIMISED,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    # Each of the four devices is connected when it says so: the question is being answered.
    for process in started:
        assert all("Gloo" in process.stdout.readline() for _ in range(2)), process.communicate()
    first, second = started
    second.send_signal(signal.SIGKILL)
    second.communicate()
    printed, complaint = first.communicate(timeout=60)
    assert "Explanation" not in printed
    assert [path.name for path in folder.iterdir()] == ["explain.py"]
    if first.returncode == 1:
        (line,) = complaint.splitlines()
        assert line.startswith("another of the 2 processes ended, so process 0 can't go on: start all of them again (")
    else:  # it waited inside of a collective operation, and JAX's heartbeat ended it
        assert first.returncode == -signal.SIGABRT
        assert "JAX distributed service detected fatal errors" in complaint


@pytest.mark.slow
def test_the_answers_of_two_processes_are_those_of_one(port):
    """Texts are divided between the processes, heads among the devices of each; then heads among all."""
    started = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), "processes", str(i), str(port), "grouped heads", "2x2"],
            env=with_devices(2) | UNOPTIMISED,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    said = [process.communicate() for process in started]
    assert [process.returncode for process in started] == [0, 0], [error[-3000:] for _, error in said]


def test_on_one_process_arrays_are_put_and_brought_back_as_jax_does():
    x = np.arange(6.0)
    (device,) = put(x, jax.devices()[0]).devices()
    assert device == jax.devices()[0]
    found = on_host({"array": put(x, None), "host": x, "none": None})
    np.testing.assert_array_equal(found["array"], x)
    assert found["host"] is x and found["none"] is None and isinstance(found["array"], np.ndarray)
