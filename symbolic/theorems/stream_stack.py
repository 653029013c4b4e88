"""Define the symbols of a stack with several residual streams, such as those of an encoder and its decoder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sympy import Identity, Integer, MatrixExpr, Symbol, ZeroMatrix

from symbolic.equality.definition import Definition
from symbolic.errors import SymbolicError
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.matrix import MatrixSum
from symbolic.expressions.parameter import Parameter, Variable, i, j, size_of
from symbolic.proof.hypotheses import HELD
from symbolic.proof.step import Hypothesis, Step

_MOST = 6  # streams or terms: their matrices grow with the square


def _sizes(letter: str, number: int) -> tuple[Symbol, ...]:
    return tuple(Symbol(f"{letter}_{k}", integer=True, positive=True) for k in range(1, number + 1))


@dataclass(frozen=True)
class StreamStack:
    """The symbols of a stack in which every layer reads and writes several residual streams.

    Streams and terms are numbered from 1. Layer `i` computes the activation of every term and then every stream,
    `a_{i,t} = σ(Σ_r F_{i,t,r} x'_{i-1,r} + f_{i,t} + Σ_u K_{i,t,u} a_{i,u})` and
    `x'_{i,s} = Σ_r U_{i,s,r} x'_{i-1,r} + b_{i,s} + Σ_t G_{i,s,t} a_{i,t}`. The closed form has the letters of
    `ResidualStack`, with the numbers of stream and term behind that of the layer.

    Args:
        widths: the length of every stream as a vector: symbols or numbers.
        neurons: the length of every term's activation: symbols or numbers.
        couplings: pairs `(t, u)` with `u < t`: the activation of term `u` flows into term `t` of the same layer.
        functions: the names of the terms' activation functions; `σ` for all if absent.
        absent: matrices that are zero, such as `("U", 1, 2)` where stream 1 reads nothing of stream 2.
    """

    widths: tuple[Any, ...] = _sizes("d", 2)
    neurons: tuple[Any, ...] = _sizes("n", 2)
    couplings: tuple[tuple[int, int], ...] = ((2, 1),)
    functions: tuple[str, ...] = ()
    absent: tuple[tuple[str, int, int], ...] = ()

    def __post_init__(self) -> None:
        for size in (*self.widths, *self.neurons):
            if size_of(size) is None:
                raise SymbolicError(f"a size is {size}: give positive integers or symbols")
        if not self.widths:
            raise SymbolicError("the stack has no stream: give the width of one or more")
        if self.functions and len(self.functions) != len(self.neurons):
            raise SymbolicError(f"{len(self.functions)} functions for {len(self.neurons)} terms: give each term one")
        for t, u in self.couplings:
            if not 1 <= u < t <= len(self.neurons):
                raise SymbolicError(
                    f"term {u} can't flow into term {t}: give pairs (t, u), u < t, of terms 1 to {len(self.neurons)}"
                )

    @classmethod
    def of(cls, streams: int, terms: int) -> "StreamStack":
        """Return the symbols of a number of streams and terms, each term coupled to every later one.

        Args:
            streams: the number of streams.
            terms: the number of terms of a layer, which may be 0.

        Raises:
            SymbolicError: if a number is none, or above 6.

        Example:
            >>> print(StreamStack.of(3, 1).layer[-1].left)
            x′ᵢ₊₁,₃
        """
        for name, number, least in (("streams", streams, 1), ("terms", terms, 0)):
            if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= _MOST:
                raise SymbolicError(f"the number of {name} is {number}: give a number from {least} to {_MOST}")
        couplings = tuple((t, u) for t in range(1, terms + 1) for u in range(1, t))
        return cls(_sizes("d", streams), _sizes("n", terms), couplings)

    @property
    def streams(self) -> range:
        """The numbers of the streams, from 1."""
        return range(1, len(self.widths) + 1)

    @property
    def terms(self) -> range:
        """The numbers of a layer's terms, from 1."""
        return range(1, len(self.neurons) + 1)

    def _matrix(self, letter: str, k: Any, row: int, column: int, shape: tuple[Any, Any]) -> MatrixExpr:
        if (letter, row, column) in self.absent:
            return ZeroMatrix(*shape)
        return Parameter(letter, (k, row, column), *shape)

    def x(self, k: Any, s: int) -> Parameter:
        """Return `x'_{k,s}`, stream s after layer k."""
        return Variable("x'", (k, s), self.widths[s - 1], 1)

    def a(self, k: Any, t: int) -> Parameter:
        """Return `a_{k,t}`, the activation of a term of layer k."""
        return Parameter("a", (k, t), self.neurons[t - 1], 1)

    def U(self, k: Any, s: int, r: int) -> MatrixExpr:
        """Return `U_{k,s,r}`, which takes stream r into stream s."""
        return self._matrix("U", k, s, r, (self.widths[s - 1], self.widths[r - 1]))

    def F(self, k: Any, t: int, r: int) -> MatrixExpr:
        """Return `F_{k,t,r}`, which takes stream r into a term's activation."""
        return self._matrix("F", k, t, r, (self.neurons[t - 1], self.widths[r - 1]))

    def G(self, k: Any, s: int, t: int) -> MatrixExpr:
        """Return `G_{k,s,t}`, which takes the activation of a term into stream s."""
        return self._matrix("G", k, s, t, (self.widths[s - 1], self.neurons[t - 1]))

    def K(self, k: Any, t: int, u: int) -> Parameter:
        """Return `K_{k,t,u}`, which takes the activation of an earlier term of the layer into a later one."""
        return Parameter("K", (k, t, u), self.neurons[t - 1], self.neurons[u - 1])

    def b(self, k: Any, s: int) -> Parameter:
        """Return `b_{k,s}`, the bias of stream s."""
        return Parameter("b", (k, s), self.widths[s - 1], 1)

    def f(self, k: Any, t: int) -> Parameter:
        """Return `f_{k,t}`, the bias inside a term's activation."""
        return Parameter("f", (k, t), self.neurons[t - 1], 1)

    def P(self, k: Any, s: int, r: int) -> Parameter:
        """Return `P_{k,s,r}`, which carries stream r of the input to stream s of layer k."""
        return Parameter("P", (k, s, r), self.widths[s - 1], self.widths[r - 1])

    def q(self, k: Any, s: int) -> Parameter:
        """Return `q_{k,s}`, the biases carried to stream s of layer k."""
        return Parameter("q", (k, s), self.widths[s - 1], 1)

    def B(self, k: Any, t: int, r: int) -> Parameter:
        """Return `B_{k,t,r}`, which carries stream r of the input into a term of layer k."""
        return Parameter("B", (k, t, r), self.neurons[t - 1], self.widths[r - 1])

    def c(self, k: Any, t: int) -> Parameter:
        """Return `c_{k,t}`, the bias inside a term of layer k, with all earlier terms in it."""
        return Parameter("c", (k, t), self.neurons[t - 1], 1)

    def C(self, k: Any, layer: Any, s: int, t: int) -> Parameter:
        """Return `C_{k,s,t}^{(layer)}`, which carries a term of layer k to stream s of a later layer."""
        return Parameter("C", (k, s, t), self.widths[s - 1], self.neurons[t - 1], (layer,))

    def UAT(self, k: Any, s: int) -> Parameter:
        """Return `UAT^R_{k,s}`, the sum of all terms in stream s at layer k."""
        return Parameter("UAT", (k, s), self.widths[s - 1], 1)

    def h(self, k: Any, t: int) -> Parameter:
        """Return `h_{k,t} := σ(Σ_r B_{k,t,r} x'_{0,r} + c_{k,t})`, a term of layer k as a function of the input."""
        return Parameter("h", (k, t), self.neurons[t - 1], 1)

    def activated(self, argument: MatrixExpr, t: int) -> Activation:
        """Return the activation of a term at a pre-activation."""
        return Activation(argument, 0, self.functions[t - 1] if self.functions else "σ")

    def earlier(self, t: int) -> list[int]:
        """Return the terms whose activation flows into a later one of the same layer."""
        return [u for later, u in self.couplings if later == t]

    def form(self, k: Any, s: int) -> MatrixExpr:
        """Return `Σ_r P_{k,s,r} x'_{0,r} + q_{k,s} + UAT^R_{k,s}`."""
        affine = MatrixSum(*(self.P(k, s, r) * self.x(0, r) for r in self.streams), self.q(k, s))
        return affine + self.UAT(k, s) if self.neurons else affine

    @property
    def layer(self) -> tuple[Definition, ...]:
        """The equations of layer `i + 1`: the activations of its terms, and its streams."""
        k = i + 1
        activations = (
            self.activated(
                MatrixSum(
                    *(self.F(k, t, r) * self.x(i, r) for r in self.streams),
                    self.f(k, t),
                    *(self.K(k, t, u) * self.a(k, u) for u in self.earlier(t)),
                ),
                t,
            )
            for t in self.terms
        )
        streams = (
            MatrixSum(
                *(self.U(k, s, r) * self.x(i, r) for r in self.streams),
                self.b(k, s),
                *(self.G(k, s, t) * self.a(k, t) for t in self.terms),
            )
            for s in self.streams
        )
        return (
            *(Definition(self.a(k, t), right, (i,)) for t, right in zip(self.terms, activations, strict=True)),
            *(Definition(self.x(k, s), right, (i,)) for s, right in zip(self.streams, streams, strict=True)),
        )

    def premises(self, words: str) -> tuple[Hypothesis, ...]:
        """Return the equations of a layer, behind a sentence that introduces them, and that parameters are held."""
        first, *rest = self.layer
        return Step(first.left, first.right, words, None), *(Step(d.left, d.right, "", None) for d in rest), HELD

    @property
    def recursions(self) -> tuple[Definition, ...]:
        """The recursions of all parameters of the closed form."""
        rules: list[Definition] = []
        for s in self.streams:
            for r in self.streams:
                start = Identity(self.widths[s - 1]) if s == r else ZeroMatrix(self.widths[s - 1], self.widths[r - 1])
                carried = (self.U(i + 1, s, u) * self.P(i, u, r) for u in self.streams)
                rules += [
                    Definition(self.P(0, s, r), start),
                    Definition(self.P(i + 1, s, r), MatrixSum(*carried), (i,)),
                ]
        for s in self.streams:
            biases = (self.U(i + 1, s, u) * self.q(i, u) for u in self.streams)
            rules += [
                Definition(self.q(0, s), ZeroMatrix(self.widths[s - 1], 1)),
                Definition(self.q(i + 1, s), MatrixSum(*biases, self.b(i + 1, s)), (i,)),
            ]
        for t in self.terms:
            for r in self.streams:
                inside = (self.F(i + 1, t, u) * self.P(i, u, r) for u in self.streams)
                rules.append(Definition(self.B(i + 1, t, r), MatrixSum(*inside), (i,)))
        for s in self.streams:
            for t in self.terms:
                later = (self.U(i + 1, s, u) * self.C(j, i, u, t) for u in self.streams)
                rules += [
                    Definition(self.C(i, i, s, t), self.G(i, s, t), (i,), ((Integer(1), i),)),
                    Definition(self.C(j, i + 1, s, t), MatrixSum(*later), (i, j), ((j, i),)),
                ]
        for s in self.streams if self.neurons else ():
            carried_terms = MatrixSum(*(self.C(j, i, s, t) * self.h(j, t) for t in self.terms))
            rules.append(Definition(self.UAT(i, s), IndexedSum(carried_terms, j, 1, i), (i,)))
        for t in self.terms:  # which contain that sum
            before = (self.F(i + 1, t, u) * (self.q(i, u) + self.UAT(i, u)) for u in self.streams)
            coupled = (self.K(i + 1, t, u) * self.h(i + 1, u) for u in self.earlier(t))
            inputs = (self.B(i + 1, t, r) * self.x(0, r) for r in self.streams)
            activated = self.activated(MatrixSum(*inputs, self.c(i + 1, t)), t)
            rules += [
                Definition(self.c(i + 1, t), MatrixSum(self.f(i + 1, t), *before, *coupled), (i,)),
                Definition(self.h(i + 1, t), activated, (i,)),
            ]
        return tuple(rules)

    @property
    def words(self) -> Mapping[str, str]:
        """The meanings of its letters; the numbers of streams and terms stand behind that of the layer."""
        return {
            "x'": "a stream after layer i, as a vector (those of layer 0 are the input)",
            "a": "the activation of a term of layer i",
            "U": "the matrix from a stream, the last index, into a stream of layer i",
            "F": "the matrix from a stream, the last index, into the activation of a term of layer i",
            "G": "the matrix from the activation of a term, the last index, into a stream of layer i",
            "K": "the matrix from the activation of a term, the last index, into a later term of layer i",
            "b": "the bias of a stream of layer i",
            "f": "the bias inside the activation of a term of layer i",
            "P": "the matrix from a stream of the input, the last index, to a stream in the closed form of layer i",
            "q": "the bias of a stream in the closed form of layer i",
            "B": "the matrix from a stream of the input, the last index, into the activation of a term of layer i",
            "C": "the matrix from a term of layer j, the last index, to a stream in the closed form of layer i",
            "h": "the activation of a term of layer i as a function of the input",
            "UAT": "a stream's terms of layers 1 to i, summed (UAT: universal approximation theorem; R: residual)",
            **{str(d): f"the length of stream {s} as a vector" for s, d in enumerate(self.widths, 1)},
            **{str(n): f"the length of the activation of term {t}" for t, n in enumerate(self.neurons, 1)},
        }
