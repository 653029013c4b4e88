"""Low-rank adapters (LoRA): adapted and merged models, adapter files, and the exact difference that adapters make."""

import typing as _typing

from duat_jax.lora.adapter import Adapter as Adapter
from duat_jax.lora.adapter import adapt as adapt
from duat_jax.lora.adapter import merge as merge
from duat_jax.lora.adapter import new_adapters as new_adapters
from duat_jax.lora.adapter import scaled as scaled
from duat_jax.lora.change import lora_change as lora_change
from duat_jax.lora.merged import save_merged as save_merged
from duat_jax.lora.parameters import Moved as Moved
from duat_jax.lora.parameters import moved_parameters as moved_parameters
from duat_jax.lora.peft import load_adapters as load_adapters
from duat_jax.lora.peft import save_adapters as save_adapters
from duat_jax.lora.replacement import Replacement as Replacement
from duat_jax.lora.result import LoraChange as LoraChange
from duat_jax.lora.training import train as train
from duat_jax.namespaces import old_names as _old_names
from duat_jax.namespaces import public_names as _public_names
from duat_jax.training.next_token import TrainingSettings as TrainingSettings

__dir__ = _public_names(globals())

if not _typing.TYPE_CHECKING:  # for a type checker it would give any name
    __getattr__ = _old_names(globals())
