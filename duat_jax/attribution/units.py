"""Attribution methods that score neurons, heads and streams by their part in the difference between two inputs."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.attribution.method import (
    CLOSED_FORM,
    COLLAPSE,
    FAITHFULNESS,
    INTEGRATED,
    PATCHING,
    SECANT,
    AttributionMethod,
)
from duat_jax.attribution.unit_values import (
    KINDS,
    Read,
    Scores,
    UnitValues,
    mean_over_steps,
    sites_of,
    stacked,
    values_of,
)
from duat_jax.forms import affine_form
from duat_jax.forms.coefficients import coefficients
from duat_jax.forms.secant import secant
from duat_jax.models import layer_parts
from duat_jax.models.transformer import Transformer
from duat_jax.nn.attention import Attention
from duat_jax.nn.linear import PRECISION, Linear, alike
from duat_jax.transform import marks
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.keys import Site
from duat_jax.transform.program import trace
from duat_jax.transform.query import seen_of
from duat_jax.transform.recording import record_kinds

Rule = Callable[[Transformer, Read, Array, Any, Array], Scores]
"""From a model, a number that it computes, the embeddings of a text and of its reference, and which tokens are no
padding, `[tokens]`, to every unit's score."""


def _edits(sites: Iterable[Site], added: Array, kept: float = 1.0) -> dict[Site, Edit]:
    return {site: Edit(kept, values) for site, values in zip(sites, added, strict=True)}


def _times(coefficients: UnitValues, values: UnitValues) -> UnitValues:
    return jax.tree.map(jnp.multiply, coefficients, values)


def _minus(values: UnitValues, subtrahends: UnitValues) -> UnitValues:
    return jax.tree.map(jnp.subtract, values, subtrahends)


def _gradient(read: Read, x: Array) -> tuple[UnitValues, UnitValues]:
    """Return the gradient with respect to every entry, and the entries' values, in one pass and its transpose."""
    sites = sites_of(trace(read, x)[0])

    def run(added: UnitValues) -> tuple[Array, UnitValues]:
        edits = [_edits(*pair) for pair in zip(sites, added, strict=True)]
        recording = record_kinds(edit(read, edits[0] | edits[1] | edits[2]), x, KINDS)
        return recording.value, stacked(sites, recording.seen)

    like = jax.eval_shape(partial(values_of, read), x)
    return jax.grad(run, has_aux=True)(jax.tree.map(lambda values: jnp.zeros(values.shape, values.dtype), like))


def _gradient_times_change(read: Read, x: Array, y: Array) -> UnitValues:
    gradient, values = _gradient(read, x)
    return _times(gradient, _minus(values, values_of(read, y)))


def _secant(read: Read, x: Array, y: Array, *, patterns_held: bool = False) -> UnitValues:
    program = trace(read, x)[0]
    names = {site.key.name for site in program.of_kind(marks.HOLD)} if patterns_held else ()
    held = [name for name in names if name.startswith("attention.") or name.endswith(".scale")]
    return stacked(sites_of(program), seen_of(secant(read, at=KINDS, held=held)(x, y).contributions))


def _integrated_gradients(read: Read, x: Array, y: Array, *, steps: int) -> UnitValues:
    """Return gradients averaged on the straight line between the embeddings, times the change of the units."""
    gradient = mean_over_steps(steps, x.dtype, lambda t: _gradient(read, y + t * (x - y))[0])
    return _times(gradient, _minus(values_of(read, x), values_of(read, y)))


def _integrated_together(read: Read, x: Array, y: Array, *, steps: int) -> UnitValues:
    """Return gradients averaged on the line on which all units of a kind change together, times their change."""
    sites, clean, corrupted = sites_of(trace(read, x)[0]), values_of(read, x), values_of(read, y)

    def carried(at: tuple[Site, ...], clean: Array, corrupted: Array) -> Array:
        def gradient(t: Array) -> Array:
            def run(values: Array) -> Array:
                return edit(read, _edits(at, values, kept=0.0))(y + t * (x - y))

            return jax.grad(run)(corrupted + t * (clean - corrupted))

        return mean_over_steps(steps, x.dtype, gradient) * (clean - corrupted)

    of_neurons, of_heads = (carried(*kind) for kind in zip(sites[:2], clean[:2], corrupted[:2], strict=True))
    return UnitValues(of_neurons, of_heads, None)  # if all streams are set, only the last one has an effect


def _integrated_layer_by_layer(read: Read, x: Array, y: Array, *, steps: int) -> UnitValues:
    """Return gradients averaged on the line on which one layer's units change on the clean text, times their change."""
    sites, clean, corrupted = sites_of(trace(read, x)[0]), values_of(read, x), values_of(read, y)

    def carried(at: tuple[Site, ...], corrupted: Array, change: Array) -> Array:
        def of_layer(layer: Array) -> Array:
            moves = [layer == i for i in range(len(at))]

            def gradient(t: Array) -> Array:
                def run(values: Array) -> Array:
                    edits = {
                        site: Edit(1 - moving.astype(x.dtype), jnp.where(moving, values, 0))
                        for site, moving in zip(at, moves, strict=True)
                    }
                    return edit(read, edits)(x)

                return jax.grad(run)(corrupted[layer] + t * change[layer])

            return mean_over_steps(steps, x.dtype, gradient) * change[layer]

        return jax.lax.map(of_layer, jnp.arange(len(at)))

    return UnitValues(*map(carried, sites, corrupted, _minus(clean, corrupted)))


def _held(read: Read, x: Array, *, slopes: bool = False, gate_rule: str | None = None) -> tuple[UnitValues, UnitValues]:
    """Return every entry's coefficient with patterns and norms held, and the entries' values."""
    recording = record_kinds(read, x, {*affine_form.KINDS, *KINDS})
    sites = sites_of(recording.program)
    by_site = coefficients(
        recording, [site for of_a_kind in sites for site in of_a_kind], slopes=slopes, gate_rule=gate_rule
    )
    return stacked(sites, by_site), stacked(sites, recording.seen)


def _two_secants(read: Read, x: Array, y: Array) -> UnitValues:
    """Return the sum of the parts over two half-steps, each with its own secant."""
    middle = (x + y) / 2
    return jax.tree.map(jnp.add, _secant(read, x, middle), _secant(read, middle, y))


def _contributions(read: Read, x: Array, y: Any) -> UnitValues:
    return _times(*_held(read, x))


def _held_times_change(read: Read, x: Array, y: Array, *, slopes: bool, gate_rule: str | None = None) -> UnitValues:
    coefficient, values = _held(read, x, slopes=slopes, gate_rule=gate_rule)
    return _times(coefficient, _minus(values, values_of(read, y)))


def _summed(rule: Callable[[Read, Array, Any], UnitValues]) -> Rule:
    """Return the rule that sums the scores of a unit's entries."""

    def scores(model: Transformer, read: Read, x: Array, y: Any, real: Array) -> Scores:
        neurons, heads, streams = rule(read, x, y)
        return Scores(neurons, heads.sum(-1), None if streams is None else streams.sum(-1))

    return scores


def _norm_of_change(model: Transformer, read: Read, x: Array, y: Array, real: Array) -> Scores:
    """Return the norm of each unit's change of the residual stream; neurons of experts have no single output vector."""
    change = _minus(values_of(read, x), values_of(read, y))
    mlps = [mlp.output for mlp in layer_parts.mlps(model)]
    attentions = [attention.output for attention in layer_parts.attentions(model) if isinstance(attention, Attention)]
    neurons = heads = None
    if len(mlps) == len(change.neurons):
        lengths = jnp.linalg.norm(_kernels(mlps, change.neurons), axis=-1)
        neurons = jnp.abs(change.neurons) * lengths[:, None]
    if len(attentions) == len(change.heads):
        kernels = _kernels(attentions, change.heads)
        kernels = kernels.reshape(len(kernels), *change.heads.shape[2:], -1)
        added = jnp.einsum("lthi,lhif->lthf", change.heads, kernels, precision=PRECISION)
        heads = jnp.linalg.norm(added, axis=-1)
    return Scores(neurons, heads, jnp.linalg.norm(change.streams, axis=-1))


def _kernels(maps: Iterable[Linear], x: Array) -> Float[Array, "maps inputs outputs"]:
    return jnp.stack([alike(linear.kernel[...], x) for linear in maps])


def collapse_times_change(gate_rule: str | None = None) -> Rule:
    """Return the rule that multiplies a unit's coefficient in the collapse by the unit's change."""
    return _summed(partial(_held_times_change, slopes=True, gate_rule=gate_rule))


METHODS: dict[str, AttributionMethod[Rule]] = {
    "secant": AttributionMethod(_summed(_secant), "`D Δ`: the multiplier between both texts, nothing held", SECANT),
    "secant, two half-steps": AttributionMethod(
        _summed(_two_secants),
        "the sum of two secants: from the reference's embeddings to the mean of both, and on to the text's",
        SECANT,
    ),
    "secant, patterns held": AttributionMethod(
        _summed(partial(_secant, patterns_held=True)),
        "`D Δ` with patterns and norms held at their midpoints",
        SECANT,
    ),
    "collapse x change": AttributionMethod(
        collapse_times_change(),
        '`c Δ`: the coefficient in the collapse, by the gate rule `"halves"`',
        COLLAPSE,
        of_readout=True,
    ),
    "gradient x change": AttributionMethod(
        _summed(_gradient_times_change), "`∇ Δ`, the gradient at the text", PATCHING
    ),
    **{
        f"integrated gradients, {steps} steps": AttributionMethod(
            _summed(partial(_integrated_gradients, steps=steps)),
            "the mean of `∇` along the straight line between the embeddings, times `Δ`",
            f"{INTEGRATED}; {FAITHFULNESS}",
        )
        for steps in (2, 5, 10)
    },
    "integrated gradients, all layers together": AttributionMethod(
        _summed(partial(_integrated_together, steps=10)),
        "the same with all neurons, or all heads, changing on a straight line, in 10 steps",
        FAITHFULNESS,
    ),
    "integrated gradients, layer by layer": AttributionMethod(
        _summed(partial(_integrated_layer_by_layer, steps=5)),
        "the same with the units of one layer, on the text, at the middles of 5 steps (the source: at their ends)",
        FAITHFULNESS,
    ),
    "contributions": AttributionMethod(
        _summed(_contributions),
        "`u h`: the coefficient in the closed form, terms held",
        CLOSED_FORM,
        of_change=False,
        of_readout=True,
    ),
    "contributions x change": AttributionMethod(
        _summed(partial(_held_times_change, slopes=False)), "`u Δ`", CLOSED_FORM, of_readout=True
    ),
    "norm of change x W_out": AttributionMethod(_norm_of_change, "`‖Δ W_out‖`", ""),
}
"""The methods that score neurons, heads and streams, by name. `Δ` is the change of a unit from the reference to the
text, `h` its value on the text."""
