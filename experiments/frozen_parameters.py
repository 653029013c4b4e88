"""Parameters of the closed form that move with the input: which they are, and how far they move."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.forms.closed_form import unroll
from duat_jax.transform import marks
from duat_jax.transform.interpret import Seen
from duat_jax.transform.keys import Site
from duat_jax.transform.recording import record_kinds

PATTERN = "attention.pattern"
"""The name of an attention pattern among what is held; all else that networks here hold are norms' scales."""

Network = Callable[[Array], Array]
"""A function of embeddings with marks."""


def is_pattern(site: Site) -> bool:
    """Return whether a held parameter is an attention pattern."""
    return PATTERN in str(site)


def terms_of(network: Network, states: Network, x: Float[Array, "tokens features"]) -> tuple[Seen, Seen]:
    """Return the pre-activation of each term, and its bias `b'_{j,2}`, at one input."""
    recording = record_kinds(network, x, (marks.PRE_ACTIVATION,))
    sites = recording.program.of_kind(marks.PRE_ACTIVATION)
    form = unroll(states, x)
    biases = {site: form.inner_bias(j).reshape(recording.seen[site].shape) for j, site in enumerate(sites, 1)}
    return {site: recording.seen[site] for site in sites}, biases


def movement(values: Float[Array, "inputs ..."]) -> Float[Array, ""]:
    """Return how far a parameter moves about its mean, from 0 to 1: `√(Σ ‖A − mean A‖² / Σ ‖A‖²)`."""
    least = jnp.finfo(values.dtype).tiny
    return jnp.sqrt(((values - values.mean(0)) ** 2).sum() / jnp.maximum((values**2).sum(), least))
