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

NUDGES = 8
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

    It is the largest error of the plain program at the inputs and at some that differ by their rounding, and the
    largest change between these.
    """
    eps, chance, constants = float(jnp.finfo(x.dtype).eps), np.random.default_rng(seed), programs.constants(x.dtype)
    plain = jax.jit(jax.vmap(drawn.function))

    def both(x: jax.Array) -> tuple[np.ndarray, np.ndarray]:
        value = drawn.twin(np.asarray(x).astype(programs.LONG), constants)
        return value, abs(np.asarray(plain(x)).astype(programs.LONG) - value)

    with np.errstate(all="ignore"):
        value, off = both(x)
        largest = abs(np.asarray(x).astype(programs.LONG)).max((1, 2))
        for _ in range(NUDGES):
            nudges = jnp.asarray(1 + 2 * eps * chance.uniform(-1, 1, x.shape)).astype(x.dtype)
            nudged, error = both(x * nudges)
            for each in (abs(nudged - value), error):
                # A jump isn't rounding.
                off = np.maximum(off, np.where(each <= eps**0.5 * largest, each, 0))
    return value, off
