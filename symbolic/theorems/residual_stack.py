"""Define the symbols of a stack: the papers' letters for a block's own parameters, others for the unrolled ones."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from sympy import Identity, Integer, MatrixExpr, Symbol, ZeroMatrix

from symbolic.equality.definition import Definition
from symbolic.errors import SymbolicError
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.parameter import Parameter, Variable, i, j, size_of

_DEEPEST = 100  # activations are nested once for every layer

_WIDTH, _NEURONS = (Symbol(name, integer=True, positive=True) for name in "dn")


def check_depth(depth: Any) -> int:
    """Return a depth as a number."""
    if isinstance(depth, bool) or not isinstance(depth, int) or not 1 <= depth <= _DEEPEST:
        raise SymbolicError(f"the depth is {depth}: give a number of layers, 1 or more and at most {_DEEPEST}")
    return depth


def added(first: MatrixExpr, rest: Iterable[MatrixExpr]) -> MatrixExpr:
    """Return a matrix and any number of others, added."""
    return reduce(add, rest, first)


@dataclass(frozen=True)
class ResidualStack:
    """The symbols of a stack of residual terms, with their shapes.

    A block's own parameters carry the papers' letters, `W'_{i,k}` and `b'_{i,k}`; the unrolled ones have letters of
    their own, since the papers' one symbol for both is ambiguous: `P_i` for the updated `W'_{i,1}`, `q_i` for
    `b'_{i,3}`, `B_j` for `W'_{j,2}`, `c_j` for `b'_{j,2}`, `C_j^{(i)}` for `W'_{j,3}` carried to layer `i`.

    A layer has one term, as in Eq. 20, or any number, which one more index counts: `W'_{i,3,t}`, `C_{j,t}^{(i)}`. The
    activation of a term may flow into a later one of the same layer, by `W'_{i,4,t,r}`.

    Args:
        width: length of the residual stream as a vector, `N M`; a symbol or a number.
        neurons: length of an activation as a vector, a symbol or a number; a tuple of them, one for each term.
        functions: the names of the terms' activation functions; `σ` for all if absent.
        couplings: pairs `(t, r)`, counted from 1 and with `r < t`: the activation of term `r` flows into term `t`.
        own: the names of activation functions of which every layer has its own, `σ_i`.
    """

    width: Any = _WIDTH
    neurons: Any = _NEURONS
    functions: tuple[str, ...] = ()
    couplings: tuple[tuple[int, int], ...] = ()
    own: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for size in (self.width, *self.sizes):
            if size_of(size) is None:
                raise SymbolicError(f"a size is {size}: give positive integers or symbols")

    @property
    def sizes(self) -> tuple[Any, ...]:
        """The length of every term's activation."""
        return self.neurons if isinstance(self.neurons, tuple) else (self.neurons,)

    @property
    def terms(self) -> range:
        """The numbers of a layer's terms, from 1."""
        return range(1, len(self.sizes) + 1)

    def _counted(self, *terms: int) -> tuple[int, ...]:
        return terms if len(self.sizes) > 1 else ()

    def x(self, k: Any) -> Parameter:
        """Return `x'_k`, the residual stream after layer k."""
        return Variable("x'", (k,), self.width, 1)

    def W(self, k: Any, role: int, term: int = 1) -> MatrixExpr:
        """Return `W'_{k,1}` on the linear path, `W'_{k,2}` inside a term's activation, or `W'_{k,3}` outside it."""
        neurons = self.sizes[term - 1] if self.sizes else _NEURONS
        rows, columns = {1: (self.width, self.width), 2: (neurons, self.width), 3: (self.width, neurons)}[role]
        return Parameter("W'", (k, role, *(() if role == 1 else self._counted(term))), rows, columns)

    def coupling(self, k: Any, term: int, earlier: int) -> Parameter:
        """Return `W'_{k,4,t,r}`, which carries the activation of an earlier term of the layer into a later one."""
        return Parameter("W'", (k, 4, term, earlier), self.sizes[term - 1], self.sizes[earlier - 1])

    def b(self, k: Any, role: int, term: int = 1) -> Parameter:
        """Return `b'_{k,2}` inside a term's activation, or `b'_{k,3}` on the linear path."""
        if role == 3:
            return Parameter("b'", (k, 3), self.width, 1)
        return Parameter("b'", (k, 2, *self._counted(term)), self.sizes[term - 1], 1)

    def P(self, k: Any) -> Parameter:
        """Return `P_k`, which carries the input to layer k."""
        return Parameter("P", (k,), self.width, self.width)

    def q(self, k: Any) -> Parameter:
        """Return `q_k`, the biases carried to layer k."""
        return Parameter("q", (k,), self.width, 1)

    def B(self, k: Any, term: int = 1) -> Parameter:
        """Return `B_k`, which carries the input into an activation of layer k."""
        return Parameter("B", (k, *self._counted(term)), self.sizes[term - 1], self.width)

    def c(self, k: Any, term: int = 1) -> Parameter:
        """Return `c_k`, the bias inside an activation of layer k, with all earlier terms in it."""
        return Parameter("c", (k, *self._counted(term)), self.sizes[term - 1], 1)

    def C(self, k: Any, layer: Any, term: int = 1) -> Parameter:
        """Return `C_k^{(layer)}`, which carries an activation of layer k to a later layer."""
        return Parameter("C", (k, *self._counted(term)), self.width, self.sizes[term - 1], (layer,))

    def UAT(self, k: Any) -> Parameter:
        """Return `UAT^R_k`, the sum of all terms at layer k."""
        return Parameter("UAT", (k,), self.width, 1)

    def vector(self, letter: str, k: Any, term: int = 1) -> Parameter:
        """Return a vector of a term of layer k, as long as its activation: its slopes `s_k`, say."""
        return Parameter(letter, (k, *self._counted(term)), self.sizes[term - 1], 1)

    def function(self, term: int = 1) -> str:
        """Return the name of a term's activation function."""
        return self.functions[term - 1] if self.functions else "σ"

    def activated(self, argument: MatrixExpr, k: Any, term: int = 1) -> Activation:
        """Return the activation of a term of layer k at a pre-activation."""
        name = self.function(term)
        return Activation(argument, 0, name, (k,) if name in self.own else ())

    def earlier(self, term: int) -> list[int]:
        """Return the terms whose activation flows into a later one of the same layer."""
        return [r for t, r in self.couplings if t == term]

    def activation(self, k: Any, term: int = 1) -> Activation:
        """Return `σ(B_k x'_0 + c_k)`."""
        return self.activated(self.B(k, term) * self.x(0) + self.c(k, term), k, term)

    def form(self, k: Any) -> MatrixExpr:
        """Return `P_k x'_0 + q_k + UAT^R_k`, which is the first two parts alone if a layer has no terms."""
        affine = self.P(k) * self.x(0) + self.q(k)
        return affine + self.UAT(k) if self.sizes else affine

    def pre_activation(self, k: Any, term: int = 1, x: MatrixExpr | None = None) -> MatrixExpr:
        """Return `W'_{k,2} x'_{k−1} + b'_{k,2}`, plus the activations of earlier terms of the same layer.

        Args:
            k: the layer.
            term: which of its terms.
            x: the expression that stands for `x'_{k−1}`.
        """
        x = self.x(k - 1) if x is None else x
        before = ((r, self.activated(self.pre_activation(k, r, x), k, r)) for r in self.earlier(term))
        affine = self.W(k, 2, term) * x + self.b(k, 2, term)
        return added(affine, (self.coupling(k, term, r) * activation for r, activation in before))

    def general_term(self, k: Any, x: MatrixExpr | None = None) -> MatrixExpr:
        """Return the right side of Eq. 20 for layer k, with as many terms as a layer has.

        Args:
            k: the layer.
            x: the expression that stands for `x'_{k−1}`.
        """
        x = self.x(k - 1) if x is None else x
        terms = (self.W(k, 3, t) * self.activated(self.pre_activation(k, t, x), k, t) for t in self.terms)
        return added(self.W(k, 1) * x + self.b(k, 3), terms)

    @property
    def equation_20(self) -> Definition:
        """`x'_{i+1} = (W'_{i+1,1} x'_i + b'_{i+1,3}) + W'_{i+1,3} σ(W'_{i+1,2} x'_i + b'_{i+1,2})`."""
        return Definition(self.x(i + 1), self.general_term(i + 1), (i,))

    def born(self, k: Any) -> MatrixExpr:
        """Return `W'_{k,3} σ(B_k x'_0 + c_k)`, the terms that layer k brings, summed."""
        return added(ZeroMatrix(self.width, 1), (self.W(k, 3, t) * self.activation(k, t) for t in self.terms))

    def carried(self, k: Any, layer: Any) -> MatrixExpr:
        """Return `C_k^{(layer)} σ(B_k x'_0 + c_k)`, the terms of layer k as a later layer has them, summed."""
        return added(ZeroMatrix(self.width, 1), (self.C(k, layer, t) * self.activation(k, t) for t in self.terms))

    @property
    def recursions(self) -> tuple[Definition, ...]:
        """The recursions of all parameters of the unrolled form, in two indices."""
        k, inside, biases, outside = i + 1, [], [], []
        for t in self.terms:
            couplings = (self.coupling(k, t, r) * self.activation(k, r) for r in self.earlier(t))
            bias = added(self.b(k, 2, t) + self.W(k, 2, t) * (self.q(i) + self.UAT(i)), couplings)
            inside.append(Definition(self.B(k, t), self.W(k, 2, t) * self.P(i), (i,)))
            biases.append(Definition(self.c(k, t), bias, (i,)))
            outside += [
                Definition(self.C(i, i, t), self.W(i, 3, t), (i,), ((Integer(1), i),)),
                Definition(self.C(j, k, t), self.W(k, 1) * self.C(j, i, t), (i, j), ((j, i),)),
            ]
        return (
            Definition(self.P(0), Identity(self.width)),
            Definition(self.P(k), self.W(k, 1) * self.P(i), (i,)),
            Definition(self.q(0), ZeroMatrix(self.width, 1)),
            Definition(self.q(k), self.W(k, 1) * self.q(i) + self.b(k, 3), (i,)),
            *inside,
            *outside,
            *([Definition(self.UAT(i), IndexedSum(self.carried(j, i), j, 1, i), (i,))] if self.sizes else []),
            *biases,  # which contain that sum
        )
