"""Derive the residual terms, the proof and the closed form of a layer, written as an expression of the stream."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sympy import MatrixExpr, Symbol, sympify

from symbolic.blocks.base import BaseBlock
from symbolic.blocks.layer import checked_layer, of_layer, read, stream_of_shape, vectorised, with_own_indices
from symbolic.blocks.parts import parts_of, with_names
from symbolic.blocks.relations import at_both_inputs, at_sizes, relations_of_layer, with_relations
from symbolic.equality.definition import Definition
from symbolic.errors import warn_renamed
from symbolic.expressions.parameter import Parameter, Variable
from symbolic.proof.derivation import Derivation
from symbolic.proof.hypotheses import equation_20, held_parameters, moving_parameters
from symbolic.proof.legend import kind_of
from symbolic.proof.step import Hypothesis, Step, equality, let
from symbolic.proof.typesetting import article
from symbolic.theorems.closed_form import prove, recursions
from symbolic.theorems.consequences import collapse, contributions
from symbolic.theorems.difference import difference, with_moving_parameters
from symbolic.theorems.residual_stack import i
from symbolic.theorems.unrolled import unroll

if TYPE_CHECKING:
    from symbolic.evaluation.comparison import Activations, Numbers


class Block(BaseBlock):
    """One layer, written as an expression of the stream: its residual terms read off, proved and unrolled.

    Every parameter is a layer's own, and gets the layer's index. A parameter that depends on the input (a pattern, a
    scale, a gate) is held: it is treated as a constant, with its value on this input.

    Args:
        layer: a function from the stream to what the layer makes of it.
        shape: rows and columns of the stream: `(d, 1)` for a vector, `(N, M)` for tokens and features.
        name: its name.
        shared: letters of parameters that all layers have in common, such as an encoder's memory.
        own: names of activation functions of which every layer has its own, `σ_{i+1}`.
        relations: hypotheses on the parameters of every layer, such as `Definition(H * ones(N), ones(N))`.

    Raises:
        ShapeMismatch: if the layer changes the stream's shape, or its matrices don't fit.
        SymbolicError: if the layer isn't affine in the stream and its activations: what has to be held is named.

    Example:
        >>> from symbolic import Block, activation, matrix
        >>> A, F, G = matrix("A", 4, 4), matrix("F", 8, 4), matrix("G", 4, 8)
        >>> block = Block(lambda x: x + A * x + G * activation(F * x), shape=(4, 1))
        >>> print(block.residual_terms().verdict)
        1 of 1 checks hold, with 6 definitions
        >>> print(block.prove().verdict)
        8 of 8 checks hold, by induction, with 9 definitions

    Source: Wang & Li, Eq. 20 and 28–34.
    """

    # Of a block that was read from a program: the array and the meaning of every letter, and the activation functions.
    values: Mapping[str, Any] = MappingProxyType({})
    legend: Mapping[str, Any] = MappingProxyType({})
    words: Mapping[str, str] = MappingProxyType({})  # what letters mean, where that is known
    functions: Mapping[str, Callable[[Any], Any]] = MappingProxyType({})

    def __init__(
        self,
        layer: Callable[[Any], MatrixExpr],
        shape: tuple[Any, Any] | None = None,
        name: str = "block",
        shared: tuple[str, ...] = (),
        own: tuple[str, ...] = (),
        relations: tuple[Definition, ...] = (),
    ) -> None:
        x = stream_of_shape(shape)
        (rows, columns), written = x.shape, checked_layer(layer, x, shared, own)
        self._as_given = written, x, shared, own, relations
        self.relations = relations_of_layer(relations, written, x, shared)
        written = with_own_indices(of_layer(written, shared, own))
        vector = x if columns == 1 else Variable("x'", (i,), rows * columns, 1)
        whole = written if columns == 1 else vectorised(written, x, vector)
        self._parts = parts_of(Definition(x.xreplace({i: i + 1}), written, (i,)), x, vector)
        self._named = tuple(part.left for parts in self._parts for part in parts)
        self.name, self.stream, self.written = name, x, written
        self.stack, self.parameters = read(whole, vector, self.relations)
        self.layer = Definition(self.stack.x(i + 1), whole, (i,))

    @classmethod
    def from_function(cls, fn: Callable[[Any], Any], x: Any) -> "Block":
        """Read a layer from the program of a marked JAX function, so that the derivation is of the code that runs.

        `x'_{i+1} = W'_{i+1,1} x'_i + …` with a matrix on `vec(x)` for every array and every mark that multiplies what
        flows, its letter from its name, and a vector for everything that is added. `block.legend` says what each letter
        stands for; `block.values` and `block.functions` are what `block.verify` asks for.

        Args:
            fn: a pure function of one array with marks, which returns an array of the same shape; a module, say.
            x: the stream that goes in: what is held is held at its value there.

        Raises:
            SymbolicError: naming the operation that isn't linear or has no symbol, its source line, the missing mark.
            ShapeMismatch: if the function changes the stream's shape.

        Example:
            >>> import jax.numpy as jnp
            >>> import duat_jax as duat
            >>> F, G = jnp.ones((2, 3)), jnp.ones((3, 2))
            >>> layer, x = lambda x: x + duat.term(jnp.tanh, x @ F, "mlp") @ G, jnp.ones((4, 2))
            >>> block = Block.from_function(layer, x)
            >>> print(block.written)
            x′ᵢ + G′ᵢ₊₁ tanh(F′ᵢ₊₁ x′ᵢ)
            >>> block.verify(layer, x, block.values, block.functions).holds
            True

        Source: Wang & Li, Eq. 20.
        """
        from symbolic.evaluation.program import read_layer

        layer = read_layer(fn, x)
        block = cls(lambda stream: layer.result.xreplace({layer.stream: stream}), (layer.stream.shape[0], 1))
        block.values, block.functions, block.legend = layer.values, layer.functions, layer.legend
        block.words = {"x'": "the residual stream after layer i, its entries row by row"}
        return block

    @classmethod
    def of(cls, fn: Callable[[Any], Any], x: Any) -> "Block":
        """Read a layer from a function: the old name of `from_function`, for one release."""
        warn_renamed("Block.of", "Block.from_function")
        return cls.from_function(fn, x)

    def with_sizes(self, sizes: Mapping[Symbol, Any]) -> "Block":
        """Return the block with numbers for symbols among its sizes.

        Args:
            sizes: a number for each.
        """
        if not sizes:
            return self
        written, x, shared, own, relations = self._as_given
        numbers = {symbol: sympify(number) for symbol, number in sizes.items()}
        rows, columns = (size.xreplace(numbers) for size in x.shape)
        as_given = self.name, shared, own, at_sizes(relations, numbers)
        return Block(lambda stream: written.xreplace({**numbers, x: stream}), (rows, columns), *as_given)

    def residual_terms(self) -> Derivation:
        """Return `W'_{i+1,k}` and `b'_{i+1,k}`, read off, with the check that Eq. 20 with them is the layer."""
        steps = [*(let(part.left, part.right, "one layer") for part in self._parts.written), *chain(*self._on_vec)]
        steps += [*(let(entry.left, entry.right, "read off") for entry in self._read_off), self._equation_20]
        parts = [(*letter.rstrip("]").partition("[")[::2], words) for letter, words in self._meanings().items()]
        meanings = [f"{stem}_{{{','.join(filter(None, ('i+1', k)))}}}: {words}." for stem, k, words in parts]
        title, held = f"The residual terms of the {self.name}", (held_parameters(self.held),)
        return self._printed(self._explained(Derivation(title, tuple(steps), " ".join(meanings), premises=held)))

    _read_off = cached_property(lambda self: with_names(self.parameters, self._parts.on_vec))

    @cached_property
    def _on_vec(self) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        """The layer as one of the stream's entries, if the stream is a matrix: definitions and checks."""
        return self._parts.steps(self.stream, self.stack.x(i))

    @cached_property
    def _equation_20(self) -> Step:
        """The check that Eq. 20 with the parameters that were read off is the layer."""
        s, k = self.stack, i + 1
        name = f"the layer is a residual term, {equation_20(s.equation_20)}"
        return equality(s.x(k), s.general_term(k), name, (*self._parts.on_vec, *self._read_off, *self.relations))

    @property
    def _premises(self) -> tuple[Hypothesis, ...]:
        """The hypotheses of theorems on a stack of such layers."""
        return *self._parts.premises(f"Every layer is the {self.name}"), held_parameters(self.held)

    def _stated(self, derivation: Derivation) -> Derivation:
        """Return a theorem on a stack as one on this block's layers, which its first two premises are about."""
        vectors, checks = self._on_vec
        steps, given = (*checks, *derivation.steps), (*vectors, *derivation.given)
        return replace(derivation, steps=steps, given=given, premises=(*self._premises, *derivation.premises[2:]))

    def _lettered(self, derivation: Derivation) -> Derivation:
        """Return a derivation in which the layer's parameters stay letters, defined before everything else."""
        read_off = (let(entry.left, entry.right, "read off") for entry in self._read_off)
        return self._explained(self._stated(replace(derivation, given=(*read_off, *derivation.given))))

    def _meanings(self) -> dict[str, str]:
        """Return the meaning of every letter of a block that was read from a program, in words."""
        return {letter: str(meaning).replace("_", " ") for letter, meaning in self.legend.items()}

    def _explained(self, derivation: Derivation) -> Derivation:
        """Return a derivation with what this block's letters mean, so that no theorem's own letter is meant by them."""
        own = {parameter.letter: kind_of(parameter) for parameter in (*self.held, *self.weights)}
        stream = {self.stream.letter: "the residual stream after layer i"} if self.stream.shape[1] != 1 else {}
        return replace(derivation, words={**own, **stream, **self.words, **self._meanings()})

    def _instance(self, derivation: Derivation, title: str, *, first: tuple[Step, ...] = ()) -> Derivation:
        """Return a derivation with this block's parameters put in."""
        table = {(entry.left.letter, *entry.left.lower[1:]): entry.right for entry in self.parameters}

        def put(parameter: Parameter) -> MatrixExpr:
            right = None if parameter.of_layer else table.get((parameter.letter, *parameter.lower[1:]))
            return parameter if right is None else right.xreplace({i: parameter.lower[0] - 1})

        whole = self._stated(replace(derivation, title=title, steps=(*first, *derivation.steps)))
        return self._explained(whole.with_parameters(put))

    def _printed(self, derivation: Derivation) -> Derivation:
        """Return a derivation in the letters on paper, with the relations that its steps used among its premises."""
        return with_relations(derivation, self.relations).with_parameters(self.on_paper)

    def _consequence(self, derivation: Derivation, name: str) -> Derivation:
        """Return a theorem on Eq. 20 as one on this block, which is first shown to be Eq. 20."""
        return self._printed(self._instance(derivation, f"The {name} of the {self.name}", first=(self._equation_20,)))

    def recursions(self) -> Derivation:
        """Return the recursions of the closed form's parameters, with this block's own put in."""
        return self._consequence(recursions(self.stack), "recursions")

    def prove(self, *, letters: bool = False) -> Derivation:
        """Prove `x'_i = P_i x'_0 + q_i + UAT^R_i` for every depth, by induction, for this very block.

        Args:
            letters: whether `W'_{i+1,k}` and `b'_{i+1,k}` stay letters, as `residual_terms` defines them.
        """
        title = f"The closed form at every depth, for the {self.name}"
        *named, layer = self._parts.on_vec
        parameters = self._read_off if letters else self.parameters
        proof = prove(self.stack, layer=layer, parameters=(*named, *parameters, *self.relations), title=title)
        return self._printed(self._lettered(proof) if letters else self._instance(proof, title))

    def unroll(self, depth: int) -> Derivation:
        """Return the closed form at a depth, compared with the network of such blocks.

        Args:
            depth: number of layers.
        """
        *named, layer = self._parts.on_vec
        known, title = (*named, *self._read_off, *self.relations), f"The unrolled form of the {self.name}"
        return self._printed(self._lettered(unroll(depth, self.stack, layer, known, title)))

    def collapse(self) -> Derivation:
        """Return the collapse to one affine map, with this block's parameters put in."""
        return self._consequence(collapse(self.stack), "collapse")

    def contributions(self) -> Derivation:
        """Return the split of a read-out into contributions, with this block's parameters put in."""
        return self._consequence(contributions(self.stack), "contributions")

    def difference(self) -> Derivation:
        """Return the difference form of two inputs, between which held parameters change, for this block."""
        layer, theorem = self._parts.on_vec, difference(self.stack)
        first = at_both_inputs(self._equation_20, self.stack, (*layer, *self._read_off), self.relations)
        title, steps = f"The difference of two inputs, for the {self.name}", (*first, *theorem.steps)
        premises = (*self._premises[:-1], moving_parameters(self.held, self.weights))
        own = replace(self._stated(replace(theorem, title=title, steps=steps)), premises=premises)
        return self._printed(with_moving_parameters(self._explained(own), self._read_off, layer))

    def verify(
        self,
        functions: Callable[[Any], Any] | Sequence[Callable[[Any], Any]],
        x: Any,
        weights: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        activation: "Activations | Sequence[Activations]",
        sizes: Mapping[Symbol, int] | None = None,
    ) -> "Numbers":
        """Compare the block, its parameters and the closed form with a function, at the function's own numbers.

        Where all of it agrees at this input, it is compared at a second one too, which is drawn at random: what stands
        still in the block has to be the same there.

        Args:
            functions: the layer as a marked JAX function, or one for each layer of a stack. What is held here is
                marked there under the same name, `hold(pattern, "H")`, and every activation is a term. Every value that
                is held there has a held letter here.
            x: the stream that enters, in the block's shape.
            weights: an array for every weight, by its letter; one mapping for each layer of a stack. A held letter that
                has no mark of its own is a function here, of the values that are held, by name.
            activation: `σ`, or a function for every name; one of either for each layer, where layers have their own.
            sizes: numbers for the symbols among the block's sizes that no array's shape tells, such as of heads.

        Returns:
            Every comparison with its difference and tolerance.

        Raises:
            SymbolicError: naming every array that is missing, or the place of an error in the functions' own code.
            ShapeMismatch: naming every array of another shape, with the shape that was expected.
            NumbersDiffer: if the function's numbers aren't those of the block; the message shows where.

        Example:
            >>> import jax, jax.numpy as jnp, numpy as np
            >>> import duat_jax as duat
            >>> from symbolic import Block, activation, matrix
            >>> block = Block(lambda x: x + matrix("G", 2, 3) * activation(matrix("F", 3, 2) * x), shape=(2, 1))
            >>> G, F = jnp.array([[1.0, 2.0, 0.0], [0.0, 1.0, 3.0]]), jnp.array([[1.0, 1.0], [2.0, 0.0], [0.0, -1.0]])
            >>> layer = lambda x: x + G @ duat.term(jnp.tanh, F @ x, "mlp")
            >>> block.verify(layer, jnp.array([0.5, -1.0]), {"G": G, "F": F}, jnp.tanh).holds
            True
        """
        from symbolic.evaluation.comparison import compare

        return self._certified(compare(self, functions, x, weights, activation, sizes))

    def document(self, depth: int | None = None) -> str:
        """Return a LaTeX file that stands alone: the block, and the theorem of its closed form with its proof.

        Args:
            depth: number of layers at which the closed form is written out too; not at all if absent.
        """
        return article(self.prove(letters=True), *([] if depth is None else [self.unroll(depth)]))
