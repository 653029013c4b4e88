"""Give a name to a sum that stands both inside and outside of an activation, such as the stream between two parts."""

from sympy import Basic, MatrixExpr

from symbolic.expressions.activation import Activation
from symbolic.expressions.matrix import MatrixSum
from symbolic.expressions.parameter import Parameter
from symbolic.proof.step import Step, let

_LETTERS = "yuvz"


def with_shared_sum_named(step: Step) -> tuple[Step, ...]:
    """Return the equation of a layer with a definition of the sum that it repeats before it, if it repeats one.

    Example:
        >>> from symbolic.blocks.transformer import transformer_block
        >>> layer = transformer_block("paper-residual").layer
        >>> for each in with_shared_sum_named(Step(layer.left, layer.right, "", None)):
        ...     print(each.left, each.relation, each.right)
        y′ᵢ₊₁ := x′ᵢ + A′ᵢ₊₁ x′ᵢ
        x′ᵢ₊₁ = y′ᵢ₊₁ + F′ᵢ₊₁,₂ σ(F′ᵢ₊₁,₁ y′ᵢ₊₁ + f′ᵢ₊₁,₁) + f′ᵢ₊₁,₂
    """
    sums = step.right.atoms(MatrixSum)
    inside = {part for each in step.right.atoms(Activation) for part in each.atoms(MatrixSum)}
    shared = [part for part in inside if any({*part.args} < {*other.args} for other in sums)]
    taken = {parameter.parts.bare for parameter in step.right.atoms(Parameter)}
    free = [letter for letter in _LETTERS if letter not in taken]
    if not shared or not free:
        return (step,)
    whole = max(shared, key=lambda part: len(str(part)))
    primes = step.left.parts.primes
    name = Parameter(free[0] + primes, step.left.lower, *step.left.shape)

    def put(part: Basic) -> Basic:
        if not isinstance(part, MatrixExpr) or not part.has(MatrixSum):
            return part
        if isinstance(part, MatrixSum) and {*whole.args} <= {*part.args}:
            rest = [put(summand) for summand in part.args if summand not in whole.args]
            return MatrixSum(name, *rest)
        return part.func(*map(put, part.args))

    return let(name, whole, ""), Step(step.left, put(step.right), step.rule, step.verified)
