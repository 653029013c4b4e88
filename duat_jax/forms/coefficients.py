"""Derivatives of a read-out in marked values, with dynamic parameters held."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp

from duat_jax.forms.affine_form import _question, _slopes, shared_factors
from duat_jax.forms.decomposition import checked_readout
from duat_jax.transform import marks
from duat_jax.transform.compiled import compiled
from duat_jax.transform.interpret import Seen
from duat_jax.transform.keys import Site
from duat_jax.transform.query import pull_back, question_of
from duat_jax.transform.recording import Recording


def coefficients(
    recording: Recording,
    sites: Iterable[Site],
    readout: Any = None,
    *,
    slopes: bool = False,
    gate_rule: str | None = None,
) -> Seen:
    """Return the derivative of one read-out in every marked value, dynamic parameters held.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from duat_jax import Key, Site, point, record, term
        >>> fn = lambda x: term(jax.nn.silu, point(3 * x, "inner"), "mlp").sum() + x.sum()
        >>> inner = Site("point", Key((), "inner", 0))
        >>> recording = record(fn)(jnp.array([1.0]))
        >>> float(coefficients(recording, [inner])[inner][0])
        0.0
        >>> slope = coefficients(recording, [inner], slopes=True)[inner][0]
        >>> bool(jnp.isclose(slope, jax.nn.sigmoid(3.0)))
        True
    """
    # In the closed form terms are held too: a change of a value reaches the read-out through later attention alone. In
    # the collapse a term passes on `(σ(z) − σ(0)) / z` times the change of its pre-activation.
    return _coefficients(recording, checked_readout(readout, recording.value), tuple(sites), slopes, gate_rule)


@partial(compiled, static_argnames=("sites", "slopes", "gate_rule"))
def _coefficients(
    recording: Recording, readout: Any, sites: tuple[Site, ...], slopes: bool, gate_rule: str | None
) -> Seen:
    if slopes:
        question = _question(recording, None, shared_factors(recording, gate_rule))
        provided = _slopes(recording, gate_rule)
    else:
        question, provided = question_of(recording, None), {}
    added = {site: Site(marks.ADDED[site.kind], site.key) for site in sites}
    provided |= {added[site]: jnp.zeros_like(recording.seen[site]) for site in sites}
    places = frozenset(added.values())
    question = replace(question, provided=question.provided | places, linear=question.linear | places)
    _, on_marks = pull_back(recording, question, None, readout, provided)
    return {site: on_marks[added[site]] for site in sites}
