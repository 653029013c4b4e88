"""What a Transformer is made of, by name."""

from dataclasses import dataclass
from typing import final

from duat_jax.nn.config import BlockConfig
from duat_jax.nn.mlp import ACTIVATIONS

KINDS = ("next token", "masked token", "classes", "hidden")
POOLS = ("first", "last", "mean")


@final
@dataclass(frozen=True, kw_only=True)
class Head:
    """What is read out of the last hidden states.

    Args:
        kind: the logits of the `"next token"`, of a `"masked token"` or of `"classes"`; or the `"hidden"` states.
        outputs: how many logits there are; none of hidden states.
        labels: what the classes are called; their numbers if empty.
        tied: whether the unembedding is the token embedding.
        bias: whether the logits have a bias.
        cap: what the logits' size stays below; no limit if absent.
        scale: what the states are multiplied by, before logits are read out of them.
        pool: which token classes are read at: the `"first"`, the `"last"`, or the `"mean"` of all.
        filler: the token that fills texts up at their end, which isn't the last one; none if absent.
        dense: the activation of a dense layer before the read-out, one more term; no such layer if absent.
        dense_bias: whether that layer has a bias.
        norm: whether its activation is normalised.
    """

    kind: str = "hidden"
    outputs: int = 0
    labels: tuple[str, ...] = ()
    tied: bool = False
    bias: bool = False
    cap: float | None = None
    scale: float = 1.0
    pool: str | None = None
    filler: int | None = None
    dense: str | None = None
    dense_bias: bool = True
    norm: bool = False

    def problems(self) -> list[str]:
        """Return everything that keeps this head from being made."""
        found = []
        if self.kind not in KINDS:
            found.append(f"head.kind = {self.kind!r} isn't one of {', '.join(KINDS)}")
        if (self.pool is not None) != (self.kind == "classes") or self.pool not in (None, *POOLS):
            found.append(f"head.pool = {self.pool!r}: classes, and they alone, are pooled: {', '.join(POOLS)}")
        if self.dense is not None and self.dense not in ACTIVATIONS:
            found.append(f"head.dense = {self.dense!r} isn't one of {', '.join(ACTIVATIONS)}")
        if self.kind == "hidden" and self != Head():
            found.append("hidden states have no read-out: leave out everything else of the head")
        if (self.outputs < 1) != (self.kind == "hidden"):
            found.append(f"head.outputs = {self.outputs} must be positive, and zero for hidden states")
        return found


@final
@dataclass(frozen=True, kw_only=True)
class Image:
    """How an image becomes a row of patches.

    Args:
        height: in pixels.
        width: in pixels.
        channels: numbers of a pixel.
        patch_height: that of a patch, in pixels.
        patch_width: the same.
    """

    height: int
    width: int
    channels: int
    patch_height: int
    patch_width: int

    @property
    def patches(self) -> int:
        """Number of patches."""
        return (self.height // self.patch_height) * (self.width // self.patch_width)


@final
@dataclass(frozen=True, kw_only=True)
class Config:
    """The parts of a Transformer; each is named on its own and decides nothing about another.

    Args:
        family: the checkpoint family, for example `"gpt2"`.
        blocks: the parts of each block; the first one's kind of norm is that of all others too.
        vocab: number of tokens it knows; none of an image.
        positions: longest text in tokens.
        image: how an image becomes patches, if it reads images instead of texts.
        position_embedding: whether a learned embedding of the place is added to that of the token.
        position_offset: rows of the position embedding before that of the first place.
        uncounted: a token whose place isn't counted and that has the last row before the first place, if there is one.
        segments: number of segment embeddings; a single text is all of segment 0.
        groups: of each layer the number of the stored one whose parameters it shares; each has its own if empty.
        embedding_features: width of the embeddings where they are projected to that of the stream.
        embedding_scale: what the token embeddings are multiplied by.
        embedding_norm: whether the embeddings are normalised before the first block.
        final_norm: whether the stream is normalised after the last block.
        head: what is read out.
    """

    family: str
    blocks: tuple[BlockConfig, ...]
    vocab: int
    positions: int
    image: Image | None = None
    position_embedding: bool = True
    position_offset: int = 0
    uncounted: int | None = None
    segments: int = 0
    groups: tuple[int, ...] = ()
    embedding_features: int | None = None
    embedding_scale: float = 1.0
    embedding_norm: bool = False
    final_norm: bool = True
    head: Head = Head()

    @property
    def layers(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    @property
    def stored_layers(self) -> int:
        """Number of blocks that share their parameters with no earlier one."""
        return len(set(self.groups)) or self.layers

    @property
    def features(self) -> int:
        """Width of the residual stream."""
        return self.blocks[0].features

    @property
    def state_features(self) -> int:
        """Width of the states that logits are read out of: that of the stream, or of a masked token's embedding."""
        return (self.head.kind == "masked token" and self.embedding_features) or self.features

    def problems(self) -> list[str]:
        """Return everything that keeps this model from being made."""
        if not self.blocks:
            return ["blocks is empty: give at least one"]
        found = [problem for block in dict.fromkeys(self.blocks) for problem in block.problems()] + self.head.problems()
        if len({block.features for block in self.blocks}) > 1:
            found.append("blocks have different features: the stream has one width")
        if self.blocks[0].norm == "none" and (self.embedding_norm or self.final_norm):
            found.append("norm = 'none' leaves embedding_norm and final_norm without a kind: set both to False")
        if self.head.tied and (self.image is not None or self.head.kind == "classes"):
            found.append("head.tied = True is for logits of tokens")
        sizes = {"positions": self.positions, "embedding_features": self.embedding_features}
        sizes |= {"vocab": self.vocab} if self.image is None else self.image.__dict__ | {"patches": self.image.patches}
        found += [f"{name} = {size} must be positive" for name, size in sizes.items() if size is not None and size < 1]
        return found
