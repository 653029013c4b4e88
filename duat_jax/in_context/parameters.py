"""Effect of a part of a text, decomposed over the parameters of the closed form: each `W'` and each bias."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from duat_jax.forms.completeness import Completeness, completeness_of
from duat_jax.forms.decomposition import contributions
from duat_jax.forms.secant import secant
from duat_jax.in_context.runs import Task, mean_log_probability
from duat_jax.kinds import kept_as
from duat_jax.models.transformer import Transformer
from duat_jax.transform import marks
from duat_jax.transform.activations import activations_of
from duat_jax.transform.interpret import Seen
from duat_jax.transform.query import pre_activations_of
from duat_jax.transform.recording import Recording, record
from duat_jax.transform.stored_program import stored_program


@kept_as("moved parameters", "duat_jax.in_context.parameters:Moved")
class PartsByParameter(NamedTuple):
    """Difference of `⟨u, x_L⟩`, `x_L = P x_0 + q + Σ_j C_j σ(B_j x_0 + c_j)`, between two runs, by changed parameter.

    With means over both runs `x̄_0`, `C̄_j`, `B̄_j`, `σ̄_j`, `P̄`, and `S` the secant of the activation,
    `Δx_L = P̄ Δx_0 + ΔP x̄_0 + Δq + Σ_j ΔC_j σ̄_j + C̄_j S (B̄_j Δx_0 + ΔB_j x̄_0 + Δc_j)`. On an axis of size 2,
    the first entry is for the tokens after the part, the second for the part's tokens.

    Args:
        inputs: `⟨u, P̄ Δx_0⟩`; zero where the part is masked.
        inner_inputs: `⟨u, C̄_j S B̄_j Δx_0⟩`, `[terms]`; zero where the part is masked.
        path: `⟨u, ΔP x̄_0⟩`, `[2]`.
        bias: `⟨u, Δq⟩`.
        outer: `⟨u, ΔC_j σ̄_j⟩`, `[terms, 2]`.
        inner: `⟨u, C̄_j S ΔB_j x̄_0⟩`, `[terms, 2]`.
        inner_bias: `⟨u, C̄_j S Δc_j⟩`, `[terms]`: `c_j` contains the earlier terms.
        completeness: the sum of all parts against the difference.
    """

    inputs: Float[Array, ""]
    inner_inputs: Float[Array, "terms"]
    path: Float[Array, "two"]
    bias: Float[Array, ""]
    outer: Float[Array, "terms two"]
    inner: Float[Array, "terms two"]
    inner_bias: Float[Array, "terms"]
    completeness: Completeness

    def judged_again(self) -> "PartsByParameter":
        """Return the same with its completeness computed again from its parts, since a file may have been edited."""
        total = sum(np.sum(part, dtype=np.float64) for part in self[:-1])
        return self._replace(completeness=self.completeness.of_parts(total))


class _Form(NamedTuple):
    """One run's closed form, read by `u`: `uᵀP`, and of each term `[terms, tokens, neurons]`."""

    path: Float[Array, "tokens features"]
    bias: Float[Array, ""]
    outer: Float[Array, "terms tokens neurons"]
    activations: Float[Array, "terms tokens neurons"]
    inner_change: Float[Array, "terms tokens neurons"]
    inner_after: Float[Array, "terms tokens neurons"]
    inner_part: Float[Array, "terms tokens neurons"]
    inner_bias: Float[Array, "terms tokens neurons"]


INSIDE = ("activations", "inner_change", "inner_after", "inner_part", "inner_bias")
"""The fields computed at a token before the read-out."""


def _stacked(values: Sequence[Array]) -> Array:
    """Stack the values of all terms, padded with zeros to the largest number of neurons."""
    widest = max(value.shape[-1] for value in values)
    return jnp.stack([jnp.pad(value, ((0, 0), (0, widest - value.shape[-1]))) for value in values])


def _of_terms(recording: Recording, values: Seen, kind: str) -> Array:
    return _stacked([values[site] for site in recording.program.of_kind(kind)])


def _pre_activations(recording: Recording, x: Array) -> Array:
    """Return `B_j x + c_j` of every term, everything else as recorded."""
    return _of_terms(recording, pre_activations_of(recording, [x], {}), marks.PRE_ACTIVATION)


def _form(recording: Recording, task: Task, inputs: tuple[Array, Array], readout: Array) -> _Form:
    mean, change = (inputs[0] + inputs[1]) / 2, inputs[0] - inputs[1]
    # The contribution of an input of ones is the read-out pulled back to the input.
    parts = contributions(replace(recording, arguments=[jnp.ones_like(mean)]), readout)
    bias = _pre_activations(recording, jnp.zeros_like(mean))

    def carried(x: Array) -> Array:
        return _pre_activations(recording, x) - bias

    pre_activations, of_part = _of_terms(recording, recording.seen, marks.PRE_ACTIVATION), task.hidden[:, None]
    own, of_change = pre_activations - bias, jnp.zeros_like(bias)
    if task.other is not None:
        of_change, own = carried(change), carried(mean)
    inner_part = carried(jnp.where(of_part, mean, 0))
    return _Form(
        parts.input,
        sum((part.sum() for part in parts.offsets.values()), parts.unmarked),
        _stacked(list(parts.coefficients.values())),
        _of_terms(recording, recording.seen, marks.ACTIVATION),
        of_change,
        own - inner_part,
        inner_part,
        bias,
    )


def _slopes(first: Recording, second: Recording) -> Array:
    """Return the secant slope of every activation between both pre-activations."""
    sites = first.program.of_kind(marks.PRE_ACTIVATION)

    def total(values: list[Array]) -> Array:
        activations = activations_of(first, dict(zip(sites, values, strict=True)))
        return jnp.stack([activation.sum() for activation in activations.values()]).sum()

    slopes = secant(total)(*([recording.seen[site] for site in sites] for recording in (first, second)))
    return _stacked(slopes.multiplier)


@stored_program
def moved_form(model: Transformer, task: Task) -> PartsByParameter:
    """Decompose the effect of a part of a text over the parameters of the closed form."""
    # The read-out of the last stream, final norm and log-probabilities, enters by its own secant multiplier `u`.

    def run(x: Array, seen: Bool[Array, "tokens"]) -> Array:
        return model.stack(model.first(x), seen)

    def read(x: Array) -> Array:
        x = x if model.final_norm is None else model.final_norm(x)
        return mean_log_probability(model, model.head.states(x), task)

    all_seen, x0 = jnp.ones(len(task.ids), bool), model.embed(task.ids)
    other, seen = (x0, ~task.hidden) if task.other is None else (model.embed(task.other), all_seen)
    recordings = record(partial(run, seen=all_seen))(x0), record(partial(run, seen=seen))(other)
    readout = secant(read)(*(recording.value for recording in recordings))
    first, second = (_form(recording, task, (x0, other), readout.multiplier) for recording in recordings)
    if task.other is None:
        # Values at a hidden part are read in the first run only, so those of the second run can be set to the same.
        second = second._replace(
            **{name: _with(task.hidden, getattr(first, name), getattr(second, name)) for name in INSIDE}
        )
    return _moved(first, second, _slopes(*recordings), task.hidden, (x0, other), readout.difference)


def _with(hidden: Array, first: Array, second: Array) -> Array:
    return jnp.where(hidden[:, None], first, second)


def _moved(
    first: _Form, second: _Form, slopes: Array, hidden: Array, inputs: tuple[Array, Array], difference: Array
) -> PartsByParameter:
    mean_input, change = (inputs[0] + inputs[1]) / 2, inputs[0] - inputs[1]
    mean: Any = jax.tree.map(lambda a, b: (a + b) / 2, first, second)
    moved: Any = jax.tree.map(jnp.subtract, first, second)
    carried = mean.outer * slopes

    def by_side(parts: Array) -> Array:
        return jnp.stack([jnp.where(hidden, 0, parts).sum(-1), jnp.where(hidden, parts, 0).sum(-1)], -1)

    def over_neurons(parts: Array) -> Array:
        return parts.sum((1, 2))

    parts = (
        (mean.path * change).sum(),
        over_neurons(carried * mean.inner_change),
        by_side((moved.path * mean_input).sum(-1)),
        moved.bias,
        by_side((moved.outer * mean.activations).sum(-1)),
        jnp.stack([over_neurons(carried * part) for part in (moved.inner_after, moved.inner_part)], -1),
        over_neurons(carried * moved.inner_bias),
    )
    runs = zip((first, second), inputs, strict=True)
    rounded = [part for form, x in runs for part in (form.path * x, form.outer * form.activations)]
    return PartsByParameter(*parts, completeness_of(difference, list(parts), [*parts, *rounded]))
