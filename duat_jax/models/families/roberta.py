"""The RoBERTa family: configuration and tensor map of Hugging Face's `roberta` checkpoints."""

import dataclasses

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import encoder
from duat_jax.models.families.family import Family
from duat_jax.models.families.tensor_map import Entry, in_every_layer, linear, norm


def read_config(settings: Settings, family: str = "roberta") -> Config:
    """Read the configuration of a RoBERTa checkpoint.

    Args:
        settings: its `config.json`.
        family: its family.
    """
    config = encoder.read_config(settings, family, masked="gelu")
    padding = settings.integer("pad_token_id", 1, least=0)
    positions = config.positions - padding - 1
    if positions < 1:
        settings.problems.append(
            f"max_position_embeddings = {config.positions} leaves no place after pad_token_id = {padding}"
        )
    return dataclasses.replace(config, positions=positions, position_offset=padding + 1, uncounted=padding)


PREPARED = [*linear("lm_head.dense", "head.dense"), *norm("lm_head.layer_norm", "head.norm")]


def tensor_map(config: Config) -> list[Entry]:
    """Return the table of stored tensors and the parameters that they become.

    Args:
        config: the checkpoint's parts.
    """
    heads = {
        "masked token": encoder.masked_token_tensors(config, PREPARED, "lm_head.decoder", "lm_head.bias"),
        "classes": [
            *linear("classifier.dense", "head.dense"),
            *encoder.logits("classifier.out_proj.weight", "classifier.out_proj.bias"),
        ],
        "hidden": [],
    }
    return [*encoder.EMBEDDINGS, *in_every_layer(config.layers, encoder.BLOCK), *heads[config.head.kind]]


FAMILY = Family(
    read_config,
    tensor_map,
    prefix="roberta.",
    heads=r"(lm_head|classifier)\..*",
    layer=r"encoder\.layer\.(\d{1,9})\.",
    ignored=rf"{encoder.POSITION_IDS}|pooler\..*",
    copies={"lm_head.decoder.weight": "embeddings.word_embeddings.weight", "lm_head.decoder.bias": "lm_head.bias"},
)
