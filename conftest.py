"""Strict numerics and checked shapes for the whole suite; the examples in docstrings run as a user would run them."""

from collections.abc import Iterator

import jax
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Every annotation of a shape in the package is checked while the suite runs.
install_import_hook("duat_jax", "beartype.beartype")


@pytest.fixture(autouse=True)
def _as_a_user(request: pytest.FixtureRequest) -> Iterator[None]:
    if isinstance(request.node, pytest.DoctestItem):
        with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
            yield
    else:
        yield
