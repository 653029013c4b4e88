"""The result of splitting a number over an image: maps, each at its own resolution."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from duat_jax.display.result import Plotted
from duat_jax.forms.completeness import Completeness
from duat_jax.inputs.images import SeenImage
from duat_jax.transform.keys import Marked


@dataclass(frozen=True, eq=False)
class ImageMaps(Plotted):
    """One number as maps over an image: `value = Σ path + Σ terms + Σ biases`, and as one map of its pixels.

    Args:
        image: what the network read.
        path: contribution of every pixel on the linear path, past all terms, `[rows, columns]`.
        terms: contribution of every term, by the place where it fired, at the resolution that it has; of a term that
            isn't on an image, `[1, 1]`.
        biases: contribution of every bias.
        collapse: contribution of every pixel through everything, by the collapse `W(x) x + b(x)`, `[rows, columns]`.
        collapse_bias: what in the collapse doesn't depend on the pixels.
        change: of the difference to another image each pixel's part, by the secant, if there is another one.
        completeness: value, sum of all parts, error and tolerance.
        collapse_completeness: the same for the collapse.
        change_completeness: the same for the difference.
    """

    image: SeenImage
    path: Float[np.ndarray, "rows columns"]
    terms: Marked[Float[np.ndarray, "_ _"]]
    biases: Marked[float]
    collapse: Float[np.ndarray, "rows columns"]
    collapse_bias: float
    change: Float[np.ndarray, "rows columns"] | None
    completeness: Completeness
    collapse_completeness: Completeness
    change_completeness: Completeness | None

    def __repr__(self) -> str:
        value, error = float(self.completeness.value), float(self.completeness.error)
        return f"ImageMaps({value:.6g}, error {error:+.1e})"
