"""Compute densities, the share of nonzero entries of `W'`, as exact fractions."""

from collections.abc import Callable
from typing import NamedTuple

from sympy import ImmutableMatrix, Rational, Symbol, symbols

from symbolic.errors import SymbolicError
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import Step
from symbolic.vectorisation.attention import attention
from symbolic.vectorisation.entries import Explicit, check_sizes, matrix, matrix_of
from symbolic.vectorisation.linear import linear_on_features, linear_on_rows

_N, _M, _K = symbols("N M k", integer=True, positive=True)


def convolution(tokens: int, kernel: int) -> Explicit:
    """Return the Toeplitz matrix of a 1D convolution with zero padding, of as many outputs as inputs.

    Args:
        tokens: N.
        kernel: its width k, odd.

    Raises:
        SymbolicError: if a size is no positive integer, or the kernel is even.

    Example:
        >>> print(convolution(5, 3).density)
        13/25
    """
    check_sizes(tokens=tokens, kernel=kernel)
    if kernel % 2 == 0:
        raise SymbolicError(f"a kernel of width {kernel} has no middle: give an odd width")
    w, x, half = matrix("W", kernel, 1), matrix("x", tokens, 1), kernel // 2
    y = [sum(w[k] * x[n + k - half] for k in range(kernel) if 0 <= n + k - half < tokens) for n in range(tokens)]
    toeplitz = ImmutableMatrix(tokens, tokens, lambda n, m: w[m - n + half] if 0 <= m - n + half < kernel else 0)
    return Explicit(matrix_of(ImmutableMatrix(y), x), toeplitz)


_COUNTED = ((2, 3), (3, 2), (4, 4))  # tokens and features

_KERNELS = ((3, 1), (3, 3), (5, 3), (7, 5))  # tokens and kernel width


class _Density(NamedTuple):
    """A density as a formula, and explicit matrices by their sizes, in which it is counted."""

    formula: Rational
    explicit: Callable[[int, int], Explicit]
    second: Symbol = _M
    sizes: tuple[tuple[int, int], ...] = _COUNTED

    @property
    def counted(self) -> bool:
        """Whether the formula is what is counted at every size."""
        at_sizes = ((self.formula.subs({_N: n, self.second: size}), self.explicit(n, size)) for n, size in self.sizes)
        return all(formula == explicit.density for formula, explicit in at_sizes)


_DENSITIES = {
    "linear on rows, W x": _Density(1 / _M, linear_on_rows),
    "linear on features, x W": _Density(1 / _N, linear_on_features),
    "attention": _Density(_N / _N, lambda tokens, features: attention(tokens, features, 1).whole),
    "attention, causal mask": _Density(
        (_N + 1) / (2 * _N), lambda tokens, features: attention(tokens, features, 1, causal=True).whole
    ),
    "1D convolution": _Density((4 * _N * _K - _K**2 + 1) / (4 * _N**2), convolution, _K, _KERNELS),
}


def densities() -> dict[str, Rational]:
    """Return densities as exact fractions in the tokens N, the features M, and an odd kernel width k ≤ N.

    Example:
        >>> print(densities()["attention, causal mask"])
        (N + 1)/(2*N)
    """
    return {name: density.formula for name, density in _DENSITIES.items()}


def density_derivation() -> Derivation:
    """List the densities, each compared with the counted one of explicit matrices at several sizes.

    Example:
        >>> density_derivation().verified
        True
    """
    steps = []
    for name, density in _DENSITIES.items():
        sizes = f"(N, {density.second}) = {', '.join(map(str, density.sizes))}"
        steps.append(Step(Symbol("rho"), density.formula, name, density.counted, sizes=sizes))
    premises = (
        "The density is the share of entries that aren't zero, of matrices with generic entries: an entry counts as"
        " zero if it is zero whatever the parameters are.",
        "There are N tokens, M features and one head; a kernel has an odd width k ≤ N.",
    )
    return Derivation("Densities of the matrices on vec(x)", tuple(steps), premises=premises)
