"""The definition of a checkpoint family: how to read its configuration, and its tensor names."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import final

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families.tensor_map import Entry


@final
@dataclass(frozen=True)
class Family:
    """A family of checkpoints, by its `model_type`.

    Args:
        read_config: the parts of a checkpoint, from its `config.json`.
        tensor_map: the table of stored tensors and the parameters that they become.
        harmless: fields of `config.json` that don't affect the computation; any other unread field is refused by name.
        prefix: the prefix of the names of a model with a head, except for its head's own.
        heads: regular expression of names of heads.
        layer: regular expression that begins the names of a layer's tensors, its number the group.
        ignored: regular expression of names, without prefix, that don't belong to the model.
        older: older ends of names, and the present ones; beginnings where they end with a dot.
        copies: stored names that a tied checkpoint may have too, and the tensors that they repeat.
        modules: the stored names of modules, without prefix, that the reference implementation calls otherwise in its
            model, by its names; `{i}` is a layer's number.
        parts: the stored names of the modules outside of the layers, of those of the first layer, and of the read-out.
        wrapper: the `model_type` of the language model in a model that reads more than texts, whose fields are its
            `text_config`; empty for a language model.
    """

    read_config: Callable[[Settings], Config]
    tensor_map: Callable[[Config], list[Entry]]
    harmless: Collection[str] = ()
    prefix: str = ""
    heads: str = "(?!)"
    layer: str = r"layers\.(\d{1,9})\."
    ignored: str = "(?!)"
    older: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    wrapper: str = ""
