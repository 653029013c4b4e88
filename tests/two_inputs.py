"""What the difference of two inputs is compared with: written out over subsets of inputs, and in many digits."""

from itertools import combinations
from math import factorial

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
from helpers import close

import duat_jax as duat
from duat_jax.forms.completeness import HOLDS


def secant(fn, x, y):
    """Return the secant, of which every sum has been looked at."""
    found = jax.jit(duat.secant(fn))(x, y)
    assert found.completeness.verdict == HOLDS
    close(jnp.stack([*found.values, found.difference]), jnp.stack([fn(x), fn(y), fn(x) - fn(y)]))
    return found


X, Y = np.array([0.7, -1.2, 2.25, 0.3]), np.array([1.5, -0.4, -0.6, -0.9])
"""Two inputs that differ in the signs of some entries."""


def sums(found):
    """Assert that parts and jumps are the difference."""
    assert found.completeness.verdict == HOLDS
    parts = [float(part.sum()) for part in jax.tree.leaves(found.parts)]
    close(sum(parts) + sum(map(float, found.discontinuities.values())), found.values[0] - found.values[1], layers=10)
    close(found.difference, found.values[0] - found.values[1])
    return found


def each(functions, x, y):
    """Return the secant of a sum of functions with an input each, as one program, and the difference of each function.

    None sees another's input, so that the multiplier of each is the one that it has alone.
    """

    def values(x):
        return {name: fn(x[name]) for name, fn in functions.items()}

    def both(x, y):
        secant = duat.secant(lambda x: sum(values(x).values()))(x, y)
        return secant, jax.tree.map(jnp.subtract, values(x), values(y))

    return jax.jit(both)(x, y)


def shapley(game, x, y):
    """Return Shapley's value of every input of a function: those that have joined stand at `x`, the others at `y`.

    `φ_i = Σ_S |S|! (n − 1 − |S|)! / n! · (game(S ∪ i) − game(S))`, over all sets `S` of other inputs.
    """
    players = range(len(x))
    values = {
        joined: game(*(x[i] if i in joined else y[i] for i in players))
        for size in range(len(x) + 1)
        for joined in map(frozenset, combinations(players, size))
    }
    return [
        sum(
            factorial(len(joined))
            * factorial(len(x) - 1 - len(joined))
            / factorial(len(x))
            * (values[joined | {i}] - value)
            for joined, value in values.items()
            if i not in joined
        )
        for i in players
    ]


def slope(function, derivative, x, y):
    """Return the secant slope of an elementwise function, entry by entry, and the derivative where both are equal."""
    moved = np.where(x == y, 1, x - y)
    return np.where(x == y, derivative(x), (function(x) - function(y)) / moved)


def logarithmic_mean(p, q):
    """Return `(p − q) / (log p − log q)` in many digits, which is `p` where both are equal and zero where one is."""
    if p == 0 or q == 0:
        return mpmath.mpf(0)
    return p if p == q else (p - q) / (mpmath.log(p) - mpmath.log(q))


def probabilities(scores):
    """Return the softmax of one row in many digits; a score of −∞ has none."""
    powers = [mpmath.exp(mpmath.mpf(float(score))) for score in scores]
    return [power / mpmath.fsum(powers) for power in powers]


def logarithmic_weights(scores, other):
    """Return `L` and `L / ΣL` of two rows of scores, in many digits."""
    with mpmath.workdps(40):
        means = [logarithmic_mean(p, q) for p, q in zip(probabilities(scores), probabilities(other))]
        total = mpmath.fsum(means)
        return means, [mean / total for mean in means]


def tanh_slope(z, other):
    return slope(np.tanh, lambda z: 1 - np.tanh(z) ** 2, z, other)
