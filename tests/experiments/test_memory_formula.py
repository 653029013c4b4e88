"""The formula of memory finds the factors that made its cases, and says by how much it misses others."""

import pytest

from benchmarks.memory import fit

SHAPES = [
    {"parameters": 10_000_000, "layers": 6, "features": 192, "neurons": 768},
    {"parameters": 120_000_000, "layers": 12, "features": 768, "neurons": 3072},
    {"parameters": 130_000_000, "layers": 30, "features": 576, "neurons": 1536},
]


def cases(noise=1.0):
    for shape in SHAPES:
        for tokens in (128, 512, 1024):
            values = 5 * shape["neurons"] + 20 * shape["features"]
            peak = 4e8 + 4 * shape["parameters"] + 4 * tokens * shape["layers"] * values
            yield tokens, shape | {"weights_bytes": 4 * shape["parameters"], "peak_bytes": noise * peak}


def test_the_factors_that_made_the_cases_are_found():
    found = fit(list(cases()))
    assert (found.constant, found.per_neuron, found.per_feature) == (40, 5, 20)
    assert found.miss < 1e-9


def test_the_miss_is_that_of_the_worst_case():
    measured = list(cases())
    measured[4] = next(case for i, case in enumerate(cases(1.5)) if i == 4)
    found = fit(measured)
    tokens, case = measured[4]
    sizes = (case[size] for size in ("parameters", "layers", "features", "neurons"))
    assert found.miss >= abs(found.peak(*sizes, tokens) / case["peak_bytes"] - 1) - 1e-12
    assert found.miss == pytest.approx(0.3, abs=0.15)
