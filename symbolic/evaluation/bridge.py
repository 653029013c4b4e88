"""Turn any derived expression into a JAX function of real parameters."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from sympy import Expr, Integer, MatMul, MatrixExpr, Symbol

from symbolic.equality.definition import Definition, lookup
from symbolic.errors import ShapeMismatch, SymbolicError
from symbolic.evaluation.interpreter import Arithmetic, Interpreter
from symbolic.evaluation.rounding import Sized, with_sizes
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.parameter import Ones, Parameter

Activate = Callable[[Array], Array]


def name_of(parameter: Parameter) -> str:
    """Return the name under which a parameter's array is given: letter, lower indices, upper indices.

    Example:
        >>> from symbolic.theorems.residual_stack import ResidualStack
        >>> name_of(ResidualStack().W(2, 1)), name_of(ResidualStack().C(1, 2))
        ("W'[2,1]", 'C[1](2)')
    """
    lower, upper = (",".join(str(k) for k in indices) for indices in (parameter.lower, parameter.upper))
    return parameter.letter + (f"[{lower}]" if lower else "") + (f"({upper})" if upper else "")


def needed(*expressions: MatrixExpr, definitions: Iterable[Definition] = ()) -> dict[Parameter, str]:
    """Return the parameters that expressions need arrays for, with their names, which several may share."""
    definitions, names, visited = tuple(definitions), {}, set()
    waiting: list[Any] = [*reversed(expressions)]
    while waiting:
        part = waiting.pop()
        if part in visited or isinstance(part, Ones):
            continue
        visited.add(part)
        if isinstance(part, Parameter):
            meaning = lookup(part, definitions, {})
            if meaning is None:
                names[part] = name_of(part)
            else:
                waiting.append(meaning)
        elif isinstance(part, IndexedSum):
            waiting += reversed(part.terms())
        else:  # a product is computed from the right
            waiting += part.args if isinstance(part, MatMul) else reversed(part.args)
    return names


def parameters_of(*expressions: MatrixExpr, definitions: Iterable[Definition] = ()) -> dict[str, Parameter]:
    """Return the parameters that expressions need arrays for, by name.

    Example:
        >>> from symbolic.theorems.residual_stack import ResidualStack
        >>> s = ResidualStack()
        >>> sorted(parameters_of(s.P(2), definitions=s.recursions))
        ["W'[1,1]", "W'[2,1]"]
    """
    return {name: parameter for parameter, name in needed(*expressions, definitions=definitions).items()}


def _with_slope(activation: Activate) -> tuple[Activate, Activate]:
    return activation, lambda z: jax.jvp(activation, (z,), (jnp.ones_like(z),))[1]


def _number(coefficient: Expr) -> float:
    if not coefficient.is_number:
        unknown = ", ".join(sorted(map(str, coefficient.free_symbols)))
        raise SymbolicError(f"{unknown} in a coefficient has no value: write scalar('{unknown}'), or a number")
    return float(coefficient)


def _arithmetic(activation: Activate | Mapping[str, Activate], dtype: jnp.dtype) -> Arithmetic:
    return Arithmetic(
        multiply=lambda a, b: jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST),
        hadamard=lambda a, b: a * b,
        transpose=lambda a: a.T,
        kronecker=jnp.kron,
        diagonal=lambda v: jnp.diag(v[:, 0]),
        vec=lambda a: a.reshape(-1, 1),
        identity=lambda size: jnp.eye(size, dtype=dtype),
        zeros=lambda rows, columns: jnp.zeros((rows, columns), dtype),
        scale=lambda c, a: jnp.asarray(_number(c), dtype) * a,
        ones=lambda size: jnp.ones((size, 1), dtype),
        entry=lambda a, i, j: a[i : i + 1, j : j + 1],
        power=lambda a, exponent: a ** (int(exponent) if exponent.is_Integer else _number(exponent)),
        activations=(
            _with_slope(activation)
            if callable(activation)
            else {name: _with_slope(function) for name, function in activation.items()}
        ),
    )


def _sizes(given: Mapping[Parameter, Array]) -> dict[Symbol, Expr]:
    """Return the number behind every symbol in a shape, from the shapes of the arrays."""
    sizes: dict[Symbol, Expr] = {}
    wrong, checks = [], []
    for parameter, array in given.items():
        shape, name = array.shape, name_of(parameter)
        vector, number = (parameter.shape[1] == 1, parameter.shape == (1, 1))
        if not (len(shape) == 2 or (len(shape) == 1 and vector) or (len(shape) == 0 and number)):
            wrong.append(f"{name} has {len(shape)} axes")
            continue
        checks.append((name, shape, parameter.shape))
    for _, shape, written in checks:
        for size, number in zip(written, shape, strict=False):
            if isinstance(size, Symbol):
                sizes.setdefault(size, Integer(number))
    for name, shape, written in checks:
        expected = tuple(size.xreplace(sizes) for size in written)[: len(shape)]
        if any(known.is_Integer and int(known) != number for known, number in zip(expected, shape, strict=True)):
            wrong.append(f"{name} is {' × '.join(map(str, shape))}, expected {' × '.join(map(str, expected))}")
    if wrong:
        raise ShapeMismatch("; ".join(wrong) + ": give arrays whose shapes are those of the symbols")
    return sizes


def to_jax(
    expression: "MatrixExpr | Mapping[str, MatrixExpr]",
    activation: "Activate | Mapping[str, Activate]",
    definitions: Iterable[Definition] = (),
) -> Callable[[Mapping[Any, Array]], Any]:
    """Return an expression as a function of its parameters' arrays, which composes with `jax.jit`, `grad` and `vmap`.

    Args:
        expression: a matrix expression whose indices and bounds are numbers, or several by name, which are evaluated
            together.
        activation: `σ`, entry by entry; a function for every name where expressions have several, `σ[2]` for the one of
            layer 2.
        definitions: definitions of parameters; their arrays needn't be given.

    Returns:
        A function of a mapping from parameters, or from their names, to arrays, matrices `[rows, columns]` and
        vectors `[rows]`; it returns a matrix, or a vector where the expression is one; a dictionary of them for several
        expressions.

    Raises:
        SymbolicError: when called, naming every array that is missing.
        ShapeMismatch: when called, naming every array whose shape doesn't fit the symbols.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from symbolic.theorems.residual_stack import ResidualStack
        >>> s = ResidualStack()
        >>> two_layers = to_jax(s.P(2) * s.x(0), jax.nn.relu, s.recursions)
        >>> arrays = {"W'[1,1]": 2 * jnp.eye(2), "W'[2,1]": 3 * jnp.eye(2), "x'[0]": jnp.array([1.0, -1.0])}
        >>> two_layers(arrays).tolist()
        [6.0, -6.0]
    """
    if isinstance(expression, MatrixExpr):
        alone = _of_arrays({"": expression}, activation, definitions)
        return lambda arrays: alone(arrays)[""]
    return _of_arrays(expression, activation, definitions)


def with_sizes_to_jax(
    expressions: Mapping[str, MatrixExpr],
    activation: "Activate | Mapping[str, Activate]",
    definitions: Iterable[Definition] = (),
) -> Callable[[Mapping[Any, Array]], dict[str, Sized]]:
    """Return several expressions as a function of arrays, as `to_jax` does, with the sizes of their entries."""
    return _of_arrays(expressions, activation, definitions, of_sizes=True)


def _of_arrays(
    expressions: Mapping[str, MatrixExpr],
    activation: "Activate | Mapping[str, Activate]",
    definitions: Iterable[Definition],
    of_sizes: bool = False,
) -> Callable[[Mapping[Any, Array]], dict[str, Any]]:
    """Return expressions as a function of their parameters' arrays, of values alone or with their sizes."""
    definitions = tuple(definitions)
    parameters = needed(*expressions.values(), definitions=definitions)

    def function(arrays: Mapping[Any, Array]) -> dict[str, Any]:
        keys: dict[Parameter, Any] = {p: p if p in arrays else name for p, name in parameters.items()}
        missing = [f"{n} ({p.shape[0]} × {p.shape[1]})" for p, n in parameters.items() if keys[p] not in arrays]
        if missing:
            raise SymbolicError(f"no array for {', '.join(missing)}: give one for each")
        given = {parameter: jnp.asarray(arrays[key]) for parameter, key in keys.items()}
        dtype = jnp.result_type(*given.values()) if given else jnp.asarray(0.0).dtype
        if not jnp.issubdtype(dtype, jnp.inexact):  # whole numbers: coefficients needn't be whole
            dtype = jnp.asarray(0.0).dtype
            given = {parameter: array.astype(dtype) for parameter, array in given.items()}
        columns: dict[Parameter, Any] = {p: a if a.ndim == 2 else a.reshape(-1, 1) for p, a in given.items()}
        arithmetic = _arithmetic(activation, dtype)
        if of_sizes:
            columns = {p: Sized(a, abs(a)) for p, a in columns.items()}
            arithmetic = with_sizes(arithmetic)
        interpreter = Interpreter(columns, arithmetic, definitions, _sizes(given))
        values = {name: interpreter.value(e) for name, e in expressions.items()}
        return {
            name: jax.tree.map(lambda a: a[:, 0], each) if expressions[name].shape[1] == 1 else each
            for name, each in values.items()
        }

    return function
