"""The papers' explicit matrices do to `vec(x)` what the operations do to `x`."""

import jax
import jax.numpy as jnp
import numpy as np
from helpers import close
from hypothesis import given, settings
from hypothesis import strategies as st

from duat_jax.reference import dense

sizes = st.integers(1, 5)


def normal(key, *shape):
    return jax.random.normal(jax.random.key(key), shape)


@settings(max_examples=20, deadline=None)
@given(sizes, sizes)
def test_unvec_undoes_vec_row_by_row(tokens, features):
    x = normal(0, tokens, features)
    vector = dense.vec(x)
    assert vector[features - 1] == x[0, features - 1]
    np.testing.assert_array_equal(dense.unvec(vector, tokens), x)


@settings(max_examples=20, deadline=None)
@given(sizes, sizes, sizes)
def test_linear_in_both_orientations(tokens, features, outputs):
    x = normal(0, tokens, features)
    on_features, on_rows = normal(1, features, outputs), normal(2, outputs, tokens)
    close(dense.linear_on_features(on_features, tokens) @ dense.vec(x), x @ on_features)
    close(dense.linear_on_rows(on_rows, features) @ dense.vec(x), on_rows @ x)


@settings(max_examples=8, deadline=None)
@given(sizes, sizes, st.integers(1, 3), st.integers(1, 3))
def test_attention_is_one_kronecker_sum(tokens, features, heads, head_features):
    x = normal(0, tokens, features)
    pattern = jax.nn.softmax(normal(1, heads, tokens, tokens))
    value, output = normal(2, heads, features, head_features), normal(3, heads, head_features, features)
    by_heads = jnp.einsum("hqk,kf,hfd,hdg->qg", pattern, x, value, output)
    close(dense.attention(pattern, value, output) @ dense.vec(x), by_heads)


def test_density_of_a_linear_map_on_rows_is_one_over_features():
    matrix = dense.linear_on_rows(jnp.ones((4, 4)), 5)
    assert np.count_nonzero(matrix) * 5 == matrix.size
