"""Modules of a sentence encoder: `modules.json`, and what sentence-transformers keeps of each."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from duat_jax.errors import BadCheckpoint
from duat_jax.models.checkpoint.dense_module import read_dense
from duat_jax.models.checkpoint.json_file import read_json
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.checkpoint.sentence_texts import check_texts, longest_text
from duat_jax.models.pooling import MEAN, MODES, Pooling

MODULES = "modules.json"
FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Fields that switch a mode on, and the mode."""

SIZES = ("word_embedding_dimension", "embedding_dimension")
UNCHANGED = ("Transformer", "Normalize", "Dropout")
"""Modules that leave the cosine of two pooled vectors as it is."""

STEPS = {"Transformer": "T", "Pooling": "P", "Dense": "D", "Normalize": "N"}
"""A letter for each kind of module whose place counts."""


def read_pooling(folder: Path, tokenizer: Callable[[], Tokenizer]) -> Pooling:
    """Return a sentence encoder's pooling; the mean where the checkpoint states none."""
    if not (folder / MODULES).is_file():
        return MEAN
    try:
        check_texts(folder, tokenizer)
        return replace(_pooling(folder), longest=longest_text(folder))
    except BadCheckpoint as error:
        return Pooling(problem=str(error))


def folders_of_modules(folder: Path) -> set[Path]:
    """Return the folders of a sentence encoder's modules beside its Transformer, within the checkpoint's."""
    try:
        return {Path(path) for kind, path in _modules(folder / MODULES) if kind != "Transformer" and path}
    except BadCheckpoint:
        return set()


def _modules(file: Path) -> list[tuple[str, str]]:
    """Return kind and path of every module."""
    modules = read_json(file)
    if not isinstance(modules, list) or not all(
        isinstance(each, dict) and isinstance(each.get("type"), str) and isinstance(each.get("path"), str)
        for each in modules
    ):
        raise BadCheckpoint(f"{file}: must list modules, each with type and path, not {quoted(modules)}")
    return [(each["type"].rpartition(".")[2], each["path"]) for each in modules]


def _pooling(folder: Path) -> Pooling:
    file = folder / MODULES
    modules = _modules(file)
    kinds = [kind for kind, _ in modules]
    if unknown := [kind for kind in kinds if kind not in (*UNCHANGED, "Pooling", "Dense")]:
        raise BadCheckpoint(f"{file}: the module {quoted(unknown[0])} isn't supported: compare texts without it")
    steps = "".join(STEPS.get(kind, "") for kind in kinds)
    if not re.fullmatch("TPD*N*", steps) or kinds[0] != "Transformer":
        order = "a Transformer, then one Pooling, then Dense layers, and Normalize at last"
        raise BadCheckpoint(f"{file}: the modules {', '.join(kinds)} must be {order}")
    for kind, path in modules:
        inside = (folder / path).resolve().parent == folder.resolve() and Path(path).name == path
        if kind in ("Pooling", "Dense") and not inside:
            raise BadCheckpoint(f"{file}: the path of {kind} must be a folder here, not {quoted(path)}")
    (modes,) = (_read_modes(folder / path / "config.json") for kind, path in modules if kind == "Pooling")
    return Pooling(modes, dense=tuple(read_dense(folder / path) for kind, path in modules if kind == "Dense"))


def _read_modes(file: Path) -> tuple[str, ...]:
    """Return the modes of a pooling's configuration, absent flags at their defaults."""
    values: Any = read_json(file)
    if not isinstance(values, dict):
        raise BadCheckpoint(f"{file}: must be an object of fields, not {quoted(values)}")
    if unknown := [name for name in values if name not in (*FLAGS, *SIZES, "include_prompt", "pooling_mode")]:
        raise BadCheckpoint(f"{file}: the field {quoted(unknown[0])} isn't known")
    if values.get("include_prompt", True) is not True:
        raise BadCheckpoint(
            f"{file}: include_prompt = {quoted(values['include_prompt'])} isn't supported, only true is"
        )
    stated = values.get("pooling_mode")
    if stated is not None:
        modes = [stated] if isinstance(stated, str) else stated
        if not isinstance(modes, list) or not modes or not all(isinstance(each, str) for each in modes):
            raise BadCheckpoint(f"{file}: pooling_mode must name modes, not {quoted(stated)}")
        if unknown := [mode for mode in modes if mode not in MODES]:
            raise BadCheckpoint(f"{file}: pooling_mode {quoted(unknown[0])} isn't one of {', '.join(MODES)}")
        return tuple(modes)
    flags = {name: values.get(name, name == "pooling_mode_mean_tokens") for name in FLAGS}
    if wrong := [name for name, value in flags.items() if not isinstance(value, bool)]:
        raise BadCheckpoint(f"{file}: {wrong[0]} must be true or false, not {quoted(flags[wrong[0]])}")
    modes = [FLAGS[name] for name, value in flags.items() if value]
    if not modes:
        raise BadCheckpoint(f"{file}: no mode is true: {', '.join(FLAGS)}")
    return tuple(modes)


def write_pooling(folder: Path, pooling: Pooling) -> None:
    """Write the files that state a pooling; none for the mean, which is read where there are none."""
    if pooling == MEAN or pooling.problem is not None:
        return
    paths = {"Transformer": "", "Pooling": "1_Pooling"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(paths.items())
    ]
    (folder / MODULES).write_text(json.dumps(modules, indent=2) + "\n")
    (folder / paths["Pooling"]).mkdir()
    flags = {name: mode in pooling.modes for name, mode in FLAGS.items()}
    (folder / paths["Pooling"] / "config.json").write_text(json.dumps(flags, indent=2) + "\n")
