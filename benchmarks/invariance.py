"""Claim: alone, in a batch, padded or on divided devices, a text's contributions and logits differ by rounding alone.

Run `python -m benchmarks.invariance`.

The differences from the text alone are measured as parts of the tolerance of completeness, which bounds the rounding of
the explained logit. In float64 they are smaller in the ratio of the machine epsilons, which rounding alone explains.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import duat_jax as duat
from duat_jax.evaluation.running_text import stream
from duat_jax.inputs import batching
from duat_jax.models.mesh import divide
from experiments import smollm2
from experiments.environment import environment
from experiments.markdown import Fields, table

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "invariance.json"
MODELS = {
    "embedded": lambda: None,
    "SmolLM2-135M": smollm2.path,
    "Gemma 2, two random layers": lambda: ROOT / "tests" / "golden" / "gemma2",
    "BERT, two random layers": lambda: ROOT / "tests" / "golden" / "bert-masked",
}
DTYPES = "float32", "float64"
TEXTS, TOKENS, LONGER = 8, 8, 14
"""The number of texts of one length, and the length of a longer one; both are padded to the shortest length, 16."""

DEVICES = 8
PARTS = "embedding", "terms", "biases"


def answers(name: str, dtype: str) -> Iterator[tuple[str, duat.results.Explanation, jax.Array]]:
    """Yield each way in which one text is read, with its explanation and its logits.

    Args:
        name: of the model.
        dtype: dtype of the parameters.
    """
    model = duat.load(MODELS[name](), dtype=dtype)
    tokenizer = model.tokenizer
    tokens = stream(tokenizer, [(ROOT / "LICENSE").read_text(encoding="utf-8")])
    texts = tokens[: TEXTS * TOKENS].reshape(TEXTS, TOKENS)
    longer = tokens[-LONGER:]
    alone = model(texts[0])
    target = int(alone[-1].argmax())

    def explained(model: duat.models.Transformer, texts: Any, **options: Any) -> duat.results.Explanation:
        return duat.explain(model, [list(map(int, text)) for text in texts], target, position=TOKENS - 1, **options)[0]

    beside = np.stack([np.pad(texts[0], (0, LONGER - TOKENS)), longer])
    real = np.arange(LONGER) < np.array([[TOKENS], [LONGER]])
    logits = model(beside, jnp.array(real))[0, :TOKENS]
    yield "padded beside a longer one", explained(model, [texts[0], longer]), logits
    with mock.patch.object(batching, "SHORTEST", TOKENS):  # texts of this length aren't padded
        yield "alone", explained(model, texts[:1]), alone
        yield "in a batch of 8", explained(model, texts), model(texts)[0]
        parts = next(number for number in (4, 3) if model.config.blocks[0].heads % number == 0)
        mesh = Mesh(np.array(jax.devices()[: 2 * parts]).reshape(2, parts), ("texts", "model"))
        divided, spread = divide(model, mesh), NamedSharding(mesh, P("texts"))
        logits = jax.jit(lambda model, ids: model(ids))(divided, jax.device_put(texts, spread))
        yield f"on 2 × {parts} devices", explained(divided, texts, sharding=spread), logits[0]


def differences(name: str, dtype: str) -> dict[str, dict[str, float]]:
    """Return the largest differences of contributions and logits from the text alone, by the way it is read.

    Args:
        name: of the model.
        dtype: dtype of the parameters.
    """

    def arrays(result: duat.results.Explanation) -> list[np.ndarray]:
        return [np.asarray(array.values) for array in result.arrays() if array.part in PARTS]

    read = {way: (arrays(result), jax.device_get(logits), result) for way, result, logits in answers(name, dtype)}
    expected, expected_logits, result = read.pop("alone")
    return {
        way: {
            "contributions": float(max(np.abs(one - two).max() for one, two in zip(parts, expected, strict=True))),
            "logits": float(np.abs(logits - expected_logits).max()),
            "tolerance": float(result.completeness.tolerance),
        }
        for way, (parts, logits, _) in read.items()
    }


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: the kept results.
    """
    rows, shares = [], []
    for name, by_dtype in results["models"].items():
        for way, found in by_dtype["float32"].items():
            shares.append(_largest(found) / found["tolerance"])
            cells = [f"{found[what] / found['tolerance']:.1%}" for what in ("contributions", "logits")]
            difference, exact = _largest(found), _largest(by_dtype["float64"][way])
            rows.append([name, way, *cells, f"{exact / difference:.0e}".replace("0e+00", "0") if difference else "–"])
    head = "model", "the text", "contributions", "logits", "float64 / float32"
    return {"table": "\n".join(table(head, rows)), "largest": f"{max(shares):.0%}"}


def _largest(found: dict[str, float]) -> float:
    return max(found["contributions"], found["logits"])


def main() -> None:
    """Measure every model in both dtypes, and keep the results."""
    jax.config.update("jax_num_cpu_devices", DEVICES)
    results: dict[str, Any] = {"environment": environment(), "models": {}}
    for name in MODELS:
        of_model = results["models"][name] = {}
        for dtype in DTYPES:
            with jax.enable_x64(dtype == "float64"):
                of_model[dtype] = differences(name, dtype)
            print(name, dtype, json.dumps(of_model[dtype], indent=1))
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
