"""Edits: changes of neurons, heads, the residual stream, or any marked value, with which a model is run again."""

from duat_jax.interpret.intervene.changes import Heads as Heads
from duat_jax.interpret.intervene.changes import Neurons as Neurons
from duat_jax.interpret.intervene.changes import Stream as Stream
from duat_jax.transform.editing import Edit as Edit
