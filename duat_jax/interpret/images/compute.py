"""Split a number that a network computes on an image into maps over the image."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from duat_jax.deprecation import renamed_arguments
from duat_jax.errors import DuatError, warn_caller
from duat_jax.forms import affine_form, decomposition
from duat_jax.forms.analysed_function import with_marks
from duat_jax.forms.secant import secant
from duat_jax.inputs.images import SeenImage
from duat_jax.interpret.images.result import ImageMaps
from duat_jax.processes import on_host
from duat_jax.transform.keys import Marked
from duat_jax.transform.recording import record_kinds

CHANNELS = (1, 3, 4)
"""The numbers of channels that files of images have."""

_KINDS = tuple(dict.fromkeys((*decomposition.KINDS, *affine_form.KINDS)))


@renamed_arguments(against="reference")
def image_maps(
    fn: Callable[[Array], Float[Array, ""]], x: Any, reference: Any = None, *, marks: str | None = None
) -> ImageMaps:
    """Split one number that a network computes on an image over its pixels, its terms' places and its biases.

    Args:
        fn: a pure function of one image with marks, returning a scalar; for example one logit of a residual network.
        x: the image, `[channels, height, width]`. One that can only have its channels last, as it was before, is
            read so for one release, with a warning.
        reference: another image of the same shape, for example an empty one: the difference `f(x) − f(reference)` is
            split over the pixels too.
        marks: `"auto"` places those that `fn` lacks, as `duat.auto` does; its own alone if absent.

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
        >>> maps = image_maps(lambda pixels: network(pixels)[3], jnp.ones((1, 8, 8)))
        >>> {str(term): table.shape for term, table in maps.terms.items()}, maps.completeness.verdict
        ({'layers.0.convolution': (8, 8), 'layers.1.convolution': (4, 4)}, 'holds')

    Source: Wang & Li, Eq. 11, for residual networks; the collapse and the secant are those of `duat.collapse` and
    `duat.secant`.
    """
    if getattr(x, "ndim", None) != 3 or not jnp.issubdtype(x.dtype, jnp.floating):
        raise DuatError(f"an image is one array [channels, height, width] of floating numbers, not {_described(x)}")
    if reference is not None and (np.shape(reference) != x.shape or getattr(reference, "dtype", None) != x.dtype):
        raise DuatError(f"the reference is {_described(reference)}, and the image {_described(x)}: give two alike")
    channels = _axis_of_channels(x.shape)
    recording = record_kinds(with_marks(fn, marks), x, _KINDS)
    parts = decomposition.contributions(recording)
    collapsed = affine_form.collapsed_contributions(recording)
    change = None if reference is None else secant(fn)(x, reference)
    parts, collapsed, change = on_host((parts, collapsed, change))
    pixels = np.moveaxis(np.asarray(x), channels, 0)
    return ImageMaps(
        image=SeenImage(pixels, *pixels.shape[1:]),
        path=parts.input.sum(channels),
        terms=Marked({key: _map(part, *pixels.shape[1:]) for key, part in parts.terms.items()}),
        biases=Marked({key: float(part) for key, part in parts.offsets.items()}),
        collapse=collapsed.input.sum(channels),
        collapse_bias=float(collapsed.bias),
        change=None if change is None else change.parts.sum(channels),
        completeness=parts.completeness.on_host(),
        collapse_completeness=collapsed.completeness.on_host(),
        change_completeness=None if change is None else change.completeness.on_host(),
    )


def _axis_of_channels(shape: tuple[int, ...]) -> int:
    """Return the axis of an image's channels; warn if it can only be the last one."""
    if shape[-1] not in CHANNELS or shape[0] in CHANNELS:
        return 0
    warn_caller(
        f"an image is [channels, height, width] now, and this one of shape {list(shape)} is read with its channels"
        " last; that goes with the next release: give fn and image_maps np.moveaxis(x, -1, 0)",
        FutureWarning,
    )
    return -1


def _map(part: Float[np.ndarray, "..."], rows: int, columns: int) -> Float[np.ndarray, "_ _"]:
    """Return a term's part by place; one number where no two neighbouring axes have the proportions of the image."""
    part = part[0] if part.ndim == 4 and len(part) == 1 else part  # PyTorch's code computes a batch of images
    if part.ndim == 3:
        height, width, last = part.shape
        unlike = {2: abs(height * columns - width * rows), 0: abs(width * columns - last * rows)}
        channels = min(unlike, key=lambda axis: unlike[axis])
        if unlike[channels] < max(rows, columns):
            return part.sum(channels)
    return part.sum().reshape(1, 1)


def _described(x: Any) -> str:
    return f"one of shape {list(x.shape)}" if hasattr(x, "shape") else f"a {type(x).__name__}"
