"""Cases of drawn programs: decomposed, collapsed and contrasted at a batch of inputs."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np

import duat_jax as duat
from duat_jax.forms.completeness import Completeness
from fuzzing import programs
from fuzzing.rounding import carried
from fuzzing.verdicts import Tally, inputs

DTYPES = ("float32", "float32", "float64", "float64", "bfloat16", "float16")
"""The dtypes of programs, the common ones twice."""


@dataclass(frozen=True)
class _Values:
    """The values of a program at a batch of inputs."""

    drawn: programs.Drawn
    x: jax.Array
    seed: int

    @cached_property
    def exact(self) -> np.ndarray:
        """They, in extended precision."""
        with np.errstate(all="ignore"):
            return self._evaluate(np.asarray)

    @cached_property
    def rounding(self) -> np.ndarray:
        """How far rounding carries them: in the program itself, or in extended precision that rounds as coarsely."""
        eps, x = float(jnp.finfo(self.x.dtype).eps), np.asarray(self.x).astype(programs.LONG)
        # For a single input the compiler may compute a value for each operation that reads it, and round it otherwise:
        # then the largest of some numbers is none of them.
        batched, single = jax.vmap(self.drawn.function), partial(jax.lax.map, self.drawn.function)
        own = np.stack([jax.jit(program)(self.x) for program in (batched, single)]).astype(programs.LONG)
        with np.errstate(all="ignore"):
            off = carried(self._evaluate, self.exact, eps, self.seed)
            # A jump isn't rounding.
            off = np.where(off <= eps**0.5 * abs(x).max((1, 2)), off, 0)
            return np.concatenate([abs(own - self.exact), off]).max(0)

    def _evaluate(self, numbers: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        x = np.asarray(self.x).astype(programs.LONG)
        return self.drawn.twin(numbers(x), programs.constants(self.x.dtype))


def ask(seed: int, tally: Tally, batch: int) -> None:
    """Ask three questions of a drawn program at a batch of inputs.

    Args:
        seed: what decides.
        tally: counts the answers.
        batch: the number of inputs.
    """
    drawn, dtype = programs.draw(seed), jnp.dtype(random.Random(-1 - seed).choice(DTYPES))
    x, y = (jnp.asarray(values).astype(dtype) for values in inputs(seed, batch, programs.SHAPE))
    at_x, at_y = (_Values(drawn, values, seed) for values in (x, y))
    one = at_x.exact, lambda: at_x.rounding
    two = at_x.exact - at_y.exact, lambda: at_x.rounding + at_y.rounding
    questions: dict[str, tuple[Callable[..., Completeness], tuple[np.ndarray, Callable[[], np.ndarray]]]] = {
        "decompose": (lambda x, y: duat.decompose(drawn.function, x, marks="auto").completeness, one),
        "collapse": (lambda x, y: duat.collapse(drawn.function, x, marks="auto").completeness, one),
        "secant": (lambda x, y: duat.secant(drawn.function)(x, y).completeness, two),
    }
    for name, (question, (reference, rounding)) in questions.items():
        try:
            answers = jax.jit(jax.vmap(question))(x, y)
        except duat.DuatError:
            tally.refuse(batch)
            continue
        tally.judge(f"program {seed}, {name}, {dtype}: {', '.join(drawn.operations)}", answers, reference, rounding)
