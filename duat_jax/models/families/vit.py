"""The Vision Transformer family: configuration and tensor map of Hugging Face's `vit` checkpoints."""

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config, Head, Image
from duat_jax.models.families.encoder import logits
from duat_jax.models.families.family import Family
from duat_jax.models.families.heads import classes
from duat_jax.models.families.tensor_map import Entry, Transform, in_layer, linear, norm
from duat_jax.nn.config import BlockConfig


def read_config(settings: Settings) -> Config:
    """Read the configuration of a Vision Transformer checkpoint.

    Args:
        settings: its `config.json`.
    """
    height, width = settings.pair("image_size", 224)
    patch_height, patch_width = settings.pair("patch_size", 16)
    image = Image(
        height=height,
        width=width,
        channels=settings.integer("num_channels", 3),
        patch_height=patch_height,
        patch_width=patch_width,
    )
    if not image.patches:
        settings.problems.append(
            f"patch_size = {patch_height} × {patch_width} is larger than image_size = {height} × {width}"
        )
    settings.expect("pruned_heads", {})
    block = BlockConfig(
        arrangement="pre-norm",
        features=settings.integer("hidden_size"),
        heads=settings.divisor("num_attention_heads", "hidden_size"),
        neurons=settings.integer("intermediate_size"),
        activation=settings.activation("hidden_act", "gelu"),
        causal=False,
        attention_bias=settings.boolean("qkv_bias", True),
        epsilon=settings.number("layer_norm_eps", 1e-12),
    )
    kind = settings.head(("classes", "hidden"), "hidden")
    return Config(
        family="vit",
        blocks=(block,) * settings.count("num_hidden_layers"),
        vocab=0,
        positions=image.patches + 1,
        image=image,
        head=classes(settings, "first", bias=True) if kind == "classes" else Head(),
    )


def _layer(block: BlockConfig) -> list[Entry]:
    return [
        *norm("encoder.layer.{i}.layernorm_before", "block.norm_1"),
        *(
            entry
            for part in ("query", "key", "value")
            for entry in linear(
                f"encoder.layer.{{i}}.attention.attention.{part}",
                f"block.attention.{part}",
                bias=block.attention_bias,
            )
        ),
        *linear("encoder.layer.{i}.attention.output.dense", "block.attention.output"),
        *norm("encoder.layer.{i}.layernorm_after", "block.norm_2"),
        *linear("encoder.layer.{i}.intermediate.dense", "block.mlp.input"),
        *linear("encoder.layer.{i}.output.dense", "block.mlp.output"),
    ]


def _reshaped(*shape: int) -> Transform:
    """Return the transform of a parameter that is stored in another shape."""
    return Transform(
        lambda _: [shape],
        lambda stored, shapes: [stored[0].reshape(shapes[0])],
        lambda values: [values[0].reshape(shape)],
    )


def _convolution(*pixels: int) -> Transform:
    """Return the transform of a linear map of a patch's pixels that is stored as a convolution."""
    return Transform(
        lambda shapes: [(shapes[0][1], *pixels)],
        lambda stored, shapes: [stored[0].reshape(shapes[0][::-1]).T],
        lambda values: [values[0].T.reshape(-1, *pixels)],
    )


def tensor_map(config: Config) -> list[Entry]:
    """Return the table of stored tensors and the parameters that they become.

    Args:
        config: the checkpoint's parts.
    """
    image, features = config.image, config.features
    pixels = (image.channels, image.patch_height, image.patch_width) if image else ()
    patch, places = "embeddings.patch_embeddings.projection", _reshaped(1, config.positions, features)
    return [
        Entry("embeddings.cls_token", ("embedding.whole",), _reshaped(1, 1, features)),
        Entry("embeddings.position_embeddings", ("embedding.position",), places),
        Entry(f"{patch}.weight", ("embedding.patch.kernel",), _convolution(*pixels)),
        Entry(f"{patch}.bias", ("embedding.patch.bias",)),
        *(entry for i, block in enumerate(config.blocks) for entry in in_layer(i, _layer(block))),
        *norm("layernorm", "final_norm"),
        *(logits("classifier.weight", "classifier.bias") if config.head.kind == "classes" else []),
    ]


FAMILY = Family(
    read_config,
    tensor_map,
    prefix="vit.",
    heads=r"(classifier|decoder)\..*",
    layer=r"encoder\.layer\.(\d{1,9})\.",
    ignored=r"pooler\..*|embeddings\.mask_token",
    modules={
        f"layers.{{i}}.{theirs}": f"encoder.layer.{{i}}.{stored}"
        for theirs, stored in {
            "attention.q_proj": "attention.attention.query",
            "attention.k_proj": "attention.attention.key",
            "attention.v_proj": "attention.attention.value",
            "attention.o_proj": "attention.output.dense",
            "mlp.fc1": "intermediate.dense",
            "mlp.fc2": "output.dense",
        }.items()
    },
)
