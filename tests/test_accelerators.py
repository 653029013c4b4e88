"""Every public function is asked when programs are compiled for accelerators, and every answer is kept."""

import json

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from benchmarks.accelerators import AXES, DEVICES, RESULTS
from benchmarks.public_questions import every_function, questions

SINGLE = ("one device, float32", "2 × 2 devices, float32")
COMPLETE = dict.fromkeys(DEVICES, SINGLE) | {"v5e": (*SINGLE, "one device, bfloat16")}
"""The settings whose kept results name every function."""


def test_every_public_function_is_asked():
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), AXES)
    assert set(questions(mesh, "float32")) == every_function()


@pytest.mark.parametrize(
    ("platform", "setting"), [(platform, setting) for platform in COMPLETE for setting in COMPLETE[platform]]
)
def test_the_kept_results_name_every_public_function(platform, setting):
    """After a new function: `python -m benchmarks.accelerators PLATFORM --keep --missing`."""
    kept = json.loads(RESULTS.read_text())[platform]["programs"][setting]
    assert set(kept) == every_function() and all(kept.values())
