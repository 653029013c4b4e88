"""Definitions and hypotheses that a proof may use: a parameter, or a product, is replaced by an expression."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from sympy import Expr, Integer, MatrixExpr, Rational, Symbol

from symbolic.errors import SymbolicError
from symbolic.expressions.matrix import MatrixProduct, MatrixSum
from symbolic.expressions.parameter import Ones, Parameter

Bounds = dict[Symbol, tuple[Expr, Expr]]


def nonnegative(value: Expr, bounds: Bounds | None = None) -> bool:
    """Tell whether an index is known to be at least 0 for all values of its symbols."""
    value = value.expand()
    for index, (first, last) in reversed((bounds or {}).items()):
        slope = value.coeff(index)
        if not slope.is_Integer or (value - slope * index).has(index):
            return False  # only of what is linear the least value is at an end
        value = value.subs(index, first if slope >= 0 else last).expand()
    constant, rest = value.as_coeff_Add()
    least = constant  # a symbol that is declared as positive is at least 1
    for symbols, factor in rest.as_coefficients_dict().items():
        if not (factor.is_Integer and factor >= 0 and symbols.is_integer and symbols.is_nonnegative):
            return False
        least += factor if symbols.is_positive else 0
    return bool(least.is_Integer and least >= 0)


def unmatched(
    pattern: Parameter, parameter: Parameter, variables: Iterable[Symbol], values: dict[Symbol, Expr]
) -> list[Expr] | None:
    """Return what has to be 0 for a parameter to be one of a pattern; None where it is another letter."""
    if (pattern.of_layer, pattern.letter) != (parameter.of_layer, parameter.letter):
        return None
    if len(pattern.lower) != len(parameter.lower) or len(pattern.upper) != len(parameter.upper):
        return None
    differences = []
    for written, index in zip(pattern.indices, parameter.indices, strict=True):
        variable = next((v for v in variables if written.has(v)), None)
        difference = index - written
        if variable is not None:
            value = difference + variable
            difference = values.setdefault(variable, value) - value
        differences.append(difference.expand())
    return differences


@dataclass(frozen=True)
class Definition:
    """`left := right`, for every value of its variables; a relation where the left side is a product, as in `Qᵀ Q = I`.

    A relation is used as a rule that makes products shorter, `H 1 = 1`, or takes transposes away, `S = Sᵀ`.

    Args:
        left: a parameter whose indices are integers, or a variable plus an integer; of a relation a product of such.
        right: its meaning.
        variables: the symbols in `left` that may take any value from 0 on; without any it holds at one place only.
        where: pairs `(a, b)` with `a ≤ b`, which must be known for the definition to apply.

    Example:
        >>> from sympy import symbols
        >>> i, d = symbols("i d", integer=True, nonnegative=True)
        >>> P, W = (lambda k: Parameter("P", (k,), d, d)), (lambda k: Parameter("W'", (k, 1), d, d))
        >>> print(Definition(P(i + 1), W(i + 1) * P(i), (i,)).applied_to(P(3)))
        W′₃,₁ P₂
    """

    left: MatrixExpr
    right: MatrixExpr
    variables: tuple[Symbol, ...] = ()
    where: tuple[tuple[Expr, Expr], ...] = field(default=())

    def __post_init__(self) -> None:
        for side in (self.left, self.right):
            if not isinstance(side, MatrixExpr):
                raise SymbolicError(f"{side!r} is no side of a definition: give matrix expressions")
        for index in (k for parameter in self.left.atoms(Parameter) for k in parameter.indices):
            variables = index.free_symbols & set(self.variables)
            if variables and not (len(variables) == 1 and (index - next(iter(variables))).is_Integer):
                raise SymbolicError(f"{self.left} can't be defined: an index is a number, or a variable plus a number")

    @property
    def is_relation(self) -> bool:
        """Whether it is a relation between parameters, and no definition of one: `Qᵀ Q = I`, `S = Sᵀ`, `1 = H 1`."""
        left = self.left
        return not isinstance(left, Parameter) or self.right == left.T or isinstance(left, Ones)

    @property
    def is_symmetry(self) -> bool:
        """Whether it says that a parameter is its own transpose."""
        return any(isinstance(side, Parameter) for side in (self.left, self.right)) and self.right == self.left.T

    def symmetrised(self) -> "Definition":
        """Return a symmetric parameter as half the sum of any matrix and its transpose, which says the same."""
        symmetric = self.left if isinstance(self.left, Parameter) else self.right
        rows, columns = symmetric.shape
        any_matrix = Parameter(f"{symmetric.letter}°", symmetric.lower, rows, columns, symmetric.upper)
        half = MatrixProduct(Rational(1, 2), MatrixSum(any_matrix, any_matrix.T))
        return Definition(symmetric, half, self.variables, self.where)

    def applied_to(self, parameter: Parameter, bounds: Bounds | None = None) -> MatrixExpr | bool:
        """Return the meaning of the parameter; False if the definition doesn't apply, True if that is open.

        Args:
            parameter: the parameter.
            bounds: the first and the last value of each bound index.
        """
        bounds = bounds or {}
        values: dict[Symbol, Expr] = {}
        zero = None if self.is_relation else unmatched(self.left, parameter, self.variables, values)
        if zero is None:
            return False
        small = [(Integer(0), value) for value in values.values()]
        small += [(a.subs(values), b.subs(values)) for a, b in self.where]
        if any(nonnegative(z - 1, bounds) or nonnegative(-z - 1, bounds) for z in zero):
            return False
        if any(nonnegative(a - b - 1, bounds) for a, b in small):
            return False
        # A bound index may be 0 here, or the definition of the summand would be put in without end.
        zero_or_less = {
            index: (Integer(0) if nonnegative(first, bounds) else first, last)
            for index, (first, last) in bounds.items()
        }
        if any(z != 0 for z in zero) or not all(nonnegative(b - a, zero_or_less) for a, b in small):
            return True
        return self.right.xreplace(values)


def applicable(
    parameter: Parameter, definitions: Iterable[Definition], bounds: Bounds
) -> tuple[Definition, MatrixExpr] | None:
    """Return the first applicable definition of a parameter, and the expression that it gives."""
    # If it is open whether an earlier definition applies, as with `P_0` for `P_i`, none does: the parameter stays.
    for definition in definitions:
        meaning = definition.applied_to(parameter, bounds)
        if not isinstance(meaning, bool):
            return definition, meaning
        if meaning:
            return None
    return None


def lookup(parameter: Parameter, definitions: Iterable[Definition], bounds: Bounds) -> MatrixExpr | None:
    """Return the expression that the first applicable definition gives for a parameter."""
    applied = applicable(parameter, definitions, bounds)
    return None if applied is None else applied[1]
