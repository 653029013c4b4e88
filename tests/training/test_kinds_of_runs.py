"""Trainings with random keys, with skipped steps and on several devices, against runs without these."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import near
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from duat_jax.errors import NotFinite
from duat_jax.training import Run, influence, train

STEPS = 4
X = jnp.asarray(np.random.default_rng(0).normal(size=(STEPS, 6, 4)))
Y = X @ jnp.array([1.0, -2.0, 0.5, 2.0]) + 0.1
WEIGHTS = {"w": jnp.array([0.3, 0.1, -0.2, 0.5])}
READ = jnp.array([1.0, 0.5, -1.0, 2.0])
BATCHES = list(zip(X, Y, strict=True))


@pytest.fixture(autouse=True, scope="module")
def promoting():
    """Optax' Adam mixes dtypes."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def terms(weights, batch):
    return (batch[0] @ weights["w"] - batch[1]) ** 2


def dropped(weights, batch):
    kept = jax.random.bernoulli(batch[2], 0.7, batch[0].shape)
    return terms(weights, (batch[0] * kept, batch[1]))


def traced(folder, batches, weights=WEIGHTS, terms=terms, optimiser=None):
    run = Run(terms, optimiser or optax.adam(0.1), batches, len(batches))
    train(run, weights, folder, every=2)
    found = influence(
        train(run, weights, folder, every=2), lambda weights: weights["w"] @ READ
    )  # linear: the same in all segments
    assert found.completeness.verdict == "holds"
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return traced(tmp_path_factory.mktemp("plain"), BATCHES)


@pytest.mark.parametrize("kind", ["threefry2x32", "rbg", "raw"])
def test_random_keys_are_batches(kind, tmp_path):
    make = jax.random.PRNGKey if kind == "raw" else lambda seed: jax.random.key(seed, impl=kind)
    keys = [make(seed) for seed in range(STEPS)]
    drawn = [(x * jax.random.bernoulli(key, 0.7, x.shape), y) for (x, y), key in zip(BATCHES, keys, strict=True)]
    found = traced(tmp_path / "keys", [(*batch, key) for batch, key in zip(BATCHES, keys, strict=True)], terms=dropped)
    near(found.examples, traced(tmp_path / "drawn", drawn).examples, within=1e-12)


@pytest.mark.parametrize("skipped", [0, 1, 3])
def test_a_skipped_step_changes_nothing(skipped, tmp_path):
    batches = list(BATCHES)
    batches[skipped] = (X[skipped], Y[skipped].at[2].set(jnp.nan))
    found = traced(tmp_path / "all", batches, optimiser=optax.apply_if_finite(optax.adam(0.1), 5))
    without = traced(tmp_path / "others", [batch for i, batch in enumerate(batches) if i != skipped])
    near(np.delete(found.examples, skipped, 0), without.examples, within=1e-12)
    assert not found.examples[skipped].any()
    with pytest.raises(NotFinite, match=f"loss of step {skipped} is nan: choose"):
        traced(tmp_path / "not skipped", batches)


@pytest.mark.parametrize("what", ["weights", "batches", "both"])
@pytest.mark.skipif(jax.device_count() < 2, reason="one device: run below")
def test_a_training_on_a_mesh_is_traced_back(what, plain, tmp_path):
    divided = NamedSharding(Mesh(np.array(jax.devices()[:2]), ("devices",)), PartitionSpec("devices"))
    weights = WEIGHTS if what == "batches" else jax.device_put(WEIGHTS, divided)
    batches = BATCHES if what == "weights" else [jax.device_put(batch, divided) for batch in BATCHES]
    near(traced(tmp_path, batches, weights).examples, plain.examples, within=1e-12)


@pytest.mark.slow
@pytest.mark.skipif(jax.device_count() > 1, reason="run above")
def test_on_two_devices():
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    arguments = [sys.executable, "-m", "pytest", "-n", "0", "-q", __file__, "-k", "mesh"]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert "3 passed" in done.stdout, done.stdout
