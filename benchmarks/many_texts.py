"""Part of the time of questions about many texts in which compiled programs run, for `benchmarks.questions`."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any
from unittest.mock import patch

import jax
import numpy as np

import duat_jax as duat
from benchmarks.table import TARGET

TEXTS, SHORTEST, LONGEST, REPEATS = 200, 33, 64, 5


@contextmanager
def timed_programs() -> Iterator[list[float]]:
    """Yield a list that gets the time of every program of a question, from call to result."""
    times: list[float] = []

    def timed(program: Callable) -> Callable:
        @wraps(program)
        def call(*given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            result = jax.block_until_ready(program(*given, **named))
            times.append(time.perf_counter() - began)
            return result

        return call

    with ExitStack() as patches:
        for module in [module for name, module in sys.modules.items() if name.startswith("duat_jax")]:
            for name, value in list(vars(module).items()):
                if "jitted" in getattr(value, "__dict__", {}):
                    patches.enter_context(patch.object(module, name, timed(value)))
        yield times


def many_texts(model: duat.models.Transformer) -> dict[str, dict[str, list[float]]]:
    """Return texts a second, and the part of the time in which programs run, of each repeat and question.

    Args:
        model: the model.
    """
    draw = np.random.default_rng(0)
    texts = [draw.integers(model.config.vocab, size=draw.integers(SHORTEST, LONGEST + 1)) for _ in range(TEXTS)]
    asked = {
        "`explain`": partial(duat.explain, model, texts, TARGET),
        "`contrast`": partial(duat.contrast, model, texts, duat.baselines.Mean(), TARGET),
    }
    found: dict[str, dict[str, list[float]]] = {}
    for name, ask in asked.items():
        ask()
        found[name] = {"texts_a_second": [], "programs": []}
        for _ in range(REPEATS):
            with timed_programs() as times:
                began = time.perf_counter()
                ask()
                whole = time.perf_counter() - began
            found[name]["texts_a_second"].append(TEXTS / whole)
            found[name]["programs"].append(sum(times) / whole)
    return found
