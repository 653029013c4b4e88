"""Activation patching: values of another text in the places of changes, and their parts of a contrast with it."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array, Shaped

from duat_jax.errors import BadText
from duat_jax.forms.decomposition import KINDS
from duat_jax.inputs.baselines import check_contrast
from duat_jax.inputs.batching import bucket, padded
from duat_jax.inputs.model_inputs import Inputs
from duat_jax.interpret.contrast.result import Contrast
from duat_jax.interpret.intervene.changes import Applied
from duat_jax.interpret.pipeline import forward_from
from duat_jax.models.config import Config
from duat_jax.models.encoding import encode
from duat_jax.models.transformer import Transformer
from duat_jax.transform.keys import Site
from duat_jax.transform.recording import record_kinds

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def check_patching(
    config: Config, inputs: Inputs, other: str, target: Any, *, tokenizer: "Tokenizer", **about: Any
) -> Inputs:
    """Validate a text whose values are set in another one.

    Args:
        config: the model's parts.
        inputs: the text in which they are set.
        other: the text that they are of.
        target: as in `duat.contrast`.
        tokenizer: the model's tokenizer.
        about: more arguments of `duat.contrast`.

    Returns:
        The other text.

    Raises:
        BadText: if it can't be read, has another length, or is the same text.
    """
    ids = np.asarray(encode(tokenizer, other, "the other text"))
    if len(ids) != len(inputs.given):
        raise BadText(
            f"the text has {len(inputs.given)} tokens and the other text {len(ids)}: values are set token by token,"
            " give a text of as many"
        )
    request = check_contrast(config, inputs.given, ids, target, **about, tokenizer=tokenizer)
    return request.others[0].inputs


def values_of(model: Transformer, inputs: Inputs, changes: Sequence[Applied]) -> list[Shaped[np.ndarray, "..."]]:
    """Return the values on an input that stand in the places of changes.

    Args:
        model: the model.
        inputs: the input, as many tokens long as the changes' one.
        changes: the changes.

    Returns:
        Of each change the values of its tokens: of a stream `[tokens, features]`, of neurons `[tokens, neurons]`, of
        heads `[tokens, heads, head_features]`.
    """
    text = padded(inputs, bucket(len(inputs.real), model.config.positions))
    with jax.default_matmul_precision("highest"):
        seen = jax.device_get(_seen(model, text, tuple(dict.fromkeys(change.site for change in changes))))
    return [
        seen[change.site][np.ix_(change.tokens, *([] if change.units is None else [change.units]))]
        for change in changes
    ]


@partial(jax.jit, static_argnames="sites")
def _seen(model: Transformer, inputs: Inputs, sites: tuple[Site, ...]) -> dict[Site, Array]:
    def states(x: Array) -> Array:
        return forward_from(model, x, jax.numpy.asarray(inputs.real), None).at(None)

    kinds = {*KINDS, *(site.kind for site in sites)}
    recording = record_kinds(states, model.embed(inputs.given, inputs.segments), kinds)
    return {site: recording.seen[site] for site in sites}


def parts_of(contrast: Contrast, changes: Sequence[Applied]) -> list[float]:
    """Return minus the parts of a contrast in the places of changes: what setting them to the other text's would do.

    Args:
        contrast: of the text and the other one.
        changes: the changes.
    """

    def part(change: Applied) -> float:
        if change.units is None:
            return -float(contrast.flow[change.site.key.number][list(change.tokens)].sum())
        parts = contrast.heads if change.site.key in contrast.heads else contrast.neurons
        return -float(parts[change.site.key][np.ix_(change.tokens, change.units)].sum())

    return list(map(part, changes))
