"""Results: the types that the functions of `duat_jax` return.

Types with an underscore are public in other namespaces; with them, every kind of result is known when a file is opened.
"""

from duat_jax.attribution.result import Attribution as Attribution
from duat_jax.forms.affine_form import Collapse as Collapse
from duat_jax.forms.closed_form import ClosedForm as ClosedForm
from duat_jax.forms.completeness import Completeness as Completeness
from duat_jax.forms.decomposition import Decomposition as Decomposition
from duat_jax.forms.score import Score as Score
from duat_jax.forms.score import ScoreSide as ScoreSide
from duat_jax.forms.secant import Secant as Secant
from duat_jax.in_context.result import Ledger as _Ledger  # noqa: F401
from duat_jax.interpret.attention.result import AttentionScore as AttentionScore
from duat_jax.interpret.contrast.result import Contrast as Contrast
from duat_jax.interpret.explain.result import Explanation as Explanation
from duat_jax.interpret.graph.result import Graph as Graph
from duat_jax.interpret.images.result import ImageMaps as ImageMaps
from duat_jax.interpret.intervene.result import Intervention as Intervention
from duat_jax.interpret.singular_triplets import DecodedTriplet as DecodedTriplet
from duat_jax.lora.result import LoraChange as _LoraChange  # noqa: F401
from duat_jax.training.over_examples.result import Influence as _Influence  # noqa: F401
from duat_jax.training.over_weights.result import WeightLedger as _WeightLedger  # noqa: F401
from duat_jax.transform.keys import Marked as Marked
from duat_jax.transform.recording import Dynamics as Dynamics
from duat_jax.transform.recording import Recording as Recording
from duat_jax.weights.result import ModelDiff as ModelDiff
