"""Modules of a sentence encoder: `modules.json` and the pooling's own `config.json` of sentence-transformers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from duat_jax.errors import BadCheckpoint
from duat_jax.models.checkpoint.json_file import read_json
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.checkpoint.sentence_texts import check_texts
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


def read_pooling(folder: Path, tokenizer: Callable[[], Tokenizer]) -> Pooling:
    """Return a sentence encoder's pooling; the mean where the checkpoint states none.

    Args:
        folder: the checkpoint's directory.
        tokenizer: returns its tokenizer.
    """
    if not (folder / MODULES).is_file():
        return MEAN
    try:
        check_texts(folder, tokenizer)
        return Pooling(_modes(folder))
    except BadCheckpoint as error:
        return Pooling(problem=str(error))


def _modes(folder: Path) -> tuple[str, ...]:
    file = folder / MODULES
    modules = read_json(file)
    if not isinstance(modules, list) or not all(
        isinstance(each, dict) and isinstance(each.get("type"), str) and isinstance(each.get("path"), str)
        for each in modules
    ):
        raise BadCheckpoint(f"{file}: must list modules, each with type and path, not {quoted(modules)}")
    kinds = [each["type"].rpartition(".")[2] for each in modules]
    if unknown := [kind for kind in kinds if kind not in (*UNCHANGED, "Pooling")]:
        raise BadCheckpoint(f"{file}: the module {quoted(unknown[0])} isn't supported: compare texts without it")
    if kinds.count("Pooling") != 1 or kinds[0] != "Transformer" or "Normalize" in kinds[: kinds.index("Pooling")]:
        raise BadCheckpoint(f"{file}: the modules {', '.join(kinds)} must be a Transformer, then one Pooling")
    path = modules[kinds.index("Pooling")]["path"]
    inside = (folder / path).resolve().parent == folder.resolve() and Path(path).name == path
    if not inside:
        raise BadCheckpoint(f"{file}: the pooling's path must be a folder here, not {quoted(path)}")
    return _read_modes(folder / path / "config.json")


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
    """Write the files that state a pooling; none for the mean, which is read where there are none.

    Args:
        folder: the checkpoint's directory.
        pooling: the pooling.
    """
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
