"""Loading of Hugging Face checkpoint directories, GGUF files and models of the Hugging Face Hub."""

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Device
from jax.sharding import Mesh, Sharding
from jax.typing import DTypeLike

from duat_jax.deprecation import carries_tokenizer
from duat_jax.errors import BadCheckpoint, DuatError, warn_caller
from duat_jax.extras import install
from duat_jax.memory import check_weights
from duat_jax.models.checkpoint.directory import Directory
from duat_jax.models.checkpoint.dtypes import DTYPES, valid_dtype
from duat_jax.models.checkpoint.place import local_path, open_checkpoint, or_embedded
from duat_jax.models.checkpoint.problems import quoted, raise_problems
from duat_jax.models.checkpoint.reference_fields import ReferenceFields, reference_of
from duat_jax.models.checkpoint.settings import OF_THE_HEAD, Settings, text_fields
from duat_jax.models.checkpoint.stored import Checkpoint
from duat_jax.models.checkpoint.tensors import Tensors
from duat_jax.models.config import Config
from duat_jax.models.converted import load_converted, load_converted_config
from duat_jax.models.families.tensor_map import Entry, fill, parameter_at
from duat_jax.models.mesh import divide_long_texts, placement
from duat_jax.models.registry import FAMILIES, nearest
from duat_jax.models.transformer import Transformer
from duat_jax.nn.scanned_stack import ScannedStack, turn_of
from duat_jax.nn.stack import Stack
from duat_jax.processes import put

SHOWN_FAMILIES = 12
"""The number of families that an error message names."""


def load_config(path: Path | str | None = None, *, head: str | None = None) -> Config:
    """Load the configuration of a checkpoint.

    Args:
        path: a checkpoint directory, a `.gguf` file, or `hub:OWNER/NAME` as in `load`; the embedded model if absent.
        head: the kind of read-out: `"next token"`, `"masked token"`, `"classes"` or `"hidden"`; that of the saved
            checkpoint if absent.

    Raises:
        BadCheckpoint: naming every unsupported or unknown field of the configuration at once.

    Example:
        >>> load_config().family
        'gpt2'
    """
    return _config(open_checkpoint(or_embedded(path)), head)


def _config(checkpoint: Checkpoint, head: str | None) -> Config:
    if (folder := converted_folder(checkpoint)) is not None:
        return load_converted_config(folder, head)
    file, values = checkpoint.settings_path, checkpoint.settings()
    family = values.get("model_type") if isinstance(values, dict) else None
    if not isinstance(family, str) or family not in FAMILIES:
        like = nearest(family) if isinstance(family, str) else None
        hint = "" if like is None else f"; the nearest is {like!r}"
        names = f"{', '.join(list(FAMILIES)[:SHOWN_FAMILIES])} and {len(FAMILIES) - SHOWN_FAMILIES} others"
        raise BadCheckpoint(
            f"{file}: model_type = {quoted(family)} isn't supported, only {names} are{hint};"
            f" with {install('torch')} every model type of Hugging Face transformers that reads texts is"
        )
    known = FAMILIES[family]
    settings = Settings(text_fields(values) if known.wrapper else values, head)
    if known.wrapper:
        settings.expect("model_type", known.wrapper)
    config = known.read_config(settings)
    if config.head.kind == "hidden":
        config = dataclasses.replace(config, pooling=checkpoint.pooling())
    parts: list[tuple[Settings, Collection[str], ReferenceFields | None]]
    parts = [(settings, known.harmless, reference_of(known.wrapper or config.family))]
    if known.wrapper:
        parts.append((Settings(values), (*known.harmless, *OF_THE_HEAD, "text_config"), reference_of(family)))
    problems = [problem for fields, harmless, read in parts for problem in fields.all_problems(harmless, read)]
    raise_problems(file, problems or config.problems())
    ignored = [name for fields, harmless, read in parts if read is not None for name in fields.ignored(harmless, read)]
    if ignored:
        warn_caller(f"{file}: fields that Hugging Face transformers doesn't read are ignored: {', '.join(ignored)}")
    return dataclasses.replace(config, family=family)


def converted_folder(checkpoint: Checkpoint) -> Path | None:
    """Return the folder of a checkpoint of no family of this package, where PyTorch's code for it can be run."""
    if not isinstance(checkpoint, Directory) or any(find_spec(name) is None for name in ("torchax", "transformers")):
        return None
    values = checkpoint.settings()
    family = values.get("model_type") if isinstance(values, dict) else None
    return checkpoint.path if isinstance(family, str) and family not in FAMILIES else None


def skeleton(config: Config, dtype: DTypeLike) -> Transformer:
    """Return a model whose parameters have shapes and dtypes only."""
    return nnx.eval_shape(lambda: Transformer(config, dtype=dtype, rngs=None))


def _is_in_memory(place: Device | Sharding | None) -> bool:
    """Return whether a parameter that is put on a device is in the host's memory."""
    if place is None:
        place = jnp.zeros(()).sharding
    devices: Collection[Any] = place.device_set if isinstance(place, Sharding) else {place}
    return all(device.platform == "cpu" for device in devices)


def _entries(model: Transformer, entry: Entry, places: Mapping[str, Device | Sharding | None]) -> int:
    """Return the number of numbers that an entry of a tensor map adds to memory, shared ones counted once."""
    shapes = [parameter_at(model, path).shape for path in entry.parameters]
    stored = [[math.inf if size is None else size for size in shape] for shape in entry.transform.shapes(shapes)]
    here = [entries_here(shape, places[path]) for path, shape in zip(entry.parameters, shapes, strict=True)]
    return int(min(sum(here), sum(map(math.prod, stored))))


def entries_here(shape: tuple[int, ...], place: Device | Sharding | None) -> int:
    """Return how many of a parameter's numbers this process holds."""
    if not isinstance(place, Sharding):
        return math.prod(shape)
    return min(math.prod(shape), len(place.addressable_devices) * math.prod(place.shard_shape(shape)))


@carries_tokenizer
def load(
    path: Path | str | None = None,
    *,
    dtype: "DTypeLike" = jnp.float32,
    head: str | None = None,
    device: "Device | Sharding | Callable[[str], Device | Sharding] | None" = None,
    mesh: "Mesh | None" = None,
    scanned: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Transformer:
    """Load a model from a Hugging Face checkpoint directory, a GGUF file or the Hugging Face Hub, tensor by tensor.

    Names, shapes and kinds of all tensors are checked before any tensor is read. The model carries its tokenizer,
    `model.tokenizer`, which is read when it is first asked for, as by `load_tokenizer(path)`.

    Args:
        path: a directory with `config.json` and `model.safetensors`, in several files if there is an index, or a
            `.gguf` file; `"hub:OWNER/NAME"`, or `"hub:OWNER/NAME@REVISION"`, for such a directory of the Hugging Face
            Hub, which is downloaded once (`pip install huggingface_hub`); the embedded model if absent.
        dtype: dtype of the parameters: float64, float32, bfloat16 or float16. With the last two, everything is computed
            in float32.
        head: the kind of read-out, as in `load_config`.
        device: the device or sharding that every parameter is put on as it arrives, or a function that returns it for
            the path of a parameter, for example `"stack.blocks.0.mlp.input.kernel"`; JAX's default if absent.
        mesh: the devices that the model is divided among, in the place of `device`: heads, neurons and the vocabulary
            along its axis `"model"`, texts along its axis `"texts"`.
        scanned: whether the layers are the steps of one loop, with their parameters stacked, so that compiling takes
            no longer for many layers than for few.
        progress: called after each tensor with the number of tensors read so far and the number of all.

    Returns:
        The model, a pytree: `model(ids)` is the plain forward pass.

    Raises:
        BadCheckpoint: naming every missing, extra, doubled, misshapen or non-finite tensor at once; if the weights
            take more memory than is free.
        DuatError: for a mesh that heads or neurons can't be divided among; with `scanned`, for layers that don't come
            in turns, before any tensor is read.

    Example:
        >>> import jax.numpy as jnp
        >>> model = load()
        >>> model(jnp.array([5, 6, 7])).shape == (3, model.config.vocab)
        True
        >>> model.tokenizer.encode("return self").tokens
        ['return', 'Ġself']
    """
    dtype = valid_dtype(dtype)
    place = local_path(or_embedded(path))
    checkpoint = open_checkpoint(place)
    if (folder := converted_folder(checkpoint)) is not None:
        if scanned or mesh is not None or device is not None:
            raise DuatError(f"{folder}: a model that PyTorch's code computes takes no device, mesh or scanned")
        return load_converted(folder, dtype, head)
    config = _config(checkpoint, head)
    if scanned:
        turn_of([vars(block) for block in config.blocks])
    family = FAMILIES[config.family]
    stored = checkpoint.tensors()
    names: dict[str, Any] = {"prefix": family.prefix, "heads": family.heads, "older": family.older}
    stored_layers = len(Tensors(stored, dtype, **names, ignored="").numbers(family.layer))
    if config.stored_layers > stored_layers:
        raise BadCheckpoint(
            f"{stored.path}: the configuration says {config.stored_layers} layers, but there are tensors of"
            f" {stored_layers}"
        )
    model = skeleton(config, dtype)
    if mesh is not None:
        if device is not None:
            raise DuatError("both device and mesh were given: give one")
        device = placement(config, mesh)
        divide_long_texts(model, mesh)
    table, copies = family.tensor_map(config), family.copies if config.head.tied else {}
    # Another head's tensors are no part of the model; all tensors inside the head that is read are.
    heads = (name for entry in table if entry.parameters[0].startswith("head.") for name in entry.names)
    inside = "|".join(re.escape(name.rpartition(".")[0]) for name in heads)
    names["ignored"] = rf"(?!(?:{inside})\.)(?:{family.ignored}|{family.heads})"

    def arrived(parameter: str, value: np.ndarray | jax.Array) -> jax.Array:
        return put(value, device(parameter) if callable(device) else device)

    def read(headers_only: bool) -> None:
        tensors = Tensors(stored, dtype, **names, headers_only=headers_only, progress=progress)
        fill(model, table, copies, tensors, arrived)
        raise_problems(stored.path, tensors.all_problems())

    read(headers_only=True)
    places = {path: device(path) if callable(device) else device for entry in table for path in entry.parameters}
    in_memory = [entry for entry in table if all(_is_in_memory(places[path]) for path in entry.parameters)]
    entries = sum(_entries(model, entry, places) for entry in in_memory)
    check_weights(stored.path, {name: entries * jnp.dtype(name).itemsize for name in DTYPES}, dtype.name)
    read(headers_only=False)
    if scanned:
        blocks, model.stack = list(model.stack.blocks), Stack(())
        model.stack = ScannedStack(blocks.pop(0) for _ in range(len(blocks)))
    model.tokenizer = place
    return model
