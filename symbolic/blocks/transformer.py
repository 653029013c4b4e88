"""Define the blocks of Transformers, each as one expression of the stream and an instance of Eq. 20."""

from collections.abc import Callable

from sympy import MatrixExpr

from symbolic.blocks.block import Block
from symbolic.errors import SymbolicError
from symbolic.expressions.activation import Activation
from symbolic.expressions.operations import Diagonal
from symbolic.expressions.parameter import Held, Parameter
from symbolic.theorems.residual_stack import ResidualStack

_STACK = ResidualStack()
_d, _n = _STACK.width, _STACK.neurons

_A, _a = Held("A'", (), _d, _d), Parameter("a'", (), _d, 1)
_D1, _d1 = Held("D'", (1,), _d, _d), Parameter("d'", (1,), _d, 1)
_D2, _d2 = Held("D'", (2,), _d, _d), Parameter("d'", (2,), _d, 1)
_F1, _f1 = Parameter("F'", (1,), _n, _d), Parameter("f'", (1,), _n, 1)
_F2, _f2 = Parameter("F'", (2,), _d, _n), Parameter("f'", (2,), _d, 1)
_R, _g = Parameter("R'", (), _d, _d), Held("g'", (), _n, 1)

_WORDS = {  # what stands before a colon is said of all letters together where the block's equation is shown
    "A'": "attention",
    "a'": "biases: of attention",
    "D'[1]": "norms: of attention",
    "D'[2]": "norms: of the MLP",
    "d'[1]": "biases: of the norm of attention",
    "d'[2]": "biases: of the norm of the MLP",
    "F'[1]": "matrices of the MLP: inside the activation",
    "F'[2]": "matrices of the MLP: outside the activation",
    "f'[1]": "biases: of the MLP, inside the activation",
    "f'[2]": "biases: of the MLP, outside the activation",
    "g'": "the gate of the MLP",
    "R'": "the path beside the MLP: the identity or a projection",
}

MLP = Callable[[MatrixExpr], MatrixExpr]


def _mlp(x: MatrixExpr) -> MatrixExpr:
    return _F2 * Activation(_F1 * x + _f1) + _f2


def _gated_mlp(x: MatrixExpr) -> MatrixExpr:
    return _F2 * (Diagonal(_g) * Activation(_F1 * x + _f1)) + _f2


def _paper(x: MatrixExpr, mlp: MLP) -> MatrixExpr:
    y = _A * x
    return y + mlp(y)


def _paper_residual(x: MatrixExpr, mlp: MLP) -> MatrixExpr:
    y = x + _A * x
    return y + mlp(y)


def _pre_norm(x: MatrixExpr, mlp: MLP) -> MatrixExpr:
    y = x + _A * (_D1 * x + _d1) + _a
    return y + mlp(_D2 * y + _d2)


def _post_norm(x: MatrixExpr, mlp: MLP) -> MatrixExpr:
    y = _D1 * (x + _A * x + _a) + _d1
    return _D2 * (y + mlp(y)) + _d2


def _parallel(x: MatrixExpr, mlp: MLP) -> MatrixExpr:
    return x + _A * (_D1 * x + _d1) + _a + mlp(_D2 * x + _d2)


def _convolution(x: MatrixExpr, mlp: MLP) -> MatrixExpr:
    return _R * x + mlp(x)


_LAYERS = {
    "paper": _paper,  # Eq. 30
    "paper-residual": _paper_residual,
    "pre-norm": _pre_norm,  # GPT-2, Llama
    "post-norm": _post_norm,  # BERT
    "parallel": _parallel,  # GPT-NeoX, GPT-J
    "convolution": _convolution,  # Toeplitz matrices; R the identity or a projection
}
BLOCKS = tuple(_LAYERS)
"""The names of the block types of Transformers."""


def transformer_block(name: str, *, gated: bool = False) -> Block:
    """Return a block type of Transformers: attention `A x + a`, norms `D x + d`, an MLP `F_2 σ(F_1 x + f_1) + f_2`.

    Attention's pattern, which is in `A`, and the norms' scales, which are in `D`, are held, and so is a gate.

    Args:
        name: one of `BLOCKS`.
        gated: whether the MLP is gated: `F_2 (g ⊙ σ(F_1 x + f_1)) + f_2` with the gate `g` held.

    Raises:
        SymbolicError: if there is no such block.

    Example:
        >>> print(transformer_block("post-norm").parameters[0].right)
        D′ᵢ₊₁,₂ D′ᵢ₊₁,₁ (I + A′ᵢ₊₁)

    Source: Wang & Li, Eq. 20 and 28–31, and the same for blocks that the papers don't treat.
    """
    if name not in _LAYERS:
        raise SymbolicError(f"there is no block {name!r}: choose one of {', '.join(BLOCKS)}")
    layer, mlp = _LAYERS[name], _gated_mlp if gated else _mlp
    kind = f"{name} block" + (" with a gated MLP" if gated else "")
    block = Block(lambda x: layer(x, mlp), name=kind)
    block.words = _WORDS
    return block
