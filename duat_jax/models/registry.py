"""The checkpoint families by `model_type`, and registration of new ones."""

import difflib

from duat_jax.errors import DuatError
from duat_jax.models.config import Config
from duat_jax.models.families import (
    albert,
    bert,
    cohere,
    distilbert,
    gemma,
    gemma2,
    gemma3_text,
    gpt2,
    gpt_neox,
    gpt_oss,
    gptj,
    granite,
    llama,
    mistral,
    mixtral,
    modernbert,
    olmo2,
    olmo3,
    opt,
    phi,
    phi3,
    qwen2,
    qwen3,
    qwen3_moe,
    roberta,
    smollm3,
    stablelm,
    starcoder2,
    vit,
    xlm_roberta,
)
from duat_jax.models.families.family import Family
from duat_jax.models.validation import require_layers

FAMILIES: dict[str, Family] = {
    "gpt2": gpt2.FAMILY,
    "bert": bert.FAMILY,
    "roberta": roberta.FAMILY,
    "distilbert": distilbert.FAMILY,
    "gpt_neox": gpt_neox.FAMILY,
    "vit": vit.FAMILY,
    "gptj": gptj.FAMILY,
    "opt": opt.FAMILY,
    "albert": albert.FAMILY,
    "modernbert": modernbert.FAMILY,
    "llama": llama.FAMILY,
    "mistral": mistral.FAMILY,
    "qwen2": qwen2.FAMILY,
    "qwen3": qwen3.FAMILY,
    "gemma2": gemma2.FAMILY,
    "mixtral": mixtral.FAMILY,
    "olmo2": olmo2.FAMILY,
    "phi3": phi3.FAMILY,
    "qwen3_moe": qwen3_moe.FAMILY,
    "gemma3_text": gemma3_text.FAMILY,
    "gpt_oss": gpt_oss.FAMILY,
    "starcoder2": starcoder2.FAMILY,
    "smollm3": smollm3.FAMILY,
    "olmo3": olmo3.FAMILY,
    "gemma": gemma.FAMILY,
    "phi": phi.FAMILY,
    "stablelm": stablelm.FAMILY,
    "xlm-roberta": xlm_roberta.FAMILY,
    "granite": granite.FAMILY,
    "cohere": cohere.FAMILY,
}
"""The family of each `model_type`, including those that a user registered."""


def register_family(model_type: str, family: Family) -> None:
    """Register a checkpoint family, so that `load` and everything that loads a path accept its `model_type`.

    Args:
        model_type: the `model_type` of their `config.json`.
        family: the reader of their configuration, and their tensor names.

    Raises:
        DuatError: if there is another family of that `model_type`.

    Example:
        >>> from duat_jax.models.families import llama
        >>> register_family("llama", llama.FAMILY)  # the same again changes nothing
    """
    if FAMILIES.setdefault(model_type, family) is not family:
        raise DuatError(f"model_type = {model_type!r} is a family already: register yours under another name")


def family_of(config: Config) -> Family:
    """Return the family of a loaded checkpoint.

    Args:
        config: the model's parts.

    Raises:
        DuatError: for a model that PyTorch's code computes, which has none.
    """
    require_layers(config)
    return FAMILIES[config.family]


def nearest(model_type: str) -> str | None:
    """Return the known `model_type` with the most similar name, or `None`.

    Args:
        model_type: an unknown one.

    Example:
        >>> nearest("qwen2_moe")
        'qwen3_moe'
    """
    longer = (name for name in FAMILIES if name.startswith(model_type))
    return next(iter([*longer, *difflib.get_close_matches(model_type, FAMILIES, 1)]), None)
