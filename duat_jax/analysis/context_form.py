"""The difference that a hidden part of a text makes, in the parameters of the closed form: each `W'` and each bias."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from duat_jax.analysis.context_runs import Task, mean_log_probability
from duat_jax.forms.completeness import Completeness, completeness_of
from duat_jax.forms.decomposition import contributions
from duat_jax.forms.secant import secant
from duat_jax.models.transformer import Transformer
from duat_jax.transform import marks
from duat_jax.transform.interpret import Seen
from duat_jax.transform.query import activations_of, pre_activations_of
from duat_jax.transform.recording import Recording, record


class Moved(NamedTuple):
    """`⟨u, x_L⟩` with a part in view minus without, `x_L = P x_0 + q + Σ_j C_j σ(B_j x_0 + c_j)`, by what moved.

    Where two entries stand beside each other, the first is that of the tokens in view in both runs, the second that of
    the hidden part's tokens.  `σ`'s change is split by its secant, `Δσ = S (ΔB_j x_0 + Δc_j)`.

    Args:
        path: `⟨u, ΔP x_0⟩`, `[2]`.
        bias: `⟨u, Δq⟩`.
        outer: `⟨u, ΔC_j σ⟩` at the activations without the part, the hidden tokens' own as they are, `[terms, 2]`.
        inner: `⟨u, C_j S ΔB_j x_0⟩` with the `C_j` without the part, `[terms, 2]`.
        inner_bias: `⟨u, C_j S Δc_j⟩` with the same, `[terms]`: `c_j` has the earlier terms in it.
        both: `⟨u, ΔC_j Δσ⟩`, `[terms]`.
        completeness: the sum of all beside the difference.
    """

    path: Float[Array, "two"]
    bias: Float[Array, ""]
    outer: Float[Array, "terms two"]
    inner: Float[Array, "terms two"]
    inner_bias: Float[Array, "terms"]
    both: Float[Array, "terms"]
    completeness: Completeness


class _Form(NamedTuple):
    """One run's closed form, read by `u`: of each token its parts, of each term `[terms, tokens, neurons]`."""

    path: Float[Array, "tokens"]
    bias: Float[Array, ""]
    outer: Float[Array, "terms tokens neurons"]
    activations: Float[Array, "terms tokens neurons"]
    inner_shared: Float[Array, "terms tokens neurons"]
    inner_hidden: Float[Array, "terms tokens neurons"]
    inner_bias: Float[Array, "terms tokens neurons"]


def _stacked(values: Sequence[Array]) -> Array:
    """Return the values of all terms, those with fewer neurons filled up with zeros."""
    widest = max(value.shape[-1] for value in values)
    return jnp.stack([jnp.pad(value, ((0, 0), (0, widest - value.shape[-1]))) for value in values])


def _of_terms(recording: Recording, values: Seen, kind: str) -> Array:
    return _stacked([values[site] for site in recording.program.of_kind(kind)])


def _pre_activations(recording: Recording, x: Array) -> Array:
    """Return `B_j x + c_j` of every term, everything else as recorded."""
    return _of_terms(recording, pre_activations_of(recording, [x], {}), marks.PRE_ACTIVATION)


def _form(recording: Recording, hidden: Array, readout: Array) -> _Form:
    parts, (x0,) = contributions(recording, readout), recording.arguments
    nothing, of_hidden = (
        _pre_activations(recording, x) for x in (jnp.zeros_like(x0), jnp.where(hidden[:, None], x0, 0))
    )
    return _Form(
        parts.input.sum(-1),
        sum((part.sum() for part in parts.offsets.values()), parts.unmarked),
        _stacked(list(parts.coefficients.values())),
        _of_terms(recording, recording.seen, marks.ACTIVATION),
        _of_terms(recording, recording.seen, marks.PRE_ACTIVATION) - of_hidden,
        of_hidden - nothing,
        nothing,
    )


def _slopes(one: Recording, other: Recording) -> Array:
    """Return the secant of every activation between both pre-activations."""
    sites = one.program.of_kind(marks.PRE_ACTIVATION)

    def total(values: list[Array]) -> Array:
        found = activations_of(one, dict(zip(sites, values, strict=True)))
        return jnp.stack([activation.sum() for activation in found.values()]).sum()

    found = secant(total)(*([recording.seen[site] for site in sites] for recording in (one, other)))
    return _stacked(found.multiplier)


@jax.jit
def moved_form(model: Transformer, task: Task) -> Moved:
    """Split what a part of a text adds over the parameters of the closed form.

    What reads the last stream, the final norm and the log-probabilities, is carried by its own secant `u`.

    Args:
        model: a causal language model.
        task: the text, its hidden part, and what is asked after it.
    """
    x0 = model.embed(task.ids)

    def run(x: Array, seen: Bool[Array, "tokens"]) -> Array:
        return model.stack(model.first(x), seen)

    def read(x: Array) -> Array:
        x = x if model.final_norm is None else model.final_norm(x)
        return mean_log_probability(model, model.head.states(x), task)

    seen = jnp.ones(len(task.ids), bool), ~task.hidden
    recordings = [record(partial(run, seen=each))(x0) for each in seen]
    found = secant(read)(*(recording.value for recording in recordings))
    one, other = (_form(recording, task.hidden, found.multiplier) for recording in recordings)
    return _moved(one, other, _slopes(*recordings), task.hidden, found.difference)


def _moved(one: _Form, other: _Form, slopes: Array, hidden: Array, difference: Array) -> Moved:
    # What the hidden part computes is read in one run only: in the other one it may as well be the same.
    activations = jnp.where(hidden[:, None], one.activations, other.activations)
    outer, change = one.outer - other.outer, one.activations - activations
    shared, of_hidden, bias = (
        jnp.where(hidden[:, None], 0, a - b)
        for a, b in (
            (one.inner_shared, other.inner_shared),
            (one.inner_hidden, other.inner_hidden),
            (one.inner_bias, other.inner_bias),
        )
    )
    carried = other.outer * slopes

    def by_side(parts: Array) -> Array:
        return jnp.stack([jnp.where(hidden, 0, parts).sum(-1), jnp.where(hidden, parts, 0).sum(-1)], -1)

    def over_neurons(parts: Array) -> Array:
        return parts.sum((1, 2))

    found = (
        by_side(one.path - other.path),
        one.bias - other.bias,
        by_side((outer * activations).sum(-1)),
        jnp.stack([over_neurons(carried * shared), over_neurons(carried * of_hidden)], -1),
        over_neurons(carried * bias),
        over_neurons(outer * change),
    )
    rounded = [*found, one.path, other.path, one.outer * one.activations, other.outer * other.activations]
    return Moved(*found, completeness_of(difference, list(found), rounded))
