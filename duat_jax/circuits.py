"""Circuits: which units carry a task, ranked by attribution methods and measured by corrupting the other units."""

from duat_jax.evaluation.circuit_curve import FRACTIONS as FRACTIONS
from duat_jax.evaluation.circuit_curve import STATISTICS as STATISTICS
from duat_jax.evaluation.circuit_curve import Curve as Curve
from duat_jax.evaluation.circuit_study import Study as Study
from duat_jax.evaluation.circuit_study import study as study
from duat_jax.evaluation.circuits import METHODS as METHODS
from duat_jax.evaluation.circuits import UNITS as UNITS
from duat_jax.evaluation.circuits import measure as measure
from duat_jax.evaluation.comparison import Row as Row
from duat_jax.evaluation.comparison import compare as compare
from duat_jax.inputs.prompts import Drawn as Drawn
from duat_jax.inputs.prompts import Prompt as Prompt
from duat_jax.inputs.prompts import draw as draw
from duat_jax.inputs.tasks.registry import TASKS as TASKS
