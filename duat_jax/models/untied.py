"""Models whose read-out is the token embedding, with a read-out of their own."""

from dataclasses import replace

import jax
from flax import nnx

from duat_jax.models.config import Config
from duat_jax.models.transformer import Transformer


def untied_config(config: Config) -> Config:
    """Return a configuration with a read-out of its own."""
    return replace(config, head=replace(config.head, tied=False))


def untied(model: Transformer) -> Transformer:
    """Return a model that computes the same, with a copy of the token embedding as its read-out if that is tied."""
    if not model.config.head.tied:
        return model
    copy = jax.tree.map(lambda leaf: leaf, model)
    copy.head.unembedding = nnx.data(nnx.Param(model.unembedding))
    copy.config = copy.embedding.config = untied_config(model.config)
    copy.head.config = copy.config.head
    return copy
