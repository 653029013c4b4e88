"""The resident process: commands behave as they do by themselves, to the byte, whatever happens to the process."""

import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path

import pytest
import typer
from cases import GOLDEN
from test_cli import commands

from duat_jax.cli import application
from duat_jax.cli.kept_model import kept_model
from duat_jax.cli.resident.client import QUESTIONS
from duat_jax.cli.resident.place import peer
from duat_jax.cli.resident.state import common_state

ROOT = Path(__file__).parent.parent.parent

PROGRAM = """
import os, signal, sys, time, types, warnings
from duat_jax.cli.resident.client import run, stay, stays

def command():
    what = sys.argv[2]
    if what != "early":
        stay()
        sys.modules.setdefault("jax", types.SimpleNamespace(default_backend=lambda: os.environ.get("BACKEND", "cpu")))
    if what == "say":
        for i in range(3):
            print(i, os.getcwd(), os.environ.get("SAID"), sys.argv[1:], sys.stdout.encoding, sys.stdout.isatty(), "é")
            print(i, os.get_terminal_size(1).columns if sys.stdout.isatty() else "", file=sys.stderr)
        os.write(1, b"past the buffer")
        print(sys.stdin.read() if sys.argv[3:] == ["reads"] else "")
        print("LEFT" in os.environ, file=open("written", "a"))
        os.environ["SAID"], os.environ["LEFT"] = "later", "1"
    if what == "warn":
        warnings.warn("each time")
        warnings.simplefilter("ignore")
    if what == "die" and stays() or what == "print and die":
        if what != "die":
            print("begun", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "raise":
        raise ValueError("a mistake")
    if what == "wait":
        try:
            print("waits", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(130)
    if what == "pipe":
        try:
            while True:
                print("more")
        except BrokenPipeError:
            sys.stdout = None
            sys.exit(1)
    print(os.getpid(), file=open(os.environ["PIDS"], "a"))
    sys.exit(int(sys.argv[3]) if what == "exit" else 0)

run(command)
"""


class Commands:
    """Commands with a resident process in a folder of its own, and without."""

    def __init__(self, folder):
        self.folder, self.pids = folder, folder / "pids"
        self.started = []

    def start(self, *words, alone=False, program=PROGRAM, cwd=None, variables=(), **options):
        """Start a command: one of the program above, or a real one."""
        python = ["-c", program or "from duat_jax.cli import main; main()"]
        environment = os.environ | {"XDG_RUNTIME_DIR": str(self.folder), "PIDS": str(self.pids)} | dict(variables)
        environment |= {"PYTHONPATH": str(ROOT), "DUAT_RESIDENT": "0" if alone else ".5", "SOURCE_DATE_EPOCH": "0"}
        environment["JAX_COMPILATION_CACHE_DIR"] = str(ROOT / ".pytest_cache" / "commands")
        command = [sys.executable, *python, *map(str, words)]
        started = subprocess.Popen(command, env=environment | dict(variables), cwd=cwd or self.folder, **options)
        self.started.append(started)
        return started

    def run(self, *words, given=b"", **options):
        """Return the exit status of a command and what it printed on standard output and error."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        started = self.start(*words, **pipes)
        printed, said = started.communicate(given, timeout=300)
        return started.returncode, printed, said

    def process(self):
        """Return the number of the resident process, if there is one."""
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(self.folder / "duat-jax" / "resident" / "socket"))
            except OSError:
                return None
            return peer(connection)


@pytest.fixture
def resident(tmp_path):
    tmp_path.chmod(0o700)
    found = Commands(tmp_path)
    yield found
    if (process := found.process()) is not None:
        os.kill(process, signal.SIGKILL)
    for each in found.started:
        each.kill()


def ended(process):
    """Return whether a process ends soon."""
    for _ in range(100):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def is_closed(pipe):
    """Return whether no process has the other end of a pipe open any more, soon."""
    return bool(select.select([pipe], [], [], 10)[0]) and os.read(pipe, 1) == b""


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (("say",), {}),
        (("say", "reads"), {"given": b"a text\n"}),
        (("say", "é\udcff"), {"variables": {"SAID": "x\ny"}}),
        (("say", "both"), {"stderr": subprocess.STDOUT}),
        (("say",), {"variables": {"PYTHONUNBUFFERED": "1"}, "stderr": subprocess.STDOUT}),
        (("say",), {"variables": {"PYTHONIOENCODING": "ascii:backslashreplace"}}),
        (("exit", "3"), {}),
        (("warn",), {}),
        (("raise",), {}),
        (("early",), {}),
    ],
)
def test_a_command_does_the_same_in_the_first_and_later_turns(resident, tmp_path, words, options):
    folders = [tmp_path / name for name in ("alone", "first", "second", "third")]
    results = []
    for folder in folders:
        folder.mkdir()
        results.append(resident.run("explain", *words, cwd=folder, alone=folder.name == "alone", **options))
        results[-1] = tuple(str(each).replace(str(folder), "FOLDER") for each in results[-1])
    assert results[1:] == results[:1] * 3
    written = [{file.name: file.read_text() for file in folder.iterdir()} for folder in folders]
    assert written[1:] == written[:1] * 3
    same = len(set(resident.pids.read_text().split()[1:])) == 1 if resident.pids.exists() else False
    assert same == (words[0] not in ("raise", "early"))


def test_files_are_made_with_the_umask_of_the_client(resident, tmp_path):
    modes = []
    for umask in (0o22, 0o77):
        (tmp_path / str(umask)).mkdir()
        assert resident.run("explain", "say", cwd=tmp_path / str(umask), umask=umask)[0] == 0
        modes.append((tmp_path / str(umask) / "written").stat().st_mode & 0o777)
    assert modes == [0o644, 0o600]


def test_a_terminal_is_one_for_the_process_too(resident):
    seen = []
    for alone in (True, False, False):
        ours, theirs = pty.openpty()
        assert resident.run("explain", "say", alone=alone, stdout=theirs)[0] == 0
        os.close(theirs)
        seen.append(os.read(ours, 1 << 16))
        os.close(ours)
    assert b"True" in seen[0] and seen == seen[:1] * 3


def test_only_the_user_can_open_the_folder(resident, tmp_path):
    resident.run("explain", "exit", 0)
    folder = tmp_path / "duat-jax" / "resident"
    process = resident.process()
    assert process and folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    assert resident.run("explain", "exit", 0)[0] == 0
    assert int(resident.pids.read_text().split()[-1]) != process


@pytest.mark.parametrize("what", ["killed", "stopped", "another state", "an accelerator"])
def test_a_process_that_is_of_no_use_is_replaced(resident, what):
    resident.run("explain", "exit", 0)
    before, variables = resident.process(), {}
    if what in ("killed", "stopped"):
        os.kill(before, signal.SIGKILL if what == "killed" else signal.SIGSTOP)
    elif what == "another state":
        variables = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    else:
        variables = {"BACKEND": "gpu"}
        assert resident.run("explain", "exit", 0, variables=variables)[0] == 0
        assert ended(before) and resident.process() is None
    assert resident.run("explain", "exit", 3, variables=variables) == (3, b"", b"")
    assert ended(before)
    assert (resident.process() is None) == (what == "an accelerator")


def test_a_command_whose_process_dies_is_run_again_unless_it_has_printed(resident):
    for _ in range(2):
        assert resident.run("explain", "die") == (0, b"", b"")
        code, printed, said = resident.run("explain", "print and die")
        assert (code, printed) == (1, b"begun\n") and b"run the command again" in said
        resident.run("explain", "exit", 0)


@pytest.mark.parametrize("turn", ["alone", "first", "second"])
def test_an_interrupted_command_ends_as_it_does_by_itself(resident, turn):
    if turn == "second":
        resident.run("explain", "exit", 0)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    started = resident.start("explain", "wait", alone=turn == "alone", **pipes)
    assert started.stdout.readline() == b"waits\n"
    started.send_signal(signal.SIGINT)
    assert started.communicate(timeout=20) == (b"", b"interrupted\n") and started.returncode == 130
    assert resident.process() is None


@pytest.mark.parametrize("turn", ["first", "second"])
def test_the_process_ends_with_a_killed_client_and_its_pipes_are_closed(resident, turn):
    if turn == "second":
        resident.run("explain", "exit", 0)
    started = resident.start("explain", "wait", stdout=subprocess.PIPE)
    assert started.stdout.readline() == b"waits\n"
    started.kill()
    assert is_closed(started.stdout.fileno())
    assert resident.run("explain", "exit", 4)[0] == 4


def test_a_process_and_its_client_are_stopped_and_continued_together(resident):
    resident.run("explain", "exit", 0)
    process = resident.process()

    def state(each):
        return Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[0]

    started = resident.start("explain", "wait", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    started.stdout.readline()
    for sent, stopped in ((signal.SIGTSTP, True), (signal.SIGCONT, False)):
        started.send_signal(sent)
        deadline = time.monotonic() + 10
        while {state(process) == "T", state(started.pid) == "T"} != {stopped} and time.monotonic() < deadline:
            time.sleep(0.02)
        assert (state(process) == "T", state(started.pid) == "T") == (stopped, stopped)
    started.send_signal(signal.SIGINT)
    assert started.wait(20) == 130


def test_a_second_client_runs_its_command_by_itself(resident):
    resident.run("explain", "exit", 0)
    started = resident.start("explain", "wait", stdout=subprocess.PIPE)
    started.stdout.readline()
    assert resident.run("explain", "exit", 3)[0] == 3
    assert len(set(resident.pids.read_text().split())) == 2
    started.kill()


def test_a_reader_that_has_seen_enough_ends_a_command(resident):
    for alone in (True, False, False):
        started = resident.start("explain", "pipe", alone=alone, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        started.stdout.readline()
        started.stdout.close()
        assert (started.wait(20), started.stderr.read()) == (1, b"")


def test_descriptors_of_the_first_command_are_closed_after_it(resident):
    ours, theirs = os.pipe()
    assert resident.run("explain", "exit", 0, pass_fds=[theirs])[0] == 0
    os.close(theirs)
    assert resident.process() and is_closed(ours)
    os.close(ours)


def test_an_idle_process_ends(resident):
    resident.run("explain", "exit", 0, variables={"DUAT_RESIDENT": "0.01"})
    process = resident.process()
    assert process and ended(process)


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        (("explain", "exit", 0), {"DUAT_RESIDENT": "0"}),
        (("explain", "exit", 0), {"DUAT_RESIDENT": "no"}),
        (("verify", "exit", 0), {}),
        (("explain", "exit", 0, "--help"), {}),
        (("explain", "exit", 0, "--dtype=float64"), {}),
        (("explain", "exit", 0, "/dev/fd/3"), {}),
    ],
)
def test_a_command_that_runs_by_itself_leaves_no_process(resident, words, variables):
    assert resident.run(*words, variables=variables)[0] == 0
    assert resident.process() is None


def test_a_folder_that_cannot_be_made_is_no_error(resident, tmp_path):
    (tmp_path / "duat-jax").write_text("in the way")
    assert resident.run("explain", "exit", 3) == (3, b"", b"")


def test_the_other_end_of_a_connection_has_to_be_the_same_user(monkeypatch):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer(ours) == os.getpid()
        monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
        with pytest.raises(PermissionError):
            peer(ours)


def test_the_state_has_every_file_of_the_package():
    state = common_state()
    for file in (each for name in ("duat_jax", "symbolic") for each in (ROOT / name).rglob("*.*")):
        assert file.suffix == ".pyc" or repr((str(file), file.stat().st_mtime_ns)) in state


def test_a_kept_model_is_loaded_again_when_its_files_or_options_change(tmp_path, monkeypatch):
    monkeypatch.setattr("duat_jax.cli.kept_model.stays", lambda: True)
    monkeypatch.setattr("duat_jax.cli.kept_model._kept", None)
    loaded, file = [], tmp_path / "model" / "weights"
    file.parent.mkdir()

    def load():
        loaded.append(None)
        return len(loaded)

    def warn():
        warnings.warn("a warning of the model", stacklevel=1)
        return load()

    def change(text, seconds):
        file.write_text(text)
        os.utime(file, (seconds, seconds))

    change("one", 1)
    given = (file.parent, file.parent, file, file, file.parent)
    assert [kept_model(path, ("float32",), load) for path in given] == [1, 1, 2, 2, 3]
    assert [kept_model(file, (dtype,), load) for dtype in ("float32", "bfloat16", "bfloat16")] == [4, 5, 5]
    change("two", 2)
    assert [kept_model(file, ("bfloat16",), load) for _ in range(2)] == [6, 6]
    change("three", 2)
    assert [kept_model(file, ("bfloat16",), load) for _ in range(2)] == [7, 7]
    with pytest.warns(UserWarning, match="a warning of the model"):
        assert [kept_model(file, ("float16",), warn) for _ in range(2)] == [8, 9]


def test_every_command_is_run_by_the_process_or_by_itself():
    by_themselves = {"audit", "circuit", "derive", "faithfulness", "lora", "prune", "serve", "survey"}
    by_themselves |= {"train-ledger", "verify"}
    names = {name.partition(" ")[0] for name, _ in commands(typer.main.get_command(application))}
    assert names - by_themselves == QUESTIONS and not by_themselves & QUESTIONS


CODE, OTHER = "for i in range(10", "for j in range(10"
REAL = {
    "explain": (
        "explain",
        CODE,
        "--plot",
        "a.png",
        "--html",
        "a.html",
        "--json",
        "a.json",
        "--save",
        "a",
        "--csv",
        "a.csv",
    ),
    "contrast": ("contrast", CODE, "--reference", OTHER, "--plot", "a.png", "--html", "a.html", "--json", "-"),
    "attribute": ("attribute", CODE, "--reference", OTHER, "--unit", "neuron", "--json", "a.json"),
    "graph": ("graph", CODE, "--viewer", "a.json", "--graphml", "a.graphml", "--plot", "a.pdf"),
    "attention": ("attention", CODE, "--layer", "2", "--head", "0", "--key", "1"),
    "intervene": ("intervene", CODE, "--edit", "head 2:1 set 0"),
    "steer": ("steer", CODE, "--towards", "import os", "--away", "class A:", "--layers", "2"),
    "diff": ("diff", "embedded", CODE, "--bits", "8"),
    "in-context": ("in-context", "c =", "--demonstration", "a = 1", "--demonstration", "b = 1", "--answer", " 1"),
    "no such position": ("explain", CODE, "--position", "99", "--json", "a.json"),
    "no such option": ("explain", CODE, "--nothing"),
    "no such model": ("explain", CODE, "--model", "nowhere"),
    "half": ("explain", CODE, "--dtype", "bfloat16"),
}


@pytest.mark.slow
def test_every_command_prints_and_writes_the_same_in_the_process(resident, tmp_path):
    def results(turn, alone):
        for name, words in REAL.items():
            folder = tmp_path / turn / name
            folder.mkdir(parents=True)
            code, printed, said = resident.run(*words, cwd=folder, alone=alone, program=None)
            said = re.sub(rb"(?m)^.* min elapsed.*\n", b"", said)  # of a machine with much else to do
            yield name, (code, printed, said, {file.name: file.read_bytes() for file in folder.iterdir()})

    alone = dict(results("alone", True))
    assert resident.process() is None
    for turn in ("first", "second"):
        assert dict(results(turn, False)) == alone
    assert [result[0] for result in alone.values()] == [0] * 9 + [2] * 3 + [0]
    assert {words[0] for words in REAL.values()} == QUESTIONS


def printed_on_a_terminal(resident, *words, **options):
    """Return what a command prints on a terminal of its own."""
    ours, theirs = pty.openpty()
    started = resident.start(*words, program=None, stdout=theirs, **options)
    os.close(theirs)
    pieces = []
    with suppress(OSError):  # of a terminal that nobody else has open any more
        while piece := os.read(ours, 1 << 16):
            pieces.append(piece)
    os.close(ours)
    assert started.wait(60) == 0
    return b"".join(pieces)


@pytest.mark.slow
def test_tables_have_the_colours_and_the_width_of_each_terminal(resident):
    terminals = [
        {"TERM": "xterm-256color", "COLORTERM": ""},
        {"TERM": "xterm-256color", "COLORTERM": "truecolor"},
        {"TERM": "xterm", "COLORTERM": ""},
        {"TERM": "xterm", "COLORTERM": "", "COLUMNS": "60"},
        {"TERM": "xterm", "COLORTERM": "", "NO_COLOR": "1"},
        {"TERM": "dumb", "COLORTERM": ""},
    ]
    words = ("explain", "w5 w17 w3", "--model", GOLDEN / "gpt2")
    alone = [printed_on_a_terminal(resident, *words, variables=each, alone=True) for each in terminals]
    assert len(set(alone)) == len(alone)
    assert [printed_on_a_terminal(resident, *words, variables=each) for each in terminals] == alone
    process = resident.process()
    assert [printed_on_a_terminal(resident, *words, variables=terminals[-1]) for _ in range(2)] == alone[-1:] * 2
    assert resident.process() == process


@pytest.mark.slow
def test_a_changed_model_is_loaded_anew_and_a_changed_package_needs_another_process(resident, tmp_path):
    model, packages = tmp_path / "model", tmp_path / "packages"
    shutil.copytree(GOLDEN / "gpt2", model)
    for name in ("duat_jax", "symbolic"):
        shutil.copytree(ROOT / name, packages / name, ignore=shutil.ignore_patterns("__pycache__"))
    words = ("explain", "w5 w17 w3", "--model", "model", "--json", "-")
    given = {"program": None, "variables": {"PYTHONPATH": str(packages)}}
    first, second = (resident.run(*words, **given) for _ in range(2))
    process = resident.process()
    assert first == second and first[0] == 0 and process
    weights = bytearray((model / "model.safetensors").read_bytes())
    weights[-1000:] = bytes(1000)
    (model / "model.safetensors").write_bytes(weights)
    changed = resident.run(*words, **given)
    assert changed == resident.run(*words, alone=True, **given) != first
    assert resident.process() == process
    (packages / "duat_jax" / "cli" / "output.py").touch()
    assert resident.run(*words, **given) == changed
    assert resident.process() not in (process, None)
