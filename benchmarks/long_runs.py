"""Claim: memory is flat: after 10,000 explanations within 5% of that after 1,000, and over an hour with 50 clients.

Run `python -m benchmarks.long_runs`, or name what runs: `calls`, `server`, `layers` or `tokens`. The server takes an
hour, the others some minutes. Calls are of random lengths; clients explain, contrast, change heads, or leave before the
answer. 128 layers, and 32,768 tokens, are explained and contrasted, in a small model with random weights.
"""

import argparse
import gc
import http.client
import json
import os
import threading
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import numpy as np
from flax import nnx

import duat_jax as duat
from benchmarks.live import server
from duat_jax.models.config import Config, Head
from duat_jax.nn import BlockConfig
from experiments.environment import environment
from experiments.markdown import Fields, table

RESULTS = Path(__file__).parent / "results" / "long_runs.json"
SNIPPET = "for i in range ( 10 ) : print x = self . def return if else while True None import os sys with open as f"
WORDS = SNIPPET.split()
ANSWERS = {
    "explain": "explanations",
    "contrast": "contrasts",
    "intervene": "heads set to zero",
    "refused": "refused",
    "left": "not waited for",
}
"""What a server answers, and the words of the page for it."""
PAUSE = 12
"""The seconds that a client waits between two questions, in the mean."""


def resident(process: int) -> float:
    """Return the main memory that a process holds, in MB.

    Args:
        process: its number.
    """
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def calls(count: int) -> dict[str, Any]:
    """Explain random texts of 2 to 128 tokens, and return the memory that is held after a tenth and after all.

    Args:
        count: the number of texts.
    """
    model, chance, held = duat.load(), np.random.default_rng(0), []
    for number in range(1, count + 1):
        ids = chance.integers(model.config.vocab, size=chance.integers(2, 129))
        if duat.explain(model, ids).completeness.verdict == "fails":
            raise RuntimeError(f"text {number} fails: {ids.tolist()}")
        if number in (count // 10, count):
            gc.collect()
            held.append(resident(os.getpid()))
    return {"calls": count, "after a tenth, MB": held[0], "after all, MB": held[1]}


def question(chance: np.random.Generator) -> dict[str, Any]:
    """Return a question to a server.

    Args:
        chance: what draws it.
    """
    words = list(chance.choice(WORDS, size=chance.integers(2, 26)))
    kind = str(chance.choice(["explain"] * 4 + ["contrast", "intervene"]))
    further: dict[str, Any] = {}
    if kind == "contrast":
        further["other"] = " ".join([str(chance.choice(WORDS)), *words[1:]])
    if kind == "intervene":
        further["changes"] = [f"head {chance.integers(1, 4)}:{chance.integers(4)} set 0"]
    return {"ask": kind, "text": " ".join(words), **further}


def clients(number: int, seconds: float) -> dict[str, Any]:
    """Ask a server from several threads at once, and return what was answered, and the memory that it holds.

    Args:
        number: of clients.
        seconds: how long they ask.
    """
    counts: Counter[str] = Counter()
    ends = time.monotonic() + seconds

    def client(seed: int) -> None:
        chance = np.random.default_rng(seed)
        while (pause := chance.exponential(PAUSE)) + time.monotonic() < ends:
            time.sleep(pause)
            asked, leaves = question(chance), chance.random() < 1 / 7
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
            connection.request("POST", "/ask", json.dumps(asked), {"duat-key": key})
            if leaves:
                time.sleep(chance.uniform(0, 0.05))
                counts["left"] += 1
            else:
                answer = json.loads(connection.getresponse().read().splitlines()[-1])
                counts[asked["ask"] if "view" in answer else "refused"] += 1
            connection.close()

    with server() as (port, key, _, process):
        threads = [threading.Thread(target=client, args=(seed,)) for seed in range(number)]
        for thread in threads:
            thread.start()
        held = []
        for part in (0.1, 1):
            time.sleep(max(0, ends - seconds * (1 - part) - time.monotonic()))
            held.append(resident(process))
        for thread in threads:
            thread.join()
        files = len(os.listdir(f"/proc/{process}/fd"))
    found = {"clients": number, "seconds": seconds, "after a tenth, MB": held[0], "after all, MB": held[1]}
    return {**found, "open files": files, "answers": dict(sorted(counts.items()))}


def explained_and_contrasted(layers: int, tokens: int) -> dict[str, Any]:
    """Explain and contrast a text with random weights, and return the verdicts, processor times and peak of memory.

    Args:
        layers: of the model.
        tokens: of the text.
    """
    block = BlockConfig(arrangement="pre-norm", features=64, heads=4, neurons=256)
    head = Head(kind="next token", outputs=101, tied=True)
    config = Config(family="gpt2", blocks=(block,) * layers, vocab=101, positions=tokens, head=head)
    model = duat.models.Transformer(config, rngs=nnx.Rngs(0))
    ids = np.arange(tokens) % 101
    found: dict[str, Any] = {"layers": layers, "tokens": tokens}
    for name, ask in (
        ("explain", lambda: duat.explain(model, ids)),
        ("contrast", lambda: duat.contrast(model, ids, np.where(np.arange(tokens) == 3, 7, ids))),
    ):
        began = time.process_time()
        completeness = ask().completeness
        found[name] = {
            "verdict": completeness.verdict,
            "error": float(completeness.error),
            "tolerance": float(completeness.tolerance),
            "processor_s": time.process_time() - began,
        }
    return found | {"peak_mb": getrusage(RUSAGE_SELF).ru_maxrss * 1024 / 1e6}


RUNS = {
    "calls": (calls, 10_000),
    "server": (clients, 50, 3600),
    "layers": (explained_and_contrasted, 128, 20),
    "tokens": (explained_and_contrasted, 2, 32_768),
}
"""What runs, each in a process of its own, with its arguments."""


def alone(name: str) -> dict[str, Any]:
    """Run something in a process of its own.

    Args:
        name: a name in `RUNS`.
    """
    function, *arguments = RUNS[name]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: the kept results.
    """
    calls, server = results["calls"], results["server"]
    answers = ", ".join(f"{server['answers'][kind]:,} {words}" for kind, words in ANSWERS.items())
    rows = [
        (name, f"{run['after a tenth, MB']:,.0f} MB after a tenth, {run['after all, MB']:,.0f} MB at the end")
        for name, run in (
            (f"{calls['calls']:,} calls of `explain`, 2 to 128 tokens", calls),
            (f"`duat serve`, {server['clients']} clients for {server['seconds'] / 60:.0f} minutes: {answers}", server),
        )
    ]
    for run in (results["layers"], results["tokens"]):
        said = "; ".join(f"`{name}` {run[name]['verdict']}" for name in ("explain", "contrast"))
        rows.append(
            (f"{run['layers']} layers, {run['tokens']:,} tokens", f"{said}; {run['peak_mb'] / 1e3:z.1f} GB at most")
        )
    return {"table": "\n".join(table(["run", "result"], rows))}


def main() -> None:
    """Run what is named, or everything, and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=RUNS, help="what runs; everything if absent")
    asked = parser.parse_args().name
    for name in [asked] if asked else RUNS:
        found = alone(name)
        print(name, found, flush=True)
        kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
        RESULTS.write_text(
            json.dumps(kept | {"environment": environment(), name: found}, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
