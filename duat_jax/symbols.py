"""Symbols and numbers: derived forms as JAX functions, and networks compared with them."""

from duat_jax.verification.compare import Difference as Difference
from duat_jax.verification.compare import Verification as Verification
from duat_jax.verification.compare import verify as verify
from duat_jax.verification.networks import networks as networks
from duat_jax.verification.routes import block_arrays as block_arrays
from duat_jax.verification.routes import held_by_layer as held_by_layer
from duat_jax.verification.routes import symbolic_block as symbolic_block
from symbolic.evaluation.bridge import to_jax as to_jax
