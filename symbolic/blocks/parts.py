"""Write a layer in parts, with names for the sums that it repeats, such as the stream between attention and the MLP."""

from dataclasses import replace
from typing import NamedTuple

from sympy import Basic, MatAdd, MatMul, MatrixExpr

from symbolic.equality.collect import collect
from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import equal, normal_form
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import Index, IndexedSum
from symbolic.expressions.matrix import MatrixSum
from symbolic.expressions.operations import Vec
from symbolic.expressions.parameter import Inner, Parameter
from symbolic.proof.step import Step, equality, let
from symbolic.theorems.residual_stack import i

_LETTERS = "yuvz"


class Parts(NamedTuple):
    """One layer as definitions: of the sums that it repeats, and then of the stream behind it.

    Args:
        written: as the layer is written.
        on_vec: as equations of the entries of the stream and of those sums, as vectors.
    """

    written: tuple[Definition, ...]
    on_vec: tuple[Definition, ...]

    def premises(self, words: str) -> tuple[Step, ...]:
        """Return the equations of the layer as hypotheses, with words before the first."""
        *named, layer = self.written
        steps = [
            *(Step(each.left, each.right, "", None, ":=") for each in named),
            Step(layer.left, layer.right, "", None),
        ]
        return replace(steps[0], rule=words), *steps[1:]

    def steps(self, x: Parameter, vector: Parameter) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        """Return the definition of `vec(x)`, and the checks of the layer on it; nothing if the stream is a vector."""
        if x == vector:
            return (), ()
        names = [Definition(vector, Vec(x), (i,))]
        names += [Definition(of.left, Vec(part.left), (i,)) for part, of in zip(*self, strict=True)][:-1]
        return (
            tuple(let(each.left, each.right, "the entries of the stream as a vector") for each in names),
            tuple(equality(each.left, each.right, "on x' = vec(x)", (*names, *self.written)) for each in self.on_vec),
        )


def parts_of(layer: Definition, x: Parameter, vector: Parameter) -> Parts:
    """Return the parts of a layer that is written as an expression of the stream, with its entries as a vector."""
    written = with_named_sums(layer)
    if x == vector:
        return Parts(written, written)
    names = {x: vector, layer.left: vector.xreplace({i: i + 1})}
    names |= {part.left: _on_vec(part.left) for part in written[:-1]}
    vectors = {Vec(each): name for each, name in names.items()}
    return Parts(
        written,
        tuple(
            replace(part, left=names[part.left], right=normal_form(Vec(part.right)).expression().xreplace(vectors))
            for part in written
        ),
    )


def _on_vec(matrix: Parameter) -> Inner:
    rows, columns = matrix.shape
    return Inner(f"{matrix.letter}'", matrix.lower, rows * columns, 1)


def with_named_sums(layer: Definition) -> tuple[Definition, ...]:
    """Return a layer with a name for every sum that stands both inside and outside of an activation: the names first.

    Example:
        >>> from symbolic.blocks.transformer import transformer_block
        >>> for part in with_named_sums(transformer_block("paper-residual").layer):
        ...     print(part.left, ":=", part.right)
        y′ᵢ₊₁ := x′ᵢ + A′ᵢ₊₁ x′ᵢ
        x′ᵢ₊₁ := y′ᵢ₊₁ + F′ᵢ₊₁,₂ σ(F′ᵢ₊₁,₁ y′ᵢ₊₁ + f′ᵢ₊₁,₁) + f′ᵢ₊₁,₂
    """
    named, right, stream = [], layer.right, layer.left
    taken = {parameter.parts.bare for parameter in right.atoms(Parameter)}
    for letter in (each for each in _LETTERS if each not in taken):
        if not (repeated := _repeated(right)):
            break
        shortest = min(repeated, key=lambda part: len(str(part)))
        name = Inner(letter + stream.parts.primes, stream.lower, *shortest.shape)
        named.append(Definition(name, shortest, layer.variables))
        right = _put(right, shortest, name)
    return (*named, Definition(stream, right, layer.variables))


def _repeated(expression: MatrixExpr) -> list[MatrixSum]:
    """Return the sums inside of activations that are a part of a longer sum."""
    sums = expression.atoms(MatrixSum)
    inside = {part for each in expression.atoms(Activation) for part in each.atoms(MatrixSum)}
    return [part for part in inside if _is_whole(part) and any({*part.args} < {*other.args} for other in sums)]


def _is_whole(part: MatrixSum) -> bool:
    """Return whether an expression is the same for every index of a sum that it stands in."""
    return part.atoms(Index) <= {total.index for total in part.atoms(IndexedSum)}


def _put(part: Basic, whole: MatrixSum, name: Inner) -> Basic:
    """Return an expression with a name for a sum, where it is a part of a longer one too."""
    if not isinstance(part, MatrixExpr) or not part.has(MatrixSum):
        return part
    if isinstance(part, MatrixSum) and {*whole.args} <= {*part.args}:
        return MatrixSum(name, *(_put(summand, whole, name) for summand in part.args if summand not in whole.args))
    return part.func(*(_put(inner, whole, name) for inner in part.args))


def with_names(parameters: tuple[Definition, ...], layer: tuple[Definition, ...]) -> tuple[Definition, ...]:
    """Return the parameters of a layer, each with the names of those before it that stand in it or are its factor."""
    *halves, last = layer
    activations = last.right.atoms(Activation)
    factors = [collect(each.argument, half.left).path for half in halves for each in activations]
    names: dict[MatrixExpr, MatrixExpr] = {}
    named = []
    for entry in parameters:
        right = entry.right.xreplace(names)
        products = (
            factor * name
            for value, name in names.items()
            for factor in factors
            if right == entry.right
            and (factor.shape[0], *value.shape) == (right.shape[0], factor.shape[1], right.shape[1])
            if equal(factor * value, right)
        )
        named.append(replace(entry, right=next(products, right)))
        names |= {entry.right: entry.left} if isinstance(entry.right, MatAdd | MatMul) else {}
    return tuple(named)
