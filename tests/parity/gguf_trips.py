"""Round trips of GGUF files as llama.cpp's converter lays them out, read by this package, transformers and gguf-py."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers

import duat_jax as duat
from duat_jax.models.registry import family_of
from tests import gguf_layouts

from . import hugging_face
from .cases import Case, make_case
from .comparison import DTYPES, Arrays, compared, in_files, parameters, stored

KINDS = ("F32", "F16", "BF16", "Q8_0", "Q4_K", "Q6_K", "MXFP4")
WIDE = {
    "hidden_size": 256,
    "n_embd": 256,
    "moe_intermediate_size": 256,
    "intermediate_size": 256,
    "head_dim": 64,
    "query_pre_attn_scalar": 64,
}
"""Sizes with which every row has blocks of 256 entries, which is the largest block of a storage type."""

HEADS = {"bert": "hidden"}
"""The heads of which a file has the weights, where it isn't a family's first one."""

LAYOUTS = {"mistral": "llama"}
"""Families whose files have the layout of another one."""

STORED_AS = {"gemma3": "gemma3_text", "distilbert": "bert"}
"""Families whose files state that they are of another one, whose row has them."""

OTHER_NAMES = {
    "glm": "chatglm",
    "gpt_bigcode": "starcoder",
    "modernbert": "modern-bert",
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), "bert"),
}
"""Names that llama.cpp has for architectures whose files aren't read here, where they differ from the family's."""

TRANSFORMERS = (
    *("gpt2", "llama", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3_text", "phi3", "starcoder2", "stablelm"),
)
"""The families whose files transformers reads too: a Mixtral's it reads as a Llama, without experts."""


def gguf_files(case: Case, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the cells of GGUF files.

    Args:
        case: the model, whose sizes are replaced by larger ones.
        folder: an empty folder.
    """
    folder.mkdir()
    family = LAYOUTS.get(case.family, case.family)
    if case.family in STORED_AS:
        return
    if family not in gguf_layouts.FAMILIES:
        yield from (("GGUF in every type", dtype, refusal(case.family, folder)) for dtype in DTYPES)
        return
    changes = {name: size for name, size in WIDE.items() if case.settings.get(name)}
    wide = make_case(case.family, gguf_layouts.FAMILIES[family][-1] | changes, HEADS.get(case.family))
    base = hugging_face.make(folder / "made", wide.architecture, wide.settings)
    base.save_pretrained(folder / "directory")
    config = json.loads((folder / "directory" / "config.json").read_text())
    tensors = {name: tensor.astype(np.float32) for name, tensor in in_files(folder / "directory").items()}
    for kind in KINDS:
        stored_as = gguf.GGMLQuantizationType[kind]
        file = gguf_layouts.write(folder / f"{kind}.gguf", family, config, tensors, stored_as)
        expected = dequantised(file, family, config, tensors)
        for dtype in DTYPES:
            yield f"GGUF in {kind}", dtype, cell(file, base, expected, dtype, folder / f"{kind}, {dtype}")


def refusal(family: str, folder: Path) -> str:
    """Return the cell of a family whose files aren't read.

    Args:
        family: the family.
        folder: where the beginning of a file is written.
    """
    name = OTHER_NAMES.get(family, family)
    if name not in gguf.MODEL_ARCH_NAMES.values():
        return "refused: llama.cpp has no architecture for it"
    file = folder / "a.gguf"
    writer = gguf.GGUFWriter(file, name)
    writer.add_tokenizer_model("t5")  # as of a RoBERTa, which is stored as a BERT
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    try:
        duat.load_config(file)
    except duat.BadCheckpoint as error:
        reason = str(error).removeprefix(f"{file}: ").partition(",")[0]
        return "refused: " + re.sub(r" = '.*?'", "", reason)
    return "differs: it isn't refused"


def dequantised(file: Path, family: str, config: dict[str, Any], tensors: Arrays) -> dict[str, np.ndarray]:
    """Return what the library of GGUF reads from a file, by the names and in the layout of transformers.

    Args:
        file: the file.
        family: its family.
        config: its configuration.
        tensors: tensors of the same names and shapes.
    """
    ends = np.cumsum([tensor.size for tensor in tensors.values()])
    places = {
        name: np.arange(end - tensor.size, end).reshape(tensor.shape)
        for (name, tensor), end in zip(tensors.items(), ends, strict=True)
    }
    flat = np.empty(ends[-1], np.float32)
    read = {tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type) for tensor in gguf.GGUFReader(file).tensors}
    moved = gguf_layouts.in_layout(family, places, config, moved=True)
    for name, place in moved.items():
        flat[place.ravel()] = read[name].ravel()
    shifted = gguf_layouts.FAMILIES[family][2] is gguf_layouts.shifted
    known = np.isin(np.arange(ends[-1]), np.concatenate([place.ravel() for place in moved.values()]))
    return {
        name: flat[place] - np.float32(shifted and name.endswith("norm.weight"))
        for name, place in places.items()
        if known[place].all()
    }


def cell(file: Path, base: transformers.PreTrainedModel, expected: Arrays, dtype: str, empty: Path) -> str:
    """Return the cell of a file: transformers reads it and saves what it has read, where it knows the architecture.

    Args:
        file: the file.
        base: the model that it was written from, whose configuration transformers is given.
        expected: what the library of GGUF reads from it.
        dtype: the dtype of loading.
        empty: the folder where transformers saves.
    """
    model = duat.load(file, dtype=dtype)
    ours = parameters(model)
    known = family_of(model.config)
    original = {name: expected[full] for name in ours for full in (name, known.prefix + name) if full in expected}
    theirs = {name: tensor.astype(dtype) for name, tensor in original.items()}
    if base.config.model_type in TRANSFORMERS:
        read = type(base).from_pretrained(
            file.parent, gguf_file=file.name, config=base.config, dtype=getattr(torch, dtype)
        )
        theirs = stored(saved(read, empty), model)
    return compared(ours, theirs, original, dtype)


def saved(model: transformers.PreTrainedModel, folder: Path) -> Path:
    """Save a model that transformers has read from a GGUF file, which it refuses to save itself.

    Args:
        model: the model.
        folder: where it is saved.
    """
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    plain = type(model)(type(model.config)(**config)).to(model.dtype)
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(folder)
    return folder
