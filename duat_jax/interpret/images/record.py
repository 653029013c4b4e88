"""The record of maps over an image."""

from duat_jax.forms.record import CompletenessRecord
from duat_jax.json_record import Record


class ImageMapsRecord(Record, tag="image maps"):
    """Maps over an image: one number as sums over its pixels and over the places where terms fired.

    Args:
        model: the name of the model.
        dtype: of everything computed.
        value: the number, from the plain forward pass.
        path: of every pixel what it adds past all terms, `[rows, columns]`.
        terms: by term, of every place where it fired, at its own resolution.
        biases: of every bias, by name.
        completeness: the sum of all parts against the value.
        collapse: of every pixel through everything, `[rows, columns]`.
        collapse_bias: what in the collapse doesn't depend on the pixels.
        collapse_completeness: the sum of the collapse against the value.
        change: of every pixel its part of the difference to another image; none without one.
        change_completeness: the sum of these parts against the difference; none without one.
    """

    model: str
    dtype: str
    value: float
    path: list[list[float]]
    terms: dict[str, list[list[float]]]
    biases: dict[str, float]
    completeness: CompletenessRecord
    collapse: list[list[float]]
    collapse_bias: float
    collapse_completeness: CompletenessRecord
    change: list[list[float]] | None
    change_completeness: CompletenessRecord | None
