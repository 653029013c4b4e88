"""Claim: a model on eight devices needs at most a sixth of one device's memory on each of them, for every question.

Run `XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m benchmarks.mesh`.

The programs of Llama-3.2-1B's shape are compiled for one device and for eight, into which a CPU is divided, without
weights. Memory is what the compiled program needs at once on a device: arguments (the weights), temporaries and
results. What devices send each other is counted in the compiled program; a loop's body counts once.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import duat_jax as duat
from benchmarks.collectives import sent
from benchmarks.table import forward, logit, with_neurons
from duat_jax.models.config import Head
from duat_jax.models.loader import skeleton
from duat_jax.models.mesh import RULES, divide
from duat_jax.nn import BlockConfig
from experiments.environment import environment
from experiments.markdown import Fields, table

RESULTS = Path(__file__).parent / "results" / "mesh.json"
ONE_BILLION = duat.models.Config(
    family="llama",
    blocks=(
        BlockConfig(
            arrangement="pre-norm",
            features=2048,
            heads=32,
            key_value_heads=8,
            neurons=8192,
            mlp="gated",
            activation="silu",
            mlp_bias=False,
            attention_bias=False,
            output_bias=False,
            norm="rms",
        ),
    )
    * 16,
    vocab=128256,
    positions=131072,
    position_embedding=False,
    head=Head(kind="next token", outputs=128256, tied=True),
)
TOKENS = (512, 4096)
"""The lengths of text; attention to the longer one is a loop, and devices divide its tokens between parts."""


def secant(model: duat.models.Transformer, ids: jax.Array) -> duat.results.Secant:
    """Return the secant of a text and the same text backwards, by token."""
    return duat.secant(partial(logit, model))(model.embed(ids), model.embed(ids[::-1]))


PROGRAMS: dict[str, Callable[..., Any]] = {"forward": forward, "table": with_neurons, "secant": secant}


def measure(program: Callable[..., Any], tokens: int, devices: int) -> dict[str, Any]:
    """Return the memory of a program on each device, and what the devices send each other.

    Args:
        program: of the model and a text.
        tokens: the text's length.
        devices: their number.
    """
    mesh = Mesh(np.array(jax.devices()[:devices]), ("model",))
    model = divide(skeleton(ONE_BILLION, jnp.float32), mesh)
    ids = jax.ShapeDtypeStruct((tokens,), jnp.int32, sharding=NamedSharding(mesh, P()))
    compiled = jax.jit(program).lower(model, ids).compile()
    memory = compiled.memory_analysis()
    return {
        "arguments_mb": memory.argument_size_in_bytes / 1e6,
        "temporaries_mb": memory.temp_size_in_bytes / 1e6,
        "results_mb": memory.output_size_in_bytes / 1e6,
        "sent": Counter(kind for kind, _ in sent(compiled.as_text())),
    }


def peak(found: dict[str, Any]) -> float:
    """Return the memory of a program at once, in MB."""
    return float(found["arguments_mb"] + found["temporaries_mb"] + found["results_mb"])


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: the kept results.
    """
    rules = []
    for pattern, (what, spec) in RULES.items():
        name, choice = pattern.replace("\\.", "."), re.search(r"\((\w+)\|(\w+)\)", pattern)
        both = [name] if choice is None else [name.replace(choice[0], part) for part in choice.groups()]
        rules.append((", ".join(f"`{one}`" for one in both), what, f"{spec.index('model') + 1} of {len(spec)}"))
    rows = []
    for tokens, programs in results["programs"].items():
        for name, by_devices in programs.items():
            one, eight = by_devices["1"], by_devices["8"]
            sums = ", ".join(f"{count} {kind}" for kind, count in eight["sent"].items())
            memory = f"{peak(one):,.0f} MB", f"{peak(eight):,.0f} MB", f"{peak(eight) / peak(one):.3f}"
            rows.append((f"{int(tokens):,}", name, *memory, sums))
    return {
        "rules": "\n".join(table(["parameter", "what is divided", "axis"], rules)),
        "memory": "\n".join(table(["tokens", "program", "one device", "each of eight", "ratio", "sent"], rows)),
    }


def main() -> None:
    """Compile every program for one device and for eight, and keep the results."""
    found = {
        str(tokens): {
            name: {str(devices): measure(program, tokens, devices) for devices in (1, 8)}
            for name, program in PROGRAMS.items()
        }
        for tokens in TOKENS
    }
    results = {"environment": environment(), "programs": found}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
