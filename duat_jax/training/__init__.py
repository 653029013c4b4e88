"""Training runs: what each weight, step and example did to a number, as sums that are exact."""

from duat_jax.training.influence import influence as influence
from duat_jax.training.result import Influence as Influence
from duat_jax.training.run import Kept as Kept
from duat_jax.training.run import Run as Run
from duat_jax.training.run import train as train
from duat_jax.training.weight_ledger import WeightLedger as WeightLedger
from duat_jax.training.weight_ledger import begin as begin
from duat_jax.training.weight_ledger import follow as follow
