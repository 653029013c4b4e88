"""Scores of MLP neurons: how much is lost, by different accounts, where a neuron is removed."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from duat_jax.nn.mlp import MLP, GatedMLP
from duat_jax.pruning.calibration import Moments


class Neurons(NamedTuple):
    """Everything that a layer's neurons are scored by.

    Args:
        inner: the weights that a neuron reads with, those of a gate and of its factor one after the other.
        outer: the weights that it writes with.
        moments: what it does on calibration text.
        instead: what a removed neuron's activation is replaced by: its mean where that is folded into the bias, or 0.
        random: a source of random numbers.
    """

    inner: Float[np.ndarray, "inputs neurons"]
    outer: Float[np.ndarray, "neurons features"]
    moments: Moments
    instead: Float[np.ndarray, "neurons"]
    random: np.random.Generator


def neurons_of(mlp: MLP | GatedMLP, moments: Moments, *, replaced: bool, random: np.random.Generator) -> Neurons:
    """Return what the neurons of an MLP are scored by.

    Args:
        mlp: the MLP.
        moments: of its neurons.
        replaced: whether a removed neuron is replaced by its mean.
        random: a source of random numbers.
    """
    maps = [mlp.input, mlp.factor] if isinstance(mlp, GatedMLP) else [mlp.input]
    inner = np.concatenate([np.asarray(one.kernel[...], np.float64) for one in maps])
    outer = np.asarray(mlp.output.kernel[...], np.float64)
    return Neurons(inner, outer, moments, moments.mean * replaced, random)


def _weighted(one: Neurons) -> np.ndarray:
    """Return `E w² (a − c)²`, the square of what the loss moves by where `a` becomes `c`."""
    squares, first, second = one.moments.squares
    return second - 2 * one.instead * first + one.instead**2 * squares


def _fluctuation(one: Neurons) -> np.ndarray:
    return np.diag(one.moments.covariance) * (one.outer**2).sum(1)


def _standardised(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / (values.std() or 1)


class Method(NamedTuple):
    """A way to score neurons.

    Args:
        weights: what it takes the moments with, a name in `WEIGHTS`; where it needs none, those that cost less.
        score: one number for each neuron; what is smallest is removed first.
    """

    weights: str
    score: Callable[[Neurons], Float[np.ndarray, "neurons"]]


METHODS = {
    "contributions": Method("contribution", _weighted),
    "fisher": Method("gradient", _weighted),
    "taylor": Method("gradient", lambda one: one.moments.absolute),
    "fluctuation": Method("contribution", _fluctuation),
    "flap": Method("contribution", lambda one: _standardised(_fluctuation(one))),
    "wanda": Method("contribution", lambda one: np.sqrt(np.diag(one.moments.products)) * np.abs(one.outer).sum(1)),
    "magnitude": Method("contribution", lambda one: np.sqrt((one.inner**2).sum(0) + (one.outer**2).sum(1))),
    "random": Method("contribution", lambda one: one.random.random(len(one.outer))),
}
"""Every method by its name. With a neuron's activation `a`, `c` what replaces it (its mean, or 0 where nothing does),
`g` the gradient of the loss in it, `u` its coefficient in the closed form, and `W_3` what it writes with, a score is

| method | score |
|---|---|
| contributions | `E (u (a − c))²`: the contribution's mean square, every parameter held |
| fisher | `E (g (a − c))²`: the same with everything after it computed anew, to first order |
| taylor | `E |g a|` |
| fluctuation | `Var(a) ‖W_3‖²` |
| flap | the same, less its mean over the layer and divided by its standard deviation there |
| wanda | `√(E a²) Σ|W_3|` |
| magnitude | the length of all its weights |
| random | numbers drawn from a seed |

`E` is the mean over the tokens of the calibration text, and a square or an absolute value is taken of every token by
itself. The published first-order scores differ there: they sum `g a` over an image's positions first, so that positions
of opposite signs cancel. For equal shares of every layer *fluctuation* and *flap* remove the same neurons.

Sources: Molchanov et al., "Pruning Convolutional Neural Networks for Resource Efficient Inference", 2017, Eq. 7
(taylor); Molchanov et al., "Importance Estimation for Neural Network Pruning", 2019, Eq. 8 (fisher); An et al.,
"Fluctuation-based Adaptive Structured Pruning for Large Language Models", 2024, Eq. 5 (fluctuation, and flap, which is
ranked there over all layers); Sun et al., "A Simple and Effective Pruning Approach for Large Language Models", 2023,
Eq. 1, summed over a neuron (wanda)."""
