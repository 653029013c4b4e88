"""Targets: which number of a model's output is explained."""

from duat_jax.models.targets.base import Target as Target
from duat_jax.models.targets.classes import ClassLogit as ClassLogit
from duat_jax.models.targets.direction import Direction as Direction
from duat_jax.models.targets.logit import Logit as Logit
from duat_jax.models.targets.logit import LogProbability as LogProbability
from duat_jax.models.targets.similarity import Similarity as Similarity
