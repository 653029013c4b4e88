"""Backward search for normalised exponentials: softmax, log-softmax and logsumexp.

All three are one function of the scores `a`, `ℓ = log Σ exp(a)`: logsumexp is `ℓ`, log-softmax `a − ℓ`, softmax
`exp(a − ℓ)`, and none of them depends on the number that the program subtracts from all scores of a row.  Conversions
between floating-point dtypes, masks of the exponentials, factors and equations that are written twice make no
difference.
"""

from typing import Any, NamedTuple

from jax.extend import core

from duat_jax.transform.definitions import CONVERTS, KEEPS_NUMBERS, Definitions, is_along
from duat_jax.transform.parameters import power_of, reduced_axes_of

SOFTMAX, LOG_SOFTMAX, LOGSUMEXP = "softmax", "log_softmax", "logsumexp"


class SumMask(NamedTuple):
    """The exponentials that are counted in a sum, and how often.

    Args:
        variable: truth values, or factors.
        counted: the truth value of counted exponentials; `None` for factors.
    """

    variable: Any
    counted: bool | None = None


class Normaliser(NamedTuple):
    """An equation that computes a softmax, a log-softmax or a logsumexp.

    Args:
        kind: one of the three.
        scores: the scores' variable.
        axes: the scores' axes over which exponentials are summed.
        mask: the exponentials counted in the sum, and how often; `None` if all are counted once.
        masked: whether the mask applies to a softmax's numerator too.
    """

    kind: str
    scores: core.Var
    axes: tuple[int, ...]
    mask: SumMask | None
    masked: bool = False


class _MaskedExponentials(NamedTuple):
    """The numbers `exp(exponents)`, multiplied by a mask."""

    exponents: Any
    mask: SumMask | None = None


class _SumOfExponentials(NamedTuple):
    """A sum of exponentials over some axes."""

    terms: _MaskedExponentials
    axes: tuple[int, ...]


def normalisers(jaxpr: core.Jaxpr) -> dict[int, Normaliser]:
    """Return the equations of a program that compute a softmax, a log-softmax or a logsumexp."""
    search = _Search(Definitions(jaxpr))
    looks = {"div": search.div, "mul": search.mul, "log": search.log, "add": search.add, "sub": search.sub}
    results = {}
    for i, equation in enumerate(jaxpr.eqns):
        look = looks.get(equation.primitive.name)
        if look is not None and (normaliser := look(equation)) is not None:
            results[i] = normaliser
    return results


class _Search:
    def __init__(self, definitions: Definitions) -> None:
        self.of = definitions

    def _exponentials(self, v: Any) -> _MaskedExponentials | None:
        """Return the exponents and the mask of a variable that holds exponentials, else `None`."""
        v = self.of.root(v, CONVERTS)
        if (exponential := self.of.equation_of(v, "exp")) is not None:
            (exponents,) = exponential.invars
            return None if isinstance(exponents, core.Literal) else _MaskedExponentials(exponents)
        for case, mask in self._masked_cases(v):
            exponentials = self._exponentials(case)
            # At most one mask is recognised, of exponentials that it doesn't broadcast.
            if exponentials is not None and exponentials.mask in (None, mask) and case.aval.shape == v.aval.shape:
                return exponentials._replace(mask=mask)
        return None

    def _masked_cases(self, v: Any) -> list[tuple[Any, SumMask]]:
        """Return the operands that a mask may apply to: a case beside zero, or a factor of a product."""
        cases: list[tuple[Any, Any, bool | None]] = []
        if (product := self.of.equation_of(v, "mul")) is not None:
            a, b = product.invars
            cases = [(a, self.of.spread(b), None), (b, self.of.spread(a), None)]
        elif (choice := self.of.choice(v)) is not None and len(choice) == 3:
            mask, a, b = choice
            cases = [(b, mask, True)] * self.of.is_number(a, 0) + [(a, mask, False)] * self.of.is_number(b, 0)
        return [
            (case, SumMask(self.of.root(mask, CONVERTS), counted))
            for case, mask, counted in cases
            if isinstance(mask, core.Var) and isinstance(case, core.Var)
        ]

    def _sum(self, v: Any) -> _SumOfExponentials | None:
        """Return the sum of exponentials that a variable holds, in any shape and dtype."""
        total = self.of.equation_of(self.of.root(v), "reduce_sum")
        terms = None if total is None else self._exponentials(total.invars[0])
        return None if total is None or terms is None else _SumOfExponentials(terms, reduced_axes_of(total))

    def _logarithm(self, v: Any) -> _SumOfExponentials | None:
        """Return the sum of exponentials whose logarithm a variable is."""
        logarithm = self.of.equation_of(self.of.root(v), "log")
        return None if logarithm is None else self._sum(self.of.root(logarithm.invars[0], KEEPS_NUMBERS | {"abs"}))

    def _scores(self, total: _SumOfExponentials) -> tuple[Any, Any]:
        """Return the scores, and the number subtracted from all scores of a row, or `None`."""
        exponents = total.terms.exponents
        shifted = self.of.equation_of(self.of.root(exponents, CONVERTS), "sub")
        if shifted is None or not isinstance(shifted.invars[0], core.Var):
            return exponents, None
        scores, shift = shifted.invars
        if isinstance(shift, core.Literal) or not is_along(self.of, shift, total.axes, exponents.aval.shape):
            return exponents, None
        return scores, self.of.root(shift)

    def _is_of(self, v: Any, terms: _MaskedExponentials) -> bool:
        """Return whether a variable holds the exponents of exponentials."""
        return self.of.root(v, CONVERTS) is self.of.root(terms.exponents, CONVERTS)

    def _softmax(self, numerator: Any, total: _SumOfExponentials | None, along: Any) -> Normaliser | None:
        """Return the softmax with a numerator and a sum that was brought into its shape."""
        terms = self._exponentials(numerator)
        if terms is None or total is None or not self._is_of(terms.exponents, total.terms):
            return None
        if terms.mask not in (None, total.terms.mask):
            return None
        if not is_along(self.of, along, total.axes, terms.exponents.aval.shape):
            return None
        return Normaliser(SOFTMAX, self._scores(total)[0], total.axes, total.terms.mask, terms.mask is not None)

    def div(self, equation: core.JaxprEqn) -> Normaliser | None:
        numerator, denominator = equation.invars
        return self._softmax(numerator, self._sum(denominator), denominator)

    def mul(self, equation: core.JaxprEqn) -> Normaliser | None:
        a, b = equation.invars
        return self._softmax(a, self._inverse_sum(b), b) or self._softmax(b, self._inverse_sum(a), a)

    def _inverse_sum(self, v: Any) -> _SumOfExponentials | None:
        """Return the sum of exponentials whose inverse a variable is."""
        inverse = self.of.equation_of(self.of.root(v), "div", "integer_pow")
        if inverse is None:
            return None
        if power_of(inverse) == -1:
            return self._sum(inverse.invars[0])
        return self._sum(inverse.invars[-1]) if self.of.is_number(inverse.invars[0], 1) else None

    def log(self, equation: core.JaxprEqn) -> Normaliser | None:
        total = self._logarithm(equation.outvars[0])
        return None if total is None else Normaliser(LOGSUMEXP, total.terms.exponents, total.axes, total.terms.mask)

    def add(self, equation: core.JaxprEqn) -> Normaliser | None:
        result: Any = equation.outvars[0]
        for log, shift in (equation.invars, equation.invars[::-1]):
            total = self._logarithm(log)
            # Of two values broadcast over each other's rows, the sum belongs to no row.
            if total is not None and self.of.root(log).aval.size == result.aval.size:
                scores, subtracted = self._scores(total)
                if subtracted is not None and self.of.root(shift) is subtracted:
                    return Normaliser(LOGSUMEXP, scores, total.axes, total.terms.mask)
        return None

    def sub(self, equation: core.JaxprEqn) -> Normaliser | None:
        exponents, log = equation.invars
        total = self._logarithm(log)
        if total is None or isinstance(exponents, core.Literal) or not self._is_of(exponents, total.terms):
            return None
        if not is_along(self.of, log, total.axes, exponents.aval.shape):  # type: ignore[attr-defined]
            return None
        return Normaliser(LOG_SOFTMAX, self._scores(total)[0], total.axes, total.terms.mask)
