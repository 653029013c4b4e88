"""Image files: pixels for a model, prepared as its checkpoint says."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped
from PIL import ExifTags, ImageOps
from PIL import Image as Pillow

from duat_jax.errors import DuatError, InvalidInput
from duat_jax.inputs.model_inputs import Inputs
from duat_jax.inputs.processed import FORMATS, MOST_PIXELS, processed_image
from duat_jax.kinds import kept_as
from duat_jax.models.checkpoint.json_file import read_json
from duat_jax.models.checkpoint.place import local_path
from duat_jax.models.checkpoint.problems import quoted, raise_problems
from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config, Image
from duat_jax.models.loader import load_config
from duat_jax.models.vocabulary.token import token_label

RECIPE = "preprocessor_config.json"
PROCESSORS = ("ViTImageProcessor", "ViTImageProcessorFast", "ViTImageProcessorPil")
MODES = {1: "L", 3: "RGB"}
"""Pillow's modes, by their number of channels."""

SIDEWAYS = (5, 6, 7, 8)
"""Exif's orientations in which height and width are exchanged."""

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
            That of a model that reads a text beside the image has its own processor prepare it.

    Raises:
        BadCheckpoint: naming every field of `preprocessor_config.json` that isn't known and may change the pixels.
        InvalidInput: if the model reads no images, or the file isn't one of the right mode and size.
    """
    config = load_config(path)
    processed = config.image if config.marks is not None else None
    if config.beside is not None and not config.beside.sound:
        processed = config.beside.image
    if processed is not None:
        return processed_image(file, local_path(path), processed)
    if config.image is None:
        raise InvalidInput(f"a {config.family} model reads no images: give it what it reads")
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
        before: how many tokens stand before those of the patches; the tokens of a text come after them.
        slots: the first of the text's tokens in whose place a patch stands, each in the order of the patches; absent of
            a text without them.
    """

    pixels: Float[np.ndarray, "channels height width"]
    rows: int
    columns: int
    before: int = 1
    slots: int | None = None

    @property
    def sound(self) -> bool:
        """Whether it is the spectrogram of a sound: one row of frames of one channel, and no token of the whole."""
        return self.before == 0 and self.rows == len(self.pixels) == 1

    @property
    def patches(self) -> slice:
        """The tokens of the patches."""
        return slice(self.before, self.before + self.rows * self.columns)

    @property
    def text(self) -> slice:
        """The tokens of the text that the model read after it."""
        return slice(self.before + self.rows * self.columns, None)

    @property
    def in_text(self) -> slice:
        """The tokens of the text in whose place the patches stand."""
        first = self.slots or 0
        return slice(first, first + (0 if self.slots is None else self.rows * self.columns))

    def patch_of(self, token: int) -> str | None:
        """Return the patch or frame that a token is or stands for, in words; nothing of another token.

        Example:
            >>> image = SeenImage(np.zeros((3, 4, 4)), rows=2, columns=2, slots=7)
            >>> [image.patch_of(token) for token in (0, 2, 6, 8)]
            [None, 'patch 0,1', None, 'patch 0,1 in the text']
        """
        for tokens, where in ((self.patches, ""), (self.in_text, " in the text")):
            if tokens.start <= token < tokens.stop:
                row, column = divmod(token - tokens.start, self.columns)
                return (
                    f"frame {column * (self.pixels.shape[-1] // self.columns)}"
                    if self.sound
                    else f"patch {row},{column}"
                ) + where
        return None


def labels_beside(tokens: Sequence[str], image: SeenImage | None) -> tuple[str, ...]:
    """Return the labels of tokens, patches and frames in tables and pictures.

    Example:
        >>> labels_beside(("whole", "0,0", "0,1", " cat"), SeenImage(np.zeros((3, 2, 4)), rows=1, columns=2))
        ('whole', 'patch 0,0', 'patch 0,1', '·cat')
    """
    patches = [None if image is None else image.patch_of(token) for token in range(len(tokens))]
    return tuple(patch or token_label(token) for patch, token in zip(patches, tokens, strict=True))


def name_of_input(image: SeenImage | None, tokens: int) -> str:
    """Return what a model read, by what it saw of as many tokens.

    Example:
        >>> image = SeenImage(np.zeros((3, 4, 4)), rows=2, columns=2)
        >>> [name_of_input(*each) for each in ((None, 9), (image, 5), (image, 9))]
        ['the text', 'the image', 'the image and the text']
    """
    if image is None:
        return "the text"
    name = "the sound" if image.sound else "the image"
    return f"{name} and the text" if tokens > image.patches.stop else name


def reads_pixels(image: SeenImage | None) -> bool:
    """Return whether something was read that is an image, and no sound."""
    return image is not None and not image.sound


def seen_by(config: Config, inputs: Inputs) -> SeenImage | None:
    """Return the part of a model's image that whole patches cover, or none of a model that reads a text alone."""
    beside = config.beside
    image, pixels = (config.image, inputs.given) if beside is None else (beside.image, inputs.pixels)
    if image is None:
        return None
    rows, columns = image.rows, image.columns
    covered = pixels[:, : rows * image.patch_height, : columns * image.patch_width]
    if beside is None:
        return SeenImage(covered, rows, columns, image.whole)
    slots = np.flatnonzero(inputs.given[beside.tokens :] == beside.placeholder) + beside.tokens
    stand_in = len(slots) == rows * columns and slots[-1] - slots[0] == len(slots) - 1
    return SeenImage(covered, rows, columns, image.whole, int(slots[0]) if stand_in else None)
