"""Scores of MLP neurons: estimates of the loss caused by removing a neuron."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from duat_jax.nn.mlp import MLP, GatedMLP
from duat_jax.pruning.calibration import Moments
from duat_jax.pruning.resizing import linear_maps


class ScoreInputs(NamedTuple):
    """Inputs of the scores of a layer's neurons.

    Args:
        inner: the neurons' input weights; with a gate those of the gate and of the factor, concatenated.
        outer: the neurons' output weights.
        moments: the moments of their activations on calibration text.
        replacement: the value that replaces a removed neuron's activation: its mean if that is folded into the bias,
            else 0.
        random: a source of random numbers.
    """

    inner: Float[np.ndarray, "inputs neurons"]
    outer: Float[np.ndarray, "neurons features"]
    moments: Moments
    replacement: Float[np.ndarray, "neurons"]
    random: np.random.Generator


def neurons_of(mlp: MLP | GatedMLP, moments: Moments, *, replaced: bool, random: np.random.Generator) -> ScoreInputs:
    """Collect the inputs of the scores of an MLP's neurons."""
    *inner, outer = (np.asarray(linear.kernel[...], np.float64) for linear in linear_maps(mlp).values())
    return ScoreInputs(np.concatenate(inner), outer, moments, moments.mean * replaced, random)


def _weighted(neurons: ScoreInputs) -> np.ndarray:
    """Return `E w² (a − c)²`, the squared first-order change of the loss when `a` is replaced by `c`."""
    squares, first, second = neurons.moments.squares
    return second - 2 * neurons.replacement * first + neurons.replacement**2 * squares


def _fluctuation(neurons: ScoreInputs) -> np.ndarray:
    return np.diag(neurons.moments.covariance) * (neurons.outer**2).sum(1)


def _standardised(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / (values.std() or 1)


class PruningMethod(NamedTuple):
    """A way to score neurons.

    Args:
        weights: the weights of the moments, a name in `WEIGHTS`; the cheaper ones if the score uses none.
        score: returns a score for each neuron; the smallest are removed first.
    """

    weights: str
    score: Callable[[ScoreInputs], Float[np.ndarray, "neurons"]]


METHODS = {
    "contributions": PruningMethod("contribution", _weighted),
    "fisher": PruningMethod("gradient", _weighted),
    "taylor": PruningMethod("gradient", lambda neurons: neurons.moments.absolute),
    "fluctuation": PruningMethod("contribution", _fluctuation),
    "flap": PruningMethod("contribution", lambda neurons: _standardised(_fluctuation(neurons))),
    "wanda": PruningMethod(
        "contribution", lambda neurons: np.sqrt(np.diag(neurons.moments.products)) * np.abs(neurons.outer).sum(1)
    ),
    "magnitude": PruningMethod(
        "contribution", lambda neurons: np.sqrt((neurons.inner**2).sum(0) + (neurons.outer**2).sum(1))
    ),
    "random": PruningMethod("contribution", lambda neurons: neurons.random.random(len(neurons.outer))),
}
"""The scoring methods, by name. With a neuron's activation `a`, its replacement `c` (its mean, or 0),
`g` the gradient of the loss with respect to it, `u` its coefficient in the closed form, and `W_3` its output weights, a
score is

| method | score |
|---|---|
| contributions | `E (u (a − c))²`: the contribution's mean square, every parameter held |
| fisher | `E (g (a − c))²`: the same with everything after it computed anew, to first order |
| taylor | `E |g a|` |
| fluctuation | `Var(a) ‖W_3‖²` |
| flap | the same, less its mean over the layer and divided by its standard deviation there |
| wanda | `√(E a²) Σ|W_3|` |
| magnitude | the Euclidean norm of all its weights |
| random | numbers drawn from a seed |

`E` is the mean over the tokens of the calibration text, and a square or an absolute value is taken of every token by
itself. The published first-order scores differ there: they sum `g a` over an image's positions first, so that positions
of opposite signs cancel. For equal shares of every layer *fluctuation* and *flap* remove the same neurons.

Sources: Molchanov et al., "Pruning Convolutional Neural Networks for Resource Efficient Inference", 2017, Eq. 7
(taylor); Molchanov et al., "Importance Estimation for Neural Network Pruning", 2019, Eq. 8 (fisher); An et al.,
"Fluctuation-based Adaptive Structured Pruning for Large Language Models", 2024, Eq. 5 (fluctuation, and flap, which is
ranked there over all layers); Sun et al., "A Simple and Effective Pruning Approach for Large Language Models", 2023,
Eq. 1, summed over a neuron (wanda)."""
