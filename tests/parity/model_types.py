"""A small random model of every model type of the installed transformers: is it converted, exact, and certified?

`python -m tests.parity.model_types` tries all of them and writes `docs/reference/model-types.md` and its table;
`--part 3/40` tries one of forty parts, and `--types llama bart` some; other results are kept.
"""

import argparse
import copy
import json
import os
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers

import duat_jax as duat
from duat_jax.pytorch.module import TorchFunction, require_agreement, torch_outputs, weights_of
from tests.parity.model_types_family import away_from_the_family
from tests.parity.model_types_page import KEPT, write_page
from tests.parity.small_models import ANSWERS, CLASSES, EACH, small_models

SECONDS = 120
"""The most processor time that a model may take."""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise where a block takes more processor time."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"more than {seconds} s")

    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def logits(output: Any) -> Any:
    """Return the logits of a model's output, its last states, or its first floating-point array."""
    for name in ANSWERS:
        if isinstance(output, dict) and name in output:
            return output[name]
    return next(leaf for leaf in jax.tree.leaves(output) if jnp.issubdtype(leaf.dtype, jnp.floating))


def converted(module: Any, given: dict[str, Any]) -> tuple[Any, dict[str, Any], float]:
    """Return a module as a function, its arguments as arrays, and how far its logits are from PyTorch's at most.

    Args:
        module: the module.
        given: its arguments; the difference is relative to the largest of PyTorch's logits.
    """
    function = TorchFunction(weights_of(module), module)
    arrays = {key: jnp.asarray(each.numpy()) if hasattr(each, "numpy") else each for key, each in given.items()}
    theirs, ours = torch_outputs(module, (), given), function(**arrays)
    require_agreement(function, theirs, ours)
    expected, computed = np.asarray(logits(theirs)), np.asarray(logits(ours))
    finite = np.isfinite(expected)
    away = np.abs(computed - expected)[finite].max() / np.abs(expected[finite]).max()
    return function, arrays, float(f"{away:.0e}")


def certified(row: dict[str, Any], module: Any, name: str, given: dict[str, Any]) -> None:
    """Note how far a module's logits are from PyTorch's, and whether a number made of them is certified.

    Args:
        row: where it is noted, step by step.
        module: the module.
        name: the input that the number is a function of.
        given: all inputs.
    """
    row |= {"class": type(getattr(module, "module", module)).__name__, "input": name, "step": "converted"}
    function, arrays, row["float32"] = converted(module, given)
    x = arrays.pop(name)
    weights: list[Any] = []
    finite = np.flatnonzero(np.isfinite(logits(torch_outputs(module, (), given))))

    def number(x: Any) -> Any:
        vector = logits(function(**{name: x}, **arrays)).reshape(-1)
        vector = vector if len(finite) == len(vector) else vector[finite]  # a masked class has minus infinity
        weights[:] = weights or [np.random.default_rng(0).normal(size=vector.shape)]
        return vector @ jnp.asarray(weights[0], vector.dtype)

    row["step"] = "secant"
    row["secant"] = duat.secant(number)(x, x[:, ::-1] if x.ndim == 3 else x[..., ::-1]).completeness.verdict
    row["step"] = "marked"
    parts = duat.decompose(duat.auto(number), x)
    row |= {"marked": parts.completeness.verdict, "terms": len(parts.terms)}
    share = abs(float(parts.not_attributed)) / max(abs(float(parts.completeness.value)), 1e-9)
    row["not attributed"] = float(f"{share:.2g}")
    row["step"] = "float64"
    if (wide := in_float64(module, given)) is not None:
        row["float64"] = wide
    if (away := away_from_the_family(module)) is not None:
        row["family"] = away
    row["step"] = "done"


def in_float64(module: Any, given: dict[str, Any]) -> float | None:
    """Return how far a module's logits in float64 are from PyTorch's; `None` where PyTorch has none, as of Gemma 4."""
    floats = {key: each.double() for key, each in given.items() if hasattr(each, "dtype") and each.is_floating_point()}
    wide = copy.deepcopy(module).double()
    try:
        torch_outputs(wide, (), given | floats)
    except RuntimeError:  # its code makes arrays of single precision
        return None
    with jax.enable_x64(True):
        return converted(wide, given | floats)[2]


def tried(model_type: str) -> dict[str, Any]:
    """Return what was found of a model type, with the first of its inputs by which it is certified."""
    rows: list[dict[str, Any]] = []
    began = time.process_time()
    with limited(SECONDS), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for example in small_models(model_type):
                rows.append({})
                try:
                    certified(rows[-1], *example)
                except Exception as error:
                    rows[-1]["reason"] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
                if rows[-1]["step"] == "done" or len(rows) == 2 * EACH:
                    break
        except Exception as error:
            rows = rows or [{"step": "built", "reason": " ".join(f"{type(error).__name__}: {error}".split())[:200]}]
    row = rows[-1] if rows[-1]["step"] == "done" else rows[0]
    row["seconds"] = round(time.process_time() - began, 1)
    return row


def kept() -> dict[str, dict[str, Any]]:
    """Return what was found of every model type."""
    return json.loads(KEPT.read_text(encoding="utf-8"))["types"] if KEPT.is_file() else {}


def keep(rows: dict[str, dict[str, Any]]) -> None:
    """Keep what was found of model types, one a line, with the versions of the libraries."""
    versions = {name: version(name) for name in ("transformers", "torch", "torchax", "jax")}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows))
    KEPT.write_text(f'{{"versions": {json.dumps(versions)}, "types": {{\n{lines}\n}}}}\n', encoding="utf-8")


def main() -> None:
    """Try every model type of a part, keep what was found, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--types", nargs="*")
    asked = parser.parse_args()
    if unknown := sorted(set(asked.types or ()) - set(CLASSES)):
        parser.error(f"transformers {transformers.__version__} has no model type {', '.join(unknown)}")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    # Programs that run once or twice, as in `conftest.py`.
    os.environ["XLA_FLAGS"] = "--xla_cpu_parallel_codegen_split_count=1 --xla_cpu_use_fusion_emitters=false"
    jax.config.update("jax_disable_most_optimizations", True)
    part, parts = map(int, asked.part.split("/"))
    for k, model_type in enumerate(sorted(CLASSES)[part - 1 :: parts] if asked.types is None else asked.types):
        if k % 40 == 39:
            jax.clear_caches()  # compiled programs take memory; until then they serve models of the same shapes
        row = tried(model_type)
        keep(kept() | {model_type: row})
        print(model_type, row, flush=True)
    write_page()


if __name__ == "__main__":
    main()
