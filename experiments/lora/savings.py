"""Do adapters take less than half of full fine-tuning's memory and less than 0.8 of its time?

Wang & Li say that adapters allow "the fine-tuning of large models under resource constraints without the need to adjust
all parameters" (Section 1).  Adam keeps two numbers and a step one gradient for every trained number, so that full
fine-tuning takes about four times the memory of the weights, and adapters little more than the weights.  Both pass
over the same activations, of which longer texts have more.

One step of Adam on SmolLM2-135M, with one text: its memory by the sizes of the compiled program's arguments,
temporaries and outputs, which are the same in every run, and its seconds by the clock, on a machine with nothing else
to do.  Bounds were stated for 64 tokens; that those of 512 tokens count by the same bounds was said after the run,
because the short text alone is the kinder one.
"""

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jaxtyping import Array

import duat_jax as duat
from duat_jax.evaluation.running_text import token_losses
from duat_jax.models.transformer import Transformer
from experiments import smollm2
from experiments.estimate import Estimate, ratio
from experiments.lora.tuning import METHODS, Method, Weights, initial, trained_numbers, tuned
from experiments.markdown import table
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table
from experiments.verdict import Verdict, below, decide, joined, together

LENGTHS, REPEATS = (64, 512), 7
"""Tokens of the text of a step, and steps that are timed."""
COMPARED = "rank 1", "rank 16", "rank 64", "full, the same matrices", "full, all parameters"
ADAPTED, SAME, FULL = COMPARED[1], COMPARED[-2], COMPARED[-1]
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


def timed_steps(model: Transformer, method: Method, length: int) -> list[Row]:
    """Return the memory of a step by its compiled program, in bytes, and the seconds of several steps."""
    step, weights, state = make_step(model, method)
    ids = jnp.asarray(np.random.default_rng(0).integers(0, model.config.vocab, (1, length + 1)), jnp.int32)
    compiled = step.lower(model, weights, state, ids).compile()
    sizes = compiled.memory_analysis()
    memory = {
        "numbers": trained_numbers(weights),
        "arguments": sizes.argument_size_in_bytes,
        "temporary": sizes.temp_size_in_bytes,
        # What is overwritten in place takes no memory of its own.
        "outputs": sizes.output_size_in_bytes - sizes.alias_size_in_bytes,
    }
    rows = []
    for repeat in range(-1, REPEATS):
        start = time.perf_counter()
        weights, state = jax.block_until_ready(compiled(model, weights, state, ids))
        rows.append({**memory, "repeat": repeat, "seconds": time.perf_counter() - start})
    return rows[1:]


def measure() -> Measurements:
    """Yield every method at every length."""
    model = duat.load(smollm2.path())
    for length in LENGTHS:
        for name in COMPARED:
            yield Piece(
                "steps", {"tokens": length, "trained": name}, partial(timed_steps, model, METHODS[name], length)
            )


def _steps(frames: Frames, tokens: int, trained: str) -> pd.DataFrame:
    steps = frames["steps"]
    steps = steps.assign(memory=steps.arguments + steps.temporary + steps.outputs)
    return steps[(steps.tokens == tokens) & (steps.trained == trained)]


def share(column: str, tokens: int, frames: Frames, trained_whole: str = FULL) -> Estimate:
    """Return the memory or the seconds of adapters of rank 16, as a share of full fine-tuning's."""
    adapted, full = (_steps(frames, tokens, trained)[column] for trained in (ADAPTED, trained_whole))
    if column == "memory":  # the same in every repeat
        adapted, full = adapted[:1], full[:1]
    return ratio(adapted, full)


MEMORY, LONG_MEMORY, TIME, LONG_TIME = (
    Measure(f"{column} of a step of rank 16, of full fine-tuning's, {tokens} tokens", partial(share, column, tokens), 2)
    for column, tokens in (("memory", 64), ("memory", 512), ("seconds", 64), ("seconds", 512))
)


def less_is_saved(short: Estimate, long: Estimate) -> Verdict:
    """Return whether longer texts save a smaller share of the memory."""
    return decide(long.value > short.value, long.value <= short.value)


def shares(frames: Frames) -> list[str]:
    """Return the shares of memory and time that rank 16 takes of both kinds of full fine-tuning."""
    rows = [
        [str(tokens), of, *(share(column, tokens, frames, of).written(2) for column in ("memory", "seconds"))]
        for tokens in LENGTHS
        for of in (FULL, SAME)
    ]
    return table(["tokens", "of", "memory", "time"], rows)


def mebibytes(*columns: str) -> Cell:
    """Return the cell of a sum of columns in MiB."""
    return Cell(lambda rows: f"{sum(rows[column].iloc[0] for column in columns) / MIB:,.0f}")


SHARES = "Shares of rank 16"

STUDY = Study(
    protocol=__doc__,
    page="lora",
    claim="adapters allow fine-tuning without adjusting all parameters, under resource constraints (Section 1)",
    unit="compiled program",
    stated="before the run for 64 tokens, afterwards for 512",
    predictions=(
        Prediction(
            "rank 16 takes less than half of full fine-tuning's memory and less than 0.8 of its time; cases: 64 and 512"
            " tokens",
            "a case is confirmed if both shares are below their bounds, refuted if one is above; mixed if the cases"
            " differ",
            (MEMORY, TIME, LONG_MEMORY, LONG_TIME),
            lambda *shares: together(
                *(joined(below(of[0], 0.5), below(of[1], 0.8)) for of in (shares[:2], shares[2:]))
            ),
        ),
        Prediction(
            "with 64 tokens rank 16 takes less than half of full fine-tuning's memory and less than 0.8 of its time",
            "confirmed if both shares are below their bounds, refuted if one is above",
            (MEMORY, TIME),
            lambda memory, seconds: joined(below(memory, 0.5), below(seconds, 0.8)),
        ),
        Prediction(
            "with 512 tokens a smaller share of the memory is saved",
            "confirmed if the share with 512 tokens is larger than with 64",
            (MEMORY, LONG_MEMORY),
            less_is_saved,
        ),
    ),
    control=Measure(
        "memory of a step of rank 16, of that of fine-tuning of the same matrices, 64 tokens",
        partial(share, "memory", 64, trained_whole=SAME),
        2,
    ),
    headline="With 64 tokens a training step of rank-16 adapters takes {outcome} of full fine-tuning's memory and"
    f" {{{SHARES} / 64, {FULL} / time}} of its time, with 512 tokens {{{SHARES} / 512, {FULL} / memory}} and"
    f" {{{SHARES} / 512, {FULL} / time}}; of the memory of fine-tuning the same matrices with 64 tokens {{control}}"
    " (SmolLM2-135M, {n} program each).",
    against=f"With 512 tokens a step takes {{{SHARES} / 512, {SAME} / memory}} of the memory of fine-tuning the same"
    f" matrices, and {{{SHARES} / 512, {SAME} / time}} of its time.",
    limits="One model of 135 million parameters, one text a step, two CPU cores; the program keeps all activations.",
    tables={
        "Memory and time of a step": Table(
            "steps",
            ("tokens", "trained"),
            {
                "numbers": Cell(lambda rows: f"{rows.numbers.iloc[0]:,}"),
                "weights and state, MiB": mebibytes("arguments"),
                "temporary, MiB": mebibytes("temporary"),
                "together, MiB": mebibytes("arguments", "temporary", "outputs"),
                "seconds a step": Cell("seconds", 2),
            },
        ),
        SHARES: shares,
    },
    measure=measure,
    settings={"lengths": LENGTHS, "repeats": REPEATS, "methods": COMPARED},
)
