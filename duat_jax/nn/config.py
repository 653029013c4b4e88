"""Configuration of blocks, and construction of blocks and stacks from it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import final

import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from duat_jax.errors import DuatError
from duat_jax.nn.attention import Attention, SlicedAttention
from duat_jax.nn.block import ARRANGEMENTS, Block
from duat_jax.nn.experts import Experts
from duat_jax.nn.mlp import ACTIVATIONS, MLP, GatedMLP
from duat_jax.nn.norm import LayerNorm, RMSNorm
from duat_jax.nn.position import Rotary
from duat_jax.nn.stack import Stack

MLPS = ("plain", "gated", "experts")
ATTENTIONS = ("standard", "sliced")
NORMS = ("layer", "rms", "none")
QUERY_KEY_NORMS = ("none", "head", "all heads")


@final
@dataclass(frozen=True, kw_only=True)
class BlockConfig:
    """Configuration of a block: its parts, by name.

    Args:
        arrangement: the arrangement of the parts around the residual stream, a name in `ARRANGEMENTS`.
        features: width of the residual stream.
        heads: query heads.
        neurons: hidden units of the MLP, or of one expert.
        causal: whether a token sees only itself and earlier tokens.
        window: number of tokens that a token sees back, itself included, and without `causal` also ahead; all if
            absent.
        key_value_heads: key/value heads, a divisor of `heads`; as many if absent.
        head_features: width of one head; `features / heads` if absent.
        attention: `"standard"`, or `"sliced"` for the papers' heads, which each see a slice of the features.
        attention_bias: whether queries, keys and values have biases.
        output_bias: whether the attention's output has one.
        scale: factor of the scores; `1/√head_features` if absent.
        score_cap: the soft cap of the scores; no limit if absent.
        rotary: the rotation of queries and keys by their position; none if absent.
        query_key_norm: `"head"` to normalise each head's queries and keys, `"all heads"` to normalise all heads'
            together, or `"none"`.
        sinks: whether each head may attend to nothing, by a learned score.
        mlp: `"plain"`, `"gated"` or `"experts"`, gated too.
        mlp_bias: whether the MLP has biases; with experts the router too.
        activation: a name in `ACTIVATIONS`.
        experts: number of experts.
        chosen_experts: number of experts chosen for a token.
        normalised_experts: whether the weights of the chosen experts are divided by their sum.
        expert_limit: the limit of experts' gates, and of their factors' size before one is added; none if absent.
        norm: `"layer"`, `"rms"` or `"none"`.
        norm_1: whether the arrangement's first norm is present.
        norm_2: whether its second norm is present.
        output_norms: whether the outputs of attention and MLP are normalised before they are added.
        norm_bias: whether a LayerNorm has an offset.
        norm_weight_offset: the summand of the weight of an RMSNorm.
        epsilon: the norms' epsilon.
        residual_scale: the factor of the outputs of attention and MLP before they are added.
    """

    arrangement: str
    features: int
    heads: int
    neurons: int
    causal: bool = True
    window: int | None = None
    key_value_heads: int | None = None
    head_features: int | None = None
    attention: str = "standard"
    attention_bias: bool = True
    output_bias: bool = True
    scale: float | None = None
    score_cap: float | None = None
    rotary: Rotary | None = None
    query_key_norm: str = "none"
    sinks: bool = False
    mlp: str = "plain"
    mlp_bias: bool = True
    activation: str = "gelu"
    experts: int | None = None
    chosen_experts: int | None = None
    normalised_experts: bool = True
    expert_limit: float | None = None
    norm: str = "layer"
    norm_1: bool = True
    norm_2: bool = True
    output_norms: bool = False
    norm_bias: bool = True
    norm_weight_offset: float = 0.0
    epsilon: float = 1e-5
    residual_scale: float = 1.0

    def problems(self) -> list[str]:
        """Return every problem that makes this configuration invalid."""
        choices = {
            "arrangement": ARRANGEMENTS,
            "attention": ATTENTIONS,
            "mlp": MLPS,
            "activation": ACTIVATIONS,
            "norm": NORMS,
            "query_key_norm": QUERY_KEY_NORMS,
        }
        problems = [
            f"{field} = {getattr(self, field)!r} isn't one of {', '.join(allowed)}"
            for field, allowed in choices.items()
            if getattr(self, field) not in allowed
        ]
        sizes = (
            *("features", "heads", "neurons", "key_value_heads", "head_features", "window"),
            *("experts", "chosen_experts"),
        )
        problems += [
            f"{name} = {size} must be positive"
            for name in sizes
            if (size := getattr(self, name)) is not None and size < 1
        ]
        if problems:
            return problems
        if (self.head_features is None or self.attention == "sliced") and self.features % self.heads:
            problems.append(f"heads = {self.heads} must divide features = {self.features}")
        if self.key_value_heads is not None and self.heads % self.key_value_heads:
            problems.append(f"key_value_heads = {self.key_value_heads} must divide heads = {self.heads}")
        if self.rotary is not None and 2 * (turned := len(self.rotary.frequencies)) > (
            width := self.head_features or self.features // self.heads
        ):
            problems.append(f"rotary turns {2 * turned} features, but a head has {width}")
        plain = ("key_value_heads", "head_features", "window", "scale", "score_cap", "rotary")
        if self.attention == "sliced" and (present := [name for name in plain if getattr(self, name) is not None]):
            problems.append(f"sliced attention has no {', '.join(present)}")
        if any((number is not None) != (self.mlp == "experts") for number in (self.experts, self.chosen_experts)):
            problems.append("experts and chosen_experts are required with mlp = 'experts', and only there")
        elif self.expert_limit is not None and self.mlp != "experts":
            problems.append("expert_limit is only for mlp = 'experts'")
        elif (self.chosen_experts or 0) > (self.experts or 0):
            problems.append(f"chosen_experts = {self.chosen_experts} is more than experts = {self.experts}")
        return problems


BLOCKS: dict[str, Callable[..., BlockConfig]] = {
    "paper": partial(BlockConfig, arrangement="paper", attention="sliced", norm="none"),
    "paper-residual": partial(BlockConfig, arrangement="pre-norm", attention="sliced", norm="none"),
    "pre-norm": partial(BlockConfig, arrangement="pre-norm"),
    "post-norm": partial(BlockConfig, arrangement="post-norm"),
    "parallel": partial(BlockConfig, arrangement="parallel"),
}
"""The block types of the papers and of the first models, as configurations without sizes."""


def make_norm(
    config: BlockConfig, name: str, dtype: DTypeLike, features: int | None = None
) -> LayerNorm | RMSNorm | None:
    """Build the norm of a configuration, or `None` for none."""
    size = config.features if features is None else features
    match config.norm:
        case "layer":
            return LayerNorm(size, name, epsilon=config.epsilon, bias=config.norm_bias, dtype=dtype)
        case "rms":
            return RMSNorm(size, name, epsilon=config.epsilon, weight_offset=config.norm_weight_offset, dtype=dtype)
        case _:
            return None


def make_attention(config: BlockConfig, dtype: DTypeLike, rngs: nnx.Rngs | None) -> Attention | SlicedAttention:
    """Build the attention of a configuration."""
    if config.attention == "sliced":
        return SlicedAttention(config.features, config.heads, causal=config.causal, dtype=dtype, rngs=rngs)
    head_features = config.features // config.heads if config.head_features is None else config.head_features

    def query_key_norm(name: str, heads: int) -> RMSNorm | None:
        if config.query_key_norm == "none":
            return None
        return RMSNorm(
            head_features * (heads if config.query_key_norm == "all heads" else 1),
            f"attention.{name}",
            epsilon=config.epsilon,
            weight_offset=config.norm_weight_offset,
            dtype=dtype,
        )

    return Attention(
        config.features,
        config.heads,
        key_value_heads=config.key_value_heads,
        head_features=config.head_features,
        causal=config.causal,
        window=config.window,
        scale=config.scale,
        rotary=config.rotary,
        query_norm=query_key_norm("query_norm", config.heads),
        key_norm=query_key_norm("key_norm", config.key_value_heads or config.heads),
        cap=config.score_cap,
        sinks=config.sinks,
        bias=config.attention_bias,
        output_bias=config.output_bias,
        dtype=dtype,
        rngs=rngs,
    )


def make_mlp(config: BlockConfig, dtype: DTypeLike, rngs: nnx.Rngs | None) -> MLP | GatedMLP | Experts:
    """Build the MLP of a configuration."""
    sizes = (config.features, config.neurons, config.activation)
    if config.mlp == "plain":
        return MLP(*sizes, bias=config.mlp_bias, dtype=dtype, rngs=rngs)
    if config.mlp == "gated":
        return GatedMLP(*sizes, bias=config.mlp_bias, dtype=dtype, rngs=rngs)
    return Experts(
        *sizes,
        experts=config.experts or 1,
        chosen=config.chosen_experts or 1,
        normalised=config.normalised_experts,
        bias=config.mlp_bias,
        limit=config.expert_limit,
        dtype=dtype,
        rngs=rngs,
    )


def make_block(config: BlockConfig, *, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs | None) -> Block:
    """Build a block from its configuration.

    Args:
        config: its parts.
        dtype: dtype of the parameters.
        rngs: source of the random initial weights; `None` gives zeros.

    Raises:
        DuatError: naming every problem of the configuration.
    """
    if problems := config.problems():
        raise DuatError("; ".join(problems))

    def norm(name: str, present: bool) -> LayerNorm | RMSNorm | None:
        return make_norm(config, name, dtype) if present else None

    return Block(
        config.arrangement,
        norm_1=norm("norm_1", config.norm_1),
        attention=make_attention(config, dtype, rngs),
        attention_norm=norm("attention_norm", config.output_norms),
        norm_2=norm("norm_2", config.norm_2),
        mlp=make_mlp(config, dtype, rngs),
        mlp_norm=norm("mlp_norm", config.output_norms),
        scale=config.residual_scale,
    )


def make_stack(config: BlockConfig, *, layers: int, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs | None) -> Stack:
    """Build a stack of equal blocks.

    Args:
        config: the parts of each block.
        layers: number of blocks.
        dtype: dtype of the parameters.
        rngs: source of the random initial weights; `None` gives zeros.

    Raises:
        DuatError: naming every problem of the configuration.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> config = BlockConfig(arrangement="pre-norm", features=8, heads=2, neurons=16)
        >>> make_stack(config, layers=2, rngs=nnx.Rngs(0))(jnp.ones((3, 8))).shape
        (3, 8)
    """
    return Stack(make_block(config, dtype=dtype, rngs=rngs) for _ in range(layers))
