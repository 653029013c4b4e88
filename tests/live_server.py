"""A live server in a thread of this process, and a client that asks it."""

import http.client
import json
import signal
import socket
import threading
from contextlib import contextmanager

import uvicorn

from duat_jax.live.about import about
from duat_jax.live.answers import Loaded
from duat_jax.live.server import Server, application

KEY = "a-key-of-tests"


@contextmanager
def serving(model, tokenizer, *, longest=64, hosts=frozenset({"127.0.0.1"}), name="embedded", text=None):
    """Serve a model at a free port; yield the port."""
    listening = socket.create_server(("127.0.0.1", 0))
    page = application(Loaded(model, tokenizer, longest), about(model.config, name, longest, text), KEY, hosts)
    server = Server(uvicorn.Config(page, log_level="error", access_log=False, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.handle_exit(signal.SIGTERM, None)
        thread.join()


def request(port, method="POST", path="/ask", body=b"", headers=None):
    """Send a request; return the status and what is answered."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request(method, path, body, {"duat-key": KEY, **(headers or {})})
    response = connection.getresponse()
    found = response.status, response.read()
    connection.close()
    return found


def ask(port, **question):
    """Ask a question; return what was done on the way, and the answer."""
    status, content = request(port, body=json.dumps(question).encode())
    assert status == 200, content
    *progress, answer = map(json.loads, content.splitlines())
    return [each["progress"] for each in progress], answer
