"""The explanation of one number, made of the splits that a program returns."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float

from duat_jax.forms.completeness import Completeness
from duat_jax.inputs.images import seen_by
from duat_jax.inputs.labels import Labels
from duat_jax.inputs.model_inputs import Inputs
from duat_jax.interpret.explain.result import COLLAPSE_FIELDS, Explanation
from duat_jax.interpret.pipeline import Predicted, recomputation, require_finite
from duat_jax.models.targets.base import Reading, Target
from duat_jax.models.transformer import Transformer
from duat_jax.models.units import encoder_layers_of
from duat_jax.transform.keys import Marked

ENTROPY = "entropy"
"""The part of a log-probability that is minus the entropy of the model's distribution."""


class TableSplit(NamedTuple):
    """A read-out split over embedding, neurons and biases."""

    embedding: Float[Array, "*batch tokens"]
    coefficients: Marked[Float[Array, "*batch tokens neurons"]]
    biases: Marked[Float[Array, "*batch"]]
    completeness: Completeness


class CollapseSplit(NamedTuple):
    """A read-out split over the tokens of the input, by the collapse."""

    tokens: Float[Array, "*batch tokens"]
    bias: Float[Array, "*batch"]
    completeness: Completeness


class WantedSplits(NamedTuple):
    """The splits of one read-out, as far as they are wanted."""

    table: TableSplit | None
    collapse: CollapseSplit | None


def of_tokens(every: Marked[np.ndarray], tokens: int) -> Marked[np.ndarray]:
    """Return the rows of real tokens, as copies, so that one explanation doesn't keep a batch in memory."""
    return Marked({key: part[:tokens].copy() for key, part in every.items()})


def explanation(
    model: Transformer,
    inputs: Inputs,
    labels: Labels,
    target: Target,
    read_out: tuple[Reading, Predicted],
    parts: Any,
    activations: Marked[np.ndarray],
    where: str,
    later: Callable[[], tuple[Transformer, CollapseSplit]],
) -> Explanation:
    """Return the explanation of one target of one input; the collapse is computed `later` where it isn't there."""
    (reading, predicted), tokens = read_out, len(labels.names)
    table: Any = parts.table
    described = target.describe(reading, labels)
    remedy = "check the model's weights, or compute in a dtype of a wider range"
    require_finite(described.headline, {where: float(reading.value)}, remedy)
    recompute = recomputation(inputs, target, reading)

    def collapse_fields(model: Transformer, parts: CollapseSplit) -> dict[str, Any]:
        completeness = parts.completeness.against(reading.value).certified(model, recompute)
        values = parts.tokens[:tokens].copy(), float(parts.bias), completeness
        return dict(zip(COLLAPSE_FIELDS, values, strict=True))

    fields: dict[str, Any] = {
        "family": model.config.family,
        "tokens": labels.names,
        "target": described,
        "predictions": () if predicted is None else labels.predictions(*predicted),
        "embedding": table.embedding[:tokens].copy(),
        "coefficients": of_tokens(table.coefficients, tokens),
        "activations": activations,
        "biases": Marked(
            {
                key: float(part)
                for key, part in table.biases.items()
                if key.name != ENTROPY or reading.entropy is not None
            }
        ),
        # The value is that of the plain forward pass.
        "completeness": table.completeness.against(reading.value).certified(model, recompute),
        "image": seen_by(model.config, inputs),
        "encoder_layers": encoder_layers_of(model.config),
    }
    if parts.collapse is not None:
        return Explanation(**fields, **collapse_fields(model, parts.collapse))
    return Explanation.before_collapse(lambda: collapse_fields(*later()), **fields)
