"""Edits of neurons, heads, the residual stream, or any marked value, with which a model is run again."""

import typing as _typing

from duat_jax.interpret.intervene.places import Heads as Heads
from duat_jax.interpret.intervene.places import Neurons as Neurons
from duat_jax.interpret.intervene.places import Stream as Stream
from duat_jax.interpret.intervene.sources import FromInput as FromInput
from duat_jax.interpret.intervene.sources import HeadMove as HeadMove
from duat_jax.interpret.intervene.sources import MeanEmbedding as MeanEmbedding
from duat_jax.interpret.intervene.sources import SteeringVector as SteeringVector
from duat_jax.namespaces import old_names as _old_names
from duat_jax.transform.editing import Edit as Edit

if not _typing.TYPE_CHECKING:  # for a type checker it would give any name
    __getattr__ = _old_names(globals())
