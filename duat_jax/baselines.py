"""Baselines: references that are made of an input, for `duat.contrast` and `duat.attribute`."""

from duat_jax.inputs.baseline_kinds import Baseline as Baseline
from duat_jax.inputs.baseline_kinds import Blur as Blur
from duat_jax.inputs.baseline_kinds import Mask as Mask
from duat_jax.inputs.baseline_kinds import Mean as Mean
from duat_jax.inputs.baseline_kinds import Pad as Pad
