"""Checkpoint families and their loader, with everything needed to add a family."""

from duat_jax.models.checkpoint.settings import Settings as Settings
from duat_jax.models.config import Config as Config
from duat_jax.models.config import Head as Head
from duat_jax.models.config import Image as Image
from duat_jax.models.families import decoder as decoder
from duat_jax.models.families import encoder as encoder
from duat_jax.models.families.family import Family as Family
from duat_jax.models.families.tensor_map import Entry as Entry
from duat_jax.models.families.tensor_map import in_layer as in_layer
from duat_jax.models.families.tensor_map import linear as linear
from duat_jax.models.families.tensor_map import norm as norm
from duat_jax.models.registry import register_family as register_family
from duat_jax.models.transformer import Transformer as Transformer
from duat_jax.namespaces import public_names as _public_names

__dir__ = _public_names(globals())
