"""Strict numerics and checked shapes for the whole suite; the examples in docstrings run as a user would run them."""

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
# Commands that run inside a test leave the user's cache alone.
jax.config.update("jax_enable_compilation_cache", False)

# The suite compiles thousands of small programs and runs each once or twice: it costs less to optimise them less.
jax.config.update("jax_disable_most_optimizations", True)

# Every annotation of a shape is checked while the suite runs.  What walks programs has none, and many small functions.
_ROOMS = (
    *("analysis", "explanation", "forms", "models", "nn", "operators", "reference"),
    *("transform.marks", "verification"),
)
install_import_hook([f"duat_jax.{room}" for room in _ROOMS], "beartype.beartype")


@pytest.fixture(autouse=True)
def _as_a_user(request: pytest.FixtureRequest) -> Iterator[None]:
    if isinstance(request.node, pytest.DoctestItem):
        with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
            yield
    else:
        yield


@pytest.fixture
def optimised() -> Iterator[None]:
    """What is claimed of compiled programs is claimed of them as a user compiles them."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


MAPS, MOST_MAPS = Path("/proc/self/maps"), 20_000
"""Where Linux lists a process's pieces of memory, of which it may have 65,530; every compiled program takes several."""


@pytest.fixture(autouse=True, scope="module")
def _programs_forgotten() -> Iterator[None]:
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
