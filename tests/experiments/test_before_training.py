"""The gain by demonstrations of untrained networks, and with their read-outs fitted."""

import jax
import jax.numpy as jnp
import pandas as pd
import pytest
from helpers import close, near

from experiments.generalization import innate, plan
from experiments.generalization.innate import AS_IS, FITTED, TASK, features, measured
from experiments.generalization.networks import Sizes, drawn
from experiments.generalization.training import outputs

KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def as_optax_promotes():
    with jax.numpy_dtype_promotion("standard"):
        yield


def network_of(kind):
    return drawn(Sizes(kind=kind, norms=True, layers=2, features=8, neurons=6), TASK, KEY)


def test_the_read_out_reads_the_features():
    network, examples = network_of("transformer"), TASK.draw(KEY, 7)
    weights = jnp.append(network.readout.kernel[...][:, 0], network.readout.bias[...])
    close(features(network, examples) @ weights, outputs(network, examples)[:, 0], layers=4)


@pytest.mark.slow
def test_a_fitted_read_out_is_no_worse_than_the_networks_own_or_zero(monkeypatch):
    monkeypatch.setattr(innate, "TESTED", 512)
    found = measured(TASK, None, network_of("linear attention"))
    for count in innate.COUNTS:
        # Fitted on other examples than it is tested on, with nine numbers.
        assert found[f"{count}, {FITTED}"] < min(found[f"{count}, {AS_IS}"], 1.05)


@pytest.mark.parametrize(("before", "said"), [(0.1, "confirmed"), (0.0, "refuted"), (0.05, "undecided")])
def test_gains_and_verdicts(before, said):
    """Errors with one demonstration are larger than those with 16 by the gain."""
    rows = [
        {"network": kind, "steps": steps, "seed": seed}
        | {f"{count}, {how}": error for how in (AS_IS, FITTED) for count, error in ((1, 0.9 + gain), (16, 0.9))}
        for kind in innate.KINDS
        for steps in innate.STEPS
        for seed, shift in enumerate((-0.01, 0.0, 0.01))
        for gain in [(0.5 if steps else before) + shift]
    ]
    frames = {"networks": pd.DataFrame(rows)}
    for prediction in innate.STUDY.predictions:
        assert prediction.verdict(frames) == said
    near(innate.STUDY.control.estimate(frames).value, before, within=1e-9)
    near(innate.gains("transformer", FITTED, frames, 4000).mean(), 0.5, within=1e-9)


@pytest.mark.slow
def test_networks_have_the_sizes_and_rates_of_the_study_of_new_functions():
    (pieces,) = innate.measure()
    assert len(pieces) == len(innate.KINDS) * len(innate.STEPS)
    for piece in pieces:
        task, sizes, steps, rate, seeds, by = piece.compute.args
        assert (task, steps, seeds, by) == (TASK, piece.keys["steps"], plan.SEEDS, measured)
        assert sizes == plan.sizes_of(TASK, piece.keys["network"], 32, sizes.norms) and rate in (0.003, 0.01, 0.03)
