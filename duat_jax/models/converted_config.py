"""The configuration of a model that its PyTorch code computes: sizes, and how its logits are read."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from duat_jax.errors import DuatError
from duat_jax.models.checkpoint.settings import HEAD_KINDS
from duat_jax.models.config import Config, Head, Image
from duat_jax.models.image_beside_text import image_alone, image_beside_text, reads_image, text_table
from duat_jax.nn.config import BlockConfig
from duat_jax.pytorch.module import has_decoder

OTHERWISE = (
    "; duat.from_torch(module, inputs) takes any module, and duat.decompose(…, marks='auto') explains a number of"
    " its outputs"
)
CONTEXT = (
    "max_target_positions",
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "context_length",
)
LOGITS_BIAS = "final_logits_bias"
"""The name of what BART and its relatives add to logits."""
LONGEST = 131_072
"""The longest text of a model whose configuration has no limit."""
SIMILARITY = "similarity"
"""The kind of read-out of two towers, and the name of its only number."""


def read_out_of(module: Any, kind: str) -> Any:
    """Return the linear layer that logits are read by; none for hidden states, and for classes read in another way."""
    import torch

    if kind in ("hidden", SIMILARITY):
        return None
    layer = getattr(module, "score", None) if kind == "classes" else module.get_output_embeddings()
    return layer if isinstance(layer, torch.nn.Linear) or kind != "classes" else None


def _table_of(module: Any) -> Any:
    """Return the layer that embeds tokens, if there is one."""
    try:
        table = text_table(module)
    except NotImplementedError:  # as of models of images and of sound
        return None
    return table if hasattr(table, "weight") and table.weight.ndim == 2 else None


def _head_of(module: Any, kind: str) -> Head:
    """Return how a model's logits are read from the states that its code computes."""
    if kind == SIMILARITY:
        return Head(kind="classes", outputs=1, labels=(SIMILARITY,), pool="last")
    read_out, settings = read_out_of(module, kind), module.config
    bias = read_out is not None and (read_out.bias is not None or hasattr(module, LOGITS_BIAS))
    if kind == "classes":
        labels = tuple(str(settings.id2label[k]) for k in range(settings.num_labels))
        pool, filler = ("first", None) if read_out is None else ("last", settings.pad_token_id)
        return Head(kind=kind, outputs=len(labels), labels=labels, bias=bias, pool=pool, filler=filler)
    if kind == "hidden":
        return Head()
    cap = getattr(settings.get_text_config(), "final_logit_softcapping", None)
    return Head(kind=kind, outputs=len(read_out.weight), bias=bias, cap=cap)


def _start(module: Any) -> int | None:
    """Return the token that a decoder's text begins with."""
    places = getattr(module, "generation_config", None), module.config.get_text_config()
    names = "decoder_start_token_id", "bos_token_id"
    given = (getattr(settings, name, None) for name in names for settings in places)
    return next((token for token in given if isinstance(token, int)), None)


def _unfit(module: Any, kind: str, table: Any) -> str | None:
    """Return why the two texts of an encoder with a decoder can't be read, if they can't."""
    if module.main_input_name != "input_ids" and not reads_image(module):
        return f"its encoder's is of {module.main_input_name}"
    if kind != "next token":
        return "no next token is read from it"
    decoder = module.get_decoder()
    if not hasattr(decoder, "get_input_embeddings") or decoder.get_input_embeddings().weight is not table.weight:
        return "its decoder has another table of embeddings, or none that is known"
    return "its settings name no decoder_start_token_id" if _start(module) is None else None


def kind_of(module: Any) -> str:
    """Return the kind of a model's read-out, by the name of its class."""
    name = type(module).__name__
    kind = next((kind for end, kind in HEAD_KINDS.items() if name.endswith(end)), "hidden")
    return SIMILARITY if kind == "hidden" and hasattr(module, "logit_scale") and reads_image(module) else kind


def _size(settings: Any, names: Sequence[str], default: int) -> int:
    """Return the first of some fields that is a positive number."""
    sizes = (getattr(settings, each, None) for each in names)
    return next((number for number in sizes if isinstance(number, int) and number > 0), default)


def _blocks(features: int, settings: Any, side: str = "") -> tuple[BlockConfig, ...]:
    """Return the blocks of one side of a model, such as its decoder, or of the only one."""
    # What a block computes is the module's code: these stand for sizes alone.
    block = BlockConfig(
        arrangement="pre-norm",
        features=features,
        heads=_size(settings, (f"{side}_attention_heads", "num_attention_heads", "num_heads"), 1),
        head_features=1,
        neurons=_size(settings, (f"{side}_ffn_dim", "intermediate_size", "d_ff"), 4 * features),
    )
    layers = f"{side}_layers", f"num_{side}_layers", "num_hidden_layers", "num_layers"
    return (block,) * _size(settings, layers, 1)


def _config_of_image(module: Any, image: Image) -> Config:
    """Return what is known of a model of transformers that reads images alone."""
    kind = "classes" if kind_of(module) == "classes" else "hidden"
    blocks = _blocks(module.config.hidden_size, module.config)
    return Config(
        family=module.config.model_type,
        blocks=blocks,
        vocab=0,
        positions=image.tokens,
        image=image,
        final_norm=False,
        head=_head_of(module, kind),
        marks=(),
    )


def config_of(module: Any, name: str) -> Config:
    """Return what is known of a model of transformers: sizes, and the kind of its read-out."""
    settings = module.config.get_text_config()
    if (image := image_alone(module)) is not None:
        return _config_of_image(module, image)
    beside, kind = image_beside_text(module), kind_of(module)
    table, problem = _table_of(module), None
    if table is None:
        problem = "has no table of tokens' embeddings"
    elif has_decoder(module) and (why := _unfit(module, kind, table)):
        problem = f"reads two texts, an encoder's and a decoder's, and {why}"
    elif kind not in ("hidden", "classes", SIMILARITY) and not hasattr(read_out_of(module, kind), "weight"):
        problem = "has no linear read-out"
    if problem is not None:
        raise DuatError(f"{name}: a {type(module).__name__} {problem}{OTHERWISE}")
    vocab, features = table.weight.shape

    blocks = partial(_blocks, features)
    if has_decoder(module):
        every = blocks(settings, "encoder") + blocks(settings, "decoder")
    else:
        every = blocks(settings) if beside is None else blocks(module.config.vision_config) + blocks(settings)
    return Config(
        family=module.config.model_type,
        blocks=every,
        vocab=vocab,
        positions=_size(settings, CONTEXT, LONGEST) + (0 if beside is None else beside.tokens),
        position_embedding=False,
        final_norm=False,
        head=_head_of(module, kind),
        marks=(),
        decoder_start=_start(module) if has_decoder(module) else None,
        beside=beside,
    )
