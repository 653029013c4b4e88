"""Claim: the secant scores every unit of a model for 3.5 plain forward passes, integrated gradients for over 20.

Run `make install && python -m benchmarks.attribution`; it writes benchmarks/results/attribution.json, from which
`make pages` fills in the costs in docs/findings/circuits.md.

SmolLM2-135M, two texts of 14 tokens, one pair at a time, everything jitted, the methods measured in turn in the same
run. The plain forward pass is the one that gives the same logit difference of one text.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

import duat_jax as duat
from duat_jax.attribution import registry
from duat_jax.evaluation.circuits import METHODS, Method
from duat_jax.inputs.prompts import logit_difference
from experiments import smollm2
from experiments.environment import environment
from experiments.markdown import Fields, cells, table

TEXTS = "When Henry and Frank went to the store, {} gave a drink to"
NAMES = " Frank", " Henry"
REPEATS = 7
RESULTS = Path(__file__).parent / "results"


def forward(model: duat.models.Transformer, clean: Any, corrupted: Any, right: Any, wrong: Any) -> jax.Array:
    """Return the logit difference of the clean text, from a plain forward pass."""
    return logit_difference(model, model.embed(clean), right, wrong)


def neurons_alone(method: Method) -> Method:
    """Return the method's scores of neurons; jitted, what only the other units' scores need isn't computed.

    Args:
        method: the method.
    """

    def scores(*arguments: Any) -> Any:
        return method(*arguments).neurons

    return scores


def seconds(run: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    """Return the time of one call, in seconds.

    Args:
        run: what is called.
        arguments: its arguments.
    """
    began = time.perf_counter()
    jax.block_until_ready(run(*arguments))
    return time.perf_counter() - began


def measure(methods: dict[str, Callable[..., Any]], arguments: tuple[Any, ...]) -> dict[str, dict[str, Any]]:
    """Return the time of every method, in seconds and in plain forward passes with their quartiles.

    Args:
        methods: by name; the first is the plain forward pass.
        arguments: what each is called with.
    """
    programs = {name: jax.jit(method) for name, method in methods.items()}
    for program in track(programs.values(), "Compiling"):
        seconds(program, arguments)
    # All in turn, so that what else the machine does falls on each alike.
    taken = np.array([[seconds(program, arguments) for program in programs.values()] for _ in range(REPEATS)])
    ratios = taken / taken[:, :1]
    return {
        name: {
            "seconds": float(np.median(taken[:, i])),
            "forward passes": np.quantile(ratios[:, i], (0.5, 0.25, 0.75)).tolist(),
        }
        for i, name in enumerate(programs)
    }


def methods() -> str:
    """Return the table of all methods, with the units that each scores and its source."""
    of_tokens, of_units = registry.METHODS["token"], registry.METHODS["head"]
    rows = []
    for name in dict.fromkeys([*of_tokens, *of_units]):
        token, unit = of_tokens.get(name), of_units.get(name)
        source = next(method.source for method in (token, unit) if method is not None)
        rows.append([name, "" if token is None else token.score, "" if unit is None else unit.score, source])
    return "\n".join(table(["method", "of a token", "of a neuron, a head or the stream", "source"], rows))


def fields(results: dict[str, Any]) -> Fields:
    """Return the table of costs that the page on circuits shows.

    Args:
        results: the kept results.
    """

    def passes(cost: dict[str, Any]) -> str:
        median, low, high = cost["forward passes"]
        return f"{median:.1f} [{low:.1f}, {high:.1f}]"

    rows = [
        [name, passes(cost), f"{cost['seconds']:.2f}", passes(results["costs of neurons"][name])]
        for name, cost in results["costs"].items()
    ]
    costs = table(["method", "plain forward passes [quartiles]", "seconds", "of neurons alone"], rows)
    lines = "\n".join(costs)
    return {
        "methods": methods(),
        "costs": lines,
        **cells(f"# costs\n{lines}"),
        "tokens": str(results["tokens"]),
        "repeats": str(results["repeats"]),
    }


def main() -> None:
    """Run the measurements, and write the results."""
    model, tokenizer = duat.load(smollm2.path()), duat.load_tokenizer(smollm2.path())
    clean, corrupted = (jnp.array(tokenizer.encode(TEXTS.format(name.strip())).ids, jnp.int32) for name in NAMES)
    right, wrong = (jnp.array(tokenizer.encode(name).ids[0], jnp.int32) for name in reversed(NAMES))
    arguments = model, clean, corrupted, right, wrong
    methods = {"forward": forward} | METHODS
    alone = {"forward": forward} | {name: neurons_alone(method) for name, method in METHODS.items()}
    result = {
        "environment": environment(),
        "tokens": len(clean),
        "repeats": REPEATS,
        "costs": measure(methods, arguments),
        "costs of neurons": measure(alone, arguments),
    }
    (RESULTS / "attribution.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
