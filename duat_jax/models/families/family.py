"""What a checkpoint family is: how its configuration is read, and what its tensors are called."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families.tensor_map import Entry
from duat_jax.nn.config import BlockConfig


@final
@dataclass(frozen=True)
class Family:
    """A family of checkpoints: everything that a `model_type` means.

    Args:
        read_config: the parts of a checkpoint, from its `config.json`.
        tensor_map: which stored tensor becomes which parameters.
        harmless: fields of `config.json` that leave the computation as it is; one that is neither read nor harmless is
            refused by name.
        prefix: what stands before the names of a model that has a head, and before none of its head's own.
        heads: regular expression of names of heads.
        layer: regular expression that begins the names of a layer's tensors, its number the group.
        ignored: regular expression of names, without prefix, that are no part of the model.
        older: other endings of names, and what they are called here.
        copies: stored names that a tied checkpoint may have too, and the tensors that they repeat.
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


def blocks_of(block: BlockConfig, neurons: Sequence[int]) -> tuple[BlockConfig, ...]:
    """Return the parts of blocks that are alike but for their numbers of neurons.

    Args:
        block: the parts that they have in common.
        neurons: of each block how many neurons its MLP has.
    """
    return tuple(dataclasses.replace(block, neurons=count) for count in neurons)
