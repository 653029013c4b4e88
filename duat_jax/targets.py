"""Targets: which number of a model's output is explained, and what a target of one's own consists of."""

from duat_jax.models.targets.base import ForwardPass as ForwardPass
from duat_jax.models.targets.base import ReadByItself as ReadByItself
from duat_jax.models.targets.base import Reader as Reader
from duat_jax.models.targets.base import Reading as Reading
from duat_jax.models.targets.base import Target as Target
from duat_jax.models.targets.classes import ClassLogit as ClassLogit
from duat_jax.models.targets.description import NamedOutput as NamedOutput
from duat_jax.models.targets.description import TargetDescription as TargetDescription
from duat_jax.models.targets.direction import Direction as Direction
from duat_jax.models.targets.logit import Logit as Logit
from duat_jax.models.targets.logit import LogProbability as LogProbability
from duat_jax.models.targets.similarity import Similarity as Similarity
