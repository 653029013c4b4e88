"""Represent the values of a program that are linear in the stream as matrices times vectors."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from sympy import Expr, MatrixExpr, Rational

from symbolic.errors import SymbolicError
from symbolic.evaluation.bridge import name_of
from symbolic.evaluation.letters import HELD, LetterMeaning, Source, letter_of
from symbolic.expressions.matrix import MatrixProduct, MatrixSum
from symbolic.expressions.parameter import Held, Parameter

_PLAIN = 1000
"""A number whose denominator is smaller is written as it is."""


@dataclass(frozen=True, eq=False)
class Known:
    """A value that doesn't flow: a weight, a bias, something held, or what is computed of these.

    Args:
        value: its value on this input.
        sources: the arrays and marks it is made of.
    """

    value: Any
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, eq=False)
class Flow:
    """A value that flows: a linear map of a vector that is written already.

    Args:
        base: the vector.
        argument: the array of which it is `vec`.
        result: the array that the map makes of it.
        carry: the map, from array to array.
        sources: the factors that multiply it.
        operations: the primitives that it consists of.
    """

    base: MatrixExpr
    argument: jax.ShapeDtypeStruct
    result: jax.ShapeDtypeStruct
    carry: Callable[[Array], Array] = lambda x: x
    sources: tuple[Source, ...] = ()
    operations: tuple[str, ...] = ()

    def dense(self) -> Array:
        """Return the matrix of the map, which acts on `vec` of the argument."""
        size = prod(self.argument.shape)
        basis = jnp.eye(size, dtype=self.argument.dtype).reshape(size, *self.argument.shape)
        return jax.vmap(lambda e: self.carry(e).reshape(-1), out_axes=1)(basis)


Value = Known | Flow


def vector_of(base: MatrixExpr, array: Any) -> Flow:
    """Return a written vector as a value that flows."""
    like = jax.ShapeDtypeStruct(array.shape, array.dtype)
    return Flow(base, like, like)


def union(groups: Iterable[tuple]) -> tuple:
    """Return the elements of several tuples, each once and in order."""
    return tuple(dict.fromkeys(item for group in groups for item in group))


class Values(Mapping[str, Array]):
    """The array of every letter by its name, computed when it is asked for: matrices grow like the stream's square.

    Args:
        sources: the computation of each.
        at: reads them again, at another input.
    """

    def __init__(self, sources: Mapping[str, Callable[[], Array]], at: Callable[[Array], "Values"]) -> None:
        self._sources, self.at = sources, at

    def __getitem__(self, name: str) -> Array:
        return self._sources[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


def _same_map(flow: Flow, matrix: Array) -> bool:
    """Tell whether a map has a matrix, number by number; a random vector shows most that don't."""
    rows, columns = prod(flow.result.shape), prod(flow.argument.shape)
    if matrix.shape != (rows, columns):
        return False
    vector = jnp.asarray(np.random.default_rng(0).normal(size=columns), flow.argument.dtype)
    applied, expected = flow.carry(vector.reshape(flow.argument.shape)).reshape(-1), matrix @ vector
    near = jnp.allclose(applied, expected, rtol=0.0, atol=1e-3 * float(jnp.abs(expected).max(initial=0.0)) + 1e-30)
    return bool(near) and np.array_equal(flow.dense(), matrix)


def _multiple_of_the_identity(flow: Flow) -> Expr | None:
    """Return the number `c` of a map `c I`, if it is one that is written easily."""
    matrix = np.asarray(flow.dense())
    rows, columns = matrix.shape
    number = Rational(float(matrix[0, 0]))
    fits = rows == columns and number.q < _PLAIN and np.array_equal(matrix, matrix[0, 0] * np.eye(rows))
    return number if fits else None


class Symbols:
    """The letters that are in use, with what each stands for."""

    def __init__(self) -> None:
        self._numbers: Counter[str] = Counter()
        self._written: dict[Value, MatrixExpr] = {}
        self._maps: list[tuple[Flow, Parameter]] = []
        self._entries: dict[Parameter, tuple[LetterMeaning, Callable[[], Array]]] = {}

    def _new(self, columns: int, value: Value, array: Callable[[], Array], rows: int) -> Parameter:
        letter = letter_of(value.sources)
        letter = f"{letter.lower() if isinstance(value, Known) else letter}'"
        self._numbers[letter] += 1
        kind = Held if any(source.kind == HELD for source in value.sources) else Parameter
        parameter = kind(letter, (self._numbers[letter],), rows, columns)
        operations = value.operations if isinstance(value, Flow) else ()
        self._entries[parameter] = LetterMeaning(value.sources, operations), array
        return parameter

    def vector(self, value: Value) -> MatrixExpr:
        """Return a value as a vector, written once."""
        kind = value.value.dtype if isinstance(value, Known) else value.result.dtype
        if np.issubdtype(kind, np.complexfloating):
            names = ", ".join(str(source.name) for source in value.sources) or "a complex number"
            raise SymbolicError(f"{names} is complex, and the letters are real: write it on real and imaginary parts")
        if value not in self._written:
            self._written[value] = self._known(value) if isinstance(value, Known) else self._flow(value)
        return self._written[value]

    def _known(self, value: Known) -> MatrixExpr:
        return self._new(1, value, lambda: jnp.ravel(value.value), np.size(value.value))

    def _flow(self, flow: Flow) -> MatrixExpr:
        if not flow.operations:
            return flow.base
        if not flow.sources and (number := _multiple_of_the_identity(flow)) is not None:
            return MatrixProduct(number, flow.base)
        return self._matrix(flow) * flow.base

    def _matrix(self, flow: Flow) -> MatrixExpr:
        """Return the matrix of a map: a letter that stands for it already, or its transpose, or a new one."""
        for known, letter in self._maps:
            if set(known.sources) == set(flow.sources) and known.argument.dtype == flow.argument.dtype:
                matrix = known.dense()
                if _same_map(flow, matrix):
                    return letter
                if _same_map(flow, matrix.T):
                    return letter.T
        letter = self._new(prod(flow.argument.shape), flow, flow.dense, prod(flow.result.shape))
        self._maps.append((flow, letter))
        return letter

    def then(
        self, flow: Flow, carry: Callable[[Array], Array], result: Any, factors: tuple[Source, ...], operation: str
    ) -> Flow:
        """Apply a further linear operation to a value."""
        if factors and flow.sources:
            flow = vector_of(self.vector(flow), flow.result)
        before = flow.carry
        return Flow(
            flow.base,
            flow.argument,
            jax.ShapeDtypeStruct(result.shape, result.dtype),
            lambda x: carry(before(x)),
            flow.sources or factors,
            union((flow.operations, (operation,))),
        )

    def total(self, parts: Sequence[tuple[int, Value]], result: Any) -> Value:
        """Return a sum of values."""
        flows = [(sign, flow) for sign, flow in parts if isinstance(flow, Flow)]
        rearranged = {None if flow.sources else flow.base for _, flow in flows}
        if len(flows) == len(parts) > 1 and len(rearranged) == 1 and None not in rearranged:
            carries = [(sign, flow.carry) for sign, flow in flows]
            operations = union((*(flow.operations for _, flow in flows), ("add",)))
            first = flows[0][1]
            merged = Flow(
                first.base,
                first.argument,
                jax.ShapeDtypeStruct(result.shape, result.dtype),
                lambda x: jnp.stack([sign * carry(x) for sign, carry in carries]).sum(0),
                operations=operations,
            )
            parts = [(1, merged)]
        if len(parts) == 1 and parts[0][0] == 1:
            return parts[0][1]
        return vector_of(MatrixSum(*(MatrixProduct(sign, self.vector(value)) for sign, value in parts)), result)

    def alone(self) -> dict[Parameter, Parameter]:
        """Return the final name of every parameter: the only one of its letter has no number."""
        return {p: type(p)(p.letter, p.lower if self._numbers[p.letter] > 1 else (), *p.shape) for p in self._entries}

    def values(self, at: Callable[[Array], Values]) -> Values:
        """Return the array of every letter, by its name."""
        return Values({name_of(last): self._entries[p][1] for p, last in self.alone().items()}, at)

    def legend(self) -> dict[str, LetterMeaning]:
        """Return the meaning of every letter, by its name."""
        return {name_of(last): self._entries[p][0] for p, last in self.alone().items()}
