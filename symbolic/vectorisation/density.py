"""Compute densities, the share of nonzero entries of `W'`, as exact fractions."""

from fractions import Fraction

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


def densities() -> dict[str, Rational]:
    """Return densities as exact fractions in the tokens N, the features M, and an odd kernel width k ≤ N.

    Example:
        >>> print(densities()["attention, causal mask"])
        (N + 1)/(2*N)
    """
    n, m, k = _N, _M, _K
    return {
        "linear on rows, W x": 1 / m,
        "linear on features, x W": 1 / n,
        "attention": n / n,
        "attention, causal mask": (n + 1) / (2 * n),
        "1D convolution": ((4 * n * k - k**2 + 1) / (4 * n**2)),
    }


_COUNTED = ((2, 3), (3, 2), (4, 4))  # tokens and features

_KERNELS = ((3, 1), (3, 3), (5, 3), (7, 5))  # tokens and kernel width


def _count(name: str, tokens: int, second: int) -> Fraction:
    """Return the density of an explicit matrix; the second size is the features, or the width of the kernel."""
    match name:
        case "linear on rows, W x":
            return linear_on_rows(tokens, second).density
        case "linear on features, x W":
            return linear_on_features(tokens, second).density
        case "1D convolution":
            return convolution(tokens, second).density
    return attention(tokens, second, 1, causal="causal" in name).whole.density


def _sizes(name: str) -> tuple[tuple[int, int], ...]:
    return _KERNELS if name == "1D convolution" else _COUNTED


def _written_sizes(name: str) -> str:
    second = "k" if name == "1D convolution" else "M"
    return f"(N, {second}) = {', '.join(map(str, _sizes(name)))}"


def _agrees(name: str, formula: Rational) -> bool:
    second = _K if name == "1D convolution" else _M
    return all(formula.subs({_N: tokens, second: size}) == _count(name, tokens, size) for tokens, size in _sizes(name))


def density_derivation() -> Derivation:
    """List the densities, each compared with the counted one of explicit matrices at several sizes.

    Example:
        >>> density_derivation().verified
        True

    Source: Wang & Li, version 001, Appendix B (1/M for Linear); the others are not in the papers.
    """
    steps = (
        Step(Symbol("rho"), formula, name, _agrees(name, formula), sizes=_written_sizes(name))
        for name, formula in densities().items()
    )
    premises = (
        "The density is the share of entries that aren't zero, of matrices with generic entries: an entry counts as"
        " zero if it is zero whatever the parameters are.",
        "There are N tokens, M features and one head; a kernel has an odd width k ≤ N.",
    )
    return Derivation("Densities of the matrices on vec(x)", tuple(steps), premises=premises)
