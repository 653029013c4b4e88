"""Image files: pixels for a model, prepared as its checkpoint says."""

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped
from PIL import ExifTags, ImageOps
from PIL import Image as Pillow

from duat_jax.errors import DuatError, InvalidInput
from duat_jax.kinds import kept_as
from duat_jax.models.checkpoint.json_file import read_json
from duat_jax.models.checkpoint.place import local_path
from duat_jax.models.checkpoint.problems import quoted, raise_problems
from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Image
from duat_jax.models.loader import load_config

RECIPE = "preprocessor_config.json"
PROCESSORS = ("ViTImageProcessor", "ViTImageProcessorFast", "ViTImageProcessorPil")
FORMATS = ("BMP", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
MODES = {1: "L", 3: "RGB"}
"""Pillow's modes, by their number of channels."""

SIDEWAYS = (5, 6, 7, 8)
"""Exif's orientations in which height and width are exchanged."""

MOST_PIXELS = 2**26
"""The largest image that is decoded or made: a small file may hold an enormous one."""

_NOT_PIXELS = "feature_extractor_type processor_class size_divisor data_format input_data_format return_tensors"
HARMLESS = frozenset(f"{_NOT_PIXELS} device disable_grouping".split())
"""Fields that leave the pixels as they are."""

Size = tuple[int, int]


class _Recipe(NamedTuple):
    """The preparation of an image; steps that aren't taken are absent.

    Args:
        size: height and width that it is resized to; or the length of its shorter edge.
        resample: the number of the resampling filter.
        crop: height and width of what is cut out of the middle.
        factor: what entries from 0 to 255 are multiplied by.
        mean: what is subtracted, for each channel.
        std: what is divided by, for each channel.
        converted: whether images of other modes are converted.
    """

    size: Size | int | None
    resample: int
    crop: Size | None
    factor: float | None
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    converted: bool


def load_image(file: Path | str, path: Path | str) -> Float[np.ndarray, "channels height width"]:
    """Return the pixels of an image's file: upright, resized, cropped, rescaled and normalised for a model.

    Args:
        file: a BMP, JPEG, PNG, PPM, TIFF or WebP file.
        path: the model's checkpoint directory, with `config.json` and `preprocessor_config.json`, or `hub:OWNER/NAME`.

    Raises:
        BadCheckpoint: naming every field of `preprocessor_config.json` that isn't known and may change the pixels.
        InvalidInput: if the model reads no images, or the file isn't one of the right mode and size.
    """
    config = load_config(path)
    if config.image is None:
        raise InvalidInput(f"a {config.family} model reads no images: give it a text")
    recipe = _read_recipe(local_path(path) / RECIPE, config.image)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Pillow.open(file, formats=FORMATS) as opened:
                return _pixels(opened, recipe, config.image, str(file))
    except DuatError:
        raise
    except Exception as error:  # of many kinds, by the format's decoder
        raise InvalidInput(f"{file} is no image that can be read ({' '.join(str(error).split())[:200]})") from None


def _read_recipe(file: Path, image: Image) -> _Recipe:
    values = read_json(file)
    if not isinstance(values, dict):
        raise_problems(file, [f"must be an object of fields, not {quoted(values)}"])
    settings = Settings(values)
    settings.choice("image_processor_type", PROCESSORS, PROCESSORS[0])
    settings.expect("do_pad", False)

    def wanted(name: str, default: bool, value: Any) -> Any:
        return value if settings.boolean(name, default) else None

    def channels(name: str) -> tuple[float, ...]:
        return settings.numbers(name, image.channels) if settings.has(name) else (0.5,) * image.channels

    resample = settings.integer("resample", Pillow.Resampling.BILINEAR)
    if resample not in list(Pillow.Resampling):
        settings.problems.append(f"resample = {resample} is none of Pillow's filters")
    recipe = _Recipe(
        wanted("do_resize", True, _size(settings, "size", (224, 224))),
        resample,
        wanted("do_center_crop", False, _size(settings, "crop_size", None)),
        wanted("do_rescale", True, settings.number("rescale_factor", 1 / 255)),
        wanted("do_normalize", True, channels("image_mean")),
        wanted("do_normalize", True, channels("image_std")),
        settings.boolean("do_convert_rgb", False),
    )
    raise_problems(file, settings.all_problems(HARMLESS))
    return recipe


def _size(settings: Settings, name: str, default: Size | None) -> Any:
    """Return height and width, or the length of the shorter edge."""
    value = settings.values.get(name)
    if value is None:
        return default
    if not isinstance(value, dict):
        return (settings.integer(name),) * 2
    if (group := settings.group(name)) is None or group.has("shortest_edge"):
        return None if group is None else group.integer("shortest_edge")
    return group.integer("height"), group.integer("width")


def _pixels(opened: Pillow.Image, recipe: _Recipe, image: Image, name: str) -> Float[np.ndarray, "_ _ _"]:
    size = _require_fitting(opened, recipe, image, name)
    upright = ImageOps.exif_transpose(opened)
    pixels = upright.convert("RGB") if recipe.converted else upright
    if recipe.size is not None:
        pixels = pixels.resize(size[::-1], Pillow.Resampling(recipe.resample))
    entries = np.asarray(pixels).reshape(*size, -1)
    if recipe.crop is not None:
        top, left = (size[0] - recipe.crop[0]) // 2, (size[1] - recipe.crop[1]) // 2
        entries = entries[top : top + recipe.crop[0], left : left + recipe.crop[1]]
    return _normalised(entries, recipe)


def _require_fitting(opened: Pillow.Image, recipe: _Recipe, image: Image, name: str) -> Size:
    """Return height and width after resizing, before anything of the image is decoded."""
    width, height = opened.size
    mode, problems = MODES.get(image.channels), []
    if opened.mode != mode and not (recipe.converted and mode == "RGB"):
        problems.append(
            f"is of mode {opened.mode}, but the model reads {mode or f'{image.channels} channels'}: convert it"
        )
    if width * height > MOST_PIXELS:
        problems.append(f"has {width} × {height} pixels: make it smaller, up to {MOST_PIXELS} in all")
    if problems:
        raise InvalidInput(f"{name} " + "; and it ".join(problems))
    if opened.getexif().get(ExifTags.Base.Orientation) in SIDEWAYS:  # which decodes some formats
        width, height = height, width
    size = _resized((height, width), recipe.size)
    final, model = recipe.crop or size, (image.height, image.width)
    if final != model:
        raise InvalidInput(
            f"{name} becomes {final[1]} × {final[0]} pixels, but the model takes {model[1]} × {model[0]}: resize it"
        )
    if final[0] > size[0] or final[1] > size[1] or size[0] * size[1] > MOST_PIXELS:
        raise InvalidInput(
            f"{name} is resized to {size[1]} × {size[0]} pixels before {final[1]} × {final[0]} are cut out: give one"
            " that is neither that small nor that long"
        )
    return size


def _resized(size: Size, wanted: Size | int | None) -> Size:
    """Return height and width after resizing."""
    if not isinstance(wanted, int):
        return wanted or size
    height, width = size
    longer = int(wanted * max(size) / min(size))
    return (longer, wanted) if width <= height else (wanted, longer)


def _normalised(entries: Shaped[np.ndarray, "height width channels"], recipe: _Recipe) -> Float[np.ndarray, "_ _ _"]:
    # The product is rounded once, to float32.
    scaled = (entries.astype(np.float64) * (recipe.factor or 1)).astype(np.float32)
    if recipe.mean is not None and recipe.std is not None:
        mean, std = (np.array(numbers, np.float32) for numbers in (recipe.mean, recipe.std))
        scaled = np.divide(scaled - mean, std, dtype=np.float32)
    return np.ascontiguousarray(np.moveaxis(scaled, -1, 0))


@kept_as("image")
class SeenImage(NamedTuple):
    """The image that a model read.

    Args:
        pixels: as the model reads them, `[channels, height, width]`.
        rows: how many patches lie below each other.
        columns: how many lie side by side.
    """

    pixels: Float[np.ndarray, "channels height width"]
    rows: int
    columns: int


def seen_image(image: Image, pixels: Float[np.ndarray, "_ _ _"]) -> SeenImage:
    """Return the part of an image that whole patches cover."""
    rows, columns = image.height // image.patch_height, image.width // image.patch_width
    return SeenImage(pixels[:, : rows * image.patch_height, : columns * image.patch_width], rows, columns)
