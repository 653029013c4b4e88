"""Experiments of the papers by Wang and Li: sums of sigmoids (UAT) beside Transformers (DUAT)."""

from duat_jax.namespaces import public_names as _public_names
from duat_jax.papers.sigmoids import FUNCTIONS as FUNCTIONS
from duat_jax.papers.sigmoids import ApproximationErrors as ApproximationErrors
from duat_jax.papers.sigmoids import SigmoidSum as SigmoidSum
from duat_jax.papers.sigmoids import approximation_errors as approximation_errors
from duat_jax.papers.sigmoids import fit_sigmoids as fit_sigmoids
from duat_jax.papers.sigmoids import staircase as staircase

__dir__ = _public_names(globals())
