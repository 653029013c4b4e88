"""Claim: a survey reads a million tokens with the embedded model in under thirty minutes on two cores.

Run `make .venv/.test && python -m benchmarks.survey` on two quiet cores.

The texts are files of Python's standard library. The plain forward pass on the same windows is timed in the same run,
before and after; compilation is apart.
"""

import json
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import duat_jax as duat
from duat_jax.evaluation.running_text import stream, windows
from duat_jax.survey.measure import BATCH, measure
from duat_jax.survey.run import PART
from duat_jax.survey.state import State, merge_all
from experiments.environment import environment
from experiments.pages import Fields

RESULTS = Path(__file__).parent / "results" / "survey.json"
TOKENS = 128
PARTS = 12
MERGED = 100


def forward_rate(model: duat.models.Transformer, corpus: np.ndarray) -> float:
    """Return the tokens that the plain forward pass reads in a second.

    Args:
        model: the model.
        corpus: windows.
    """
    forward = jax.jit(lambda model, ids: model(ids).max(-1))
    batches = [jnp.asarray(corpus[i : i + BATCH]) for i in range(0, PART, BATCH)]
    jax.block_until_ready(forward(model, batches[0]))
    began = time.perf_counter()
    for batch in batches:
        jax.block_until_ready(forward(model, batch))
    return PART * TOKENS / (time.perf_counter() - began)


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: the kept results.
    """
    rate, forward = np.median(results["tokens_a_second"]), np.median(results["forward_tokens_a_second"])
    return {
        "rate": f"{rate:,.0f}",
        "million": f"{1e6 / rate / 60:.0f}",
        "ratio": f"{forward / rate:.1f}",
        "merge": f"{results['merge_s']:.1f}",
        "part": f"{results['part_mb']:.1f}",
        "tables": f"{results['tables_mb']:.1f}",
        "held out": f"{duat.survey.examples().tokens:,}",
    }


def main() -> None:
    """Measure the parts of a survey one by one, and keep the results."""
    model, tokenizer = duat.load(tokenizer=True)
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    corpus = windows(stream(tokenizer, [path.read_text(encoding="utf-8") for path in files]), PARTS * PART, TOKENS)
    measure(model, corpus[:BATCH], 0)
    forward, rates, states = [forward_rate(model, corpus)], list[float](), list[State]()
    for part in range(PARTS):
        began = time.perf_counter()
        states.append(measure(model, corpus[part * PART : (part + 1) * PART], part * PART))
        rates.append(PART * (TOKENS - 1) / (time.perf_counter() - began))
    forward.append(forward_rate(model, corpus))
    began = time.perf_counter()
    merge_all(states[i % PARTS] for i in range(MERGED))
    merged = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as directory:
        duat.survey.survey(None, [path.read_text(encoding="utf-8") for path in files[:40]], directory)
        tables = sum(path.stat().st_size for path in Path(directory).glob("*.parquet"))
        part_size = (Path(directory) / "parts" / "000000.safetensors").stat().st_size
    results = {
        "environment": environment(),
        "tokens_a_second": rates,
        "forward_tokens_a_second": forward,
        "merge_s": merged,
        "part_mb": part_size / 1e6,
        "tables_mb": tables / 1e6,
        "worst": max(state.worst for state in states),
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
