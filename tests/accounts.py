"""The account of demonstrations of a small text."""

import jax.numpy as jnp

from duat_jax.in_context import compute as context
from duat_jax.in_context.runs import Task


def account(model, ids=(1, 2, 3), token=5):
    hidden = jnp.array([True, False, False])
    return context.ledger(model, Task(jnp.array(ids), hidden, jnp.array([2]), jnp.array([token])), run_again=False)
