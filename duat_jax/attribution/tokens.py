"""Attribution methods that score the tokens of a text by their effect on a metric."""

from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from duat_jax.attribution.method import (
    CLOSED_FORM,
    COLLAPSE,
    INTEGRATED,
    ROLLOUT,
    SECANT,
    SMOOTHED,
    TIMES_INPUT,
    AttributionMethod,
)
from duat_jax.attribution.unit_values import mean_gradient
from duat_jax.forms import affine_form, decomposition
from duat_jax.forms.affine_form import GATE_RULES, collapse_of
from duat_jax.forms.decomposition import contributions
from duat_jax.forms.secant import secant
from duat_jax.interpret.pipeline import forward_from
from duat_jax.models.config import Config
from duat_jax.models.sites import PATTERN
from duat_jax.models.targets.base import Reader, Reading
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import PRECISION
from duat_jax.transform import marks
from duat_jax.transform.recording import record_kinds

SAMPLES, NOISE = 32, 0.15
"""SmoothGrad: number of noisy samples, and standard deviation of the noise as a fraction of the embeddings' range."""


class Metric(NamedTuple):
    """A metric of a model on one text: a pytree.

    Args:
        x: the text's embeddings, `[tokens, features]`.
        baselines: the embeddings with every token that isn't special replaced, by the name of the baseline.
        real: true for real tokens, `[tokens]`.
        reader: evaluates the metric on a forward pass.
        stream: the number of layers before the stream that it reads; `None` for the states of the read-out.
    """

    x: Float[Array, "tokens features"]
    baselines: dict[str, Float[Array, "tokens features"]]
    real: Shaped[Array, "tokens"]
    reader: Reader
    stream: int | None = None


Rule = Callable[..., Float[Array, "tokens"]]
"""From a model and a metric to a score of every token: its contribution to the metric. The rule of a method that
multiplies by a change also takes the name of the baseline."""


def read(model: Transformer, metric: Metric, x: Float[Array, "tokens features"]) -> Reading:
    """Evaluate a metric on given embeddings, and return its value and its read-out."""
    return metric.reader.read(model, forward_from(model, x, metric.real, metric.stream))


def number(model: Transformer, metric: Metric, x: Float[Array, "tokens features"]) -> Float[Array, ""]:
    """Evaluate a metric on given embeddings."""
    return read(model, metric, x).value


def states(model: Transformer, metric: Metric, x: Float[Array, "tokens features"]) -> Float[Array, "tokens features"]:
    """Return the stream that a metric reads, or the states of the read-out, on given embeddings."""
    return forward_from(model, x, metric.real, metric.stream).at(metric.stream)


def _gradient(model: Transformer, metric: Metric, x: Array) -> Array:
    return jax.grad(partial(number, model, metric))(x)


def _gradient_times_input(model: Transformer, metric: Metric) -> Array:
    return (_gradient(model, metric, metric.x) * metric.x).sum(-1)


def _gradient_times_change(model: Transformer, metric: Metric, *, baseline: str) -> Array:
    return (_gradient(model, metric, metric.x) * (metric.x - metric.baselines[baseline])).sum(-1)


def _integrated_gradients(model: Transformer, metric: Metric, *, steps: int, baseline: str) -> Array:
    x, y = metric.x, metric.baselines[baseline]
    return (mean_gradient(partial(number, model, metric), x, y, steps) * (x - y)).sum(-1)


def _smoothed_gradient_times_input(model: Transformer, metric: Metric) -> Array:
    inside = metric.real.astype(bool)[:, None]
    size = jnp.max(metric.x, where=inside, initial=-jnp.inf) - jnp.min(metric.x, where=inside, initial=jnp.inf)

    def noisy(key: Array) -> Array:
        noise = jax.random.normal(key, metric.x.shape, metric.x.dtype)
        return _gradient(model, metric, metric.x + NOISE * size * noise)

    gradients = jax.lax.map(noisy, jax.random.split(jax.random.key(0), SAMPLES))
    return (gradients.mean(0) * metric.x).sum(-1)


def _secant(model: Transformer, metric: Metric, *, baseline: str) -> Array:
    return secant(partial(number, model, metric))(metric.x, metric.baselines[baseline]).parts.sum(-1)


def _contributions(model: Transformer, metric: Metric, *, terms: bool) -> Array:
    """Return each token's contribution through the linear path, and optionally that of the terms at the token."""
    recording = record_kinds(partial(states, model, metric), metric.x, decomposition.KINDS)
    parts = contributions(recording, read(model, metric, metric.x).readout, by_neuron=False)
    linear = parts.input.sum(-1)
    return linear + sum(part.reshape(len(linear), -1).sum(-1) for part in parts.terms.values()) if terms else linear


def _collapse(model: Transformer, metric: Metric, *, gate_rule: str | None, baseline: str | None = None) -> Array:
    recording = record_kinds(partial(states, model, metric), metric.x, affine_form.KINDS)
    coefficient = collapse_of(recording, gate_rule).linear.T(read(model, metric, metric.x).readout)
    return (coefficient * (metric.x if baseline is None else metric.x - metric.baselines[baseline])).sum(-1)


def _attention_rollout(model: Transformer, metric: Metric) -> Array:
    held = record_kinds(partial(states, model, metric), metric.x, (marks.HOLD,)).dynamics.held
    identity = rollout = jnp.eye(len(metric.x), dtype=metric.x.dtype)
    for pattern in (value for key, value in held.items() if key.name == PATTERN):
        rollout = jnp.matmul((pattern.mean(0) + identity) / 2, rollout, precision=PRECISION)
    # The tokens at which the metric is read.
    place = getattr(metric.reader, "position", None)
    return rollout.mean(0, where=metric.real.astype(bool)[:, None]) if place is None else rollout[place]


METHODS: dict[str, AttributionMethod[Rule]] = {
    "secant": AttributionMethod(
        _secant, "`D Δ`: the multiplier between the text and the baseline, nothing held", SECANT
    ),
    "collapse": AttributionMethod(
        partial(_collapse, gate_rule=None), "`c x`: the coefficient in the collapse", COLLAPSE, of_change=False
    ),
    **{
        f"collapse, {name}": AttributionMethod(
            partial(_collapse, gate_rule=name), f'`c x` by the gate rule `"{name}"` of gated terms', COLLAPSE, False
        )
        for name in GATE_RULES
    },
    "collapse x change": AttributionMethod(
        partial(_collapse, gate_rule=None), '`c Δ`, by the gate rule `"halves"`', COLLAPSE
    ),
    "contributions": AttributionMethod(
        partial(_contributions, terms=True),
        "`u x`: the linear path with everything held, plus the terms at the token",
        CLOSED_FORM,
        False,
    ),
    "contributions, linear path": AttributionMethod(
        partial(_contributions, terms=False), "`u x` alone", CLOSED_FORM, False
    ),
    "gradient x input": AttributionMethod(_gradient_times_input, "`∇ x`, the gradient at the text", TIMES_INPUT, False),
    "gradient x change": AttributionMethod(_gradient_times_change, "`∇ Δ`", TIMES_INPUT),
    **{
        f"integrated gradients, {steps} steps": AttributionMethod(
            partial(_integrated_gradients, steps=steps),
            "the mean of `∇` along the straight line from the baseline to the text, times `Δ`",
            INTEGRATED,
        )
        for steps in (32, 128)
    },
    "SmoothGrad x input": AttributionMethod(
        _smoothed_gradient_times_input, "the mean of `∇` at noisy embeddings, times `x`", SMOOTHED, False
    ),
    "attention rollout": AttributionMethod(
        _attention_rollout,
        "the product over layers of half the mean pattern plus half the identity, without a sum",
        ROLLOUT,
        False,
    ),
}
"""The methods that score tokens, by name. `Δ = x − y` is the change of a token's embedding `x` from a baseline's `y`;
a score is the sum over features."""


def supported(config: Config) -> dict[str, AttributionMethod[Rule]]:
    """Return the methods that a model supports: the collapse has its gate rules where terms are gated."""
    gated = any(block.mlp != "plain" for block in config.blocks)
    without = {"collapse"} if gated else {f"collapse, {name}" for name in GATE_RULES}
    return {name: method for name, method in METHODS.items() if name not in without}


def methods_of(config: Config, baselines: Collection[str]) -> dict[str, Rule]:
    """Return the rules of all methods that a model supports, by name; those of a change once for every baseline.

    Example:
        >>> import duat_jax as duat
        >>> list(methods_of(duat.load_config(), ("mean",)))[:4]
        ['secant, mean', 'collapse', 'collapse x change, mean', 'contributions']
    """
    rules: dict[str, Rule] = {}
    for name, method in supported(config).items():
        if method.of_change:
            rules |= {f"{name}, {baseline}": partial(method.rule, baseline=baseline) for baseline in baselines}
        else:
            rules[name] = method.rule
    return rules
