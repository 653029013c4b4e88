"""Compiled programs that JAX keeps: another process may read one while it is written."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close
from jax.experimental.compilation_cache.compilation_cache import reset_cache


@pytest.fixture
def kept(tmp_path):
    """A directory of its own for kept programs."""
    before = jax.config.jax_compilation_cache_dir
    for directory in (str(tmp_path), before):
        reset_cache()
        jax.config.update("jax_compilation_cache_dir", directory)
        if directory != before:
            yield tmp_path


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.99])
def test_half_a_kept_program_is_compiled_again(kept, share):
    x = np.linspace(0, 1, 7)

    def compiled():
        # A new function each time: what this process remembers of the last one isn't used.
        return jax.jit(lambda x: jnp.sin(x) * 2 + jnp.cos(x))

    expected = compiled()(x)
    (file,) = kept.glob("*-cache")
    whole = file.read_bytes()
    np.testing.assert_array_equal(compiled()(x), expected)
    file.write_bytes(whole[: int(share * len(whole))])
    with pytest.warns(UserWarning, match="Error reading persistent compilation cache entry"):
        again = compiled()(x)
    np.testing.assert_array_equal(again, expected)
    close(expected, np.sin(x) * 2 + np.cos(x))
