"""Read a layer in symbols from the program of a marked function.

Every array and every mark that multiplies what flows becomes a matrix on `vec(x)`, together with the reshapes and sums
around it, and every one that is added becomes a vector. That the function is affine in what flows is proved first.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend import core
from sympy import MatrixExpr

from duat_jax.errors import DuatError
from duat_jax.nn import ACTIVATIONS
from duat_jax.transform import marks
from duat_jax.transform.calls import SubProgram, scan_of, sub_program
from duat_jax.transform.diagnosis import advice, source_line
from duat_jax.transform.keys import Occurrence
from duat_jax.transform.liveness import ProgramQuestion, liveness
from duat_jax.transform.primitives import apply, linear_operands
from duat_jax.transform.program import Path
from duat_jax.transform.recording import Recording, record
from symbolic.errors import ShapeMismatch, SymbolicError
from symbolic.evaluation.flow import Flow, Known, Symbols, Value, Values, union, vector_of
from symbolic.evaluation.letters import HELD, OFFSET, Arrays, LetterMeaning, Source
from symbolic.expressions.activation import Activation
from symbolic.expressions.parameter import Parameter

Activate = Callable[[Array], Array]

_SIGNS = {"add": (1, 1), "add_any": (1, 1), "sub": (1, -1), "neg": (-1,)}
"""Sums, with the sign of each summand."""

_NO_SYMBOL = {
    "cond": "use a Python branch, or jnp.where with a condition that is held",
    "shard_map": "read the function on one device",
}
"""Affine operations that aren't followed, and what to write instead."""


class Layer(NamedTuple):
    """A layer that was read from a program.

    Args:
        stream: the stream that goes in, as a vector.
        result: the layer's output.
        values: the array of every letter by its name.
        functions: the activation functions by name.
        legend: the meaning of every letter.
    """

    stream: Parameter
    result: MatrixExpr
    values: Values
    functions: dict[str, Activate]
    legend: dict[str, LetterMeaning]


def read_layer(fn: Callable[[Any], Any], x: Any) -> Layer:
    """Read a marked function's own program as an expression of the stream.

    Example:
        >>> import jax.numpy as jnp
        >>> W = jnp.array([[1.0, 2.0], [0.0, 3.0]])
        >>> layer = read_layer(lambda x: x + x @ W, jnp.ones((3, 2)))
        >>> print(layer.result, "|", layer.legend["W'"])
        x′ + W′ x′ | W (weight)
    """
    try:
        # JAX keeps the program of a function that it has seen, while the weights of a module may change.
        recording = record(partial(fn))(x)
        affinity = recording.traced.affinity
        terms = affinity.upstream(None)
        affinity.require(*terms)
    except DuatError as error:
        raise SymbolicError(f"the function has no symbols: {error}") from error
    arrays = recording.arguments
    given, made = ([str(jax.typeof(a)) for a in jax.tree.leaves(tree)] for tree in (arrays, recording.value))
    if len(given) != 1 or given != made or not jnp.issubdtype(arrays[0].dtype, jnp.floating):
        raise ShapeMismatch(
            f"the function takes {', '.join(given)} and gives {', '.join(made)}: every layer of a stack has a stream of"
            " one shape; give a function of one array of real numbers to an array of the same shape and dtype"
        )
    stream = Parameter("x'", (), arrays[0].size, 1)
    walk = _Walk(recording, Arrays(fn), terms)
    (result,) = walk.run(
        recording.program.jaxpr, (), (), recording.constants, [vector_of(stream, arrays[0])], "an unknown line"
    )
    symbols = walk.symbols
    written = symbols.vector(result).xreplace(symbols.alone())
    values = symbols.values(lambda other: read_layer(fn, other).values)
    return Layer(stream, written, values, walk.functions, symbols.legend())


class _Walk:
    """One walk over a program, with the symbolic value of each of its variables."""

    def __init__(self, recording: Recording, arrays: Arrays, terms: Sequence[Occurrence]) -> None:
        self.recording, self.arrays = recording, arrays
        self.symbols = Symbols()
        self.functions: dict[str, Activate] = {}
        self._texts: dict[str, str] = {}
        self._inside: dict[Occurrence, MatrixExpr] = {}
        held = frozenset(recording.program.of_kind(marks.HOLD, marks.OFFSET))
        inside = frozenset(term.site for term in terms)
        activations = frozenset(site._replace(kind=marks.ACTIVATION) for site in inside)
        self.live = {
            **liveness(recording.program, ProgramQuestion(held | inside, wanted=activations, value=False, affine=True)),
            **liveness(recording.program, ProgramQuestion(held | activations, wanted=inside, affine=True)),
        }

    def run(
        self,
        jaxpr: core.Jaxpr,
        path: Path,
        index: tuple[int, ...],
        constants: Sequence[Any],
        arguments: Sequence[Value | None],
        line: str,
    ) -> list[Any]:
        """Return the results of a program, or of one that it calls; `None` for a result that nothing needs."""
        known = [Known(array, self.arrays.sources(array)) for array in constants]
        values: dict[Any, Value | None] = dict(zip(jaxpr.constvars, known, strict=True))
        values |= dict(zip(jaxpr.invars, arguments, strict=True))

        def read(atom: Any) -> Value | None:
            return Known(atom.val) if isinstance(atom, core.Literal) else values.get(atom)

        for n, equation in enumerate(jaxpr.eqns):
            here = (*path, n)
            if here not in self.live:
                continue
            operands = [read(v) for v in equation.invars]
            results: Sequence[Value | None]
            own_line = source_line(equation) or line
            inner = sub_program(equation)
            if here in self.recording.program.sites:
                results = [self._mark(jaxpr, here, index, operands[0], values)]
            elif inner is None and None in operands:  # inside an activation
                results = [None] * len(equation.outvars)
            elif inner is None or all(isinstance(operand, Known) for operand in operands):
                results = self._apply(equation, operands, own_line)
            elif equation.primitive.name == "scan":
                results = self._scan(equation, inner, here, index, operands, own_line)
            else:
                results = self.run(inner.jaxpr, here, index, inner.consts, operands, own_line)
            values |= dict(zip(equation.outvars, results, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _mark(
        self, jaxpr: core.Jaxpr, here: Path, index: tuple[int, ...], operand: Any, values: Mapping[Any, Any]
    ) -> Value | None:
        step = Occurrence(self.recording.program.sites[here], index)
        site = step.site
        match site.kind:
            case marks.HOLD | marks.OFFSET:
                kind = HELD if site.kind == marks.HOLD else OFFSET
                return Known(self.recording.at(step), (Source(str(step), kind),))
            case marks.PRE_ACTIVATION:
                self._inside[step] = self.symbols.vector(operand)
                # The equations of the activation stay together, as one function.
                return None
            case marks.ACTIVATION:
                first, array = self.recording.program.pre_activation_of(here), self.recording.at(step)
                inner = [n for n in range(first + 1, here[-1]) if (*here[:-1], n) in self.live]
                held = self.recording.program.sites
                equations = [jaxpr.eqns[n] for n in inner if (*here[:-1], n) not in held]
                z, result = jaxpr.eqns[first].outvars[0], jaxpr.eqns[here[-1]].invars[0]
                known = {v: value.value for v, value in values.items() if isinstance(value, Known)}
                name = self._named(_activation(equations, z, result, known), array)
                inside = self._inside[Occurrence(site._replace(kind=marks.PRE_ACTIVATION), index)]
                return vector_of(Activation(inside, 0, name), array)
        return operand

    def _apply(self, equation: core.JaxprEqn, operands: Sequence[Any], line: str) -> list[Value]:
        name = equation.primitive.name
        flowing = [k for k, operand in enumerate(operands) if isinstance(operand, Flow)]
        if not flowing:
            sources = union(operand.sources for operand in operands)
            return [Known(value, sources) for value in apply(equation, [operand.value for operand in operands])]
        together = linear_operands(equation, flowing)
        if together is None or not set(flowing) <= set(together):
            remedy = _NO_SYMBOL.get(name, advice(equation))
            raise SymbolicError(f"{line}: {name} has no symbol yet where something flows through it: {remedy}")
        avals: Any = [v.aval for v in equation.invars]
        added = [k for k in together if isinstance(operands[k], Known)]
        factors = union(operand.sources for k, operand in enumerate(operands) if k not in together)
        at_zero = [
            jnp.zeros(avals[k].shape, avals[k].dtype) if k in together else operand.value
            for k, operand in enumerate(operands)
        ]

        def through(k: int, n: int, value: Any) -> Any:
            return apply(equation, [*at_zero[:k], value, *at_zero[k + 1 :]])[n]

        constants = apply(equation, [operands[k].value if k in added else value for k, value in enumerate(at_zero)])
        sources = union(operands[k].sources for k in added)
        results = []
        for n, variable in enumerate(equation.outvars):
            aval: Any = variable.aval
            parts: list[tuple[int, Value]] = []
            for k in flowing:
                if name in _SIGNS and avals[k].shape == aval.shape:
                    parts.append((_SIGNS[name][k], operands[k]))
                else:
                    parts.append((1, self.symbols.then(operands[k], partial(through, k, n), aval, factors, name)))
            if sources or np.any(np.asarray(constants[n])):
                sign = _SIGNS[name][added[0]] if name in _SIGNS else 1
                parts.append((sign, Known(sign * constants[n], union((sources, factors)))))
            results.append(self.symbols.total(parts, aval))
        return results

    def _scan(
        self,
        equation: core.JaxprEqn,
        body: SubProgram,
        here: Path,
        index: tuple[int, ...],
        operands: Sequence[Any],
        line: str,
    ) -> list[Any]:
        first, carries, length, reverse, _ = scan_of(equation)
        carried, sliced = list(operands[first : first + carries]), operands[first + carries :]
        stacked: dict[int, list[Any]] = {}
        for step in reversed(range(length)) if reverse else range(length):
            slices = [self._slice(operand, step) for operand in sliced]
            results = self.run(
                body.jaxpr, here, (*index, step), body.consts, [*operands[:first], *carried, *slices], line
            )
            carried, stacked[step] = results[:carries], results[carries:]
        columns = [[stacked[step][n] for step in range(length)] for n in range(len(equation.outvars) - carries)]
        return [*carried, *(self._stack(column) for column in columns)]

    def _slice(self, operand: Any, step: int) -> Any:
        if isinstance(operand, Known):
            sources = tuple(source._replace(name=f"{source.name}[{step}]") for source in operand.sources)
            return Known(operand.value[step], sources)
        if operand is None:
            return None
        result = jax.ShapeDtypeStruct(operand.result.shape[1:], operand.result.dtype)
        return self.symbols.then(operand, lambda x: x[step], result, (), "slice")

    def _stack(self, column: list[Any]) -> Any:
        if None in column:
            return None
        known = [value for value in column if isinstance(value, Known)]
        if len(known) == len(column):
            return Known(jnp.stack([value.value for value in known]), union(value.sources for value in known))
        shape = next(value.result for value in column if isinstance(value, Flow))
        result = jax.ShapeDtypeStruct((len(column), *shape.shape), shape.dtype)

        def place(step: int, value: Array) -> Array:
            return jnp.zeros(result.shape, result.dtype).at[step].set(value)

        parts: list[tuple[int, Value]] = [
            (1, self.symbols.then(value, partial(place, step), result, (), "stack"))
            if isinstance(value, Flow)
            else (1, Known(place(step, value.value), value.sources))
            for step, value in enumerate(column)
        ]
        return self.symbols.total(parts, result)

    def _named(self, function: Activate, array: Any) -> str:
        """Return the name of an activation function: one name for one function, and no other's."""
        text = _text(function, array)
        for name, known in ACTIVATIONS.items():
            if text == _text(known, array):
                self.functions[name.replace("_", "-")] = known
                return name.replace("_", "-")
        name = self._texts.setdefault(text, f"sigma-{len(self._texts) + 1}" if self._texts else "σ")
        self.functions.setdefault(name, lambda column: function(column.reshape(array.shape)).reshape(column.shape))
        return name


def _activation(equations: Sequence[core.JaxprEqn], z: Any, result: Any, known: Mapping[Any, Any]) -> Activate:
    """Return what equations compute of their variable `z`, with the values of the other variables that are known."""

    def activation(argument: Array) -> Array:
        values = {**known, z: argument}
        for equation in equations:
            operands = [v.val if isinstance(v, core.Literal) else values[v] for v in equation.invars]
            values |= dict(zip(equation.outvars, apply(equation, operands), strict=True))
        return values[result]

    return activation


def _text(function: Activate, array: Any) -> str:
    """Return the operations of a function, constants and all: functions with the same text are the same."""
    return jax.jit(lambda z: function(z)).lower(jax.ShapeDtypeStruct(array.shape, array.dtype)).as_text()
