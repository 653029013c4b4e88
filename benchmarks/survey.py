"""Claim: a survey reads a million tokens with the embedded model in under thirty minutes on two cores.

Run `make install && python -m benchmarks.survey` on two quiet cores.

The texts are files of Python's standard library. Before each part the plain forward pass on its windows is timed, and
the table of contributions alone, without what is kept of it: their ratio to the survey is taken part by part.
Compilation is apart.
"""

import json
import sysconfig
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import duat_jax as duat
from duat_jax.evaluation.running_text import stream, windows
from duat_jax.survey.explained import MARGIN, contributions
from duat_jax.survey.measure import BATCH, measure
from duat_jax.survey.run import PART
from duat_jax.survey.state import State, merge_all
from experiments.environment import environment
from experiments.markdown import Fields

RESULTS = Path(__file__).parent / "results" / "survey.json"
TOKENS = 128
PARTS = 12
MERGED = 100


@jax.jit
def forward(model: duat.models.Transformer, ids: jax.Array) -> jax.Array:
    """Return the largest logit of each place, by the plain forward pass.

    Args:
        model: the model.
        ids: of a batch of windows.
    """
    return model(ids).max(-1)


@jax.jit
def table(model: duat.models.Transformer, ids: jax.Array) -> Any:
    """Return all contributions to the margins, each summed, so that none need be written.

    Args:
        model: the model.
        ids: of a batch of windows.
    """
    parts = jax.vmap(partial(contributions, model, MARGIN))(ids)
    return jax.tree.map(jnp.sum, parts)


def rate(program: Callable[..., Any], model: duat.models.Transformer, windows: np.ndarray) -> float:
    """Return the tokens that a program reads in a second.

    Args:
        program: takes the model and a batch.
        model: the model.
        windows: of one part.
    """
    batches = [jnp.asarray(windows[i : i + BATCH]) for i in range(0, len(windows), BATCH)]
    began = time.perf_counter()
    for batch in batches:
        jax.block_until_ready(program(model, batch))
    return windows.size / (time.perf_counter() - began)


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: the kept results.
    """
    rates = results["tokens_a_second"]
    read = np.median(rates)

    def times(name: str) -> str:
        return f"{np.median(np.divide(results[f'{name}_tokens_a_second'], rates)):.1f}"

    return {
        "rate": f"{read:,.0f}",
        "million": f"{1e6 / read / 60:.1f}",
        "ratio": times("forward"),
        "table": times("table"),
        "merge": f"{results['merge_s']:.1f}",
        "part": f"{results['part_mb']:.1f}",
        "tables": f"{results['tables_mb']:.1f}",
        "held out": f"{duat.survey.examples().tokens:,}",
    }


def main() -> None:
    """Measure the parts of a survey one by one, and keep the results."""
    model = duat.load()
    tokenizer = model.tokenizer
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    corpus = windows(stream(tokenizer, [path.read_text(encoding="utf-8") for path in files]), PARTS * PART, TOKENS)
    measure(model, corpus[:BATCH], 0)
    programs: dict[str, Callable[..., Any]] = {"forward": forward, "table": table}
    for program in programs.values():
        rate(program, model, corpus[:BATCH])
    rates: dict[str, list[float]] = {f"{name}_tokens_a_second": [] for name in ("forward", "table")}
    own, states = list[float](), list[State]()
    for part in range(PARTS):
        windows_of_part = corpus[part * PART : (part + 1) * PART]
        for name, program in programs.items():
            rates[f"{name}_tokens_a_second"].append(rate(program, model, windows_of_part))
        began = time.perf_counter()
        states.append(measure(model, windows_of_part, part * PART))
        own.append(windows_of_part.size / (time.perf_counter() - began))
    began = time.perf_counter()
    merge_all(states[i % PARTS] for i in range(MERGED))
    merged = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as directory:
        duat.survey.survey(None, [path.read_text(encoding="utf-8") for path in files[:40]], directory)
        tables = sum(path.stat().st_size for path in Path(directory).glob("*.parquet"))
        part_size = (Path(directory) / "parts" / "000000.safetensors").stat().st_size
    results = {
        "environment": environment(),
        "tokens_a_second": own,
        **rates,
        "merge_s": merged,
        "part_mb": part_size / 1e6,
        "tables_mb": tables / 1e6,
        "worst": max(state.worst for state in states),
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
