"""How far the parts of a model's own code are from those of its family here."""

from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import duat_jax as duat
from duat_jax.models.registry import FAMILIES

TEXT = [23, 24, 25, 26, 27]
"""A text within the smallest vocabulary."""


def away_from_the_family(module: Any) -> float | str | None:
    """Return how far the parts of a model's own code are from its family's, nothing where there is no family.

    Args:
        module: a model of transformers.

    Returns:
        The largest difference of the value, the embedding's part or a neuron's coefficient, relative to the largest of
        them; or why the checkpoint isn't one of the family.
    """
    if module.config.model_type not in FAMILIES:
        return None
    with TemporaryDirectory() as folder:
        try:
            module.save_pretrained(folder)
            native = duat.load(folder)
            kind = native.config.head.kind
            other = duat.from_hugging_face(type(module.base_model if kind == "hidden" else module), folder)
        except duat.DuatError as error:
            return str(error).replace(folder, "the checkpoint")[:120]
        asked = {"hidden": {"against": [21, 22]}, "masked token": {"target": 21, "position": 2}}.get(
            kind, {"target": 21}
        )
        one, two = (duat.explain(model, TEXT, **asked) for model in (native, other))
    pairs, neurons = [(one.value, two.value)], [list(each.coefficients.values()) for each in (one, two)]
    if getattr(module.config, "num_experts_per_tok", None):  # whose order is each code's own
        neurons = [[np.sort(np.concatenate(of, -1), -1)] for of in neurons]
    pairs += zip(*neurons, strict=True)
    if not native.config.position_embedding:  # else positions are biases of the code's, and no part of the embedding
        pairs.append((one.embedding, two.embedding))
    distances = [np.abs(np.asarray(a) - np.asarray(b)).max() / np.abs(np.asarray(a)).max() for a, b in pairs]
    return float(f"{max(distances):.0e}")
