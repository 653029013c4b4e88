"""Claim: of SmolLM2-135M an explanation takes 2.5 to 2.9 × the forward pass, and a contrast 4.1 to 7 ×.

Run `make install && python -m benchmarks.questions` on two quiet cores (12 minutes), then `make pages`. With
`--python PATH`, an interpreter that has the packages of `benchmarks/neighbours.py`, their methods are run in turn too.

One logit at the last token. Each question is first asked with nothing compiled, then in turn with the forward pass, and
divided by the forward pass just before it. Compiling takes what the first call takes beyond the median. Memory is that
of the largest program that the first call compiles: arguments (the weights), temporaries and results. Of many texts it
is the part of the time in which compiled programs run, which is the throughput divided by that of programs alone.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import duat_jax as duat
from benchmarks.many_texts import TEXTS, many_texts
from benchmarks.neighbours import neighbours
from benchmarks.secant import gradient
from benchmarks.secant import with_neurons as secant
from benchmarks.table import TARGET, forward, smollm2
from benchmarks.table import with_neurons as table
from experiments.environment import environment
from experiments.markdown import Fields, cells
from experiments.markdown import table as rows_of

RESULTS = Path(__file__).parent / "results" / "questions.json"
FORWARD, COLLAPSE = "forward pass", "the collapse of an explanation"
PROGRAMS = {FORWARD: forward, "gradient": gradient, "complete table": table, "secant": secant}
TEXT, APART = Path("LICENSE"), 900
"""Texts are the first tokens of a file; they are contrasted with those that come so many later."""

CASES = {"SmolLM2-135M": (smollm2, (64, 128, 512)), "embedded model": (duat.load, (64, 128, 256))}
"""Of every model, the lengths of text; the embedded one takes at most 256 tokens."""

FEWEST, MOST, SECONDS = 3, 25, 1.0
"""The rounds of a question: as many as fit into the seconds, within these bounds; the fewest get ten times as long."""

Ask = Callable[[], Any]
Prepare = Callable[[], Ask]
"""Does what a question needs first, and returns what asks it."""


def questions(model: duat.models.Transformer, ids: np.ndarray, other: np.ndarray) -> dict[str, Prepare]:
    """Return every program and every question, by name.

    Args:
        model: the model.
        ids: of the text.
        other: of the text that it is contrasted with.
    """
    explain = partial(duat.explain, model, ids, TARGET)
    asked: dict[str, Ask] = {name: partial(jax.jit(program), model, ids) for name, program in PROGRAMS.items()}
    asked |= {
        "`explain`": explain,
        COLLAPSE: explain,
        "`contrast`": lambda: duat.contrast(model, ids, other, TARGET),
        "`attribute`": lambda: duat.attribute(model, ids, other, TARGET),
        "`intervene`": lambda: duat.intervene(model, ids, duat.edits.Heads(1, 2).set(0), TARGET),
        "`graph`": lambda: duat.graph(model, ids, TARGET),
    }
    # A collapse is computed once, when it is first read.
    collapse = {COLLAPSE: lambda: partial(getattr, explain(), "collapse")}
    return {name: lambda ask=ask: ask for name, ask in asked.items()} | collapse


def seconds_of(ask: Ask) -> float:
    """Return the time of one call, in seconds."""
    began = time.perf_counter()
    jax.block_until_ready(ask())
    return time.perf_counter() - began


def measure(prepare: Prepare, plain: Ask, seconds: float) -> dict[str, Any]:
    """Return the first time of a question, the later ones beside the forward pass, and its largest program's memory.

    Args:
        prepare: returns what asks the question.
        plain: the forward pass, compiled.
        seconds: for later calls.
    """
    jax.clear_caches()
    ask, device = prepare(), jax.devices()[0]
    before = device.client.live_executables()
    first = seconds_of(ask)
    programs = [each.get_compiled_memory_stats() for each in device.client.live_executables() if each not in before]
    times: list[tuple[float, float]] = []
    began = time.perf_counter()
    while not times or (
        len(times) < MOST and time.perf_counter() - began < (seconds if len(times) >= FEWEST else 10 * seconds)
    ):
        ask = prepare()
        times.append((seconds_of(plain), seconds_of(ask)))
    forward, own = np.array(times).T
    result = {"first_s": first, "rounds": len(times), "programs": len(programs)}
    for unit, values in (("s", own), ("of_ratio", own / forward)):
        low, middle, high = np.percentile(values, [25, 50, 75])
        result |= {f"median_{unit}": middle, f"quartiles_{unit}": [low, high]}
    for name, kinds in (("temporary", ("temp",)), ("peak", ("argument", "temp", "output"))):
        sizes = [sum(getattr(program, f"{kind}_size_in_bytes") for kind in kinds) for program in programs]
        result[f"{name}_mb"] = max(sizes, default=0) / 1e6
    return result


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: the kept results.
    """
    cases = results["cases"]

    def rows(cell: Callable[[str, dict[str, Any]], str], names: list[str]) -> str:
        found = [[name, *(cell(name, case) if name in case else "" for case in cases.values())] for name in names]
        return "\n".join(rows_of(["", *cases], found))

    def ratio(name: str, case: dict[str, Any]) -> str:
        if name == FORWARD:
            return f"{1e3 * case[name]['median_s']:.3g} ms"
        low, high = case[name]["quartiles_of_ratio"]
        return f"{case[name]['median_of_ratio']:.2f} [{low:.2f}, {high:.2f}]"

    def compiling(name: str, case: dict[str, Any]) -> str:
        return f"{case[name]['first_s'] - case[name]['median_s']:z.1f} s"

    def memory(name: str, case: dict[str, Any]) -> str:
        other = case["gradient" if name == "`contrast`" else FORWARD]
        return "; ".join(f"{case[name][f'{kind}_mb'] / other[f'{kind}_mb']:.2f}" for kind in ("peak", "temporary"))

    names = list(dict.fromkeys(name for case in cases.values() for name in case))
    times = rows(ratio, names)
    rounds = sorted(each["rounds"] for case in cases.values() for each in case.values())
    here = [name for name in names if ":" not in name]
    of_texts = [
        [name, f"{np.median(each['texts_a_second']):.0f}", f"{np.median(each['programs']):.2f}"]
        for name, each in results["texts"].items()
    ]
    case = cases["SmolLM2-135M, 128 tokens"]
    direct = case["TransformerLens: direct attribution of neurons, last token"]["median_s"]
    return {
        "times": times,
        **cells(f"# times\n{times}"),
        "rounds": f"{rounds[0]} to {rounds[-1]}",
        "compiling": rows(compiling, here),
        "memory": rows(memory, ["`explain`", "`contrast`"]),
        "texts": "\n".join(rows_of([f"{TEXTS} texts", "a second", "of the programs' rate"], of_texts)),
        "TransformerLens": f"{direct / case['complete table']['median_s']:.0f}",
        "versions": ", ".join(f"{name} {version}" for name, version in results["versions"].items()),
    }


def main() -> None:
    """Run the measurements, print them, and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="an interpreter with the packages of benchmarks/neighbours.py")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for the rounds of each question")
    parser.add_argument("--json", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    result: dict[str, Any] = {"environment": environment(), "versions": {}, "cases": {}, "texts": {}}
    result["load_average"] = os.getloadavg()
    for called, (make, lengths) in CASES.items():
        model = make()
        text = np.array(model.tokenizer.encode(TEXT.read_text()).ids)
        with neighbours(arguments.python if make is smollm2 else None, model.config) as (versions, methods):
            result["versions"] |= versions
            for tokens in lengths:
                ids, other = text[:tokens], text[APART : APART + tokens]
                plain = partial(jax.jit(forward).lower(model, ids).compile(), model, ids)
                theirs = {name: partial(partial, ask) for name, ask in methods(tokens).items()}
                result["cases"][f"{called}, {tokens} tokens"] = case = {}
                for name, prepare in (questions(model, ids, other) | theirs).items():
                    case[name] = each = measure(prepare, plain, arguments.seconds)
                    print(
                        f"{called}, {tokens:3d} tokens  {name:60s} {each['median_s'] * 1e3:8.1f} ms"
                        f"  × {each['median_of_ratio']:6.2f}, {each['rounds']:2d} rounds,"
                        f" first {each['first_s']:.1f} s, {each['programs']} programs, {each['peak_mb']:.0f} MB",
                        flush=True,
                    )
    result["texts"] = many_texts(duat.load())
    arguments.json.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
