"""Claim: peak memory is that of the packages, the weights, and a number of bytes a token that the model's shape gives.

Run `make install && python -m benchmarks.memory`; it takes some minutes; `make pages` fills in docs/how-to/memory.md.

Each case runs in a process of its own, which loads the model and asks one question of one text; the peak is the most
that it ever held in main memory (`ru_maxrss`), with everything imported, read and compiled.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from experiments.environment import environment
from experiments.markdown import Fields, table

RESULTS = Path(__file__).parent / "results" / "memory.json"
SHAPES = {
    "the embedded model": (128, 256),
    "GPT-2-small's shape": (128, 512, 1024),
    "SmolLM2-135M": (128, 512, 1024),
}
"""The lengths of text of every model, in tokens."""

QUESTIONS = ("explain", "contrast")

LARGER = {
    "Llama, 1.1 billion": (1.10e9, 22, 2048, 5632),
    "Llama, 6.7 billion": (6.74e9, 32, 4096, 11008),
    "Llama, 8.0 billion": (8.03e9, 32, 4096, 14336),
}
"""Parameters, layers, features and neurons of models whose memory is estimated by the formula."""

STORED = {"float32": 4, "bfloat16": 2}
"""The bytes of a stored parameter, by its dtype; the compiler for CPUs makes a copy in float32 of each in bfloat16."""

ESTIMATED = (128, 512, 1024)
"""The lengths of text for which it is."""

PROGRAM = """
import json, os, resource, sys
import jax
import numpy as np
import duat_jax as duat
from benchmarks.table import gpt2_small, smollm2


def held():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


name, tokens, question = sys.argv[1], int(sys.argv[2]), sys.argv[3]
duat.explain, duat.contrast
jax.block_until_ready(jax.numpy.zeros(3))
packages = held()
makers = {"the embedded model": duat.load, "GPT-2-small's shape": gpt2_small, "SmolLM2-135M": smollm2}
model = jax.block_until_ready(makers[name]())
ids = np.arange(5, 5 + tokens)
if question == "explain":
    result = duat.explain(model, ids)
else:
    other = ids.copy()
    other[tokens // 2] += 1
    result = duat.contrast(model, ids, other)
block = model.config.blocks[0]
print(json.dumps({
    "packages_bytes": packages,
    "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "weights_bytes": sum(leaf.nbytes for leaf in jax.tree.leaves(model)),
    "parameters": sum(leaf.size for leaf in jax.tree.leaves(model)),
    "layers": model.config.layers, "features": block.features, "neurons": block.neurons, "heads": block.heads,
    "verdict": result.completeness.verdict,
}))
"""


def main() -> None:
    """Run the measurements, print them, and store the result."""
    result: dict[str, Any] = {"environment": environment()}
    for name, lengths in SHAPES.items():
        for tokens in lengths:
            for question in QUESTIONS:
                command = [sys.executable, "-c", PROGRAM, name, str(tokens), question]
                printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                result[f"{name}, {tokens} tokens, {question}"] = measured = json.loads(printed)
                beyond = measured["peak_bytes"] - measured["packages_bytes"] - measured["weights_bytes"]
                print(
                    f"{name:20s} {tokens:5d} tokens  {question:9s} peak {measured['peak_bytes'] / 1e9:.2f} GB,"
                    f" beyond packages and weights {beyond / 1e9:.2f} GB, {measured['verdict']}",
                    flush=True,
                )
    RESULTS.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")


class Fit(NamedTuple):
    """The formula `peak = constant + 4 · parameters + 4 · tokens · layers · (a · neurons + b · features)`, in bytes.

    Args:
        constant: packages, programs and what doesn't depend on the model, in units of 10 MB.
        per_neuron: `a`, a whole number.
        per_feature: `b`, a whole number.
        miss: the largest relative error over all measured cases.
    """

    constant: int
    per_neuron: int
    per_feature: int
    miss: float

    SIZES = "parameters", "layers", "features", "neurons"

    @property
    def factors(self) -> tuple[float, int, int]:
        """The constant in GB, and both factors."""
        return self.constant / 100, self.per_neuron, self.per_feature

    def peak(self, parameters: float, layers: int, features: int, neurons: int, tokens: int, stored: int = 4) -> float:
        """Return the peak in bytes.

        Args:
            parameters: the number of parameters.
            layers: the number of layers.
            features: the size of the stream.
            neurons: the neurons of a layer.
            tokens: the length of the text.
            stored: the bytes of a stored parameter.
        """
        per_token = 4 * layers * (self.per_neuron * neurons + self.per_feature * features)
        held = stored if stored == 4 else stored + 4
        return 1e7 * self.constant + held * parameters + tokens * per_token


def fit(cases: list[tuple[int, dict[str, Any]]]) -> Fit:
    """Fit the formula to measured cases by least squares of relative errors.

    Args:
        cases: the length of each text, and what was measured.
    """
    peaks = np.array([case["peak_bytes"] for _, case in cases], float)
    rows = [(1e7, *(4 * n * case["layers"] * case[size] for size in ("neurons", "features"))) for n, case in cases]
    rest = peaks - [case["weights_bytes"] for _, case in cases]
    solution, _ = nnls(np.array(rows, float) / peaks[:, None], rest / peaks)
    rounded = Fit(*(round(number) for number in solution), miss=0.0)
    predicted = np.array([rounded.peak(*(case[size] for size in Fit.SIZES), n) for n, case in cases])
    return rounded._replace(miss=float(abs(predicted / peaks - 1).max()))


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: the kept results.
    """

    def measured(name: str, tokens: int, question: str) -> dict[str, Any]:
        return results[f"{name}, {tokens} tokens, {question}"]

    fits = {
        question: fit([(n, measured(name, n, question)) for name, lengths in SHAPES.items() for n in lengths])
        for question in QUESTIONS
    }
    columns = sorted({n for lengths in SHAPES.values() for n in lengths})
    rows = []
    for name, lengths in SHAPES.items():
        of_model = {n: [measured(name, n, question)["peak_bytes"] / 1e9 for question in QUESTIONS] for n in lengths}
        case = measured(name, lengths[0], "explain")
        cells = [" / ".join(f"{peak:.1f}" for peak in of_model[n]) if n in of_model else "" for n in columns]
        rows.append([name, f"{case['parameters'] / 1e6:,.1f} million", f"{case['weights_bytes'] / 1e9:.2f}", *cells])
    larger = [
        [
            name,
            dtype,
            f"{1e-9 * stored * shape[0]:.1f}",
            *(
                " / ".join(f"{fits[question].peak(*shape, n, stored) / 1e9:.0f}" for question in QUESTIONS)
                for n in ESTIMATED
            ),
        ]
        for name, shape in LARGER.items()
        for dtype, stored in STORED.items()
    ]
    explain, contrast = (fits[question] for question in QUESTIONS)
    of_smollm2 = [results["SmolLM2-135M, 512 tokens, explain"][size] for size in Fit.SIZES]
    peaks = [fits[question].peak(*of_smollm2, 512) / 1e9 for question in QUESTIONS]
    code = f"""```python
def peak(constant, per_neuron, per_feature, parameters, layers, features, neurons, tokens, stored=4):
    per_token = 4 * layers * (per_neuron * neurons + per_feature * features)
    held = stored if stored == 4 else stored + 4
    return constant + (held * parameters + tokens * per_token) / 1e9


explain, contrast = {fits["explain"].factors}, {fits["contrast"].factors}
smollm2 = {{
    "parameters": {of_smollm2[0]:_},
    "layers": {of_smollm2[1]},
    "features": {of_smollm2[2]},
    "neurons": {of_smollm2[3]},
}}
for question in (explain, contrast):
    print(f"{{peak(*question, **smollm2, tokens=512):.1f}} GB")
```

```text
{peaks[0]:.1f} GB
{peaks[1]:.1f} GB
```"""
    per_token = {
        name: (measured(name, 1024, "explain")["peak_bytes"] - measured(name, 512, "explain")["peak_bytes"]) / 512
        for name, lengths in SHAPES.items()
        if 1024 in lengths
    }
    return {
        "table": "\n".join(table(["model", "parameters", "weights, GB", *(f"{n:,} tokens" for n in columns)], rows)),
        "larger": "\n".join(
            table(["model", "weights in", "weights, GB", *(f"{n:,} tokens" for n in ESTIMATED)], larger)
        ),
        "formula": code,
        "miss of explain": f"{100 * explain.miss:.0f} %",
        "miss of contrast": f"{100 * contrast.miss:.0f} %",
        "packages": f"{max(case['packages_bytes'] for case in results.values() if 'packages_bytes' in case) / 1e9:.2f}",
        **{f"per token, {name}": f"{size / 1e6:.1f} MB" for name, size in per_token.items()},
    }


if __name__ == "__main__":
    main()
