"""Linear maps without their matrices, their algebra, and their entries, norms and singular triplets."""

from duat_jax.namespaces import public_names as _public_names
from duat_jax.operators.entries import diagonal as diagonal
from duat_jax.operators.entries import frobenius as frobenius
from duat_jax.operators.entries import token_norms as token_norms
from duat_jax.operators.estimate import Estimate as Estimate
from duat_jax.operators.estimate import estimated_diagonal as estimated_diagonal
from duat_jax.operators.estimate import estimated_frobenius as estimated_frobenius
from duat_jax.operators.linear_map import LinearMap as LinearMap
from duat_jax.operators.spectrum import SingularTriplets as SingularTriplets
from duat_jax.operators.spectrum import singular_triplets as singular_triplets

__dir__ = _public_names(globals())
