"""The names at the top of `duat_jax`, once; this module is loaded when one of them is first used."""

from pathlib import Path as _Path
from typing import Any as _Any

from duat_jax.attribution.compute import attribute as attribute
from duat_jax.errors import BadCheckpoint as BadCheckpoint
from duat_jax.errors import DuatError as DuatError
from duat_jax.errors import InvalidInput as InvalidInput
from duat_jax.errors import NotAffine as NotAffine
from duat_jax.errors import NotEnoughMemory as NotEnoughMemory
from duat_jax.errors import NotFinite as NotFinite
from duat_jax.errors import UnsupportedProgram as UnsupportedProgram
from duat_jax.forms.affine_form import collapse as collapse
from duat_jax.forms.closed_form import unroll as unroll
from duat_jax.forms.decomposition import contributions as contributions
from duat_jax.forms.decomposition import decompose as decompose
from duat_jax.forms.score import split_score as split_score
from duat_jax.forms.secant import secant as secant
from duat_jax.inputs.images import load_image as load_image
from duat_jax.inputs.model_inputs import TokenizedText as TokenizedText
from duat_jax.inputs.processed import load_sound as load_sound
from duat_jax.interpret.attention.compute import explain_attention as explain_attention
from duat_jax.interpret.contrast.compute import contrast as contrast
from duat_jax.interpret.explain.compute import explain as explain
from duat_jax.interpret.graph.compute import graph as graph
from duat_jax.interpret.images.compute import image_maps as image_maps
from duat_jax.interpret.intervene.compute import intervene as intervene
from duat_jax.interpret.singular_triplets import decode_triplets as decode_triplets
from duat_jax.live.widget import widget as widget
from duat_jax.marking.automatic import auto as auto
from duat_jax.models.converted import from_hugging_face as from_hugging_face
from duat_jax.models.loader import load as load
from duat_jax.models.loader import load_config as load_config
from duat_jax.models.tokenizer import load_tokenizer as load_tokenizer
from duat_jax.pytorch.module import from_torch as from_torch
from duat_jax.saved import read_result as _read_result
from duat_jax.transform.editing import edit as edit
from duat_jax.transform.keys import Key as Key
from duat_jax.transform.keys import Site as Site
from duat_jax.transform.marks import hold as hold
from duat_jax.transform.marks import offset as offset
from duat_jax.transform.marks import point as point
from duat_jax.transform.marks import stream as stream
from duat_jax.transform.marks import term as term
from duat_jax.transform.query import linear_map as linear_map
from duat_jax.transform.query import replay as replay
from duat_jax.transform.recording import record as record
from duat_jax.weights.compute import diff as diff


def open(path: _Path | str) -> _Any:
    """Read a result from a file, and compute its verdict again from its parts.

    Args:
        path: a file that the `save` of a result wrote.

    Returns:
        The result. What it would compute by its model, such as an attention score's neurons, it doesn't have.

    Raises:
        InvalidInput: if it is no such file, one of another version, damaged or edited.

    Example:
        >>> import tempfile
        >>> import duat_jax as duat
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     duat.explain(duat.load(), [5, 6, 7]).save(f"{folder}/result")
        ...     duat.open(f"{folder}/result").completeness.verdict
        'holds'
    """
    import duat_jax.results  # noqa: F401  (every kind of result says its name where it is defined)

    return _read_result(path)
