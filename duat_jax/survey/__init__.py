"""A survey of a corpus: what every neuron, head and bias does for the next token, over as many texts as there are."""

from duat_jax.display.examples import Example as Example
from duat_jax.display.examples import Examples as Examples
from duat_jax.display.examples import read_examples as examples  # noqa: F401
from duat_jax.namespaces import public_names as _public_names
from duat_jax.survey.run import survey as survey
from duat_jax.survey.tables import Survey as Survey
from duat_jax.survey.tables import read as open  # noqa: F401

__dir__ = _public_names(globals())
