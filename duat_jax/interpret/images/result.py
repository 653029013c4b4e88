"""The result of splitting a number over an image: maps, each at its own resolution."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from duat_jax.display.named_arrays import NamedArray, by_mark, numbered, whole
from duat_jax.display.result import Plotted
from duat_jax.forms.completeness import Completeness
from duat_jax.inputs.images import SeenImage
from duat_jax.interpret.images.record import ImageMapsRecord
from duat_jax.json_record import as_record
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
        change: of the difference from a reference each pixel's part, by the secant, if there is a reference.
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

    @property
    def value(self) -> float:
        """The number that is split, from the plain forward pass."""
        return float(self.completeness.value)

    def part_sums(self) -> Mapping[str, Any]:
        """Return the sums of the parts that each completeness is about."""
        terms = [part.sum(dtype=np.float64) for part in self.terms.values()]
        found = {
            "completeness": self.path.sum(dtype=np.float64) + sum(terms) + sum(map(float, self.biases.values())),
            "collapse_completeness": self.collapse.sum(dtype=np.float64) + float(self.collapse_bias),
        }
        return found if self.change is None else found | {"change_completeness": self.change.sum(dtype=np.float64)}

    def arrays(self) -> Iterator[NamedArray]:
        """Yield the maps with named axes: of pixels by `row` and `column`, of a term at its own resolution.

        The sum of `path`, `terms` and `biases` is the value; so is that of `collapse` and `collapse_bias`. The sum of
        `change` is the difference `f(x) − f(reference)`.
        """
        rows, columns = self.path.shape
        pixel = {**numbered("row", rows), **numbered("column", columns)}
        yield whole("path", self.path, pixel)
        yield from by_mark("terms", self.terms, {}, "map_row", "map_column")
        yield from by_mark("biases", self.biases, {})
        yield whole("collapse", self.collapse, pixel)
        yield whole("collapse_bias", self.collapse_bias)
        if self.change is not None:
            yield whole("change", self.change, pixel)

    def as_dict(self, model: str = "") -> dict[str, Any]:
        """Return the maps as plain data for JSON, with the fields of `ImageMapsRecord`.

        Args:
            model: name of the model.
        """
        return as_record(ImageMapsRecord, self, model=model, dtype=self.completeness.dtype)

    def __repr__(self) -> str:
        return f"ImageMaps({self.value:.6g}, error {float(self.completeness.error):+.1e})"
