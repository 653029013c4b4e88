"""A Transformer block: attention, MLP and norms around the residual stream."""

from collections.abc import Callable
from typing import final

import jax
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float

from duat_jax.errors import DuatError
from duat_jax.nn.attention import LONGEST_STORED

Part = Callable[..., Array]
"""Any module or function from an array to an array."""


def _paper(x: Array, attention: Part, mlp: Part, norm_1: Part, norm_2: Part) -> Array:
    x = attention(norm_1(x))
    return x + mlp(norm_2(x))


def _pre_norm(x: Array, attention: Part, mlp: Part, norm_1: Part, norm_2: Part) -> Array:
    x = x + attention(norm_1(x))
    return x + mlp(norm_2(x))


def _post_norm(x: Array, attention: Part, mlp: Part, norm_1: Part, norm_2: Part) -> Array:
    x = norm_1(x + attention(x))
    return norm_2(x + mlp(x))


def _parallel(x: Array, attention: Part, mlp: Part, norm_1: Part, norm_2: Part) -> Array:
    return x + attention(norm_1(x)) + mlp(norm_2(x))


ARRANGEMENTS: dict[str, Callable[[Array, Part, Part, Part, Part], Array]] = {
    "paper": _paper,
    "pre-norm": _pre_norm,
    "post-norm": _post_norm,
    "parallel": _parallel,
}


def _unchanged(x: Array) -> Array:
    return x


@final
class Block(nnx.Module):
    """One layer: an attention, an MLP and up to four norms.

    | arrangement | `y = …` | |
    |---|---|---|
    | `"paper"` (Eq. 30) | `y = A N₁(x)` | `y + FFN(N₂(y))` |
    | `"pre-norm"` (GPT-2, Llama) | `y = x + A N₁(x)` | `y + FFN(N₂(y))` |
    | `"post-norm"` (BERT) | `y = N₁(x + A x)` | `N₂(y + FFN(y))` |
    | `"parallel"` (GPT-NeoX) | `y = x + A N₁(x)` | `y + FFN(N₂(x))` |

    The outputs of attention and MLP may also be normalised before they are added: `A` is then `N₃ A` (Gemma 2, OLMo 2).

    Args:
        arrangement: a name in `ARRANGEMENTS`.
        attention: mixes the tokens: `attention(x, mask)`.
        mlp: acts on each token: `mlp(x)`.
        norm_1: `N₁`; the identity if absent.
        norm_2: `N₂`; the identity if absent.
        attention_norm: the norm of the attention's output; the identity if absent.
        mlp_norm: the norm of the MLP's output; the identity if absent.
        scale: the factor of both outputs before they are added (Granite).

    Raises:
        DuatError: if the arrangement isn't known.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> from duat_jax.nn import MLP, Attention, RMSNorm
        >>> rngs = nnx.Rngs(0)
        >>> attention, mlp = Attention(8, 2, rngs=rngs), MLP(8, 16, "relu", rngs=rngs)
        >>> Block("pre-norm", attention=attention, mlp=mlp, norm_1=RMSNorm(8, "norm_1"))(jnp.ones((3, 8))).shape
        (3, 8)
    """

    def __init__(
        self,
        arrangement: str,
        *,
        attention: Part,
        mlp: Part,
        norm_1: Part | None = None,
        norm_2: Part | None = None,
        attention_norm: Part | None = None,
        mlp_norm: Part | None = None,
        scale: float = 1.0,
    ) -> None:
        if arrangement not in ARRANGEMENTS:
            raise DuatError(f"there is no arrangement {arrangement!r}: choose one of {', '.join(ARRANGEMENTS)}")
        self.arrangement = arrangement
        self.norm_1 = norm_1
        self.attention = attention
        self.attention_norm = attention_norm
        self.norm_2 = norm_2
        self.mlp = mlp
        self.mlp_norm = mlp_norm
        self.scale = scale
        self.tokens: NamedSharding | None = None  # how tokens of long texts are divided among devices

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: Bool[Array, "... tokens"] | None = None
    ) -> Float[Array, "... tokens features"]:
        """Run the block.

        Args:
            x: the residual stream, `[..., tokens, features]`.
            mask: true for real tokens, `[..., tokens]`.
        """
        norm_1, norm_2, attention_norm, mlp_norm = (
            _unchanged if norm is None else norm
            for norm in (self.norm_1, self.norm_2, self.attention_norm, self.mlp_norm)
        )

        def scaled(y: Array) -> Array:
            return y if self.scale == 1.0 else self.scale * y

        def attention(x: Array) -> Array:
            return scaled(attention_norm(self._of_all_tokens(lambda x: self.attention(x, mask), x)))

        def mlp(x: Array) -> Array:
            return scaled(mlp_norm(self._of_all_tokens(self.mlp, x)))

        return ARRANGEMENTS[self.arrangement](x, attention, mlp, norm_1, norm_2)

    def _of_all_tokens(self, part: Callable[[Array], Array], x: Array) -> Array:
        """Run a part, which devices divide by heads or neurons, on all tokens of streams that they divide by tokens."""
        if self.tokens is None or x.shape[-2] <= LONGEST_STORED or x.shape[-2] % _devices(self.tokens):
            return part(x)
        unconstrained = [P.UNCONSTRAINED] * (x.ndim - 2)
        divided = NamedSharding(self.tokens.mesh, P(*unconstrained, *self.tokens.spec, None))
        whole = NamedSharding(self.tokens.mesh, P(*unconstrained, None, None))
        constrained = jax.lax.with_sharding_constraint
        # Whole on both sides, so that a transpose gathers the part's covectors and not its weights.
        return constrained(constrained(part(constrained(constrained(x, divided), whole)), whole), divided)


def _devices(sharding: NamedSharding) -> int:
    (axis,) = sharding.spec
    size: int = sharding.mesh.shape[axis]
    return size
