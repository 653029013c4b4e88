"""An image, or the spectrogram of a sound, that a PyTorch model reads before its text: patches as tokens."""

import inspect
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from duat_jax.errors import InvalidInput
from duat_jax.models.config import Image, ImageBesideText
from duat_jax.models.layout import DECODER, ENCODER

PIXELS, FEATURES = "pixel_values", "input_features"
"""The arguments of PyTorch code for an image and for a sound."""
TOWERS = "clip", "siglip", "altclip", "chinese_clip"
"""The model types of a tower for images and one for texts, whose similarity is computed."""
IN_TEXT = "llava", "paligemma", "vipllava", "got_ocr2", "aya_vision", "cohere2_vision"
"""The model types of language models in whose text an image of one size stands."""
SOUNDS = ("whisper",)
"""The model types that read the spectrogram of a sound of one length, cut into pairs of frames."""
SIZES = "image_size", "patch_size", "num_channels"
"""The fields of PyTorch's settings that say how an image is cut into patches."""
FRAMES = 2
"""The number of a spectrogram's frames in a patch: the step of the convolution that Whisper's encoder begins with."""


def text_table(module: Any) -> Any:
    """Return the layer that embeds the tokens of a module's text."""
    text = getattr(module, "text_model", module)
    return text.get_input_embeddings()


def reads_image(module: Any) -> bool:
    """Return whether a module is one of those known here that read an image before a text, or a sound."""
    kind, name = module.config.model_type, type(module).__name__
    if kind in TOWERS:
        return name.endswith("Model") and hasattr(module, "logit_scale")
    return kind in IN_TEXT + SOUNDS and name.endswith("ForConditionalGeneration")


def image_beside_text(module: Any) -> ImageBesideText | None:
    """Return what a module reads before its text, if that is one image of one size, or a sound of one length."""
    settings = module.config
    if not reads_image(module):
        return None
    if module.main_input_name == FEATURES:
        bins, frames = settings.num_mel_bins, FRAMES * settings.max_source_positions
        image = Image(height=bins, width=frames, channels=1, patch_height=bins, patch_width=FRAMES, whole=0)
        return ImageBesideText(image=image, sound=True)
    found = _seen_by_tower(module.get_image_features, module, settings.vision_config)
    image, features = _image_of(settings.vision_config, found), text_table(module).weight.shape[-1]
    in_text = sum(each.numel() for each in found.pooler_output) // features
    placeholder = getattr(settings, "image_token_id", None)
    return ImageBesideText(
        image=image,
        placeholder=placeholder,
        placeholders=0 if placeholder is None else in_text,
        filler=settings.get_text_config().pad_token_id if settings.model_type == "siglip" else None,
        end=_end_of(settings.get_text_config()) if settings.model_type == "clip" else None,
    )


def _end_of(settings: Any) -> int:
    """Return the token at which CLIP reads a text: its end, which older settings don't name, and is the last token."""
    return settings.vocab_size - 1 if settings.eos_token_id == 2 else settings.eos_token_id


def image_alone(module: Any) -> Image | None:
    """Return the image that a module of layers over patches reads, if that is all and its size is known."""
    settings, arguments = module.config, inspect.signature(module.forward).parameters
    sizes = (getattr(settings, name, None) for name in SIZES)
    if PIXELS not in arguments or "input_ids" in arguments or not all(isinstance(each, int) for each in sizes):
        return None
    tower = module if type(module).__name__.endswith("Model") else module.base_model
    try:
        found = _seen_by_tower(tower, module, settings)
    except (RuntimeError, TypeError, ValueError):
        return None
    states = getattr(found, "last_hidden_state", None)
    return None if states is None or states.ndim != 3 else _image_of(settings, found)


def _seen_by_tower(tower: Any, module: Any, settings: Any) -> Any:
    """Return what the layers of an image make of an empty one."""
    import torch

    weight = next(module.parameters())
    side, _, channels = (getattr(settings, name) for name in SIZES)
    with torch.no_grad():
        return tower(pixel_values=torch.zeros(1, channels, side, side, dtype=weight.dtype, device=weight.device))


def _image_of(settings: Any, found: Any) -> Image:
    """Return the image that a tower reads, from its settings and what it returns."""
    side, patch, channels = (getattr(settings, name) for name in SIZES)
    image = Image(height=side, width=side, channels=channels, patch_height=patch, patch_width=patch)
    # What is pooled over an image stands at the token of the whole.
    return replace(image, whole=max(found.last_hidden_state.shape[-2] - image.patches, 1))


def patches_of(image: Image, pixels: Float[Array, "... channels height width"]) -> Float[Array, "... patches entries"]:
    """Return the pixels of each patch, row by row; what no whole patch covers is left out."""
    expected = (image.channels, image.height, image.width)
    if pixels.shape[-3:] != expected:
        raise InvalidInput(
            f"the image is of shape {list(pixels.shape)}, but the model takes {list(expected)}: resize it"
        )
    high, wide, rows, columns = image.patch_height, image.patch_width, image.rows, image.columns
    x = pixels[..., : rows * high, : columns * wide]
    x = x.reshape(*x.shape[:-2], rows, high, columns, wide)
    channels, a, b, c, d = range(x.ndim - 5, x.ndim)
    return x.transpose(*range(x.ndim - 5), a, c, channels, b, d).reshape(*x.shape[:-5], rows * columns, -1)


def pixels_of(image: Image, patches: Float[Array, "... patches entries"]) -> Float[Array, "... channels height width"]:
    """Return the image of patches; zeros where no patch is."""
    high, wide, rows, columns = image.patch_height, image.patch_width, image.rows, image.columns
    x = patches.reshape(*patches.shape[:-2], rows, columns, image.channels, high, wide)
    a, c, channels, b, d = range(x.ndim - 5, x.ndim)
    x = x.transpose(*range(x.ndim - 5), channels, a, b, c, d)
    x = x.reshape(*x.shape[:-4], rows * high, columns * wide)
    outside = (image.height - rows * high, image.width - columns * wide)
    return jnp.pad(x, (*[(0, 0)] * (x.ndim - 2), *((0, each) for each in outside)))


def before_text(
    beside: ImageBesideText, pixels: Any, text: Float[Array, "... tokens features"]
) -> Float[Array, "... _ _"]:
    """Return the patches of an image in the first rows, and the embeddings of its text after them.

    Args:
        beside: what the image is for the model.
        pixels: the image, `[..., channels, height, width]`.
        text: the embeddings of as many tokens as there are, of which the first are those of the image.
    """
    if pixels is None:
        raise InvalidInput("the model reads an image beside its text: give its pixels too, model(ids, pixels=…)")
    patches = patches_of(beside.image, jnp.asarray(pixels, text.dtype))
    most = max(patches.shape[-1], text.shape[-1])
    rows = widened(after_the_whole(beside.image, patches), most)
    return jnp.concatenate([rows, widened(text[..., beside.tokens :, :], most)], -2)


def after_the_whole(image: Image, patches: Float[Array, "... patches entries"]) -> Float[Array, "... tokens entries"]:
    """Return the patches of an image after zeros for the tokens of the whole."""
    return jnp.pad(patches, (*[(0, 0)] * (patches.ndim - 2), (image.whole, 0), (0, 0)))


def numbered(beside: ImageBesideText, ids: Any) -> Any:
    """Return of each token its number in a mask: 1 for the image's, and for the text's 2 more than their ids."""
    of_image = (np.arange(ids.shape[-1]) < beside.tokens).astype(ids.dtype)
    return of_image * ENCODER + (1 - of_image) * (ids + DECODER)


def widened(x: Float[Array, "... features"], features: int) -> Float[Array, "... _"]:
    """Return rows with zeros after their features."""
    return jnp.pad(x, (*[(0, 0)] * (x.ndim - 1), (0, features - x.shape[-1])))
