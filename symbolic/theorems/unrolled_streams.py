"""Derive the unrolled form of several streams at a concrete depth, with every parameter made of the layers' own."""

from sympy import Integer, ZeroMatrix

from symbolic.equality.definition import lookup
from symbolic.equality.normaliser import Normaliser
from symbolic.errors import SymbolicError
from symbolic.expressions.parameter import Parameter
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import Step, equality, equations, let_each
from symbolic.theorems.residual_stack import check_depth
from symbolic.theorems.stream_stack import StreamStack
from symbolic.theorems.streams import STREAMS

_EACH = 3  # layers up to which every layer has lines of its own
_MOST = 256  # paths through the layers, each a product that is multiplied out


def paths(stack: StreamStack, depth: int) -> int:
    """Return the number of paths from a stream of the input to a stream of a layer, through streams that it reads.

    Example:
        >>> paths(StreamStack.of(2, 1), 3), paths(StreamStack(absent=(("U", 1, 2),)), 3)
        (16, 5)
    """
    ends = dict.fromkeys(stack.streams, 1)
    for _ in range(depth):
        ends = {s: sum(ends[r] for r in stack.streams if ("U", s, r) not in stack.absent) for s in stack.streams}
    return sum(ends.values())


def _lines(s: StreamStack, k: int) -> list[tuple[Parameter, str]]:
    """Return every parameter of the form of layer k, with what it is."""
    earlier = range(1, k + 1)
    return [
        *((s.P(k, r, u), "the linear paths") for r in s.streams for u in s.streams),
        *((s.q(k, r), "the biases, carried along them") for r in s.streams),
        *((s.B(k, t, r), "the input, carried into an activation") for t in s.terms for r in s.streams),
        *((s.c(k, t), "its bias, with all earlier terms") for t in s.terms),
        *((s.C(m, k, r, t), "an activation, carried on") for m in earlier for r in s.streams for t in s.terms),
        *((s.UAT(k, r), "all terms") for r in s.streams if s.neurons),
    ]


def unroll_streams(depth: int, stack: StreamStack | None = None) -> Derivation:
    """Derive the form of every stream at a concrete depth, compared with the network, layer substituted in layer.

    Args:
        depth: number of layers.
        stack: the symbols; those of two streams and two coupled terms if absent.

    Raises:
        SymbolicError: if the streams read one another so often that there are more than 256 paths.

    Example:
        >>> print(unroll_streams(2).steps[20].left, "=", unroll_streams(2).steps[20].right)
        P₂,₁,₁ = U₂,₁,₁ U₁,₁,₁ + U₂,₁,₂ U₁,₂,₁
    """
    depth, s = check_depth(depth), stack or StreamStack()
    if (number := paths(s, depth)) > _MOST:
        raise SymbolicError(
            f"{depth} layers have {number} paths from stream to stream, and at most {_MOST} are multiplied out: give"
            " fewer layers, or prove the form of every depth"
        )
    network, known = Normaliser(s.layer), Normaliser(s.recursions)
    multiplied_out = Normaliser([rule for rule in s.recursions if rule.left.letter in "PqBC"])
    nothing = {zero(0, r): ZeroMatrix(s.widths[r - 1], 1) for r in s.streams for zero in (s.q, s.UAT)}
    words = "equals the network, layer substituted in layer, by the recursions"
    using = equations((*s.layer, *s.recursions))
    steps: list[Step] = []
    for k in map(Integer, range(1, depth + 1)):
        for left, rule in _lines(s, int(k)) if depth <= _EACH else ():
            one_rule = lookup(left, s.recursions, {}) if left.letter in ("c", "UAT") else None
            right = multiplied_out.form(left).expression() if one_rule is None else one_rule.doit().xreplace(nothing)
            steps.append(equality(left, right, rule, s.recursions))
        for r in s.streams if depth <= _EACH or k == depth else ():
            holds = network.form(s.x(k, r)) == known.form(s.form(k, r))
            steps.append(Step(s.x(k, r), s.form(k, r), words, holds, using=using))
    return Derivation(
        f"The unrolled form of several streams at depth {depth}",
        tuple(steps),
        given=let_each(*s.recursions),
        premises=s.premises(STREAMS),
        words=s.words,
    )
