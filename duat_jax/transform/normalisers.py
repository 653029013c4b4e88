"""Where a program normalises exponentials: softmax, log-softmax and logsumexp, found by how they are computed.

All three are one function of the scores `a`, `ℓ = log Σ exp(a)`: logsumexp is `ℓ`, log-softmax `a − ℓ`, softmax
`exp(a − ℓ)`, and each of them is free of what the program subtracts from all scores of a row.
"""

from typing import Any, NamedTuple, cast

from jax.extend import core

SOFTMAX, LOG_SOFTMAX, LOGSUMEXP = "softmax", "log_softmax", "logsumexp"

KEEPS_NUMBERS = frozenset(("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "stop_gradient", "copy", "copy_p"))
"""Primitives that change the shape alone."""


class Normaliser(NamedTuple):
    """An equation that computes one of the three.

    Args:
        kind: which one.
        scores: the scores' variable.
        axes: over which axes of theirs exponentials are summed.
    """

    kind: str
    scores: core.Var
    axes: tuple[int, ...]


class _Log(NamedTuple):
    """A logarithm of a sum of `exp(exponents)`."""

    exponents: core.Var
    axes: tuple[int, ...]


def normalisers(jaxpr: core.Jaxpr) -> dict[int, Normaliser]:
    """Return the equations of a program that compute a softmax, a log-softmax or a logsumexp.

    Args:
        jaxpr: the program; those in its sub-programs aren't among them.
    """
    return _Search(jaxpr).found


class _Search:
    def __init__(self, jaxpr: core.Jaxpr) -> None:
        self.made_by = {v: equation for equation in jaxpr.eqns for v in equation.outvars}
        self.logs: dict[Any, _Log] = {}
        self.found: dict[int, Normaliser] = {}
        looks = {"div": self._div, "log": self._log, "add": self._add, "sub": self._sub}
        for i, equation in enumerate(jaxpr.eqns):
            look = looks.get(equation.primitive.name)
            if look is not None and (normaliser := look(equation)) is not None:
                self.found[i] = normaliser

    def _of(self, v: Any, name: str) -> core.JaxprEqn | None:
        equation = None if isinstance(v, core.Literal) else self.made_by.get(v)
        return equation if equation is not None and equation.primitive.name == name else None

    def _root(self, v: Any, also: frozenset[str] = frozenset()) -> Any:
        """Return the variable that holds the same numbers before they were brought into another shape."""
        while not isinstance(v, core.Literal):
            equation = self.made_by.get(v)
            if equation is None or equation.primitive.name not in KEEPS_NUMBERS | also:
                break
            v = equation.invars[0]
        return v

    def _logarithm(self, v: Any) -> _Log | None:
        root = self._root(v)
        return None if isinstance(root, core.Literal) else self.logs.get(root)

    def _sum_of_exponentials(self, v: Any) -> tuple[Any, core.Var, tuple[int, ...]] | None:
        """Return exponentials, exponents and axes, where a variable is the sum of exponentials."""
        total = self._of(v, "reduce_sum")
        exponentials = None if total is None else total.invars[0]
        exponential = self._of(exponentials, "exp")
        if total is None or exponential is None or not isinstance(exponential.invars[0], core.Var):
            return None
        return exponentials, exponential.invars[0], tuple(total.params["axes"])

    def _same_along(self, v: Any, axes: tuple[int, ...], shape: tuple[int, ...]) -> bool:
        """Return whether a variable is a number for each row of an array, brought into its shape."""
        root, own = self._root(v), v.aval.shape
        rows = tuple(size for axis, size in enumerate(shape) if axis not in axes)
        if len(own) != len(shape) or tuple(n for n in root.aval.shape if n != 1) != tuple(n for n in rows if n != 1):
            return False
        equation = self._of(v, "broadcast_in_dim")
        if equation is None:
            return all(own[axis] == 1 for axis in axes)
        operand: Any = equation.invars[0]
        kept, before = equation.params["broadcast_dimensions"], operand.aval.shape
        return all(axis not in kept or before[kept.index(axis)] == 1 for axis in axes)

    def _scores(self, exponents: Any, axes: tuple[int, ...]) -> tuple[Any, Any]:
        """Return the scores and what was subtracted from all of a row, if something was."""
        shifted = self._of(exponents, "sub")
        if shifted is None or not isinstance(shifted.invars[0], core.Var):
            return exponents, None
        scores, shift = shifted.invars
        if isinstance(shift, core.Literal) or not self._same_along(shift, axes, exponents.aval.shape):
            return exponents, None
        return scores, self._root(shift)

    def _div(self, equation: core.JaxprEqn) -> Normaliser | None:
        numerator, denominator = cast(Any, equation.invars)
        found = self._sum_of_exponentials(self._root(denominator))
        if found is None or found[0] is not numerator:
            return None
        _, exponents, axes = found
        if not self._same_along(denominator, axes, numerator.aval.shape):
            return None
        return Normaliser(SOFTMAX, self._scores(exponents, axes)[0], axes)

    def _log(self, equation: core.JaxprEqn) -> Normaliser | None:
        found = self._sum_of_exponentials(self._root(equation.invars[0], frozenset(("abs",))))
        if found is None:
            return None
        self.logs[equation.outvars[0]] = _Log(*found[1:])
        return Normaliser(LOGSUMEXP, *found[1:])

    def _add(self, equation: core.JaxprEqn) -> Normaliser | None:
        size = cast(Any, equation.outvars[0]).aval.size
        for log, shift in (equation.invars, equation.invars[::-1]):
            found = self._logarithm(log)
            # Of two that are spread over each other's rows, the sum is no row's.
            if found is not None and self._root(log).aval.size == size:
                scores, subtracted = self._scores(*found)
                if subtracted is not None and self._root(shift) is subtracted:
                    return Normaliser(LOGSUMEXP, scores, found.axes)
        return None

    def _sub(self, equation: core.JaxprEqn) -> Normaliser | None:
        exponents, log = cast(Any, equation.invars)
        found = self._logarithm(log)
        if found is None or exponents != found.exponents or not self._same_along(log, found.axes, exponents.aval.shape):
            return None
        return Normaliser(LOG_SOFTMAX, self._scores(*found)[0], found.axes)
