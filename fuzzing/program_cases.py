"""Cases of drawn programs: decomposed, collapsed and contrasted at a batch of inputs."""

import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import duat_jax as duat
from duat_jax.forms.completeness import Completeness
from fuzzing import programs
from fuzzing.verdicts import Tally, inputs

DTYPES = ("float32", "float32", "float64", "float64", "bfloat16", "float16")
"""The dtypes of programs, the common ones twice."""

NUDGES = 4
"""The number of inputs that differ by one rounding, at which a program shows how far rounding carries."""


def ask(seed: int, tally: Tally, batch: int) -> None:
    """Ask three questions of a drawn program at a batch of inputs.

    Args:
        seed: what decides.
        tally: counts the answers.
        batch: the number of inputs.
    """
    drawn, dtype = programs.draw(seed), jnp.dtype(random.Random(-1 - seed).choice(DTYPES))
    x, y = (jnp.asarray(values).astype(dtype) for values in inputs(seed, batch, programs.SHAPE))
    (at_x, off_at_x), (at_y, off_at_y) = (_evaluate(drawn, values, seed) for values in (x, y))
    questions: dict[str, tuple[Callable[..., Completeness], Any, Any]] = {
        "decompose": (lambda x, y: duat.decompose(drawn.function, x, marks="auto").completeness, at_x, off_at_x),
        "collapse": (lambda x, y: duat.collapse(drawn.function, x, marks="auto").completeness, at_x, off_at_x),
        "secant": (lambda x, y: duat.secant(drawn.function)(x, y).completeness, at_x - at_y, off_at_x + off_at_y),
    }
    for name, (question, reference, rounding) in questions.items():
        try:
            answers = jax.jit(jax.vmap(question))(x, y)
        except duat.DuatError:
            tally.refuse(batch)
            continue
        tally.judge(f"program {seed}, {name}, {dtype}: {', '.join(drawn.operations)}", answers, reference, rounding)


def _evaluate(drawn: programs.Drawn, x: jax.Array, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a program's values in extended precision, and how far rounding takes them.

    It is the larger one of the plain program's error, and of what inputs do that differ by one rounding.
    """
    eps, chance, constants = float(jnp.finfo(x.dtype).eps), np.random.default_rng(seed), programs.constants(x.dtype)
    exact = np.asarray(x).astype(programs.LONG)
    plain = np.asarray(jax.jit(jax.vmap(drawn.function))(x)).astype(programs.LONG)
    with np.errstate(all="ignore"):
        value = drawn.twin(exact, constants)
        off = abs(plain - value)
        for _ in range(NUDGES):
            nudged = drawn.twin(exact * (1 + eps * chance.uniform(-1, 1, exact.shape)), constants)
            # A jump isn't rounding.
            carried = np.where(abs(nudged - value) <= eps**0.5 * abs(exact).max((1, 2)), abs(nudged - value), 0)
            off = np.maximum(off, carried)
    return value, off
