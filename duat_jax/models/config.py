"""Configuration of a Transformer: its parts, by name."""

from dataclasses import dataclass, field
from typing import final

from duat_jax.models.layout import UnitLayout
from duat_jax.models.pooling import MEAN, Pooling
from duat_jax.nn.config import BlockConfig
from duat_jax.nn.mlp import ACTIVATIONS

KINDS = ("next token", "masked token", "classes", "hidden")
POOLS = ("first", "last", "mean")


@final
@dataclass(frozen=True, kw_only=True)
class Head:
    """Configuration of the read-out from the last hidden states.

    Args:
        kind: the logits of the `"next token"`, of a `"masked token"` or of `"classes"`; or the `"hidden"` states.
        outputs: the number of logits; 0 for hidden states.
        labels: the names of the classes; their numbers if empty.
        tied: whether the unembedding is the token embedding.
        bias: whether the logits have a bias.
        cap: the soft cap of the logits; no limit if absent.
        scale: the factor of the states before logits are read from them.
        pool: the token at which classes are read: the `"first"`, the `"last"`, or the `"mean"` of all.
        filler: the padding token at the end of texts, which doesn't count as the last token; none if absent.
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
        """Return every problem that makes this configuration invalid."""
        problems = []
        if self.kind not in KINDS:
            problems.append(f"head.kind = {self.kind!r} isn't one of {', '.join(KINDS)}")
        if (self.pool is not None) != (self.kind == "classes") or self.pool not in (None, *POOLS):
            problems.append(f"head.pool = {self.pool!r}: only classes are pooled, at one of {', '.join(POOLS)}")
        if self.dense is not None and self.dense not in ACTIVATIONS:
            problems.append(f"head.dense = {self.dense!r} isn't one of {', '.join(ACTIVATIONS)}")
        if self.kind == "hidden" and self != Head():
            problems.append("hidden states have no read-out: leave out all other fields of the head")
        if (self.outputs < 1) != (self.kind == "hidden"):
            problems.append(f"head.outputs = {self.outputs} must be positive, and zero for hidden states")
        return problems


@final
@dataclass(frozen=True, kw_only=True)
class Image:
    """Size of an image and of its patches.

    Args:
        height: in pixels.
        width: in pixels.
        channels: numbers of a pixel.
        patch_height: that of a patch, in pixels.
        patch_width: the same.
        whole: the number of tokens before those of the patches: for the whole image, and for registers.
    """

    height: int
    width: int
    channels: int
    patch_height: int
    patch_width: int
    whole: int = field(default=1, repr=False)

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return self.whole + self.patches

    @property
    def patches(self) -> int:
        """Number of patches."""
        return self.rows * self.columns

    @property
    def rows(self) -> int:
        """Number of patches below each other."""
        return self.height // self.patch_height

    @property
    def columns(self) -> int:
        """Number of patches side by side."""
        return self.width // self.patch_width


STREAMS = "encoder", "decoder", "image", "sound", "text"
"""The names of streams that a model's input has several of."""


@final
@dataclass(frozen=True, kw_only=True)
class ImageBesideText:
    """The image, or the sound, that a model by PyTorch's code reads before its text.

    Args:
        image: its sizes; of a sound those of its spectrogram, one channel of frequencies by frames.
        sound: whether it is a sound.
        placeholder: the token that stands in a text for a token of the image, if there is one.
        placeholders: how many of them stand for an image.
        filler: the token that every text is filled up with to the longest one, if it is.
        end: the token at which a text is read, if it is at one.
    """

    image: Image
    sound: bool = False
    placeholder: int | None = None
    placeholders: int = 0
    filler: int | None = None
    end: int | None = None

    @property
    def marker(self) -> int | None:
        """The token whose places in a text decide what is computed."""
        return self.end if self.placeholder is None else self.placeholder

    @property
    def tokens(self) -> int:
        """The number of tokens of the image."""
        return self.image.tokens


@final
@dataclass(frozen=True, kw_only=True)
class Config:
    """Configuration of a Transformer; each part is named on its own, independently of the others.

    Args:
        family: the checkpoint family, for example `"gpt2"`.
        blocks: the parts of each block; all norms are of the first block's kind.
        vocab: size of the vocabulary; 0 for a vision model.
        positions: longest text in tokens.
        image: the sizes of images and patches, if it reads images instead of texts.
        position_embedding: whether a learned embedding of the position is added to that of the token.
        position_offset: rows of the position embedding before that of the first position.
        uncounted: a token whose position isn't counted and that has the row before the first position, if there is one.
        segments: number of segment embeddings; a single text is all of segment 0.
        groups: for each layer the number of the stored layer whose parameters it shares; no sharing if empty.
        embedding_features: width of the embeddings where they are projected to that of the stream.
        embedding_scale: the factor of the token embeddings.
        embedding_norm: whether the embeddings are normalised before the first block.
        final_norm: whether the stream is normalised after the last block.
        head: the read-out.
        pooling: how an encoder's hidden states become the vector of a text.
        marks: where the units of a model that PyTorch's code computes are, once it is loaded; nothing of a family.
        decoder_start: the token that a decoder's text begins with, of a model whose encoder reads another text first.
        beside: the image or the sound that it reads before its text, if it reads both.
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
    pooling: Pooling = field(default=MEAN, repr=False)  # the deletion study's kept work alone depends on it
    marks: tuple[UnitLayout, ...] | None = field(default=None, repr=False, compare=False)
    decoder_start: int | None = field(default=None, repr=False)
    beside: ImageBesideText | None = field(default=None, repr=False)

    def __str__(self) -> str:
        first = self.blocks[0]
        reads = f"vocabulary {self.vocab}"
        if self.image is not None:
            reads = f"images of {self.image.height} × {self.image.width}"
        return (
            f"{self.family}: {self.layers} layers, {first.heads} heads, {self.features} features,"
            f" {first.neurons} neurons, {reads}, head {self.head.kind!r}"
        )

    @property
    def layers(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the two streams of an input, where it isn't one text or one image."""
        if self.beside is not None:
            return "sound" if self.beside.sound else "image", "text"
        return () if self.decoder_start is None else STREAMS[:2]

    @property
    def stored_layers(self) -> int:
        """Number of blocks with parameters of their own, not shared with an earlier block."""
        return len(set(self.groups)) or self.layers

    @property
    def features(self) -> int:
        """Width of the residual stream."""
        return self.blocks[0].features

    @property
    def state_features(self) -> int:
        """Width of the states that logits are read from: that of the stream or of a masked token's embedding."""
        return (self.head.kind == "masked token" and self.embedding_features) or self.features

    def problems(self) -> list[str]:
        """Return every problem that makes this configuration invalid."""
        if not self.blocks:
            return ["blocks is empty: give at least one"]
        problems = [
            problem for block in dict.fromkeys(self.blocks) for problem in block.problems()
        ] + self.head.problems()
        if len({block.features for block in self.blocks}) > 1:
            problems.append("blocks have different features: the stream has one width")
        if self.blocks[0].norm == "none" and (self.embedding_norm or self.final_norm):
            problems.append("norm = 'none' leaves embedding_norm and final_norm without a kind: set both to False")
        if self.head.tied and (self.image is not None or self.head.kind == "classes"):
            problems.append("head.tied = True is for logits of tokens")
        sizes = {"positions": self.positions, "embedding_features": self.embedding_features}
        sizes |= {"vocab": self.vocab} if self.image is None else vars(self.image) | {"patches": self.image.patches}
        problems += [
            f"{name} = {size} must be positive" for name, size in sizes.items() if size is not None and size < 1
        ]
        return problems
