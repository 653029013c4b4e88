"""Surveys on workers of Dask: none yet, one that is killed, one that dies for good; addresses where nobody answers."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import jax
import pytest
from cases import GOLDEN
from distributed import Client, LocalCluster
from distributed import client as dask_client
from distributed.client import FutureCancelledError, FuturesCancelledError
from distributed.comm import CommClosedError
from distributed.scheduler import KilledWorker
from typer.testing import CliRunner

import duat_jax as duat
from duat_jax.cli import application
from duat_jax.cli.errors import INTERRUPTED
from duat_jax.survey import run

TEXTS = [Path(__file__).parents[2] / "LICENSE"]
TOKENS, SMALL = 8, GOLDEN / "gpt2"


@pytest.fixture(scope="module")
def client():
    """A client of three processes, configured as the suite is, so that they compile the same programs."""
    names = (
        "jax_compilation_cache_dir",
        "jax_disable_most_optimizations",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
    )
    with pytest.MonkeyPatch.context() as environment:
        for name in names:
            environment.setenv(name.upper(), str(jax.config.values[name]))
        with (
            LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            yield client


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """The files of the survey of a small model that one process measures."""
    directory = tmp_path_factory.mktemp("survey") / "one"
    survey(directory, SMALL)
    return files(directory)


def files(directory):
    """Return the content of each file, but of temporary ones, of which a process killed while it writes leaves one."""
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("[!.]*") if path.is_file()}


def survey(directory, model=None, **options):
    return duat.survey.survey(model, [path.read_text() for path in TEXTS], directory, tokens=TOKENS, **options)


def survey_of(directory, *arguments):
    return list(map(str, ["survey", *TEXTS, "--tokens", TOKENS, "--out", directory, *arguments]))


def command(directory, *arguments):
    return CliRunner().invoke(application, survey_of(directory, *arguments))


def kill_one_that_works(client):
    """Kill a worker process in the middle of its part."""
    address = next(address for address, parts in client.processing().items() if parts)
    os.kill(client.run(os.getpid)[address], signal.SIGKILL)
    return address


def test_the_command_measures_on_the_workers_of_a_scheduler(one, tmp_path):
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster:
        done = command(tmp_path / "survey", "--model", SMALL, "--dask", cluster.scheduler_address)
    assert done.exit_code == 0, (done.output, str(done.exception))
    assert files(tmp_path / "survey") == one


def when_parts_wait(cluster, act):
    """Act as soon as the scheduler has been given parts."""
    ends = time.monotonic() + 90
    while not cluster.scheduler.tasks and time.monotonic() < ends:
        time.sleep(0.01)
    act()


COMMAND = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    " runpy.run_module('duat_jax', run_name='__main__')"
)
"""The command in a process that can be interrupted also where the tests run in the background, which ignores that."""


def interrupted(process):
    """Interrupt a process as Ctrl+C does, and return what it printed; Python ignores an interrupt within a callback."""
    for _ in range(9):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=10)[1]
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    return f"It goes on.\n{process.communicate()[1]}"


def test_a_scheduler_without_workers_is_one_line_and_the_survey_begins_with_the_first_one(one, tmp_path):
    """It is interrupted while it waits, and begun again; then a worker comes."""
    with (
        LocalCluster(
            n_workers=0, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0"
        ) as cluster,
        ThreadPoolExecutor() as beside,
    ):
        address = cluster.scheduler_address
        said = f"duat: {address} has no workers, and the survey waits for one: dask worker {address} --nthreads 1"
        asked = survey_of(tmp_path / "survey", "--model", SMALL, "--dask", address)
        waiting = subprocess.Popen([sys.executable, "-c", COMMAND, *asked], stderr=subprocess.PIPE, text=True)
        beside.submit(when_parts_wait, cluster, lambda: None).result(timeout=100)
        printed = interrupted(waiting)
        assert waiting.returncode == INTERRUPTED, printed
        assert said in printed.splitlines()
        assert files(tmp_path / "survey").items() < one.items()
        ends = time.monotonic() + 60
        while cluster.scheduler.tasks and time.monotonic() < ends:
            time.sleep(0.01)
        beside.submit(when_parts_wait, cluster, lambda: cluster.scale(1))
        done = command(tmp_path / "survey", "--model", SMALL, "--dask", address)
    assert done.exit_code == 0 and done.stderr.splitlines()[0] == said, done.output
    assert files(tmp_path / "survey") == one


class Failing(Executor):
    """An executor as Dask's is when its scheduler or its workers are gone: parts fail, or can't be submitted.

    Args:
        error: the error of every part.
        at_once: whether a part can't be submitted.
    """

    def __init__(self, error, at_once):
        self.error, self.at_once = error, at_once

    def submit(self, *_, **__):
        """Return a part that failed."""
        if self.at_once:
            raise self.error
        future = Future()
        future.set_exception(self.error)
        return future


CLOSED = [error for name, error in vars(dask_client).items() if name == "ClosedClientError"]
"""Not in the oldest version."""
SCHEDULER = "the parts were cancelled, since the scheduler ended or the executor was shut down"


@pytest.mark.parametrize("at_once", [False, True], ids=["later", "at once"])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KilledWorker("part", None, 3), "a worker died"),
        (FutureCancelledError("part", "scheduler-connection-lost"), SCHEDULER),
        (FuturesCancelledError([]), SCHEDULER),
        *((closed("Client is closed. Can't send update-graph message."), SCHEDULER) for closed in CLOSED),
        (CommClosedError("in <TCP (closed)>: ConnectionResetError"), SCHEDULER),
    ],
    ids=lambda given: given.split()[-1] if isinstance(given, str) else type(given).__name__,
)
def test_a_lost_scheduler_is_one_line_that_says_how_to_go_on(error, reason, at_once, tmp_path, monkeypatch):
    module = import_module("duat_jax.survey.executors")
    monkeypatch.setattr(module, "executor_of", lambda *_: contextlib.nullcontext(Failing(error, at_once)))
    ended = command(tmp_path / "survey", "--model", SMALL, "--dask", "tcp://scheduler:8786")
    last = ended.stderr.splitlines()[-1]
    assert ended.exit_code == 2 and last == f"duat: {reason}: run the same again, and what is left is measured then"


class Missing:
    """A task of a module that the scheduler and the workers don't have."""

    def __reduce__(self):
        """Return what imports the module where the task is read."""
        return __import__, ("a_module_that_is_missing",)

    def __call__(self, *given):
        """Do nothing."""


def test_workers_without_this_package_are_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "_measure_part", Missing())
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster:
        done = command(tmp_path / "survey", "--model", SMALL, "--dask", cluster.scheduler_address)
    assert done.exit_code == 2 and "install this duat-jax there too" in done.stderr.splitlines()[-1], done.output


@pytest.mark.slow
def test_a_killed_worker_changes_no_byte_and_one_that_dies_for_good_is_one_line(client, tmp_path):
    """Dask gives a killed worker's parts to others, four times if nothing else is said; then it is one line."""
    survey(tmp_path / "one")
    one, killed = files(tmp_path / "one"), []

    def kill(done, total):
        if done and not killed:  # before the first part none works
            killed.append(kill_one_that_works(client))

    executor = client.get_executor(pure=False)
    survey(tmp_path / "killed", executor=executor, progress=kill)
    assert killed and killed[0] not in client.run(os.getpid)
    assert files(tmp_path / "killed") == one

    client.cluster.scheduler.allowed_failures = 0
    killed.clear()
    with pytest.raises(duat.DuatError, match="^a worker died: run the same again[^\n]*$"):
        survey(tmp_path / "dying", executor=executor, progress=kill)
    done = command(tmp_path / "dying", "--dask", client.scheduler.address)
    assert done.exit_code == 0, (done.output, str(done.exception))
    assert files(tmp_path / "dying") == one


def test_addresses_where_no_scheduler_answers_are_one_line(tmp_path, monkeypatch):
    """The last one listens, and says nothing."""
    monkeypatch.setattr(import_module("duat_jax.survey.executors"), "ANSWERS_WITHIN", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for address, message in {
            "tcp://127.0.0.1:1": "no scheduler answers within",
            f"tcp://127.0.0.1:{silent.getsockname()[1]}": "no scheduler answers within",
            "localhost": "missing port number",
            "carrier-pigeon://somewhere:1": "unknown address scheme",
        }.items():
            done = command(tmp_path / "survey", "--dask", address)
            assert done.exit_code == 2, done.output
            assert re.fullmatch(f"duat: --dask {address}: {message}.*\n", done.stderr), done.stderr
    refused = command(tmp_path / "survey", "--dask", "tcp://127.0.0.1:1", "--workers", 2)
    assert refused.exit_code == 2 and "give one of them" in refused.stderr
    assert not (tmp_path / "survey").exists()
