"""Pictures of results that have no `plot` of their own, or of several results beside each other."""

from duat_jax.in_context.plot import draw_reach as draw_reach
from duat_jax.lora.plot import draw_moved as draw_moved
from duat_jax.papers.plot import draw_approximation_errors as draw_approximation_errors
from duat_jax.papers.plot import draw_parameter_changes as draw_parameter_changes
from duat_jax.papers.plot import draw_prompted_outputs as draw_prompted_outputs
from duat_jax.pruning.plot import draw as draw_pruning  # noqa: F401
