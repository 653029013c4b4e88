"""Training runs: what each weight, step and example did to a number, as sums that are exact."""

from duat_jax.namespaces import public_names as _public_names
from duat_jax.training.kept import Kept as Kept
from duat_jax.training.kept import train as train
from duat_jax.training.over_examples.compute import influence as influence
from duat_jax.training.over_examples.result import Influence as Influence
from duat_jax.training.over_weights.compute import begin as begin
from duat_jax.training.over_weights.compute import follow as follow
from duat_jax.training.over_weights.result import WeightLedger as WeightLedger
from duat_jax.training.run import Run as Run

__dir__ = _public_names(globals())
