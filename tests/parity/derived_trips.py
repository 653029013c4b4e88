"""Round trips of models that this package writes, with changed weights or pruned, and of experts in MXFP4."""

from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import Mxfp4Config, PreTrainedModel
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import duat_jax as duat
from duat_jax.models.saver import save_model
from duat_jax.pruning import prune, save_pruned
from duat_jax.pruning.checkpoint import require_writable

from . import hugging_face
from .cases import Case
from .comparison import DTYPES, Arrays, compared, in_files, parameters, stored
from .gguf_trips import saved

KINDS = ("float32", "bfloat16", "float16")
TEXTS = np.random.default_rng(0).integers(4, 60, (2, 8)).astype(np.int32)
WIDE = {"hidden_size": 32, "intermediate_size": 32}
"""Sizes with which the rows of the experts have whole blocks of MXFP4."""


def copies(case: Case, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the cells of copies with changed weights, and of pruned ones.

    Args:
        case: the model.
        folder: an empty folder.
    """
    kind = type(hugging_face.make(folder / "base", case.architecture, case.settings))
    base = duat.load(folder / "base")
    changed = jax.tree.map(lambda weight: weight * jnp.cos(weight), base)
    for dtype in KINDS:
        form = f"copy with changed weights, in {dtype}"
        save_model(changed, folder / "base", folder / form, np.dtype(dtype))
        yield from read_back(folder / form, kind, {name: x.astype(dtype) for name, x in parameters(changed).items()})
    form = "pruned copy, in float16"
    try:
        require_writable(base)
    except duat.BadCheckpoint as error:
        reason = str(error).partition(":")[0].replace(f" of the family {case.family}", "")
        yield from ((form, dtype, f"refused: {reason}") for dtype in DTYPES)
        return
    smaller = prune(base, TEXTS, 0.5, compensation="none")
    save_pruned(smaller, folder / "base", folder / form)
    yield from read_back(folder / form, kind, {name: x.astype(np.float16) for name, x in parameters(smaller).items()})


def read_back(
    directory: Path, kind: type[PreTrainedModel], written: Arrays, **given: object
) -> Iterator[tuple[str, str, str]]:
    """Yield the cells of a directory that transformers reads, with the numbers that were written.

    Args:
        directory: the directory.
        kind: the class of the model in transformers.
        written: the numbers, by the names of the model's tensors.
        **given: arguments of loading in transformers.
    """
    for dtype in DTYPES:
        model, empty = duat.load(directory, dtype=dtype), directory.with_name(f"{directory.name}, {dtype}")
        theirs = kind.from_pretrained(directory, dtype=getattr(torch, dtype), **given)
        saved(theirs, empty) if given else theirs.save_pretrained(empty)
        yield directory.name, dtype, compared(parameters(model), stored(empty, model), written, dtype)


def packed(case: Case, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the cells of a GPT-OSS whose experts are stored in MXFP4.

    Args:
        case: the model, whose sizes are replaced by larger ones.
        folder: an empty folder.
    """
    if case.family != "gpt_oss":
        return
    base = hugging_face.make(folder / "made", case.architecture, case.settings | WIDE)
    directory = folder / "directory in MXFP4"
    base.config.quantization_config = {"quant_method": "mxfp4", "modules_to_not_convert": []}
    base.config.save_pretrained(directory)
    random, tensors = np.random.default_rng(0), in_files(folder / "made")
    written = stored(folder / "made", duat.load(folder / "made"))
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, rows, columns = tensors.pop(name).shape
        blocks = random.integers(0, 256, (experts, columns, rows // 32, 16), np.uint8)
        scales = random.integers(118, 128, blocks.shape[:-1], np.uint8)
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        floats = convert_moe_packed_tensors(torch.tensor(blocks), torch.tensor(scales), dtype=torch.float32)
        written[name.removeprefix("model.")] = floats.numpy()
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    yield from read_back(directory, type(base), written, quantization_config=Mxfp4Config(dequantize=True))
