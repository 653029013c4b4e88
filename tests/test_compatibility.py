"""The installed versions of other packages compute the answers that the page of versions shows for them."""

import jax
import pytest

from benchmarks.compatibility import answer, expected, installed
from benchmarks.compatibility_probes import PROBES
from experiments.kept_results import kept


def test_every_probe_was_run_in_two_versions_or_has_one():
    """Optax has had one release since the oldest that is supported, circuit-tracer one at all."""
    answers = kept("compatibility")
    assert set(answers) == set(PROBES)
    assert {PROBES[name].package for name, of in answers.items() if len(of) < 2} <= {"optax", "circuit-tracer"}


@pytest.mark.parametrize("name", PROBES)
def test_the_installed_version_answers_as_the_page_says(name):
    probe = PROBES[name]
    if (number := installed(probe.package)) is None:
        pytest.skip(f"{probe.package} isn't installed")
    if (said := expected(probe, number)) is None:
        pytest.skip(f"{probe.package} {number} is older than the page")
    with jax.numpy_dtype_promotion("standard"), jax.enable_x64(False):
        assert answer(probe) == said
