"""One number that a network computed on an image, with every part at the place where it arose."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from duat_jax.errors import DuatError
from duat_jax.explanation.result import SeenImage
from duat_jax.explanation.shown import Shown
from duat_jax.forms import affine_form, decomposition
from duat_jax.forms.completeness import Completeness
from duat_jax.forms.secant import secant
from duat_jax.transform.keys import Marked
from duat_jax.transform.recording import record_kinds

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

_KINDS = tuple(dict.fromkeys((*decomposition.KINDS, *affine_form.KINDS)))


@dataclass(frozen=True, eq=False)
class ImageMaps(Shown):
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

    def _table(self) -> "RenderableType":
        from duat_jax.explanation.image_maps_table import render

        return render(self)

    def plot(self) -> "Figure":
        """Return the maps over the image: in all, by the collapse and the secant, and term by term."""
        from duat_jax.explanation.image_maps_picture import draw_maps

        return draw_maps(self)


def image_maps(fn: Callable[[Array], Float[Array, ""]], x: Any, against: Any = None) -> ImageMaps:
    """Split one number that a network computes on an image over its pixels, its terms' places and its biases.

    Args:
        fn: a pure function of one image with marks, returning a scalar; for example one logit of a residual network.
        x: the image, `[rows, columns, channels]`.
        against: another image of the same shape, for example an empty one, to the difference from which every pixel's
            part is found too.

    Returns:
        The maps with their completeness; they show themselves in a notebook, `print` shows them in a terminal, and
        `plot` lays them over the image.

    Raises:
        DuatError: if `x` is no image, `against` one of another shape, or `fn` doesn't return one scalar.
        NotAffine: naming each operation that isn't linear, its source line and the missing mark.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> from duat_jax.models.residual_network import ResidualNetwork
        >>> network = ResidualNetwork(1, (4, 4, 8), 10, rngs=nnx.Rngs(0))
        >>> x = network.embed(jnp.ones((1, 8, 8)))
        >>> maps = image_maps(lambda x: network.output(x)[3], x)
        >>> {str(term): table.shape for term, table in maps.terms.items()}, maps.completeness.verdict
        ({'layers.0.convolution': (8, 8), 'layers.1.convolution': (4, 4)}, 'holds')

    Source: Wang & Li, Eq. 11, for residual networks; the collapse and the secant are those of `duat.collapse` and
    `duat.secant`.
    """
    if getattr(x, "ndim", None) != 3 or not jnp.issubdtype(x.dtype, jnp.floating):
        raise DuatError(f"an image is one array [rows, columns, channels] of floating numbers, not {_described(x)}")
    if against is not None and (np.shape(against) != x.shape or getattr(against, "dtype", None) != x.dtype):
        raise DuatError(f"the other image is {_described(against)}, and the first one {_described(x)}: give two alike")
    recording = record_kinds(fn, x, _KINDS)
    parts = decomposition.contributions(recording)
    collapsed = affine_form.collapsed_contributions(recording)
    change = None if against is None else secant(fn)(x, against)
    parts, collapsed, change = jax.device_get((parts, collapsed, change))
    rows, columns, _ = x.shape
    return ImageMaps(
        image=SeenImage(np.moveaxis(np.asarray(x), -1, 0), rows, columns),
        path=parts.input.sum(-1),
        terms=Marked({key: _map(part) for key, part in parts.terms.items()}),
        biases=Marked({key: float(part) for key, part in parts.offsets.items()}),
        collapse=collapsed.input.sum(-1),
        collapse_bias=float(collapsed.bias),
        change=None if change is None else change.parts.sum(-1),
        completeness=parts.completeness,
        collapse_completeness=collapsed.completeness,
        change_completeness=None if change is None else change.completeness,
    )


def _map(part: Float[np.ndarray, "..."]) -> Float[np.ndarray, "_ _"]:
    return part.sum(-1) if part.ndim == 3 else part.sum().reshape(1, 1)


def _described(x: Any) -> str:
    return f"one of shape {list(x.shape)}" if hasattr(x, "shape") else f"a {type(x).__name__}"
