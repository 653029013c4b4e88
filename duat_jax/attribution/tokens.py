"""Attribution methods that score the tokens of a text by their effect on a metric."""

from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from duat_jax.forms import affine_form, decomposition
from duat_jax.forms.affine_form import GATE_RULES, collapse_of
from duat_jax.forms.decomposition import contributions
from duat_jax.forms.secant import secant
from duat_jax.models.config import Config
from duat_jax.models.targets.base import ForwardPass, Reader, Reading
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
    """

    x: Float[Array, "tokens features"]
    baselines: dict[str, Float[Array, "tokens features"]]
    real: Bool[Array, "tokens"]
    reader: Reader


Method = Callable[[Transformer, Metric], Float[Array, "tokens"]]
"""From a model and a metric to a score of every token: its contribution to the metric."""


def read(model: Transformer, metric: Metric, x: Float[Array, "tokens features"]) -> Reading:
    """Evaluate a metric on given embeddings, and return its value and its read-out.

    Args:
        model: the model.
        metric: the metric.
        x: the embeddings, `[tokens, features]`.
    """
    return metric.reader.read(model, ForwardPass(metric.real, model.states(x, metric.real), {}))


def number(model: Transformer, metric: Metric, x: Float[Array, "tokens features"]) -> Float[Array, ""]:
    """Evaluate a metric on given embeddings.

    Args:
        model: the model.
        metric: the metric.
        x: the embeddings, `[tokens, features]`.
    """
    return read(model, metric, x).value


def _gradient(model: Transformer, metric: Metric, x: Array) -> Array:
    return jax.grad(partial(number, model, metric))(x)


def _gradient_times_input(model: Transformer, metric: Metric) -> Array:
    return (_gradient(model, metric, metric.x) * metric.x).sum(-1)


def _gradient_times_change(model: Transformer, metric: Metric, *, baseline: str) -> Array:
    return (_gradient(model, metric, metric.x) * (metric.x - metric.baselines[baseline])).sum(-1)


def _integrated_gradients(model: Transformer, metric: Metric, *, steps: int, baseline: str) -> Array:
    change = metric.x - metric.baselines[baseline]
    middles = (jnp.arange(steps, dtype=change.dtype) + 0.5) / steps
    gradients = jax.lax.map(lambda t: _gradient(model, metric, metric.baselines[baseline] + t * change), middles)
    return (gradients.mean(0) * change).sum(-1)


def _smoothed_gradient_times_input(model: Transformer, metric: Metric) -> Array:
    inside = metric.real[:, None]
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
    recording = record_kinds(lambda x: model.states(x, metric.real), metric.x, decomposition.KINDS)
    parts = contributions(recording, read(model, metric, metric.x).readout, neurons=False)
    linear = parts.input.sum(-1)
    return linear + sum(part.reshape(len(linear), -1).sum(-1) for part in parts.terms.values()) if terms else linear


def _collapse(model: Transformer, metric: Metric, *, gate_rule: str | None, baseline: str | None = None) -> Array:
    recording = record_kinds(lambda x: model.states(x, metric.real), metric.x, affine_form.KINDS)
    coefficient = collapse_of(recording, gate_rule).linear.T(read(model, metric, metric.x).readout)
    return (coefficient * (metric.x if baseline is None else metric.x - metric.baselines[baseline])).sum(-1)


def _attention_rollout(model: Transformer, metric: Metric) -> Array:
    held = record_kinds(lambda x: model.states(x, metric.real), metric.x, (marks.HOLD,)).dynamics.held
    identity = rollout = jnp.eye(len(metric.x), dtype=metric.x.dtype)
    for pattern in (value for key, value in held.items() if key.name == "attention.pattern"):
        rollout = jnp.matmul((pattern.mean(0) + identity) / 2, rollout, precision=PRECISION)
    # The tokens at which the metric is read.
    place = getattr(metric.reader, "position", None)
    return rollout.mean(0, where=metric.real[:, None]) if place is None else rollout[place]


def methods_of(config: Config, baselines: Collection[str]) -> dict[str, Method]:
    """Return all attribution methods that a model supports, by name.

    With the change `Δ = x − y` of a token's embedding `x` from a baseline's `y`, a token's score is the sum over
    features of the product in the table. Methods that use a change exist once for every baseline.

    | method | score |
    |---|---|
    | secant | `D Δ`: the multiplier between the text and the baseline, nothing held |
    | collapse | `c x`: the collapse's coefficient, for gated models in each gauge; *x change*: `c Δ` |
    | contributions | `u x`: the linear path with everything held, plus the terms at the token |
    | contributions, linear path | `u x` alone |
    | gradient x input, gradient x change | `∇ x`, `∇ Δ` |
    | integrated gradients | the mean of `∇` on the straight line from the baseline to the text, times `Δ` |
    | SmoothGrad x input | the mean of `∇` at noisy embeddings, times `x` |
    | attention rollout | the product over layers of half the mean pattern plus half the identity, without a sum |

    Args:
        config: the model's parts.
        baselines: names in `duat_jax.inputs.baselines.BASELINES`, the keys of `Metric.baselines`.

    Example:
        >>> import duat_jax as duat
        >>> list(methods_of(duat.load_config(), ("mean",)))[:4]
        ['secant, mean', 'collapse', 'collapse x change, mean', 'contributions']

    Sources: Sundararajan et al., "Axiomatic Attribution for Deep Networks", 2017 (integrated gradients); Smilkov et
    al., "SmoothGrad: removing noise by adding noise", 2017; Abnar & Zuidema, "Quantifying Attention Flow in
    Transformers", 2020, Eq. 1 (attention rollout); Shrikumar et al., "Not Just a Black Box", 2016 (gradient x input).
    """
    gated = any(block.mlp != "plain" for block in config.blocks)
    gauges: dict[str, str | None] = {f"collapse, {name}": name for name in GATE_RULES} if gated else {"collapse": None}

    def of_change(name: str, method: Callable[..., Array]) -> dict[str, Method]:
        return {f"{name}, {baseline}": partial(method, baseline=baseline) for baseline in baselines}

    return {
        **of_change("secant", _secant),
        **{name: partial(_collapse, gate_rule=gate_rule) for name, gate_rule in gauges.items()},
        **of_change("collapse x change", partial(_collapse, gate_rule=None)),
        "contributions": partial(_contributions, terms=True),
        "contributions, linear path": partial(_contributions, terms=False),
        "gradient x input": _gradient_times_input,
        **of_change("gradient x change", _gradient_times_change),
        **of_change("integrated gradients, 32 steps", partial(_integrated_gradients, steps=32)),
        **of_change("integrated gradients, 128 steps", partial(_integrated_gradients, steps=128)),
        "SmoothGrad x input": _smoothed_gradient_times_input,
        "attention rollout": _attention_rollout,
    }
