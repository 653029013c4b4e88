"""Define a parameter at a second input, `ã`, its change `Δa = a − ã`, and its midpoint `ā = (a + ã)/2`."""

from sympy import MatrixExpr, Rational, Symbol

from symbolic.equality.definition import Definition
from symbolic.expressions.matrix import MatrixProduct, MatrixSum
from symbolic.expressions.parameter import Ones, Parameter, parameters_replaced


def _accented(parameter: Parameter, accent: str) -> Parameter:
    bare = parameter.letter.rstrip("'")
    return parameter.func(bare + accent + parameter.letter[len(bare) :], *parameter.args[1:])


def second_value(parameter: Parameter) -> Parameter:
    """Return `ã`, the value of a parameter `a` at the other of two inputs."""
    return _accented(parameter, "\u0303")


def midpoint(parameter: Parameter) -> Parameter:
    """Return the letter `ā` of a parameter's midpoint between two inputs."""
    return _accented(parameter, "\u0304")


def change(parameter: Parameter) -> Parameter:
    """Return the letter `Δa` of a parameter's change between two inputs."""
    return parameter.func("Δ" + parameter.letter, *parameter.args[1:])


def at_second_input(expression: MatrixExpr) -> MatrixExpr:
    """Return an expression with every parameter as it is at the other input.

    Example:
        >>> from symbolic.theorems.residual_stack import ResidualStack
        >>> stack = ResidualStack()
        >>> print(at_second_input(stack.W(1, 1) * stack.x(0) + stack.b(1, 3)))
        W̃′₁,₁ x̃′₀ + b̃′₁,₃
    """
    return parameters_replaced(expression, lambda p: p if isinstance(p, Ones) else second_value(p))


def difference_of(expression: MatrixExpr) -> MatrixExpr:
    """Return `a − ã`."""
    return MatrixSum(expression, MatrixProduct(-1, at_second_input(expression)))


def mean_of(expression: MatrixExpr) -> MatrixExpr:
    """Return `½ (a + ã)`."""
    return MatrixProduct(Rational(1, 2), MatrixSum(expression, at_second_input(expression)))


def moves(*parameters: Parameter, variables: tuple[Symbol, ...] = ()) -> tuple[Definition, ...]:
    """Return the definitions of the changes and the midpoints of parameters.

    Example:
        >>> from symbolic.theorems.residual_stack import ResidualStack
        >>> print(moves(ResidualStack().x(0))[0].right)
        x′₀ − x̃′₀
    """
    pairs = [(change(a), difference_of(a)) for a in parameters] + [(midpoint(a), mean_of(a)) for a in parameters]
    return tuple(Definition(left, right, variables) for left, right in pairs)
