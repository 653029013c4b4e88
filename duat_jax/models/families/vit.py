"""The Vision Transformer family: configuration and tensor map of Hugging Face's `vit` checkpoints."""

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config, Head, Image
from duat_jax.models.families.heads import classes
from duat_jax.models.families.names import Names
from duat_jax.models.families.tensor_map import Entry, Transform
from duat_jax.nn.config import BlockConfig


def read_config(settings: Settings) -> Config:
    """Read the configuration of a Vision Transformer checkpoint."""
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


NAMES = Names(
    layer="encoder.layer.{i}.",
    parts={
        "norm_1": "layernorm_before",
        "attention.query": "attention.attention.query",
        "attention.key": "attention.attention.key",
        "attention.value": "attention.attention.value",
        "attention.output": "attention.output.dense",
        "norm_2": "layernorm_after",
        "mlp.input": "intermediate.dense",
        "mlp.output": "output.dense",
    },
    outside={"final_norm": "layernorm"},
    heads={"classes": {"logits": "classifier"}},
)


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
    """Return the table of stored tensors and the parameters that they become."""
    image, features = config.image, config.features
    pixels = (image.channels, image.patch_height, image.patch_width) if image else ()
    patch, places = "embeddings.patch_embeddings.projection", _reshaped(1, config.positions, features)
    return [
        Entry("embeddings.cls_token", ("embedding.whole",), _reshaped(1, 1, features)),
        Entry("embeddings.position_embeddings", ("embedding.position",), places),
        Entry(f"{patch}.weight", ("embedding.patch.kernel",), _convolution(*pixels)),
        Entry(f"{patch}.bias", ("embedding.patch.bias",)),
        *NAMES.tensor_map(config),
    ]


FAMILIES = {
    "vit": NAMES.family(
        read_config,
        tensor_map=tensor_map,
        prefix="vit.",
        heads=r"(classifier|decoder)\..*",
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
}
