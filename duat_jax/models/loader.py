"""Load a Hugging Face checkpoint directory; a new family is one file and one line in `FAMILIES`."""

import os
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from tokenizers import Tokenizer

from duat_jax.errors import BadCheckpoint, DuatError
from duat_jax.models.checkpoint.problems import raise_problems, shown
from duat_jax.models.checkpoint.settings import Settings, read_json
from duat_jax.models.checkpoint.tensors import Tensors
from duat_jax.models.checkpoint.tokenizer import read_tokenizer
from duat_jax.models.config import Config
from duat_jax.models.families import bert, gpt2
from duat_jax.models.transformer import Transformer

FAMILIES: dict[str, ModuleType] = {"gpt2": gpt2, "bert": bert}
"""The module of each `model_type`: what its fields and tensors are called (`HARMLESS`, `PREFIX`, `IGNORED`, `HEADS`,
`LAYER`, `OLDER`), `read_config` and `fill`."""

EMBEDDED = Path(__file__).parent / "embedded"
"""The language model that ships with the package."""


def _file(path: Path | str | None, name: str) -> Path:
    if path is not None and not isinstance(path, str | os.PathLike):
        raise BadCheckpoint(f"{shown(path)} is not the path of a checkpoint directory")
    directory = EMBEDDED if path is None else Path(path)
    if not directory.is_dir():
        raise BadCheckpoint(
            f"{directory} is not a directory: give a checkpoint directory with config.json,"
            " model.safetensors and tokenizer.json"
        )
    if not (directory / name).is_file():
        raise BadCheckpoint(
            f"{directory} has no {name}: a checkpoint directory has config.json, model.safetensors and tokenizer.json"
        )
    return directory / name


def load_config(path: Path | str | None = None) -> Config:
    """Return the shape of a checkpoint.

    Args:
        path: a checkpoint directory; the embedded model if absent.

    Raises:
        BadCheckpoint: naming every unsupported or unknown field of `config.json` at once.

    Example:
        >>> load_config().family
        'gpt2'
    """
    file = _file(path, "config.json")
    values = read_json(file)
    family = values.get("model_type") if isinstance(values, dict) else None
    if not isinstance(family, str) or family not in FAMILIES:
        raise BadCheckpoint(f"{file}: model_type = {shown(family)} isn't supported, only {', '.join(FAMILIES)} are")
    settings = Settings(values)
    config = FAMILIES[family].read_config(settings)
    raise_problems(file, settings.all_problems(FAMILIES[family].HARMLESS))
    return config


def skeleton(config: Config, dtype: DTypeLike) -> Transformer:
    """Return a model of the given shape whose parameters have shapes and dtypes only.

    Args:
        config: the shape.
        dtype: dtype of the parameters.
    """
    return nnx.eval_shape(lambda: Transformer(config, dtype=dtype, rngs=None))


def _dtype(dtype: DTypeLike) -> jnp.dtype:
    try:
        found = jnp.dtype(dtype)
    except TypeError:
        found = None
    if found not in (jnp.float32, jnp.float64):
        raise DuatError(f"dtype must be float32 or float64, not {shown(dtype)}")
    if found == jnp.float64 and not jax.config.read("jax_enable_x64"):
        raise DuatError('float64 is off in JAX: call jax.config.update("jax_enable_x64", True) first')
    return found


def load(path: Path | str | None = None, *, dtype: DTypeLike = jnp.float32) -> Transformer:
    """Load a model from a Hugging Face checkpoint directory of the GPT-2 or BERT family.

    Args:
        path: a directory with `config.json` and `model.safetensors`; the embedded model if absent.
        dtype: dtype of the parameters and of everything computed from them, float32 or float64.

    Returns:
        The model, a pytree: `model(ids)` is the plain forward pass.

    Raises:
        BadCheckpoint: naming every missing, extra, doubled, misshapen or non-finite tensor at once.

    Example:
        >>> import jax.numpy as jnp
        >>> model = load()
        >>> model(jnp.array([5, 6, 7])).shape == (3, model.config.vocab)
        True
    """
    dtype = _dtype(dtype)
    config = load_config(path)
    family = FAMILIES[config.family]
    file = _file(path, "model.safetensors")
    tensors = Tensors(file, dtype, prefix=family.PREFIX, ignored=family.IGNORED, heads=family.HEADS, older=family.OLDER)
    found = len(tensors.numbers(family.LAYER))
    if config.layers > found:
        raise BadCheckpoint(f"{file}: config.json says {config.layers} layers, but there are tensors of {found}")
    model = skeleton(config, dtype)
    family.fill(model, tensors)
    raise_problems(file, tensors.all_problems())
    return model


def load_tokenizer(path: Path | str | None = None) -> Tokenizer:
    """Load a checkpoint's tokenizer, without truncation or padding.

    Args:
        path: a directory with `tokenizer.json`; the embedded model's if absent.

    Raises:
        BadCheckpoint: if the file is missing or damaged.

    Example:
        >>> load_tokenizer().encode("return self").tokens
        ['return', 'Ġself']
    """
    return read_tokenizer(_file(path, "tokenizer.json"))
