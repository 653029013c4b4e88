"""Round trips of low-rank adapters: PEFT and this package read, merge and write the same ones."""

import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import peft
import torch
from peft.tuners.lora import LoraLayer
from safetensors import safe_open
from transformers import PreTrainedModel

import duat_jax as duat
from duat_jax.lora import load_adapters, merge, save_adapters, save_merged
from duat_jax.lora.adapter import AnyAdapters
from duat_jax.lora.names import full_module

from . import hugging_face
from .cases import Case
from .comparison import DTYPES, Arrays, compared, parameters, stored

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
TARGETS = {
    **dict.fromkeys(("mixtral", "qwen3_moe", "olmoe"), ATTENTION),  # PEFT adapts experts by other fields, refused here
    "gemma3": r".*language_model.*_proj",
    "vit": [*ATTENTION, "fc1", "fc2"],
}
"""The layers with adapters, where they aren't all linear ones."""
COARSE, FINE = 2**12, 2**10
"""A weight is a multiple of the inverse of the first, an adapter's entry of the second: float32 holds `W + s A B`."""
WIDEST = {"bfloat16": "float32", "float16": "float32"}
"""The dtype of the adapters beside a model of another one."""


def adapters(case: Case, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the cells of an adapter that PEFT made, and of those written here.

    Args:
        case: the base model.
        folder: an empty folder.
    """
    base = _made(case, folder)
    kind = type(base)
    single = duat.load(folder / "base")
    save_adapters(folder / "adapter written here", load_adapters(folder / "adapter in float32", single), single)
    for name in ("adapter in float32", "adapter in bfloat16", "adapter in float16", "adapter written here"):
        for dtype in DTYPES:
            yield f"PEFT {name}", dtype, beside(kind, folder, name, dtype)
    for dtype in DTYPES:
        yield "PEFT adapter, merged", dtype, _merged(kind, folder, dtype)
    save_merged(folder / "copy", load_adapters(folder / "adapter in float32", single), single, folder / "base")
    exact = _merged_by_peft(_loaded(kind, folder / "base", "float32").double(), folder, "exact", single)
    for dtype in DTYPES:
        model, saved = duat.load(folder / "copy", dtype=dtype), folder / f"copy in {dtype}"
        _loaded(kind, folder / "copy", dtype).save_pretrained(saved)
        yield "copy with a merged adapter", dtype, compared(parameters(model), stored(saved, model), exact, dtype)


def adapted_parameters(case: Case, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the cells of an adapter that PEFT made of parameters that are no module's weight: those of experts.

    Args:
        case: the base model.
        folder: an empty folder.
    """
    base = hugging_face.make(folder / "base", case.architecture, case.settings)
    names = [name for name, _ in base.named_parameters() if name.endswith("experts.down_proj")]
    if not names:
        return
    peft.get_peft_model(base, peft.LoraConfig(r=3, target_modules=[], target_parameters=names)).save_pretrained(
        folder / "adapter"
    )
    for dtype in DTYPES:
        try:
            load_adapters(folder / "adapter", duat.load(folder / "base", dtype=dtype))
        except duat.BadCheckpoint as error:
            if refused := re.fullmatch(r".*: target_parameters = .* (isn't supported).*", str(error)):
                yield "PEFT adapter of experts' parameters", dtype, f"refused: target_parameters {refused[1]}"


def _made(case: Case, folder: Path) -> PreTrainedModel:
    """Write a base model and its adapters in every dtype; their entries are those of the coarsest."""
    base = hugging_face.make(folder / "base", case.architecture, case.settings)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in base.parameters():
            parameter.copy_((parameter * COARSE).round() / COARSE)
    base.save_pretrained(folder / "base")
    targets = TARGETS.get(case.family, "all-linear")
    adapted = peft.get_peft_model(base, peft.LoraConfig(r=3, lora_alpha=6, target_modules=targets))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randint(-FINE, FINE, parameter.shape, generator=random) / FINE)
    for dtype in DTYPES[:3]:
        adapted.to(getattr(torch, dtype)).save_pretrained(folder / f"adapter in {dtype}")
        adapted.float()
    return base


def _loaded(kind: type[PreTrainedModel], directory: Path, dtype: str) -> PreTrainedModel:
    return kind.from_pretrained(directory, dtype=getattr(torch, dtype))


def beside(kind: type[PreTrainedModel], folder: Path, name: str, dtype: str, written: AnyAdapters | None = None) -> str:
    """Return the cell of an adapter beside a model: the matrices that PEFT and this package have, and those written.

    Args:
        kind: the class of the model in transformers.
        folder: the folder of the base model, `base`, and of the adapter.
        name: the name of the adapter's folder.
        dtype: the dtype that the model is loaded in.
        written: the adapter that was written; what safetensors reads of its file if absent.
    """
    model = duat.load(folder / "base", dtype=dtype)
    adapted = peft.PeftModel.from_pretrained(_loaded(kind, folder / "base", dtype), folder / name)
    theirs = {
        re.sub(r"^base_model\.model\.|\.default|\.weight$", "", path): parameter.detach().numpy()
        for path, parameter in adapted.named_parameters()
        if "lora_" in path
    }
    with safe_open(folder / name / "adapter_model.safetensors", framework="np") as opened:
        original: Arrays = {
            re.sub(r"^base_model\.model\.|\.weight$", "", path): opened.get_tensor(path)
            for path in opened.keys()  # noqa: SIM118 - no mapping
        }
    if written is not None:
        original = _matrices(written, model)
    ours = load_adapters(folder / name, model)
    scales = {module.scaling["default"] for module in adapted.modules() if isinstance(module, LoraLayer)}
    if {float(each.scale) for each in ours.values()} != scales:
        return "differs: the scales aren't those of PEFT"
    return compared(_matrices(ours, model), theirs, original, WIDEST.get(dtype, dtype))


def _matrices(adapters: AnyAdapters, model: duat.models.Transformer) -> dict[str, np.ndarray]:
    """Return the matrices of adapters by the names and in the layout of PEFT."""
    return {
        f"{full_module(model, name)}.lora_{half}": np.ascontiguousarray(np.asarray(matrix).T)
        for name, each in adapters.items()
        for half, matrix in (("A", each.down), ("B", each.up))
    }


def _merged(kind: type[PreTrainedModel], folder: Path, dtype: str) -> str:
    """Return the cell of a merged adapter: PEFT's merge in the same dtype, and in float64 of the same weights."""
    model = duat.load(folder / "base", dtype=dtype)
    ours = parameters(merge(model, load_adapters(folder / "adapter in float32", model)))
    theirs = _merged_by_peft(_loaded(kind, folder / "base", dtype), folder, f"merged in {dtype}", model)
    wide = _loaded(kind, folder / "base", dtype).double()
    return compared(ours, theirs, _merged_by_peft(wide, folder, f"exact in {dtype}", model), dtype)


def _merged_by_peft(base: PreTrainedModel, folder: Path, name: str, model: duat.models.Transformer) -> Arrays:
    """Return the parameters of PEFT's merge, which transformers saves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        merged = peft.PeftModel.from_pretrained(base, folder / "adapter in float32").merge_and_unload()
    merged.save_pretrained(folder / name)
    return stored(folder / name, model)
