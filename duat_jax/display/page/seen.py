"""The image or the sound on a page, which the parts of its patches lie over."""

import base64
import io
from typing import Any

import numpy as np
from PIL import Image as Pillow

from duat_jax.display.view import View
from duat_jax.inputs.images import SeenImage

SMALL = 64
"""The longest side, in pixels, of an image that is kept as it is; a larger one is compressed with loss."""

VEIL = "linear-gradient(color-mix(in srgb, var(--page) 55%, transparent) 0 0)"
"""The style that makes an image pale, in light and in dark, so that the colours over it are seen."""


def seen_data(view: View) -> dict[str, Any]:
    """Return the style of what was read, and of its patches, and of those in the text, the tokens and the name."""
    image = view.image
    if image is None or not view.tokens:
        return {"style": {}, "grids": []}
    name = "the sound, frame by frame" if image.sound else f"the image, {image.rows} × {image.columns} patches"
    grids = [(image.patches.start, image.patches.stop, name)]
    if image.slots is not None:
        grids.append((image.in_text.start, image.in_text.stop, f"{name}, in the text"))
    _, height, width = image.pixels.shape
    style = {
        "backgroundImage": f"{VEIL}, url({_as_uri(image)})",
        "gridTemplateColumns": f"repeat({image.columns}, 1fr)",
        "aspectRatio": "8" if image.sound else f"{width} / {height}",
        "imageRendering": "pixelated" if max(height, width) <= SMALL else "auto",
    }
    return {"style": style, "grids": grids}


def _as_uri(image: SeenImage) -> str:
    """Return the image in grey as an address of data; of a sound the low frequencies at the bottom."""
    pixels = np.asarray(image.pixels, float).mean(0)[:: -1 if image.sound else 1]
    least, most = pixels.min(), pixels.max()
    grey = Pillow.fromarray(np.uint8(255 * (pixels - least) / ((most - least) or 1.0)))
    form = "PNG" if max(grey.size) <= SMALL else "JPEG"
    file = io.BytesIO()
    grey.save(file, form, quality=80)
    return f"data:image/{form.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"
