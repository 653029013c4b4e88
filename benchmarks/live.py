"""Claim: the live page answers the second question of a length within .5 s, with SmolLM2-135M within 1.5 s.

Run `make install && python -m benchmarks.live` on two quiet cores.

The command `duat serve` runs in a process of its own, with an empty cache of compiled programs, and prints its address
when the explanation is compiled. A question is timed from its request to the last byte of its answer. The texts are of
about 60 tokens; each time other layers are changed.
"""

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from experiments import smollm2
from experiments.environment import environment
from experiments.markdown import Fields, table

RESULTS = Path(__file__).parent / "results" / "live.json"
WORDS = "a", "b", "c", "d", "e", "f"
TEXTS = {
    "embedded": "def {0}(self, key, default=None):\n    value = self.{0}.get(key, default)\n    return value\n\n" * 2,
    "SmolLM2": "The {0} is a letter, and a word that is written often. " * 4,
}
WORDS_OF = {
    "address": "until the address is printed",
    "explain": "an explanation",
    "contrast": "a contrast",
    "intervene": "a head switched off",
    "graph": "a graph",
    "neuron": "a neuron",
    "score": "an attention score",
}
KINDS = tuple(WORDS_OF)[1:]


@contextmanager
def server(*options: str) -> Iterator[tuple[int, str, float, int]]:
    """Serve a model; yield the port, the key, the seconds until the address is printed, and the process' number.

    Args:
        options: of the command.
    """
    command = [sys.executable, "-m", "duat_jax", "serve", "--port", "0", *options]
    with tempfile.TemporaryDirectory() as cache:
        variables = os.environ | {"JAX_COMPILATION_CACHE_DIR": cache}
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as served:
            assert served.stdout is not None
            found = re.search(r":(\d+)/\?key=(\S+)", served.stdout.readline())
            started = time.perf_counter() - began
            assert found is not None
            try:
                yield int(found[1]), found[2], started, served.pid
            finally:
                served.terminate()


def answered(port: int, key: str, question: dict[str, Any]) -> tuple[float, bytes]:
    """Return how long an answer takes, and what is answered.

    Args:
        port: of the server.
        key: of the server.
        question: the question.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    began = time.perf_counter()
    connection.request("POST", "/ask", json.dumps(question), {"duat-key": key})
    content = connection.getresponse().read()
    taken = time.perf_counter() - began
    assert b'"problem"' not in content.splitlines()[-1], content[-500:]
    return taken, content


def question_of(kind: str, text: str, word: str, number: int, layers: int) -> dict[str, Any]:
    """Return a question, as the page asks it: after the explanation, which says what the most probable output is.

    Args:
        kind: its kind.
        text: the text, with a place for the word.
        word: the word.
        number: the number of the text.
        layers: the number of the model's layers.
    """
    layer = 1 + number % (layers - 1)
    further: dict[str, dict[str, Any]] = {
        "contrast": {"other": text.format(WORDS[number - 1])},
        "intervene": {"changes": [f"head {layer}:1 set 0"]},
        "neuron": {"layer": layer, "token": 5, "unit": number},
        # A score is a program of its own layer.
        "score": {"layer": 1, "head": number % 2, "query": 20 + number, "key": number},
    }
    return {"ask": kind, "text": text.format(word), **further.get(kind, {})}


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: the kept results.
    """
    rows = []
    for kind, words in WORDS_OF.items():
        cells = []
        for kinds in results["models"].values():
            cells.append(f"{kinds[kind]['first']:z.1f} s")
            seconds = kinds[kind].get("next")
            cells.append("" if seconds is None else f"{np.median(seconds):.2g} s [{seconds[0]:.2g}, {seconds[-1]:.2g}]")
        rows.append([words, *cells])
    head = ["", "embedded model, first", "further", "SmolLM2-135M, first", "further"]
    return {"table": "\n".join(table(head, rows))}


def main() -> None:
    """Measure every kind of question on both models, and keep the results."""
    found: dict[str, Any] = {}
    models = {"embedded": (6, []), "SmolLM2": (30, ["--model", str(smollm2.path())])}
    for name, (layers, options) in models.items():
        with server(*options) as (port, key, started, _):
            found[name] = {"address": {"first": started}}
            print(f"{name}: the address after {started:.1f} s")
            outputs: list[int | None] = [None] * len(WORDS)
            for kind in KINDS:
                asked = [question_of(kind, TEXTS[name], word, i, layers) for i, word in enumerate(WORDS)]
                known = [{} if kind == "score" else {"output": output} for output in outputs]
                answers = [answered(port, key, {**one, **output}) for one, output in zip(asked, known, strict=True)]
                if kind == "explain":
                    outputs = [json.loads(content.splitlines()[-1])["view"]["output"] for _, content in answers]
                first, *rest = (taken for taken, _ in answers)
                found[name][kind] = {"first": first, "next": sorted(rest), "bytes": len(answers[0][1])}
                print(f"{name} {kind}: {first:.1f} s, then {np.median(rest):.2f} s")
    RESULTS.write_text(json.dumps({"environment": environment(), "models": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
