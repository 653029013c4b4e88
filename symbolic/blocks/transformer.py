"""The general term of every block type: each one is an instance of Eq. 20."""

from typing import NamedTuple

from sympy import Identity, MatrixExpr

from symbolic.equality.collect import collect
from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import equal
from symbolic.errors import SymbolicError
from symbolic.expressions.activation import Activation
from symbolic.expressions.diagonal import Diagonal
from symbolic.expressions.parameter import Parameter
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import Step, equality, let
from symbolic.theorems.closed_form import prove
from symbolic.theorems.residual_stack import ResidualStack, i
from symbolic.theorems.unrolled import unroll


class Block(NamedTuple):
    """What one layer computes, in the symbols of its own parts, and its parameters in Eq. 20.

    Args:
        middle: what its MLP reads besides norms, `y'_{i+1}`; None where that is the stream itself.
        result: `x'_{i+1}`, in which `y'_{i+1}` may occur.
        path: `W'_{i+1,1}`.
        offset: `b'_{i+1,3}`.
        inner: `W'_{i+1,2}`.
        bias: `b'_{i+1,2}`.
        outer: `W'_{i+1,3}`.
    """

    middle: MatrixExpr | None
    result: MatrixExpr
    path: MatrixExpr
    offset: MatrixExpr
    inner: MatrixExpr
    bias: MatrixExpr
    outer: MatrixExpr


def _middle(stack: ResidualStack) -> Parameter:
    return Parameter("y'", (i + 1,), stack.width, 1)


class _Parts:
    """The parts of layer `i + 1`: attention `A x + a`, norms `D x + d`, an MLP `F_2 σ(F_1 x + f_1) + f_2`."""

    def __init__(self, stack: ResidualStack, gated: bool) -> None:
        d, n, k = stack.width, stack.neurons, i + 1
        self.x, self.y, self.identity = stack.x(i), _middle(stack), Identity(d)
        self.A, self.a = Parameter("A'", (k,), d, d), Parameter("a'", (k,), d, 1)
        self.D1, self.d1 = Parameter("D'", (k, 1), d, d), Parameter("d'", (k, 1), d, 1)
        self.D2, self.d2 = Parameter("D'", (k, 2), d, d), Parameter("d'", (k, 2), d, 1)
        self.F1, self.f1 = Parameter("F'", (k, 1), n, d), Parameter("f'", (k, 1), n, 1)
        self.f2 = Parameter("f'", (k, 2), d, 1)
        self.R = Parameter("R'", (k,), d, d)
        outer = Parameter("F'", (k, 2), d, n)
        self.F2 = outer * Diagonal(Parameter("g'", (k,), n, 1)) if gated else outer

    def mlp(self, x: MatrixExpr) -> MatrixExpr:
        return self.F2 * Activation(self.F1 * x + self.f1) + self.f2


def _paper(p: _Parts) -> Block:
    return Block(p.A * p.x, p.y + p.mlp(p.y), p.A, p.f2, p.F1 * p.A, p.f1, p.F2)


def _paper_residual(p: _Parts) -> Block:
    path = p.identity + p.A
    return Block(p.x + p.A * p.x, p.y + p.mlp(p.y), path, p.f2, p.F1 * path, p.f1, p.F2)


def _pre_norm(p: _Parts) -> Block:
    middle = p.x + p.A * (p.D1 * p.x + p.d1) + p.a
    path, offset = p.identity + p.A * p.D1, p.A * p.d1 + p.a
    bias = p.F1 * (p.D2 * offset + p.d2) + p.f1
    result = p.y + p.mlp(p.D2 * p.y + p.d2)
    return Block(middle, result, path, offset + p.f2, p.F1 * p.D2 * path, bias, p.F2)


def _post_norm(p: _Parts) -> Block:
    middle = p.D1 * (p.x + p.A * p.x + p.a) + p.d1
    path, offset = p.D1 * (p.identity + p.A), p.D1 * p.a + p.d1
    result = p.D2 * (p.y + p.mlp(p.y)) + p.d2
    bias = p.F1 * offset + p.f1
    return Block(middle, result, p.D2 * path, p.D2 * (offset + p.f2) + p.d2, p.F1 * path, bias, p.D2 * p.F2)


def _parallel(p: _Parts) -> Block:
    result = p.x + p.A * (p.D1 * p.x + p.d1) + p.a + p.mlp(p.D2 * p.x + p.d2)
    offset = p.A * p.d1 + p.a + p.f2
    return Block(None, result, p.identity + p.A * p.D1, offset, p.F1 * p.D2, p.F1 * p.d2 + p.f1, p.F2)


def _convolution(p: _Parts) -> Block:
    return Block(None, p.R * p.x + p.mlp(p.x), p.R, p.f2, p.F1, p.f1, p.F2)


_BLOCKS = {
    "paper": (_paper, "y = A x, then y + MLP(y)"),
    "paper-residual": (_paper_residual, "y = x + A x, then y + MLP(y)"),
    "pre-norm": (_pre_norm, "y = x + A LN(x), then y + MLP(LN(y)): GPT-2, Llama"),
    "post-norm": (_post_norm, "y = LN(x + A x), then LN(y + MLP(y)): BERT"),
    "parallel": (_parallel, "x + A LN(x) + MLP(LN(x)): GPT-NeoX, GPT-J"),
    "convolution": (_convolution, "R x + F2 σ(F1 x), F1 and F2 Toeplitz, R the identity or a projection"),
}

BLOCKS = tuple(_BLOCKS)


def block(name: str, stack: ResidualStack | None = None, *, gated: bool = False) -> Block:
    """Return what a layer of one block type computes, with everything that moves with the input held.

    Args:
        name: one of `BLOCKS`.
        stack: the symbols.
        gated: whether the MLP is gated: `F_2 (g ⊙ σ(F_1 x + f_1)) + f_2` with the gate `g` held.

    Raises:
        SymbolicError: if there is no such block.
    """
    if name not in _BLOCKS:
        raise SymbolicError(f"there is no block {name!r}: choose one of {', '.join(BLOCKS)}")
    return _BLOCKS[name][0](_Parts(stack or ResidualStack(), gated))


def layer(name: str, stack: ResidualStack | None = None, *, gated: bool = False) -> Definition:
    """Return `x'_{i+1}` of one block type in `x'_i`, for every layer.

    Args:
        name: one of `BLOCKS`.
        stack: the symbols.
        gated: whether the MLP is gated.

    Raises:
        SymbolicError: if there is no such block.
    """
    s = stack or ResidualStack()
    made = block(name, s, gated=gated)
    result = made.result if made.middle is None else made.result.xreplace({_middle(s): made.middle})
    return Definition(s.x(i + 1), result, (i,))


def parameters(name: str, stack: ResidualStack | None = None, *, gated: bool = False) -> tuple[Definition, ...]:
    """Return what `W'_{i+1,k}` and `b'_{i+1,k}` are for a block type.

    Args:
        name: one of `BLOCKS`.
        stack: the symbols.
        gated: whether the MLP is gated.

    Example:
        >>> print(parameters("post-norm")[0].right)
        D′ᵢ₊₁,₂ D′ᵢ₊₁,₁ (I + A′ᵢ₊₁)

    Source: Wang & Li, Eq. 20 and 28–31, and the same for blocks that the papers don't treat.
    """
    s = stack or ResidualStack()
    made = block(name, s, gated=gated)
    pairs = (
        (s.W(i + 1, 1), made.path),
        (s.b(i + 1, 3), made.offset),
        (s.W(i + 1, 2), made.inner),
        (s.b(i + 1, 2), made.bias),
        (s.W(i + 1, 3), made.outer),
    )
    return tuple(Definition(left, right, (i,)) for left, right in pairs)


def general_term(name: str, stack: ResidualStack | None = None, *, gated: bool = False) -> Derivation:
    """Show that a block type is an instance of Eq. 20.

    Args:
        name: one of `BLOCKS`.
        stack: the symbols.
        gated: whether the MLP is gated.

    Source: Wang & Li, Eq. 28–31.
    """
    s = stack or ResidualStack()
    made, whole, table = block(name, s, gated=gated), layer(name, s, gated=gated), parameters(name, s, gated=gated)
    found = collect(whole.right, s.x(i))
    (term,) = found.terms
    read_off = (found.path, found.offset, term.inner, term.bias, term.outer)
    steps = (
        *(() if made.middle is None else (let(_middle(s), made.middle, ""),)),
        let(s.x(i + 1), made.result, _BLOCKS[name][1]),
        *(
            Step(entry.left, entry.right, "read off", equal(entry.right, read))
            for entry, read in zip(table, read_off, strict=True)
        ),
        equality(s.x(i + 1), s.general_term(i + 1), "Eq. 20", (whole, *table)),
    )
    kind = f"{name} block" + (" with a gated MLP" if gated else "")
    return Derivation(f"The general term of the {kind}", steps)


def prove_block(name: str, stack: ResidualStack | None = None, *, gated: bool = False) -> Derivation:
    """Prove the closed form at every depth for a stack of one block type.

    Args:
        name: one of `BLOCKS`.
        stack: the symbols.
        gated: whether the MLP is gated.

    Example:
        >>> print(prove_block("post-norm").verdict)
        9 of 9 steps verified
    """
    s = stack or ResidualStack()
    kind = f"{name} blocks" + (" with gated MLPs" if gated else "")
    title = f"The closed form at every depth, for {kind}"
    return prove(s, layer=layer(name, s, gated=gated), parameters=parameters(name, s, gated=gated), title=title)


def unroll_block(name: str, depth: int, stack: ResidualStack | None = None, *, gated: bool = False) -> Derivation:
    """Derive the unrolled form of a stack of one block type at a concrete depth, compared with that very network.

    Args:
        name: one of `BLOCKS`.
        depth: number of layers.
        stack: the symbols.
        gated: whether the MLP is gated.

    Example:
        >>> unroll_block("post-norm", 4).verified
        True
    """
    s = stack or ResidualStack()
    title = f"The unrolled form of {name} blocks" + (" with gated MLPs" if gated else "")
    return unroll(depth, s, layer(name, s, gated=gated), parameters(name, s, gated=gated), title)
