"""Methods that say how much each token of a text matters for one number that a model computes of it."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from duat_jax.forms import affine_form, decomposition
from duat_jax.forms.affine_form import CARRIERS, collapse_of
from duat_jax.forms.decomposition import contributions
from duat_jax.forms.secant import secant
from duat_jax.models.config import Config
from duat_jax.models.targets.base import ForwardPass, Reading
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import PRECISION
from duat_jax.transform import marks
from duat_jax.transform.recording import record_kinds

SAMPLES, NOISE = 32, 0.15
"""SmoothGrad: how many noisy texts, and the noise's standard deviation as a part of the embeddings' range."""


class Asked(NamedTuple):
    """A number that a model computes of one text: a pytree.

    Args:
        x: the text's embeddings, `[tokens, features]`.
        others: those with another thing in the place of every token that isn't special, by a baseline's name.
        real: true for real tokens, `[tokens]`.
        reader: what reads the number out of a forward pass.
    """

    x: Float[Array, "tokens features"]
    others: dict[str, Float[Array, "tokens features"]]
    real: Bool[Array, "tokens"]
    reader: Any


Method = Callable[[Transformer, Asked], Float[Array, "tokens"]]
"""From a model and what is asked of it to a score of every token: by how much it raises the number."""


def read(model: Transformer, asked: Asked, x: Float[Array, "tokens features"]) -> Reading:
    """Return the number that is asked for, and how it is read, from other embeddings.

    Args:
        model: the model.
        asked: the question.
        x: the embeddings, `[tokens, features]`.
    """
    return asked.reader.read(model, ForwardPass(asked.real, model.states(x, asked.real), {}))


def number(model: Transformer, asked: Asked, x: Float[Array, "tokens features"]) -> Float[Array, ""]:
    """Return the number that is asked for, from other embeddings.

    Args:
        model: the model.
        asked: the question.
        x: the embeddings, `[tokens, features]`.
    """
    return read(model, asked, x).value


def _gradient(model: Transformer, asked: Asked, x: Array) -> Array:
    return jax.grad(partial(number, model, asked))(x)


def _gradient_times_input(model: Transformer, asked: Asked) -> Array:
    return (_gradient(model, asked, asked.x) * asked.x).sum(-1)


def _gradient_times_change(model: Transformer, asked: Asked, *, baseline: str) -> Array:
    return (_gradient(model, asked, asked.x) * (asked.x - asked.others[baseline])).sum(-1)


def _integrated_gradients(model: Transformer, asked: Asked, *, steps: int, baseline: str) -> Array:
    change = asked.x - asked.others[baseline]
    middles = (jnp.arange(steps, dtype=change.dtype) + 0.5) / steps
    gradients = jax.lax.map(lambda t: _gradient(model, asked, asked.others[baseline] + t * change), middles)
    return (gradients.mean(0) * change).sum(-1)


def _smoothed_gradient_times_input(model: Transformer, asked: Asked) -> Array:
    inside = asked.real[:, None]
    size = jnp.max(asked.x, where=inside, initial=-jnp.inf) - jnp.min(asked.x, where=inside, initial=jnp.inf)

    def noisy(key: Array) -> Array:
        noise = jax.random.normal(key, asked.x.shape, asked.x.dtype)
        return _gradient(model, asked, asked.x + NOISE * size * noise)

    gradients = jax.lax.map(noisy, jax.random.split(jax.random.key(0), SAMPLES))
    return (gradients.mean(0) * asked.x).sum(-1)


def _secant(model: Transformer, asked: Asked, *, baseline: str) -> Array:
    return secant(partial(number, model, asked))(asked.x, asked.others[baseline]).parts.sum(-1)


def _contributions(model: Transformer, asked: Asked, *, terms: bool) -> Array:
    """Return what flows from each token's embedding through the linear path, and if asked what its terms add."""
    recording = record_kinds(lambda x: model.states(x, asked.real), asked.x, decomposition.KINDS)
    found = contributions(recording, read(model, asked, asked.x).readout, neurons=False)
    linear = found.input.sum(-1)
    return linear + sum(part.reshape(len(linear), -1).sum(-1) for part in found.terms.values()) if terms else linear


def _collapse(model: Transformer, asked: Asked, *, carries: str | None, baseline: str | None = None) -> Array:
    recording = record_kinds(lambda x: model.states(x, asked.real), asked.x, affine_form.KINDS)
    coefficient = collapse_of(recording, carries).linear.T(read(model, asked, asked.x).readout)
    return (coefficient * (asked.x if baseline is None else asked.x - asked.others[baseline])).sum(-1)


def _attention_rollout(model: Transformer, asked: Asked) -> Array:
    held = record_kinds(lambda x: model.states(x, asked.real), asked.x, (marks.HOLD,)).dynamics.held
    identity = rollout = jnp.eye(len(asked.x), dtype=asked.x.dtype)
    for pattern in (value for key, value in held.items() if key.name == "attention.pattern"):
        rollout = jnp.matmul((pattern.mean(0) + identity) / 2, rollout, precision=PRECISION)
    # The tokens out of which the number is read.
    place = getattr(asked.reader, "position", None)
    return rollout.mean(0, where=asked.real[:, None]) if place is None else rollout[place]


def methods_of(config: Config, baselines: Collection[str]) -> dict[str, Method]:
    """Return every method that a model can be asked, by its name.

    With the change `Δ = x − y` of a token's embedding `x` from a baseline's `y`, a token's score is the sum over
    features of what follows. Every method that takes a change is there once for every baseline.

    | method | score |
    |---|---|
    | secant | `D Δ`: the multiplier between the text and the baseline, everything flowing |
    | collapse | `c x`: the collapse's coefficient, for gated models in each gauge; *x change*: `c Δ` |
    | contributions | `u x`: the linear path with everything held, and what the terms at the token add |
    | contributions, linear path | `u x` alone |
    | gradient x input, gradient x change | `∇ x`, `∇ Δ` |
    | integrated gradients | the mean of `∇` on the straight line from the baseline to the text, times `Δ` |
    | SmoothGrad x input | the mean of `∇` at noisy embeddings, times `x` |
    | attention rollout | the product over layers of half the mean pattern and half the identity, no sum |

    Args:
        config: the model's parts.
        baselines: names in `duat_jax.inputs.baselines.BASELINES`, what `Asked.others` has.

    Example:
        >>> import duat_jax as duat
        >>> list(methods_of(duat.load_config(), ("mean",)))[:4]
        ['secant, mean', 'collapse', 'collapse x change, mean', 'contributions']

    Sources: Sundararajan et al., "Axiomatic Attribution for Deep Networks", 2017 (integrated gradients); Smilkov et
    al., "SmoothGrad: removing noise by adding noise", 2017; Abnar & Zuidema, "Quantifying Attention Flow in
    Transformers", 2020, Eq. 1 (attention rollout); Shrikumar et al., "Not Just a Black Box", 2016 (gradient x input).
    """
    gated = any(block.mlp != "plain" for block in config.blocks)
    gauges: dict[str, str | None] = {f"collapse, {name}": name for name in CARRIERS} if gated else {"collapse": None}

    def of_change(name: str, method: Callable[..., Array]) -> dict[str, Method]:
        return {f"{name}, {baseline}": partial(method, baseline=baseline) for baseline in baselines}

    return {
        **of_change("secant", _secant),
        **{name: partial(_collapse, carries=carries) for name, carries in gauges.items()},
        **of_change("collapse x change", partial(_collapse, carries=None)),
        "contributions": partial(_contributions, terms=True),
        "contributions, linear path": partial(_contributions, terms=False),
        "gradient x input": _gradient_times_input,
        **of_change("gradient x change", _gradient_times_change),
        **of_change("integrated gradients, 32 steps", partial(_integrated_gradients, steps=32)),
        **of_change("integrated gradients, 128 steps", partial(_integrated_gradients, steps=128)),
        "SmoothGrad x input": _smoothed_gradient_times_input,
        "attention rollout": _attention_rollout,
    }
