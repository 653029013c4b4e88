"""The layers to which PEFT gives adapters, by the fields of `adapter_config.json`."""

import re
from typing import Any

from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.checkpoint.settings import Settings

ALL = "all-linear"
"""PEFT's word for every linear layer but the read-out."""


class TargetModules:
    """A test of layers' names: PEFT leaves out the tensors of every other layer.

    Args:
        settings: the fields of `adapter_config.json`; their problems are kept there.
    """

    def __init__(self, settings: Settings) -> None:
        for field in ("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"):
            settings.ignore(field)
        self.targets = _names(settings, "target_modules")
        self.excluded = _names(settings, "exclude_modules")
        patterns = _names(settings, "layers_pattern")
        self.patterns = [patterns] if isinstance(patterns, str) else patterns
        layers = settings.values.get("layers_to_transform")
        self.layers = [layers] if isinstance(layers, int) else layers or []
        if not self.targets and not settings.values.get("target_parameters"):  # which is refused itself
            settings.problems.append("target_modules must name the layers that have adapters, as when PEFT saves")
        if not isinstance(self.layers, list) or not all(isinstance(layer, int) for layer in self.layers):
            settings.problems.append(f"layers_to_transform must be numbers of layers, not {quoted(layers)}")

    def __contains__(self, name: str) -> bool:
        if _matches(self.excluded, name):
            return False
        if self.targets == ALL:
            return True
        by_number = self.layers and not isinstance(self.targets, str)
        return _matches(self.targets, name) and (not by_number or self._layer(name) in self.layers)

    def _layer(self, name: str) -> int | None:
        """Return the number of a name's layer: the first number, or the first behind one of the patterns."""
        for pattern in self.patterns or [r"[^.]*"]:
            if match := re.match(rf"(?:^|.*?\.){pattern}\.(\d+)\.", name):
                return int(match[1])
        return None


def _names(settings: Settings, field: str) -> str | list[str]:
    """Return a pattern of names, or a list of their ends; a problem is kept in the settings."""
    value: Any = settings.values.get(field) or []
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return value
    try:
        re.compile(value)
        return value
    except (re.error, TypeError):
        settings.problems.append(f"{field} must be a list of names or a pattern of them, not {quoted(value)}")
        return []


def _matches(names: str | list[str], name: str) -> bool:
    if isinstance(names, str):
        return re.fullmatch(names, name) is not None
    return any(name == end or name.endswith(f".{end}") for end in names)
