"""What a Transformer is made of, by name."""

from dataclasses import dataclass
from typing import final

from duat_jax.nn.config import BlockConfig

HEADS = ("logits", "hidden")


@final
@dataclass(frozen=True, kw_only=True)
class Config:
    """The parts of a Transformer; each is named on its own and decides nothing about another.

    Args:
        family: the checkpoint family, for example `"gpt2"`.
        block: the parts of each block; the kind of the other norms too.
        layers: number of blocks.
        vocab: number of tokens it knows.
        positions: longest text in tokens.
        causal: whether a token sees only itself and what came before.
        window: how many tokens a token sees back, itself included; all if absent.
        position_embedding: whether a learned embedding of the place is added to that of the token.
        segment_embedding: whether an embedding of the segment is added, the same for every token of a single text.
        embedding_norm: whether the embeddings are normalised before the first block.
        final_norm: whether the stream is normalised after the last block.
        head: what is read out: `"logits"` of the next token, or the last `"hidden"` states.
        tied: whether the unembedding is the token embedding.
    """

    family: str
    block: BlockConfig
    layers: int
    vocab: int
    positions: int
    causal: bool = True
    window: int | None = None
    position_embedding: bool = True
    segment_embedding: bool = False
    embedding_norm: bool = False
    final_norm: bool = True
    head: str = "logits"
    tied: bool = True

    def problems(self) -> list[str]:
        """Return everything that keeps this model from being made."""
        found = self.block.problems()
        if self.head not in HEADS:
            found.append(f"head = {self.head!r} isn't one of {', '.join(HEADS)}")
        if self.head == "hidden" and not self.tied:
            found.append("tied = False is for a model that reads out logits: hidden states have no unembedding")
        if self.block.norm == "none" and (self.embedding_norm or self.final_norm):
            found.append("block.norm = 'none' leaves embedding_norm and final_norm without a kind: set both to False")
        sizes = {"layers": self.layers, "vocab": self.vocab, "positions": self.positions, "window": self.window}
        found += [f"{name} = {size} must be positive" for name, size in sizes.items() if size is not None and size < 1]
        return found
