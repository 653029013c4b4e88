"""Derive the matrices, the proof and the closed form of a layer of several streams, written as expressions of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from sympy import MatrixExpr, Tuple, ZeroMatrix

from symbolic.blocks.base import BaseBlock
from symbolic.blocks.layer import Inside, check_names, of_layer, result_of, visit, with_own_indices, wrong_letters
from symbolic.equality.collect import collect_streams
from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import factored, normal_form
from symbolic.errors import ShapeMismatch, SymbolicError, in_one_line
from symbolic.expressions.constructors import letter_of
from symbolic.expressions.operations import Vec
from symbolic.expressions.parameter import Inner, Parameter, Variable
from symbolic.proof.derivation import Derivation
from symbolic.proof.hypotheses import held_parameters
from symbolic.proof.legend import kind_of
from symbolic.proof.step import Step, equality, let
from symbolic.proof.typesetting import article
from symbolic.theorems.residual_stack import i
from symbolic.theorems.stream_stack import StreamStack
from symbolic.theorems.streams import streams
from symbolic.theorems.unrolled_streams import unroll_streams

if TYPE_CHECKING:
    from symbolic.evaluation.comparison import Activations, Numbers


class StreamBlock(BaseBlock):
    """One layer of several residual streams, each written as an expression of all: read off, proved and compared.

    Every parameter is a layer's own, and gets the layer's index. A parameter that depends on the input is held, as in
    `Block`.

    Args:
        layer: a function from the streams by name to what the layer makes of each, by the same names.
        shape: rows and columns of every stream by its name, which is its letter: `{"x": (N, M), "m": (K, M)}`.
        name: its name.
        shared: letters of parameters that all layers have in common.

    Raises:
        ShapeMismatch: if the layer changes a stream's shape, or its matrices don't fit.
        SymbolicError: if the layer isn't affine in the streams and its activations: what has to be held is named.

    Example:
        >>> from symbolic import StreamBlock, held, matrix
        >>> D, V = held("D", 3, 5), matrix("V", 4, 4)
        >>> block = StreamBlock(lambda s: {"x": s["x"] + D * s["m"] * V, "m": s["m"]}, {"x": (3, 4), "m": (5, 4)})
        >>> print(block.parameters[1].left, "=", block.parameters[1].right)
        Uᵢ₊₁,₁,₂ = Dᵢ₊₁ ⊗ Vᵢ₊₁.T
        >>> block.prove().verified
        True

    Source: the extension of Wang & Li, Eq. 20 and 33, to several streams.
    """

    def __init__(
        self,
        layer: Callable[[dict[str, Any]], Mapping[str, MatrixExpr]],
        shape: Mapping[str, tuple[Any, Any]],
        name: str = "block of several streams",
        shared: tuple[str, ...] = (),
    ) -> None:
        self.streams = self._named = _streams(shape)
        self.name, self.names = name, tuple(shape)
        written = _checked(layer, dict(zip(self.names, self.streams, strict=True)), shared)
        self.layer = tuple(
            Definition(x.xreplace({i: i + 1}), with_own_indices(of_layer(each, shared, ())), (i,))
            for x, each in zip(self.streams, written, strict=True)
        )
        self.written = Tuple(*(each.right for each in self.layer))
        self.stack, self._on_vec, self.parameters = _read(self.layer, self.streams)

    @property
    def _activations(self) -> tuple[Definition, ...]:
        return self.stack.layer[: len(self.stack.terms)]

    @cached_property
    def _names_of_entries(self) -> tuple[Definition, ...]:
        """The definitions of the streams' entries as vectors, for layer `i` and so for every layer."""
        return tuple(Definition(self.stack.x(i, s), Vec(x), (i,)) for s, x in enumerate(self.streams, 1))

    @cached_property
    def _instance(self) -> tuple[Step, ...]:
        """The checks that the layer, on the entries of the streams, is one of `StreamStack`."""
        s, k = self.stack, i + 1
        known = (*self._names_of_entries, *self.layer)
        general = s.layer[len(s.terms) :]
        steps = [let(each.left, each.right, "the entries of the stream as a vector") for each in self._names_of_entries]
        steps += [equality(each.left, each.right, "on x' = vec(x)", known) for each in self._on_vec]
        using = (*self._on_vec, *self._activations, *self.parameters)
        name = "so the layer is one of several streams"
        return *steps, *(equality(s.x(k, r), general[r - 1].right, name, using) for r in s.streams)

    @property
    def _read_off(self) -> tuple[Step, ...]:
        return (
            *(let(each.left, each.right, "read off") for each in self.parameters),
            *(let(each.left, each.right, "the activation of a term") for each in self._activations),
        )

    def _derivation(self, title: str, steps: Sequence[Step], given: Sequence[Step] = ()) -> Derivation:
        """Return a derivation on this block: its equations as premises, and what its letters mean."""
        sentence = f"Every layer is the {self.name}"
        premises = [Step(d.left, d.right, "" if n else sentence, None) for n, d in enumerate(self.layer)]
        own = {parameter.letter: kind_of(parameter) for parameter in (*self.held, *self.weights)}
        own |= {stream.letter: f"the stream {stream.letter} after layer i" for stream in self.streams}
        words = {letter: words for letter, words in self.stack.words.items() if letter not in own}
        derivation = Derivation(
            title,
            tuple(steps),
            given=tuple(given),
            premises=(*premises, held_parameters(self.held)),
            words={**words, **own},
        )
        return derivation.with_parameters(self.on_paper)

    def residual_terms(self) -> Derivation:
        """Return the matrices and biases of the layer, read off, with the check that they give the layer."""
        return self._derivation(f"The matrices of the {self.name}", self._instance, self._read_off)

    def prove(self) -> Derivation:
        """Prove the closed form of every stream at every depth, by induction, for this very block."""
        theorem = streams(self.stack)
        steps = (*self._instance, *theorem.steps)
        return self._derivation(
            f"The closed form of every stream, for the {self.name}", steps, (*self._read_off, *theorem.given)
        )

    def unroll(self, depth: int) -> Derivation:
        """Return the closed form of every stream at a depth, compared with the network of such blocks.

        Args:
            depth: number of layers.

        Raises:
            SymbolicError: if the streams read one another so often that there are more than 256 paths.
        """
        theorem = unroll_streams(depth, self.stack)
        title, steps = f"The unrolled form of the {self.name} at depth {depth}", (*self._instance, *theorem.steps)
        return self._derivation(title, steps, (*self._read_off, *theorem.given))

    def verify(
        self,
        functions: Callable[[Any], Any] | Sequence[Callable[[Any], Any]],
        x: Mapping[str, Any],
        weights: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        activation: "Activations | Sequence[Activations]",
    ) -> "Numbers":
        """Compare the block, its matrices and the closed form with a function, at the function's own numbers.

        As `Block.verify` does, at this input and at a second one, which is drawn at random.

        Args:
            functions: the layer as a marked JAX function of a dictionary of streams, or one for each layer of a stack.
            x: the arrays of the streams that enter, by name.
            weights: an array for every weight, by its letter; one mapping for each layer of a stack.
            activation: `σ`, or a function for every name.

        Returns:
            Every comparison with its difference and tolerance.

        Raises:
            SymbolicError: naming every array that is missing, or the place of an error in the functions' own code; if a
                size of the block is a symbol.
            ShapeMismatch: naming every array of another shape, with the shape that was expected.
            NumbersDiffer: if the function's numbers aren't those of the block; the message shows where.

        Example:
            >>> import jax.numpy as jnp
            >>> import duat_jax as duat
            >>> from symbolic import StreamBlock, activation, matrix
            >>> G, F = matrix("G", 2, 3), matrix("F", 3, 1)
            >>> block = StreamBlock(
            ...     lambda s: {"x": s["x"] + G * activation(F * s["m"]), "m": s["m"]}, {"x": (2, 1), "m": (1, 1)}
            ... )
            >>> g, f = jnp.array([[1.0, 2.0, 0.0], [0.0, 1.0, 3.0]]), jnp.array([[1.0], [2.0], [0.5]])
            >>> layer = lambda s: {"x": s["x"] + g @ duat.term(jnp.tanh, f @ s["m"], "mlp"), "m": s["m"]}
            >>> x = {"x": jnp.array([[0.5], [-1.0]]), "m": jnp.array([[2.0]])}
            >>> block.verify(layer, x, {"G": g, "F": f}, jnp.tanh).holds
            True
        """
        from symbolic.evaluation.stream_comparison import compare_streams

        return self._certified(compare_streams(self, functions, x, weights, activation))

    def document(self, depth: int | None = None) -> str:
        """Return a LaTeX file that stands alone: the block, and the theorem of its closed form with its proof.

        Args:
            depth: number of layers at which the closed form is written out too; not at all if absent.
        """
        return article(self.prove(), *([] if depth is None else [self.unroll(depth)]))


class _ByName(dict[str, Inner]):
    """The streams by their names, which says so where a layer reads one that isn't there."""

    def __missing__(self, name: Any) -> Inner:
        raise SymbolicError(f"the layer reads a stream {name!r}: the streams are {', '.join(self)}")


def _streams(shape: Any) -> tuple[Inner, ...]:
    """Return the symbols of the streams if their shapes are given by name."""
    if not isinstance(shape, Mapping) or not shape:
        raise SymbolicError(
            f"the shape is {shape!r}: give that of every stream by its name, {{'x': (N, M), 'm': (K, M)}}"
        )
    for name, size in shape.items():
        if not isinstance(size, tuple) or len(size) != 2:
            raise SymbolicError(f"the shape of {name} is {size!r}: give rows and columns, (d, 1) or (N, M)")
    streams = {name: Inner(letter_of(name), (i,), *size) for name, size in shape.items()}
    for first, second in combinations(streams, 2):
        if streams[first].letter == streams[second].letter:
            raise SymbolicError(f"{first} and {second} are one letter: give every stream its own")
    return tuple(streams.values())


def _checked(layer: Any, streams: dict[str, Inner], shared: tuple[str, ...]) -> tuple[MatrixExpr, ...]:
    """Return what a layer makes of every stream, in the streams' order, if it can be a layer."""
    check_names("shared", shared)
    result = result_of(layer, _ByName(streams))
    if not isinstance(result, Mapping) or {*result} != {*streams}:
        given = f"streams called {', '.join(map(str, result))}" if isinstance(result, Mapping) else in_one_line(result)
        raise SymbolicError(f"the layer gives {given}: give one expression for each of {', '.join(streams)}, by name")
    for name, stream in streams.items():
        if not isinstance(result[name], MatrixExpr):
            raise SymbolicError(f"the layer makes {name} {in_one_line(result[name])}: give a matrix expression")
        if result[name].shape != stream.shape:
            raise ShapeMismatch(
                f"the stream {name} is {stream.shape[0]} × {stream.shape[1]} and the layer makes it"
                f" {result[name].shape[0]} × {result[name].shape[1]}: every layer of a stack has streams of the same"
                " shapes; give the block those shapes"
            )
    written = tuple(result[name] for name in streams)
    if wrong := wrong_letters(Tuple(*written), streams.values(), shared):
        raise SymbolicError("; ".join(wrong))
    letters = {p.letter for each in written for p in each.atoms(Parameter) - {*streams.values()}}
    if both := sorted(letters & {*streams}):
        raise SymbolicError(f"{', '.join(both)} is a stream and a parameter: give one of them another letter")
    return written


class _ReadStreams(NamedTuple):
    """A layer as one of `StreamStack`: the symbols, the layer on the entries of the streams, and its matrices."""

    stack: StreamStack
    on_vec: tuple[Definition, ...]
    parameters: tuple[Definition, ...]


def _read(layer: Sequence[Definition], streams: Sequence[Inner]) -> _ReadStreams:
    """Sort a layer by the entries of its streams: paths, biases, and the matrices of every activation."""
    widths = [stream.shape[0] * stream.shape[1] for stream in streams]
    vectors = [Variable("x'", (i, s), width, 1) for s, width in enumerate(widths, 1)]
    entries = {x if x.shape[1] == 1 else Vec(x): v for x, v in zip(streams, vectors, strict=True)}
    on_vec = [normal_form(Vec(each.right)).expression().xreplace(entries) for each in layer]
    for whole, each in zip(on_vec, layer, strict=True):
        if moving := [str(x) for x in streams if whole.has(x)]:
            raise SymbolicError(
                f"{each.right} isn't linear in {', '.join(moving)}: the last factor of a product flows, and what"
                " multiplies it has to be held, as a parameter of its own, held('H', rows, columns)"
            )
    visited: list[Inside] = []
    collected = [collect_streams(whole, vectors) for whole in on_vec]
    outer = [{visit(term.activation, vectors, visited): term.outer for term in each.terms} for each in collected]
    neurons = tuple(inside.activation.shape[0] for inside in visited)
    couplings = tuple((t, u) for t, inside in enumerate(visited, 1) for u in sorted(inside.couplings))
    names = tuple(inside.activation.function for inside in visited)
    stack = StreamStack(tuple(widths), neurons, couplings, names if {*names} - {"σ"} else ())
    k = i + 1
    table: list[tuple[Any, MatrixExpr]] = []
    for s, of_stream in enumerate(collected, 1):
        table += [(stack.U(k, s, r), path) for r, path in enumerate(of_stream.paths, 1)]
        table.append((stack.b(k, s), of_stream.offset))
    for t, inside in enumerate(visited, 1):
        table += [(stack.F(k, t, r), inner) for r, inner in enumerate(inside.inner, 1)]
        table.append((stack.f(k, t), inside.bias))
        table += [(stack.K(k, t, u), coupling) for u, coupling in sorted(inside.couplings.items())]
        for s, factors in enumerate(outer, 1):
            table.append((stack.G(k, s, t), factors.get(t, ZeroMatrix(widths[s - 1], neurons[t - 1]))))
    read_off = [(left, factored(right)) for left, right in table]
    zero = [left for left, right in read_off if right.is_ZeroMatrix and left.letter in ("U", "F", "G")]
    return _ReadStreams(
        replace(stack, absent=tuple((left.letter, *map(int, left.lower[1:])) for left in zero)),
        tuple(Definition(stack.x(k, s), whole, (i,)) for s, whole in enumerate(on_vec, 1)),
        tuple(Definition(left, right, (i,)) for left, right in read_off if left not in zero),
    )
