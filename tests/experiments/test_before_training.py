"""The gain by demonstrations of untrained networks, and with their read-outs fitted."""

import jax
import jax.numpy as jnp
import numpy as np
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
    found = measured(network_of("linear attention"))
    for count in map(str, innate.COUNTS):
        # Fitted on other examples than it is tested on, with nine numbers.
        assert found[FITTED][count] < min(found[AS_IS][count], 1.05)


@pytest.mark.parametrize(("before", "said"), [(0.1, "confirmed"), (0.0, "refuted"), (0.05, "open")])
def test_gains_and_verdicts(before, said):
    """Errors with one demonstration are larger than those with 16 by the gain."""

    def seeds(gain):
        errors = [{"1": 0.9 + gain + shift, "4": 0.95, "16": 0.9} for shift in (-0.01, 0.0, 0.01)]
        return {"seeds": [{AS_IS: error, FITTED: error} for error in errors]}

    networks = {
        f"{kind}; {steps}": seeds(before if steps == 0 else 0.5) for kind in innate.KINDS for steps in innate.STEPS
    }
    fields = innate.fields({"networks": networks})
    name = "Gain by demonstrations before training / transformer"
    assert fields[f"{name} / innate, {FITTED}"] == said
    near(float(fields[f"{name} / gain, {AS_IS} / value"]), before, within=0.006)
    along = "Gain by demonstrations along the training / transformer, 4000"
    assert fields[f"{along} / gain, {FITTED} / value"] == "0.50"


@pytest.mark.slow
def test_networks_have_the_sizes_and_rates_of_the_study_of_new_functions():
    for name, compute, (sizes, rate, steps) in innate.units():
        kind, of_name = name.split("; ")
        assert compute is innate.trained and sizes.kind == kind and steps == int(of_name)
        assert sizes == plan.sizes_of(TASK, kind, 32, sizes.norms) and rate in (0.003, 0.01, 0.03)
        assert np.isfinite(rate)
