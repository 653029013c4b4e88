"""Experiments of the papers by Wang and Li, in small: sums of sigmoids, prompts, digits, and mixers of tokens."""

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
from duat_jax.papers.networks import PROMPT_NETWORKS as PROMPT_NETWORKS
from duat_jax.papers.networks import PROMPT_TASKS as PROMPT_TASKS
from duat_jax.papers.networks import PromptNetwork as PromptNetwork
from duat_jax.papers.networks import PromptSizes as PromptSizes
from duat_jax.papers.networks import count_parameters as count_parameters
from duat_jax.papers.networks import matched as matched
from duat_jax.papers.parameters import DenseParameters as DenseParameters
from duat_jax.papers.parameters import dense_parameters as dense_parameters
from duat_jax.papers.parameters import exchange_sources as exchange_sources
from duat_jax.papers.parameters import parameter_changes as parameter_changes
from duat_jax.papers.parameters import relative_position as relative_position
from duat_jax.papers.prompted import blind_errors as blind_errors
from duat_jax.papers.prompted import draw_sequences as draw_sequences
from duat_jax.papers.prompted import prompted_errors as prompted_errors
from duat_jax.papers.prompted import prompted_outputs as prompted_outputs
from duat_jax.papers.prompted import prompted_targets as prompted_targets
from duat_jax.papers.prompted import train_prompted as train_prompted
from duat_jax.papers.sigmoids import FUNCTIONS as FUNCTIONS
from duat_jax.papers.sigmoids import ApproximationErrors as ApproximationErrors
from duat_jax.papers.sigmoids import SigmoidSum as SigmoidSum
from duat_jax.papers.sigmoids import approximation_errors as approximation_errors
from duat_jax.papers.sigmoids import fit_sigmoids as fit_sigmoids
from duat_jax.papers.sigmoids import staircase as staircase

__dir__ = _public_names(globals())
