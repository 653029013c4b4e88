"""Check the expression that a layer is written as, and write it as an expression of `vec(x)`."""

from collections.abc import Collection, Iterable, Sequence
from inspect import signature
from typing import Any, NamedTuple

from sympy import Basic, MatrixExpr, ZeroMatrix
from sympy.polys.polyerrors import BasePolynomialError

from symbolic.equality.collect import collect, collect_streams, nonlinearity_message
from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import factored, normal_form
from symbolic.errors import ShapeMismatch, SymbolicError, in_one_line
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import Index, IndexedSum
from symbolic.expressions.operations import Vec
from symbolic.expressions.parameter import Held, Ones, Parameter, Variable, Weight, checked_shape
from symbolic.theorems.residual_stack import ResidualStack, i

_COUNTS_LAYERS = {"i", "j", "k", "m"}  # the names of the form's own indices, on paper


def wrong_letters(expression: Basic, streams: Iterable[Parameter], shared: tuple[str, ...]) -> list[str]:
    """Return a sentence for every letter that would be read as something else than what it stands for."""
    parameters = expression.atoms(Parameter) - {*streams} - expression.atoms(Ones)
    letters = {parameter.letter for parameter in parameters}
    wrong = []
    kinds: dict[tuple[Any, ...], set[type]] = {}
    for parameter in parameters:
        kinds.setdefault((parameter.letter, parameter.indices), set()).add(type(parameter))
    if both := sorted(str(letter) for (letter, _), classes in kinds.items() if len(classes) > 1):
        wrong.append(
            f"{', '.join(both)} is held in one place and stands still in another: give one of them another letter"
        )
    if any(parameter.has(i) for parameter in parameters):
        wrong.append("i counts the layers: count by another index")
    if unknown := sorted(set(shared) - letters):
        wrong.append(f"{', '.join(unknown)} is shared, and no letter of the layer")
    return wrong


def check_names(keyword: str, names: Any) -> None:
    """Raise if something else is given than the names that a keyword takes."""
    if isinstance(names, str) or not isinstance(names, Collection) or not all(isinstance(name, str) for name in names):
        example = repr(names) if isinstance(names, str) else "'A'"
        raise SymbolicError(f"{keyword} is {names!r}: give a tuple of names, ({example},)")


def result_of(layer: Any, x: Any) -> Any:
    """Return what a layer makes of the stream, or raise that it can't be called, or computes what has no symbol."""
    if isinstance(layer, list | tuple):
        raise SymbolicError(
            f"the layer is a {type(layer).__name__}: give one function; where layers of {len(layer)} kinds take turns,"
            " a block is one of each, lambda x: second(first(x)), with letters of their own"
        )
    if not callable(layer):
        raise SymbolicError(f"the layer is {layer!r}: give a function of the stream")
    try:
        signature(layer).bind(None)
    except TypeError:
        names = ", ".join(signature(layer).parameters)
        raise SymbolicError(
            f"the layer is a function of ({names}): give one of the stream alone, and write what else it reads as a"
            " matrix, matrix('m', T, M), with shared=('m',) where it is the same in every layer"
        ) from None
    except ValueError:  # a function of a library in C, which has no signature
        pass
    try:
        result = layer(x)
        if isinstance(result, Basic):
            hash(result)  # sympy's apart() puts a list into an expression
        return result
    except SymbolicError:
        raise
    except (AttributeError, TypeError, ValueError, NotImplementedError, BasePolynomialError) as error:
        (reason, *_) = str(error).splitlines() or [type(error).__name__]
        raise SymbolicError(
            f"the layer can't be taken of a symbol ({reason}): write it with the operations of symbolic, an entrywise"
            " function as activation(z, 'tanh'), and an array as matrix('W', rows, columns)"
        ) from error


def checked_layer(layer: Any, x: Parameter, shared: tuple[str, ...], own: tuple[str, ...]) -> MatrixExpr:
    """Return the expression of a layer if it can be one."""
    for keyword, names in {"shared": shared, "own": own}.items():
        check_names(keyword, names)
    expression = result_of(layer, x)
    if not isinstance(expression, MatrixExpr):
        raise SymbolicError(
            f"the layer is {in_one_line(expression)}: give a function from the stream to a matrix expression"
        )
    if expression.shape != x.shape:
        raise ShapeMismatch(
            f"the stream is {x.shape[0]} × {x.shape[1]} and the layer makes it {expression.shape[0]} ×"
            f" {expression.shape[1]}: every layer of a stack has a stream of one shape; give the block that shape"
        )
    wrong = wrong_letters(expression, (x,), shared)
    if unknown := sorted(set(own) - {part.function for part in expression.atoms(Activation)}):
        wrong.append(f"{', '.join(unknown)} is every layer's own, and no activation function of the layer")
    if wrong:
        raise SymbolicError("; ".join(wrong))
    return expression


def with_own_indices(expression: MatrixExpr) -> MatrixExpr:
    """Return an expression whose sums have indices that aren't called like those of the layers."""
    names = {total.index.name for total in expression.atoms(IndexedSum)}
    free = (name for name in "hlpqrstuvw" if name not in names)
    while clash := next((t for t in expression.atoms(IndexedSum) if t.index.name in _COUNTS_LAYERS), None):
        index = Index(next(free), integer=True)
        expression = expression.xreplace({clash: IndexedSum(clash.at(index), index, clash.first, clash.last)})
    return expression


def of_layer(expression: Any, shared: tuple[str, ...], own: tuple[str, ...]) -> Any:
    """Return an expression whose parameters, and functions of some names, have the index of layer `i + 1`."""
    if not isinstance(expression, Basic) or isinstance(expression, Ones):
        return expression
    if isinstance(expression, Parameter):
        if i in expression.lower:  # a stream, the only one that has it
            return expression
        lower = expression.lower if expression.letter in shared else (i + 1, *expression.lower)
        rows, columns = expression.shape
        kind = Held if isinstance(expression, Held) else Weight
        return kind(expression.letter, lower, rows, columns, expression.upper)
    if not expression.has(Parameter, Activation):
        return expression
    whole = expression.func(*(of_layer(part, shared, own) for part in expression.args))
    return whole.of_layer(i + 1) if isinstance(whole, Activation) and whole.function in own else whole


def stream_of_shape(shape: Any) -> Parameter:
    """Return `x_i` of a shape, or `x'_i` of one column."""
    try:
        rows, columns = shape or (ResidualStack().width, 1)
    except (TypeError, ValueError):
        raise SymbolicError(f"the shape is {shape!r}: give rows and columns, (d, 1) or (N, M)") from None
    rows, columns = checked_shape("x", rows, columns)
    return Variable("x'" if columns == 1 else "x", (i,), rows, columns)


def vectorised(expression: MatrixExpr, x: Parameter, vector: Parameter) -> MatrixExpr:
    """Return a layer of a matrix as an expression of `vec(x)`."""

    def on_vec(part: MatrixExpr) -> MatrixExpr:
        return normal_form(Vec(part)).expression().xreplace({Vec(x): vector})

    whole = on_vec(expression)
    if whole.has(x):
        word = next(word for word in normal_form(expression).words if on_vec(word.expression()).has(x))
        raise SymbolicError(nonlinearity_message(word, x))
    return whole


class Inside(NamedTuple):
    """A pre-activation, `Σ inner x + bias + Σ coupling σ(an earlier one)`, of one stream or several."""

    activation: Activation
    inner: tuple[MatrixExpr, ...]
    bias: MatrixExpr
    couplings: dict[int, MatrixExpr]


def visit(activation: Activation, streams: Sequence[Parameter], visited: list[Inside]) -> int:
    """Append an activation to the list, behind those inside it, and return its number, from 1."""
    for number, known in enumerate(visited, 1):
        if known.activation == activation:
            return number
    if activation.order:
        raise SymbolicError(
            f"{activation} is a slope of the stream, and no layer's activation: hold it, as a parameter of its own"
        )
    collected = collect_streams(activation.argument, streams)
    couplings = {visit(term.activation, streams, visited): term.outer for term in collected.terms}
    visited.append(Inside(activation, collected.paths, collected.offset, couplings))
    return len(visited)


class Reading(NamedTuple):
    """A layer as an instance of Eq. 20.

    Args:
        stack: the symbols of a stack of such layers, with as many terms as the layer has activations.
        parameters: the definitions of `W'_{i+1,k}` and `b'_{i+1,k}`.
    """

    stack: ResidualStack
    parameters: tuple[Definition, ...]


def read(layer: MatrixExpr, x: Parameter, relations: tuple[Definition, ...] = ()) -> Reading:
    """Sort a layer by the stream: linear path, biases, and the matrices and biases of every activation."""
    # An activation inside another one of the same layer is a term of its own, which flows into the other.
    whole = collect(layer, x, relations)
    visited: list[Inside] = []
    outer = {visit(term.activation, (x,), visited): term.outer for term in whole.terms}
    couplings = tuple((t, r) for t, inside in enumerate(visited, 1) for r in sorted(inside.couplings))
    names = tuple(inside.activation.function for inside in visited)
    stack = ResidualStack(
        x.shape[0],
        tuple(inside.activation.shape[0] for inside in visited),
        names if set(names) - {"σ"} else (),
        couplings,
        tuple(sorted({inside.activation.function for inside in visited if inside.activation.indices})),
    )
    k = i + 1
    table: list[tuple[Parameter, MatrixExpr]] = [(stack.W(k, 1), whole.path), (stack.b(k, 3), whole.offset)]
    for t, inside in enumerate(visited, 1):
        width = (x.shape[0], inside.activation.shape[0])
        table += [
            (stack.W(k, 2, t), inside.inner[0]),
            (stack.b(k, 2, t), inside.bias),
            (stack.W(k, 3, t), outer.get(t, ZeroMatrix(*width))),
            *((stack.coupling(k, t, r), inside.couplings[r]) for r in stack.earlier(t)),
        ]
    return Reading(stack, tuple(Definition(left, factored(right), (i,)) for left, right in table))
