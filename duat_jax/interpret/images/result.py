"""The result of splitting a number over an image: maps, each at its own resolution."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from duat_jax.display.named_arrays import NamedArray, by_mark, numbered, whole
from duat_jax.display.result import Displayed
from duat_jax.display.view import Map, Table, View, named_parts, sides
from duat_jax.forms.completeness import Completeness
from duat_jax.inputs.images import SeenImage
from duat_jax.interpret.images.record import ImageMapsRecord
from duat_jax.json_record import as_record
from duat_jax.kinds import kept_as
from duat_jax.transform.keys import Marked


@kept_as("image maps")
@dataclass(frozen=True, eq=False)
class ImageMaps(Displayed):
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
        sums = {
            "completeness": self.path.sum(dtype=np.float64) + sum(terms) + sum(map(float, self.biases.values())),
            "collapse_completeness": self.collapse.sum(dtype=np.float64) + float(self.collapse_bias),
        }
        return sums if self.change is None else sums | {"change_completeness": self.change.sum(dtype=np.float64)}

    def view(self) -> View:
        """Return the maps as they are shown: the sum and the largest entry of each, and the maps over the image."""
        parts = {"pixels, past all terms": self.path, **{str(key): part for key, part in self.terms.items()}}
        through = {"through everything (collapse)": self.collapse}
        through |= {} if self.change is None else {"what another image changes (secant)": self.change}
        rows = []
        for name, part in parts.items():
            row, column = np.unravel_index(np.abs(part).argmax(), part.shape)
            size = " × ".join(map(str, part.shape))
            rows.append((name, float(part.sum()), float(part[row, column]), f"{row}, {column}", size))
        change = (
            {} if self.change_completeness is None else {sides("the image", "the reference"): self.change_completeness}
        )
        return View(
            kind="image maps",
            target="the value",
            value=self.value,
            value_name="value",
            completeness=self.completeness,
            exact=f"through everything: pixels {self.collapse.sum():+z.4f}, constant {self.collapse_bias:+z.4f}",
            added=named_parts("Biases", self.biases.items()),
            tables=(Table("", ("part", "sum", "largest", "at row, column", "of"), tuple(rows)),),
            maps=(
                *(Map(name, numbers, whole=True) for name, numbers in through.items()),
                *(Map(name, numbers) for name, numbers in parts.items()),
            ),
            sums=change,
            image=self.image,
        )

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
