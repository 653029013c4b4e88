"""`duat serve` says where it is, refuses what it can't serve in one line, and ends when it is told to."""

import http.client
import json
import re
import signal
import socket
import subprocess
import sys

import pytest
from cases import GOLDEN
from command import run

from duat_jax.cli.errors import MISTAKE


def in_one_line(result, *says):
    assert result.exit_code == MISTAKE and result.stderr.count("\n") == 1
    for part in says:
        assert part in result.stderr


def test_a_port_in_use_and_an_address_that_is_none_are_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        in_one_line(run("serve", "--port", port), f"can't listen at 127.0.0.1, port {port}", "give another --port")
    in_one_line(run("serve", "--host", "no.such.host.invalid", "--port", "0"), "can't listen at no.such.host.invalid")


def test_a_missing_package_and_a_model_of_images_are_one_line(monkeypatch):
    in_one_line(run("serve", "--port", "0", "--model", GOLDEN / "vit"), "reads images")
    in_one_line(run("serve", "--port", "0", "--model", "no/such/model"), "no/such/model")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    in_one_line(run("serve"), "duat serve needs", "pip install 'starlette>=")


@pytest.mark.slow
@pytest.mark.parametrize("working", [False, True])
def test_it_says_its_address_and_ends_at_once_when_it_is_interrupted(working):
    command = [sys.executable, "-m", "duat_jax", "serve", "--port", "0", "--longest", "40", "--text", "x = 1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as served:
        port, key = re.search(r"http://127\.0\.0\.1:(\d+)/\?key=(\S+) ", served.stdout.readline()).groups()
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)
        connection.request("GET", f"/?key={key}")
        assert connection.getresponse().status == 200
        if working:
            connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)
            body = json.dumps({"ask": "graph", "text": "x " * 30})
            connection.request("POST", "/ask", body, {"duat-key": key})
            connection.getresponse().readline()
        served.send_signal(signal.SIGINT)
        out, err = served.communicate(timeout=30)
    assert (served.returncode, out) == (0, "") and err.count("\n") == 1 and "first question" in err
