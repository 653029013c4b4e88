"""Claim: what a compiler says of a model on TPU chips is what counting products says, so that counts plan more.

Run `make .venv/tpu && JAX_PLATFORMS=cpu PYTHONPATH=.venv/tpu python -m benchmarks.plan`; it needs no TPU, takes half an
hour, and goes on where it was stopped.

Models in the shapes of Llama 3.2 and 3.1 are compiled for TPU v5e chips, without weights, with their layers as the
steps of one loop. Memory is the compiler's, of one chip and the whole model. A loop's body counts once in its flops and
in what chips send each other: they are those of one layer, and compared with the counts for texts that are short enough
to have no loops inside a layer.
"""

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import duat_jax as duat
from benchmarks.collectives import sent
from benchmarks.mesh import ONE_BILLION
from benchmarks.secant import with_neurons as contrast
from benchmarks.table import forward
from benchmarks.table import with_neurons as table
from duat_jax.models.layer_parts import scanned
from duat_jax.models.loader import skeleton
from duat_jax.models.mesh import divide
from experiments.kept_results import kept
from experiments.markdown import Fields
from experiments.markdown import table as rows_of

RESULTS = Path(__file__).parent / "results" / "plan.json"
PROGRAMS: dict[str, Callable[..., Any]] = {"forward": forward, "table": table, "contrast": contrast}


def llama(features: int, heads: int, neurons: int, layers: int) -> duat.models.Config:
    """Return a model in the shape of Llama 3.1.

    Args:
        features: of the residual stream.
        heads: of each layer; all have eight key heads.
        neurons: of each layer.
        layers: their number.
    """
    block = dataclasses.replace(ONE_BILLION.blocks[0], features=features, heads=heads, neurons=neurons)
    head = dataclasses.replace(ONE_BILLION.head, tied=False)
    return dataclasses.replace(ONE_BILLION, blocks=(block,) * layers, head=head)


SHAPES = {
    "1 billion": ONE_BILLION,
    "8 billion": llama(4096, 32, 14336, 32),
    "70 billion": llama(8192, 64, 28672, 80),
    "405 billion": llama(16384, 128, 53248, 126),
}
"""Of models, by their number of parameters."""

CASES = (
    ("1 billion", 512, "2x2"),
    ("8 billion", 512, "4x4"),
    ("1 billion", 4096, "2x2"),
    ("8 billion", 4096, "4x4"),
    ("8 billion", 32768, "8x8"),
    ("8 billion", 512, "2x2"),
    ("8 billion", 4096, "8x8"),
    ("1 billion", 32768, "4x4"),
    ("70 billion", 512, "8x8"),
    ("70 billion", 4096, "8x8"),
    ("405 billion", 512, "16x16"),
    ("405 billion", 4096, "16x16"),
)
"""The compiled cases: a shape, the tokens of a text, and the chips."""

LOOPS = 512
"""The number of tokens above which attention is a loop."""

PRODUCTS, BANDWIDTH, LINKS, MEMORY = 197e12 / 6, 819e9, 200e9, 15.75 * 2**30
"""Of a TPU v5e: float32 products and sums in a second, as six of bfloat16 each; bytes that it reads from its memory in
a second, and that it sends; and its memory, as its compiler counts it (docs.cloud.google.com/tpu/docs/v5e)."""


TOO_MUCH = re.compile(r"HLO temporaries \(([\d.]+)G\) exceeds")
"""What the compiler says of temporary values that don't fit a chip's memory."""


class Counts(NamedTuple):
    """The cost of one text by counting, on all chips together.

    Args:
        flops: of products of matrices, two for a product and a sum.
        read: bytes of weights that are read.
        sent: bytes that each chip sends, of arrays of a number for every feature of every token.
    """

    flops: float
    read: float
    sent: float


def counts(config: duat.models.Config, tokens: int, program: str, among: int = 1) -> Counts:
    """Return the cost of one text by counting, with weights in bfloat16.

    Every weight is in one product forwards. The table goes back through the values, what heads and neurons write, and
    attention patterns that are held; the contrast runs forwards on both texts and goes back through everything.
    Patterns that aren't stored are computed again on the way back. Weights of keys and values that can't be divided are
    on every chip.

    Args:
        config: the model's shape.
        tokens: of the text.
        program: one of `PROGRAMS`.
        among: the number of chips over which the text is divided.
    """
    block, layers = config.blocks[0], config.layers
    width, key_heads = block.features // block.heads, block.key_value_heads or block.heads
    queries = block.features * block.features
    values = block.features * width * key_heads
    copies = 0 if key_heads % among == 0 else 2 * (among - 1) * values
    weights, written = 2 * queries + 2 * values + 3 * block.features * block.neurons, queries + values
    written += block.features * block.neurons
    # Of a causal pattern in four strips 5/8 are computed.
    pattern = 2 * tokens**2 * block.features * (1 if tokens <= LOOPS else 5 / 8)
    looped = tokens > LOOPS
    flops, passes, sums = {
        "forward": (2 * tokens * weights + 2 * pattern, weights, 2),
        "table": (2 * tokens * (weights + written) + (3 + looped) * pattern, weights + written, 3),
        "contrast": (6 * tokens * weights + (8 + 2 * looped) * pattern, 3 * weights, 9),
    }[program]
    return Counts(
        layers * flops,
        layers * 2 * (passes + copies * passes / weights),
        layers * sums * 2 * 4 * tokens * block.features,
    )


def parameters(config: duat.models.Config, among: int = 1) -> float:
    """Return the number of weights of a model's matrices, on all chips together.

    Args:
        config: its shape.
        among: the number of chips.
    """
    return (
        counts(config, 1, "forward", among).read / 2 + (1 if config.head.tied else 2) * config.vocab * config.features
    )


def compile_case(config: duat.models.Config, tokens: int, chips: str, program: str) -> dict[str, Any]:
    """Compile a program, and return what the compiler says of one chip, or how much memory would be too much.

    Args:
        config: the model's shape.
        tokens: of the text.
        chips: the topology.
        program: one of `PROGRAMS`.
    """
    from jax.experimental.topologies import get_topology_desc

    devices = np.array(get_topology_desc(platform="tpu", topology_name=f"v5e:{chips}").devices)
    mesh = Mesh(devices.reshape(-1, min(devices.size, config.blocks[0].heads)), ("texts", "model"))
    model = scanned(divide(skeleton(config, jnp.bfloat16), mesh))
    ids = jax.ShapeDtypeStruct((tokens,), jnp.int32, sharding=NamedSharding(mesh, P()))
    try:
        compiled = jax.jit(PROGRAMS[program]).lower(model, ids).compile()
    except jax.errors.JaxRuntimeError as error:
        if (too_much := TOO_MUCH.search(str(error))) is None:
            raise
        return {"too much": float(too_much[1]) * 2**30}
    memory = compiled.memory_analysis()
    return {
        "flops": compiled.cost_analysis()["flops"],
        "arguments": memory.argument_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "results": memory.output_size_in_bytes,
        # Single numbers, such as those of completeness, are left out.
        "sent": Counter(kind for kind, shape in sent(compiled.as_text()) if math.prod(shape) > 1),
    }


def name_of(case: tuple[str, int, str], program: str) -> str:
    """Return the name of a compilation.

    Args:
        case: one of `CASES`.
        program: one of `PROGRAMS`.
    """
    return ", ".join(map(str, (*case, program)))


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: the kept results.
    """
    compiled, missing = list[tuple[str, ...]](), list[str]()
    for case in CASES:
        shape, tokens, chips = case
        config, count = SHAPES[shape], int(np.prod([int(side) for side in chips.split("x")]))
        among = min(count, config.blocks[0].heads)
        for program in PROGRAMS:
            found = results["compiled"].get(name_of(case, program))
            row = [shape, f"{tokens:,}", chips.replace("x", " × "), program]
            if found is None:
                missing.append(f"{program} of {shape} with {tokens:,} tokens on {row[2]}")
                continue
            if "too much" in found:
                compiled.append((*row, "", f"over {found['too much'] / 1e9:.0f} GB", "no", ""))
                continue
            flops = counts(config, tokens, program, among).flops / config.layers / among
            ratio = f"{found['flops'] / flops:.2f}" if tokens <= LOOPS else ""
            gigabytes = sum(found[what] for what in ("arguments", "temporaries", "results")) / 1e9
            sums = ", ".join(f"{n} {kind}" for kind, n in found["sent"].items())
            compiled.append((*row, ratio, f"{gigabytes:.1f} GB", "yes" if gigabytes <= MEMORY / 1e9 else "no", sums))
    return {
        "jax": results["jax"],
        "missing": f"Not compiled yet: {'; '.join(missing)}." if missing else "",
        "compiled": "\n".join(
            rows_of(
                [
                    "model",
                    "tokens",
                    "chips",
                    "program",
                    "flops, compiler / counts",
                    "each chip",
                    "fits",
                    "sent",
                ],
                compiled,
            )
        ),
        "planned": "\n".join(
            rows_of(
                [
                    "model",
                    "tokens",
                    "chips",
                    "program",
                    "Tflops a token",
                    "weights, each chip",
                    "seconds",
                    "limited by",
                ],
                [planned(*row) for row in PLANNED],
            )
        ),
    }


PLANNED = [
    (shape, tokens, chips, program)
    for shape, chips in (("8 billion", 8), ("70 billion", 64), ("405 billion", 64), ("405 billion", 512))
    for tokens in (512, 4096)
    for program in PROGRAMS
]
"""The rows of the plan: a model, the tokens of a text, the number of chips, and the program."""


def planned(shape: str, tokens: int, chips: int, program: str) -> tuple[str, ...]:
    """Return a row of the plan: no program is quicker than its products, its reading of weights, and its sending.

    Args:
        shape: one of `SHAPES`.
        tokens: of a text.
        chips: their number; a text is divided over at most as many as there are heads, several texts over the rest.
        program: one of `PROGRAMS`.
    """
    config, among = SHAPES[shape], min(chips, SHAPES[shape].blocks[0].heads)
    needed = counts(config, tokens, program, among)
    times = {
        "products": needed.flops / among / PRODUCTS,
        "memory": needed.read / among / BANDWIDTH,
        "sending": needed.sent / LINKS,
    }
    weights, slowest = 2 * parameters(config, among) / among / 1e9, max(times, key=lambda limit: times[limit])
    texts = f"{chips}, {chips // among} texts at once" if chips > among else str(chips)
    fits = "" if weights < MEMORY / 1e9 else ", don't fit"
    per_token = counts(config, tokens, program).flops / tokens / 1e12
    row = shape, f"{tokens:,}", texts, program, f"{per_token:.3f}", f"{weights:.1f} GB{fits}"
    return (*row, f"{times[slowest]:.2f}", slowest)


def main() -> None:
    """Compile every case that wasn't compiled before, and keep what the compiler says after each."""
    found = {"jax": jax.__version__, "compiled": {}} | kept("plan")
    for case in CASES:
        for program in PROGRAMS:
            name = name_of(case, program)
            if name in found["compiled"]:
                continue
            shape, tokens, chips = case
            print(name, flush=True)
            found["compiled"][name] = compile_case(SHAPES[shape], tokens, chips, program)
            RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
