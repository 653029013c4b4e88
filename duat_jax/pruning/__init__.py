"""Pruning of neurons, heads and layers: ranking, compensation, and the loss of the pruned model."""

from duat_jax.namespaces import public_names as _public_names
from duat_jax.pruning.checkpoint import save_pruned as save_pruned
from duat_jax.pruning.layers import prune_layers as prune_layers
from duat_jax.pruning.pruner import prune as prune
from duat_jax.pruning.removal import Removal as Removal
from duat_jax.pruning.removal import Terms as Terms
from duat_jax.pruning.removal import measure_removal as measure_removal
from duat_jax.pruning.removal import without as without
from duat_jax.pruning.study import Pruner as Pruner
from duat_jax.pruning.study import losses_of as losses_of

__dir__ = _public_names(globals())
