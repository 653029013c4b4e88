"""The symbols of a stack: the papers' letters for a block's own parameters, others for the unrolled ones."""

from dataclasses import dataclass
from typing import Any

from sympy import Identity, MatrixExpr, Symbol, ZeroMatrix, sympify

from symbolic.equality.definition import Definition
from symbolic.errors import SymbolicError
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.parameter import Parameter

i, j = (Symbol(name, integer=True, nonnegative=True) for name in "ij")

_DEEPEST = 100  # activations are nested once for every layer

_WIDTH, _NEURONS = (Symbol(name, integer=True, positive=True) for name in "dn")


def check_depth(depth: Any) -> int:
    """Return a depth as a number.

    Args:
        depth: number of layers.

    Raises:
        SymbolicError: if it isn't a positive integer.
    """
    if isinstance(depth, bool) or not isinstance(depth, int) or not 1 <= depth <= _DEEPEST:
        raise SymbolicError(f"the depth is {depth}: give a number of layers, 1 or more and at most {_DEEPEST}")
    return depth


@dataclass(frozen=True)
class ResidualStack:
    """The symbols of a stack of residual terms, with their shapes.

    A block's own parameters carry the papers' letters, `W'_{i,k}` and `b'_{i,k}`; the unrolled ones have letters of
    their own, since the papers' one symbol for both is ambiguous: `P_i` for the updated `W'_{i,1}`, `q_i` for
    `b'_{i,3}`, `B_j` for `W'_{j,2}`, `c_j` for `b'_{j,2}`, `C_j^{(i)}` for `W'_{j,3}` carried to layer `i`.

    Args:
        width: length of the residual stream as a vector, `N M`; a symbol or a number.
        neurons: length of an activation as a vector; a symbol or a number.
    """

    width: Any = _WIDTH
    neurons: Any = _NEURONS

    def __post_init__(self) -> None:
        for size in (self.width, self.neurons):
            if sympify(size).is_positive is False or sympify(size).is_integer is False:
                raise SymbolicError(f"a size is {size}: give positive integers or symbols")

    def x(self, k: Any) -> Parameter:
        """Return `x'_k`, the residual stream after layer k."""
        return Parameter("x'", (k,), self.width, 1)

    def W(self, k: Any, role: int) -> Parameter:
        """Return `W'_{k,1}` on the linear path, `W'_{k,2}` inside the activation, or `W'_{k,3}` outside it."""
        rows, columns = {1: (self.width, self.width), 2: (self.neurons, self.width), 3: (self.width, self.neurons)}[
            role
        ]
        return Parameter("W'", (k, role), rows, columns)

    def b(self, k: Any, role: int) -> Parameter:
        """Return `b'_{k,2}` inside the activation, or `b'_{k,3}` on the linear path."""
        return Parameter("b'", (k, role), self.neurons if role == 2 else self.width, 1)

    def P(self, k: Any) -> Parameter:
        """Return `P_k`, which carries the input to layer k."""
        return Parameter("P", (k,), self.width, self.width)

    def q(self, k: Any) -> Parameter:
        """Return `q_k`, the biases carried to layer k."""
        return Parameter("q", (k,), self.width, 1)

    def B(self, k: Any) -> Parameter:
        """Return `B_k`, which carries the input into the activation of layer k."""
        return Parameter("B", (k,), self.neurons, self.width)

    def c(self, k: Any) -> Parameter:
        """Return `c_k`, the bias inside the activation of layer k, with all earlier terms in it."""
        return Parameter("c", (k,), self.neurons, 1)

    def C(self, k: Any, layer: Any) -> Parameter:
        """Return `C_k^{(layer)}`, which carries the activation of layer k to a later layer."""
        return Parameter("C", (k,), self.width, self.neurons, (layer,))

    def UAT(self, k: Any) -> Parameter:
        """Return `UAT^R_k`, the sum of all terms at layer k."""
        return Parameter("UAT", (k,), self.width, 1)

    def activation(self, k: Any) -> Activation:
        """Return `σ(B_k x'_0 + c_k)`."""
        return Activation(self.B(k) * self.x(0) + self.c(k))

    def form(self, k: Any) -> MatrixExpr:
        """Return `P_k x'_0 + q_k + UAT^R_k`."""
        return self.P(k) * self.x(0) + self.q(k) + self.UAT(k)

    def general_term(self, k: Any, x: MatrixExpr | None = None) -> MatrixExpr:
        """Return the right side of Eq. 20 for layer k.

        Args:
            k: the layer.
            x: what stands for `x'_{k−1}`.
        """
        x = self.x(k - 1) if x is None else x
        inner = Activation(self.W(k, 2) * x + self.b(k, 2))
        return self.W(k, 1) * x + self.b(k, 3) + self.W(k, 3) * inner

    @property
    def equation_20(self) -> Definition:
        """`x'_{i+1} = (W'_{i+1,1} x'_i + b'_{i+1,3}) + W'_{i+1,3} σ(W'_{i+1,2} x'_i + b'_{i+1,2})`."""
        return Definition(self.x(i + 1), self.general_term(i + 1), (i,))

    @property
    def recursions(self) -> tuple[Definition, ...]:
        """The recursions of all parameters of the unrolled form, in two indices."""
        return (
            Definition(self.P(0), Identity(self.width)),
            Definition(self.P(i + 1), self.W(i + 1, 1) * self.P(i), (i,)),
            Definition(self.q(0), ZeroMatrix(self.width, 1)),
            Definition(self.q(i + 1), self.W(i + 1, 1) * self.q(i) + self.b(i + 1, 3), (i,)),
            Definition(self.B(i + 1), self.W(i + 1, 2) * self.P(i), (i,)),
            Definition(self.c(i + 1), self.b(i + 1, 2) + self.W(i + 1, 2) * (self.q(i) + self.UAT(i)), (i,)),
            Definition(self.C(i, i), self.W(i, 3), (i,)),
            Definition(self.C(j, i + 1), self.W(i + 1, 1) * self.C(j, i), (i, j), ((j, i),)),
            Definition(self.UAT(i), IndexedSum(self.C(j, i) * self.activation(j), j, 1, i), (i,)),
        )
