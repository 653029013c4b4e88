"""Edits: changes of neurons, heads, the residual stream, or any marked value, with which a model is run again."""

from duat_jax.interpret.intervene.places import Heads as Heads
from duat_jax.interpret.intervene.places import Neurons as Neurons
from duat_jax.interpret.intervene.places import Stream as Stream
from duat_jax.interpret.intervene.sources import Between as Between
from duat_jax.interpret.intervene.sources import MeanEmbedding as MeanEmbedding
from duat_jax.interpret.intervene.sources import Moved as Moved
from duat_jax.interpret.intervene.sources import On as On
from duat_jax.transform.editing import Edit as Edit
