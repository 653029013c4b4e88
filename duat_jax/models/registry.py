"""The checkpoint families by `model_type`, and registration of new ones."""

import difflib

from duat_jax.errors import DuatError
from duat_jax.models.config import Config
from duat_jax.models.families import bert, cohere, experts, gemma, glm, gpt, llama, modernbert, olmo, phi, qwen, vit
from duat_jax.models.families.family import Family
from duat_jax.models.validation import require_layers

MODULES = (gpt, bert, modernbert, vit, llama, qwen, gemma, phi, olmo, cohere, glm, experts)
FAMILIES: dict[str, Family] = {name: family for module in MODULES for name, family in module.FAMILIES.items()}
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
        >>> register_family("llama", llama.FAMILIES["llama"])  # the same again changes nothing
    """
    if FAMILIES.setdefault(model_type, family) is not family:
        raise DuatError(f"model_type = {model_type!r} is a family already: register yours under another name")


def family_of(config: Config) -> Family:
    """Return the family of a loaded checkpoint."""
    require_layers(config)
    return FAMILIES[config.family]


def nearest(model_type: str) -> str | None:
    """Return the known `model_type` with the most similar name, or `None`.

    Example:
        >>> nearest("qwen2_moe")
        'qwen3_moe'
    """
    longer = (name for name in FAMILIES if name.startswith(model_type))
    return next(iter([*longer, *difflib.get_close_matches(model_type, FAMILIES, 1)]), None)
