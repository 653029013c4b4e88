"""Every family, switch and head agrees with the reference; no configuration loads and disagrees."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

import duat_jax as duat
from duat_jax.models.registry import FAMILIES as LOADED

from . import hugging_face
from .cases import DTYPES, TOKENS, TOLERANCE, cases, changed_from, errors, inputs, make_case, reference, relative_error
from .draws import DRAWS
from .families import FAMILIES

CASES = {case.name: case for case in cases()}
LOADING = [name for name, case in CASES.items() if not case.refused]
EXAMPLES = 6


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """What the reference computes for a case, and the directory of its checkpoint; once for each."""

    @functools.cache
    def compute(name):
        directory = tmp_path_factory.mktemp("checkpoint")
        return reference(CASES[name], directory), directory

    return compute


def test_every_family_is_compared():
    assert set(LOADED) == set(FAMILIES) == set(DRAWS)


@pytest.mark.parametrize("name", LOADING)
def test_the_model_is_the_reference(name, computed):
    expected, directory = computed(name)
    for dtype in DTYPES:
        found = errors(CASES[name], directory, expected[dtype], dtype)
        assert max(found.values()) < TOLERANCE[dtype], (dtype, found)


@pytest.mark.parametrize("name", [name for name in CASES if name not in LOADING])
def test_what_is_not_supported_is_refused_by_name(name, computed):
    _, directory = computed(name)
    with pytest.raises(duat.BadCheckpoint, match="isn't supported"):
        duat.load_config(directory)


@pytest.mark.parametrize("name", LOADING)
def test_a_configuration_is_the_same_as_the_reference_saves_it(name, computed, tmp_path):
    """It writes every field, those that a checkpoint leaves out too, and all in the newer spelling."""
    _, directory = computed(name)
    (tmp_path / "config.json").write_text((directory / "saved.json").read_text())
    assert duat.load_config(tmp_path) == duat.load_config(directory)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.switch != "base"])
def test_a_switch_changes_the_computation(name, computed):
    """By ten tolerances at least: one that doesn't is no case."""
    expected, unchanged = (computed(case.name)[0]["float64"].value for case in (CASES[name], changed_from(CASES[name])))
    assert expected.shape != unchanged.shape or relative_error(expected, unchanged) > 10 * TOLERANCE["float32"]


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_a_pair_of_texts_is_the_reference(family, computed):
    case = make_case(family, {})
    expected, directory = computed(case.name)
    segments, layer = np.arange(TOKENS) // 7, FAMILIES[family].layer
    model = hugging_face.make(directory, case.architecture, case.settings)
    with hugging_face.exact():
        pair = hugging_face.run(hugging_face.in_float64(model, directory), layer, inputs(case), segments).value
    ours = duat.load(directory, dtype=jnp.float64)
    actual = np.asarray(ours(jnp.asarray(inputs(case)), segments=jnp.asarray(segments)))
    assert relative_error(actual, pair) < TOLERANCE["float64"]
    assert relative_error(pair, expected["float64"].value) > 10 * TOLERANCE["float32"]


def _moved(model, layer, given, steps):
    """Return how the reference's output moves with its parameters, in steps of 1e-9."""
    values = []
    for _ in range(steps + 1):
        values.append(hugging_face.run(model, layer, given).value)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 1e-9
    return [value - values[0] for value in values[1:]]


@pytest.mark.parametrize("family", FAMILIES)
def test_float64_is_float64(family, tmp_path):
    """With the casts lifted, twice the step of 1e-9 moves the output twice as far."""
    case = make_case(family, {})
    model = hugging_face.make(tmp_path, case.architecture, case.settings)
    with hugging_face.exact():
        once, twice = _moved(hugging_face.in_float64(model, tmp_path), FAMILIES[family].layer, inputs(case), 2)
    assert np.abs(once).max() > 1e-11
    assert relative_error(2 * once, twice) < 1e-4


def test_without_lifting_it_is_not(tmp_path):
    case = make_case("llama", {})
    model = hugging_face.make(tmp_path, case.architecture, case.settings).double()
    once, twice = _moved(model, FAMILIES["llama"].layer, inputs(case), 2)
    assert relative_error(2 * once, twice) > 1e-2


@pytest.mark.parametrize("family", FAMILIES)
def test_no_configuration_loads_and_disagrees(family, tmp_path_factory):
    loaded = []

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(DRAWS[family], st.sampled_from(sorted(FAMILIES[family].heads)))
    def agree(changes, head):
        case, directory = make_case(family, changes, head, "drawn"), tmp_path_factory.mktemp("drawn")
        try:
            expected = reference(case, directory)
        except (KeyError, ValueError, RuntimeError, ZeroDivisionError):
            assume(False)
        try:
            duat.load_config(directory)
        except duat.BadCheckpoint as refused:
            loaded.append(False)
            note(refused)
            return
        loaded.append(True)
        for dtype in DTYPES:
            found = errors(case, directory, expected[dtype], dtype)
            assert max(found.values()) < TOLERANCE[dtype], (case.settings, dtype, found)

    agree()
    jax.clear_caches()  # no other test has these shapes
    assert np.mean(loaded) > 0.6, f"only {sum(loaded)} of {len(loaded)} drawn configurations load"
