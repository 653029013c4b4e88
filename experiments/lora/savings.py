"""Claim: adapters allow "the fine-tuning of large models under resource constraints" (Wang & Li, Section 1).

Run `python -m experiments lora_savings`, on a machine with nothing else to do; it writes
experiments/results/lora_savings.json and a table of docs/findings/lora.md.
"""

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

import duat_jax as duat
from duat_jax.evaluation.running_text import token_losses
from duat_jax.models.transformer import Transformer
from experiments import smollm2
from experiments.kept_results import store
from experiments.lora.tuning import METHODS, Method, Weights, initial, trained_numbers, tuned
from experiments.markdown import Fields, cells, table

LENGTHS, REPEATS = (64, 512), 7
"""Tokens of the text of a step, and steps that are timed."""
COMPARED = "rank 1", "rank 16", "rank 64", "full, the same matrices", "full, all parameters"
MIB = 2**20


def make_step(model: Transformer, method: Method) -> tuple[Any, Weights, Any]:
    """Return a step of Adam, which isn't compiled yet, what it trains, and the optimiser's state."""
    rule = optax.adam(1e-4)

    @partial(jax.jit, donate_argnums=(1, 2))
    def step(model: Transformer, weights: Weights, state: Any, ids: Array) -> tuple[Weights, Any]:
        gradient = jax.grad(lambda of: token_losses(tuned(model, method, of, merged=False), ids).mean())(weights)
        updates, state = rule.update(gradient, state)
        return optax.apply_updates(weights, updates), state

    # Copies, as a step overwrites what it is given.
    weights = jax.tree.map(jnp.copy, initial(model, method, 0))
    return step, weights, rule.init(weights)


def of_method(model: Transformer, method: Method, length: int) -> dict[str, Any]:
    """Return the memory of a step by its compiled program, in bytes, and the seconds of several steps."""
    step, weights, state = make_step(model, method)
    ids = jnp.asarray(np.random.default_rng(0).integers(0, model.config.vocab, (1, length + 1)), jnp.int32)
    compiled = step.lower(model, weights, state, ids).compile()
    sizes = compiled.memory_analysis()
    seconds = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        weights, state = jax.block_until_ready(compiled(model, weights, state, ids))
        seconds.append(time.perf_counter() - start)
    return {
        "trained": trained_numbers(weights),
        "arguments": sizes.argument_size_in_bytes,
        "temporary": sizes.temp_size_in_bytes,
        # What is overwritten in place takes no memory of its own.
        "outputs": sizes.output_size_in_bytes - sizes.alias_size_in_bytes,
        "seconds": seconds[1:],
    }


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation page."""
    rows = []
    for length, methods in results["lengths"].items():
        for name, of in methods.items():
            peak = of["arguments"] + of["temporary"] + of["outputs"]
            low, middle, high = np.quantile(of["seconds"], (0.25, 0.5, 0.75))
            memory = (f"{number / MIB:,.0f}" for number in (of["arguments"], of["temporary"], peak))
            rows.append([length, name, f"{of['trained']:,}", *memory, f"{middle:.2f} [{low:.2f}, {high:.2f}]"])
    head = [
        "tokens",
        "trained",
        "numbers",
        "weights and state, MiB",
        "temporary, MiB",
        "together, MiB",
        "seconds a step",
    ]
    text = "\n".join(["### Memory and time of a step", "", *table(head, rows)])
    return {"tables": text, **cells(text)}


def main() -> None:
    """Measure every method, and store the results."""
    model = duat.load(smollm2.path())
    lengths = {str(length): {name: of_method(model, METHODS[name], length) for name in COMPARED} for length in LENGTHS}
    store("lora_savings", {"lengths": lengths})
