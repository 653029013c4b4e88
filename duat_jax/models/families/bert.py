"""The BERT family: configuration and tensor map of Hugging Face's `bert` checkpoints, sentence encoders too."""

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import encoder
from duat_jax.models.families.family import Family
from duat_jax.models.families.tensor_map import Entry, in_every_layer, linear, norm


def read_config(settings: Settings) -> Config:
    """Read the configuration of a BERT checkpoint.

    Args:
        settings: its `config.json`.
    """
    settings.expect("directionality", "bidi")
    return encoder.read_config(settings, "bert")


PREPARED = [
    *linear("cls.predictions.transform.dense", "head.dense"),
    *norm("cls.predictions.transform.LayerNorm", "head.norm"),
]


def tensor_map(config: Config) -> list[Entry]:
    """Return the table of stored tensors and the parameters that they become.

    Args:
        config: the checkpoint's parts.
    """
    heads = {
        "masked token": encoder.masked_token_tensors(
            config, PREPARED, "cls.predictions.decoder", "cls.predictions.bias"
        ),
        "classes": [
            *linear("pooler.dense", "head.dense"),
            *encoder.logits("classifier.weight", "classifier.bias"),
        ],
        "hidden": [],
    }
    return [*encoder.EMBEDDINGS, *in_every_layer(config.layers, encoder.BLOCK), *heads[config.head.kind]]


FAMILY = Family(
    read_config,
    tensor_map,
    prefix="bert.",
    heads=r"(cls|classifier)\..*",
    layer=r"encoder\.layer\.(\d{1,9})\.",
    ignored=rf"{encoder.POSITION_IDS}|pooler\..*",
    older={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
    copies={
        "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
)
