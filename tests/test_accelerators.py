"""Every public function is asked when programs are compiled for accelerators."""

import jax
import numpy as np
from jax.sharding import Mesh

from benchmarks.accelerators import AXES, public_functions, questions


def test_every_public_function_is_asked():
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), AXES)
    assert set(questions(mesh, "float32")) == public_functions()
