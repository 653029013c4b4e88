"""Files of images and sounds for a model by PyTorch's code: prepared by the checkpoint's own processor."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from PIL import Image as Pillow
from PIL import ImageOps

from duat_jax.errors import DuatError, InvalidInput
from duat_jax.extras import requiring
from duat_jax.models.checkpoint.place import local_path
from duat_jax.models.config import Image
from duat_jax.models.loader import load_config

MOST_PIXELS = 2**26
"""The largest image that is decoded or made: a small file may hold an enormous one."""
FORMATS = ("BMP", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


def load_sound(file: Path | str, path: Path | str) -> Float[np.ndarray, "channels height width"]:
    """Return the spectrogram of a sound's file as a model reads it, by the checkpoint's own feature extractor.

    Args:
        file: a WAV file of the rate that the model takes; several channels are averaged.
        path: the model's checkpoint directory, such as Whisper's, or `hub:OWNER/NAME`.

    Returns:
        One channel of frequencies by frames, `[1, bins, frames]`.

    Raises:
        BadCheckpoint: if the checkpoint can't be read.
        InvalidInput: if the model reads no sounds, the file isn't one, or it is longer or of another rate than the
            model takes.

    Example:
        >>> load_sound("speech.wav", "nowhere")
        Traceback (most recent call last):
        ...
        duat_jax.errors.BadCheckpoint: nowhere is not a directory: ...
    """
    config = load_config(path)
    if config.beside is None or not config.beside.sound:
        raise InvalidInput(f"a {config.family} model reads no sounds: give it what it reads")
    return _prepared(file, local_path(path), config.beside.image, "AutoFeatureExtractor", _samples)


def processed_image(file: Path | str, path: Path, image: Image) -> Float[np.ndarray, "channels height width"]:
    """Return the pixels of an image's file as a model by PyTorch's code takes them."""
    return _prepared(file, path, image, "AutoImageProcessor", _opened)


def _prepared(
    file: Path | str, path: Path, image: Image, automatic: str, read: Any
) -> Float[np.ndarray, "channels height width"]:
    """Return what a checkpoint's processor makes of a file."""
    with requiring("torch", "the model"):
        import transformers
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            processors = getattr(transformers, automatic)
            processor = processors.from_pretrained(str(path), local_files_only=True, trust_remote_code=False)
            pixels = read(file, processor)
    except DuatError:
        raise
    except Exception as error:  # of many kinds, by the decoder and by the processor
        raise InvalidInput(f"{file} can't be read: {' '.join(str(error).split())[:200]}") from None
    pixels = np.asarray(pixels, np.float32)
    expected = (image.channels, image.height, image.width)
    if pixels.shape != expected:
        raise InvalidInput(f"{file} becomes {list(pixels.shape)} by the checkpoint's processor, not {list(expected)}")
    return pixels


def _opened(file: Path | str, processor: Any) -> Shaped[np.ndarray, "..."]:
    with Pillow.open(file, formats=FORMATS) as opened:
        if opened.width * opened.height > MOST_PIXELS:
            raise InvalidInput(
                f"{file} has {opened.width} × {opened.height} pixels: make it smaller, up to {MOST_PIXELS}"
            )
        if opened.mode.startswith(("I", "F")):
            raise InvalidInput(f"{file} is of mode {opened.mode}, with more than 8 bits: convert it")
        found = processor(images=ImageOps.exif_transpose(opened).convert("RGB"), return_tensors="np")["pixel_values"]
    return np.concatenate(found) if len(found) == 1 else np.asarray(found)


def _samples(file: Path | str, extractor: Any) -> Shaped[np.ndarray, "..."]:
    from scipy.io import wavfile  # slow to import

    rate, samples = wavfile.read(file)
    if rate != extractor.sampling_rate:
        raise InvalidInput(
            f"{file} has {rate} samples a second, and the model takes {extractor.sampling_rate}: resample it"
        )
    if len(samples) > extractor.n_samples:
        seconds = extractor.n_samples / rate
        raise InvalidInput(
            f"{file} lasts {len(samples) / rate:z.1f} s, and the model reads {seconds:z.0f} s at most: cut it"
        )
    if np.issubdtype(samples.dtype, np.integer):
        limits = np.iinfo(samples.dtype)
        # Unsigned samples lie around the middle of their range.
        samples = (samples - (limits.max + limits.min + 1) / 2) / (limits.max - (limits.max + limits.min) // 2)
    if not len(samples) or not np.isfinite(samples).all():
        raise InvalidInput(f"{file} has no samples, or some that are no numbers: give another")
    mono = samples.reshape(len(samples), -1).mean(1, dtype=np.float64)
    return extractor(mono, sampling_rate=rate, return_tensors="np")["input_features"]
