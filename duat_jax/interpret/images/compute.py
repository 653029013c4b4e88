"""Split a number that a network computes on an image into maps over the image."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from duat_jax.deprecation import renamed_arguments
from duat_jax.errors import DuatError
from duat_jax.forms import affine_form, decomposition
from duat_jax.forms.secant import secant
from duat_jax.inputs.images import SeenImage
from duat_jax.interpret.images.result import ImageMaps
from duat_jax.processes import on_host
from duat_jax.transform.keys import Marked
from duat_jax.transform.recording import record_kinds

_KINDS = tuple(dict.fromkeys((*decomposition.KINDS, *affine_form.KINDS)))


@renamed_arguments(against="reference")
def image_maps(fn: Callable[[Array], Float[Array, ""]], x: Any, reference: Any = None) -> ImageMaps:
    """Split one number that a network computes on an image over its pixels, its terms' places and its biases.

    Args:
        fn: a pure function of one image with marks, returning a scalar; for example one logit of a residual network.
        x: the image, `[rows, columns, channels]`.
        reference: another image of the same shape, for example an empty one: the difference `f(x) − f(reference)` is
            split over the pixels too.

    Returns:
        The maps with their completeness; they show themselves in a notebook, `print` shows them in a terminal, and
        `plot` lays them over the image.

    Raises:
        DuatError: if `x` is no image, `reference` one of another shape, or `fn` doesn't return one scalar.
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
    if reference is not None and (np.shape(reference) != x.shape or getattr(reference, "dtype", None) != x.dtype):
        raise DuatError(f"the reference is {_described(reference)}, and the image {_described(x)}: give two alike")
    recording = record_kinds(fn, x, _KINDS)
    parts = decomposition.contributions(recording)
    collapsed = affine_form.collapsed_contributions(recording)
    change = None if reference is None else secant(fn)(x, reference)
    parts, collapsed, change = on_host((parts, collapsed, change))
    rows, columns, _ = x.shape
    return ImageMaps(
        image=SeenImage(np.moveaxis(np.asarray(x), -1, 0), rows, columns),
        path=parts.input.sum(-1),
        terms=Marked({key: _map(part) for key, part in parts.terms.items()}),
        biases=Marked({key: float(part) for key, part in parts.offsets.items()}),
        collapse=collapsed.input.sum(-1),
        collapse_bias=float(collapsed.bias),
        change=None if change is None else change.parts.sum(-1),
        completeness=parts.completeness.on_host(),
        collapse_completeness=collapsed.completeness.on_host(),
        change_completeness=None if change is None else change.completeness.on_host(),
    )


def _map(part: Float[np.ndarray, "..."]) -> Float[np.ndarray, "_ _"]:
    return part.sum(-1) if part.ndim == 3 else part.sum().reshape(1, 1)


def _described(x: Any) -> str:
    return f"one of shape {list(x.shape)}" if hasattr(x, "shape") else f"a {type(x).__name__}"
