"""Evaluation: cross-entropy on held-out text, circuits, deletion and insertion of tokens, statistics."""

from duat_jax.evaluation.running_text import mean_loss as mean_loss
from duat_jax.evaluation.running_text import stream as stream
from duat_jax.evaluation.running_text import token_losses as token_losses
from duat_jax.evaluation.running_text import windows as windows
from duat_jax.namespaces import public_names as _public_names

__dir__ = _public_names(globals())
