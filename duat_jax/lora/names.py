"""Names of modules in the reference implementation, which PEFT writes, and in checkpoints."""

import re
from collections.abc import Mapping

from duat_jax.models.registry import family_of
from duat_jax.models.transformer import Transformer


def stored_module(model: Transformer, called: str) -> str:
    """Return the name of a module in a checkpoint, without the model's prefix."""
    family = family_of(model.config)
    return _renamed(family.modules, called.removeprefix(family.prefix))


def prefixed(model: Transformer, name: str) -> str:
    """Return a tensor's name in a checkpoint: with the prefix of a model that has a head."""
    family = family_of(model.config)
    headless = model.config.head.kind == "hidden" or re.fullmatch(family.heads, name)
    return name if headless else family.prefix + name


def full_tensor(model: Transformer, name: str) -> str:
    """Return a tensor's name in the reference implementation."""
    family, (module, _, end) = family_of(model.config), name.rpartition(".")
    called = _renamed({stored: called for called, stored in family.modules.items()}, module)
    return f"{prefixed(model, name).removesuffix(name)}{called}.{end}"


def full_module(model: Transformer, module: str) -> str:
    """Return a module's name in the reference implementation."""
    return full_tensor(model, f"{module}.weight").removesuffix(".weight")


def _renamed(names: Mapping[str, str], module: str) -> str:
    """Return the other name of a module, where `{i}` in both is a layer's number; its own if it has none."""
    number = re.search(r"(?<=\.)\d+(?=\.)", module)
    if number is None:
        return names.get(module, module)
    general = module[: number.start()] + "{i}" + module[number.end() :]
    return names[general].replace("{i}", number[0]) if general in names else module
