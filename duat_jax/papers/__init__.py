"""Experiments of the papers by Wang and Li: sums of sigmoids (UAT) beside Transformers (DUAT)."""

from duat_jax.namespaces import public_names as _public_names
from duat_jax.papers.digits import Digits as Digits
from duat_jax.papers.digits import accuracy as accuracy
from duat_jax.papers.digits import load_digits as load_digits
from duat_jax.papers.digits import residual_cnn as residual_cnn
from duat_jax.papers.digits import train_classifier as train_classifier
from duat_jax.papers.digits import vision_transformer as vision_transformer
from duat_jax.papers.groups import GroupedAttention as GroupedAttention
from duat_jax.papers.mixers import DistancePattern as DistancePattern
from duat_jax.papers.mixers import FeatureConvolution as FeatureConvolution
from duat_jax.papers.mixers import NoMixing as NoMixing
from duat_jax.papers.mixers import TokenConvolution as TokenConvolution
from duat_jax.papers.mixers import replace_attention as replace_attention
from duat_jax.papers.sigmoids import FUNCTIONS as FUNCTIONS
from duat_jax.papers.sigmoids import ApproximationErrors as ApproximationErrors
from duat_jax.papers.sigmoids import SigmoidSum as SigmoidSum
from duat_jax.papers.sigmoids import approximation_errors as approximation_errors
from duat_jax.papers.sigmoids import fit_sigmoids as fit_sigmoids
from duat_jax.papers.sigmoids import staircase as staircase

__dir__ = _public_names(globals())
