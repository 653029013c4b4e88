"""Adapter files in the layout of PEFT: `adapter_config.json` and `adapter_model.safetensors`."""

import json
import math
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save

from duat_jax.errors import BadCheckpoint
from duat_jax.files import new_directory
from duat_jax.lora.adapter import Adapter, Adapters
from duat_jax.lora.places import Place, places
from duat_jax.lora.target_modules import TargetModules
from duat_jax.models.checkpoint.directory import BYTES, Safetensors
from duat_jax.models.checkpoint.json_file import read_json
from duat_jax.models.checkpoint.problems import quoted, raise_problems
from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.registry import FAMILIES
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import computed_in

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

_TRAINING = "eva_config inference_mode init_lora_weights lora_dropout lora_ga_config peft_version runtime_config"
_ELSEWHERE = "auto_mapping base_model_name_or_path megatron_config megatron_core qalora_group_size revision task_type"
# The model states how its kernels are oriented.
HARMLESS = frozenset(f"{_TRAINING} {_ELSEWHERE} ensure_weight_tying fan_in_fan_out".split())
"""Fields that don't change the computation."""

INITIALISATIONS = (None, True, False, "gaussian", "orthogonal", "eva")
"""Supported initialisations of an adapter: all others change the base model's weights too."""

SUPPORTED: dict[str, Any] = {
    "peft_type": "LORA",
    "bias": "none",
    **dict.fromkeys(("use_dora", "use_qalora", "use_bdlora", "lora_bias"), False),
    **{name: [] for name in ("modules_to_save", "layer_replication", "trainable_token_indices", "target_parameters")},
    "alora_invocation_tokens": [],
    **{f"{name}_config": {} for name in ("arrow", "corda", "kasa", "loftq", "monteclora", "velora")},
}
"""Fields that change the computation, and the only value of each that is supported."""


class _Scales:
    """Ranks and scales of adapters, read from `adapter_config.json`."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.settings = Settings(values)
        for name, value in SUPPORTED.items():
            self.settings.expect(name, value)
        self._rank = self.settings.integer("r")
        self._alpha = self.settings.number("lora_alpha", 8.0)
        self._root = self.settings.boolean("use_rslora", False)
        self.targets = TargetModules(self.settings)
        self._ranks, self._alphas = self._pattern("rank_pattern"), self._pattern("alpha_pattern")
        self.problems = self.settings.all_problems(HARMLESS)
        for name in (*self._ranks, *self._alphas):
            try:
                re.compile(name)
            except re.error as error:
                self.problems.append(f"{quoted(name)} isn't a valid pattern of layer names: {error}")
        if (initialisation := values.get("init_lora_weights")) not in INITIALISATIONS:
            self.problems.append(
                f"init_lora_weights = {quoted(initialisation)} changes the base model too: convert it to plain LoRA"
            )

    def _pattern(self, name: str) -> dict[str, Any]:
        group = self.settings.group(name)
        return {} if group is None else {module: group.number(module, 1.0) for module in group.values}

    def rank(self, module: str) -> int:
        return int(_matched(self._ranks, module, self._rank))

    def scale(self, module: str) -> float:
        rank = self.rank(module)
        return _matched(self._alphas, module, self._alpha) / (math.sqrt(rank) if self._root else rank)


def _matched(patterns: dict[str, Any], module: str, default: Any) -> Any:
    """Return the value of the first pattern that matches the end of a module's name, as in PEFT."""
    return next((patterns[name] for name in patterns if re.match(rf"(.*\.)?({name})$", module)), default)


def load_adapters(directory: Path | str, model: Transformer) -> Adapters:
    """Load adapters in the layout of PEFT, for a model of the same shapes as their base model.

    The files don't identify the base model: another model of the same family and sizes is accepted too.  As in PEFT,
    tensors of layers that `adapter_config.json` leaves out (`target_modules`, `exclude_modules`,
    `layers_to_transform`) aren't used, which a warning says.

    Args:
        directory: the directory with `adapter_config.json` and `adapter_model.safetensors`.
        model: the base model.

    Returns:
        The adapters, in the model's dtype.

    Raises:
        BadCheckpoint: naming every field that isn't supported, and every tensor that is missing, misshapen, not finite,
            or belongs to no linear layer of the model, at once.
    """
    place = Path(directory)
    for name in (CONFIG, WEIGHTS):
        if not (place / name).is_file():
            raise BadCheckpoint(f"{place} has no {name}: an adapter's directory has {CONFIG} and {WEIGHTS}")
    values = read_json(place / CONFIG)
    if not isinstance(values, dict):
        raise BadCheckpoint(f"{place / CONFIG}: must be fields, not {quoted(values)}")
    scales = _Scales(values)
    raise_problems(place / CONFIG, scales.problems)
    targets = scales.targets
    stored = Safetensors(place / WEIGHTS, [place / WEIGHTS])
    family, known = FAMILIES[model.config.family], places(model)
    problems: list[str] = []
    halves: dict[str, dict[str, str]] = {}
    for tensor in sorted(stored.names()):
        match = re.fullmatch(r"base_model\.model\.(.+)\.lora_([AB])\.weight", tensor)
        module = match[1].removeprefix(family.prefix) if match else ""
        if match is None or module not in known:
            problems.append(
                f"tensor {tensor} {stored.shape(tensor)} belongs to no linear layer of a {model.config.family} model"
            )
        else:
            halves.setdefault(module, {})[match[2]] = tensor
    if not stored.names():
        problems.append("it has no tensors: save the adapters again")
    if left_out := [module for module in halves if _full(model, module) not in targets]:
        warnings.warn(
            f"{place / CONFIG} leaves out stored adapters, which aren't used, as in PEFT: {', '.join(left_out)}",
            stacklevel=2,
        )
        halves = {module: tensors for module, tensors in halves.items() if module not in left_out}
    if stored.names() and not halves and not problems:
        problems.append("none of its adapters is named by target_modules")
    for module, tensors in halves.items():
        problems += _problems(module, tensors, stored, known[module], scales.rank(_full(model, module)))
    raise_problems(place / WEIGHTS, problems)
    dtype = np.dtype(jax.tree.leaves(model)[0].dtype)
    read = {name: stored.read(name, dtype) for tensors in halves.values() for name in tensors.values()}
    raise_problems(
        place / WEIGHTS,
        [
            f"tensor {name} has NaN or infinite entries"
            for name, tensor in read.items()
            if not np.isfinite(tensor).all()
        ],
    )
    return {
        module: Adapter(
            jnp.asarray(read[halves[module]["A"]].T),
            jnp.asarray(read[halves[module]["B"]].T),
            jnp.asarray(scales.scale(_full(model, module)), computed_in(dtype)),
        )
        for module in known
        if module in halves
    }


def _problems(module: str, tensors: dict[str, str], stored: Safetensors, place: Place, rank: int) -> list[str]:
    wanted = {"A": [rank, place.inputs], "B": [place.stored_outputs, rank]}
    problems = []
    for half, shape in wanted.items():
        name = tensors.get(half)
        if name is None:
            problems.append(f"{module} has no lora_{half}.weight {shape}")
        elif stored.shape(name) != shape:
            problems.append(f"tensor {name} has shape {stored.shape(name)}, but model and configuration say {shape}")
        elif stored.kind(name) not in BYTES:
            problems.append(f"tensor {name} is of {stored.kind(name)}, only {', '.join(BYTES)} are supported")
    return problems


def _full(model: Transformer, module: str) -> str:
    """Return a layer's name in the reference implementation: with the prefix of a model that has a head."""
    family = FAMILIES[model.config.family]
    headless = model.config.head.kind == "hidden" or re.fullmatch(family.heads, f"{module}.weight")
    return module if headless else family.prefix + module


def save_adapters(directory: Path | str, adapters: Adapters, model: Transformer, *, base: str | None = None) -> None:
    """Write adapters in the layout of PEFT; if that fails, nothing is left behind.

    Args:
        directory: a new directory, or an empty one.
        adapters: the adapters.
        model: their base model.
        base: name or path of the base model, for PEFT.

    Raises:
        BadCheckpoint: if the directory exists and isn't empty, or there is no adapter.
    """
    if not adapters:
        raise BadCheckpoint("there is no adapter to save: give at least one")
    tensors: dict[str, np.ndarray] = {}
    ranks, alphas = {}, {}
    known = places(model)
    for module, adapter in adapters.items():
        name = _full(model, module)
        ranks[name] = adapter.down.shape[1]
        alphas[name] = float(adapter.scale) * ranks[name]
        for half, matrix in (("A", adapter.down), ("B", adapter.up)):
            tensors[f"base_model.model.{name}.lora_{half}.weight"] = np.ascontiguousarray(np.asarray(matrix).T)
    (rank, _), (alpha, _) = (Counter(numbers.values()).most_common(1)[0] for numbers in (ranks, alphas))
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM" if model.config.head.kind == "next token" else None,
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": alpha,
        "rank_pattern": {name: number for name, number in ranks.items() if number != rank},
        "alpha_pattern": {name: number for name, number in alphas.items() if number != alpha},
        "target_modules": list(ranks),
        "fan_in_fan_out": not all(known[module].transposed for module in adapters),
        "bias": "none",
        "lora_dropout": 0.0,
        "inference_mode": True,
    }
    with new_directory(directory) as folder:
        (folder / WEIGHTS).write_bytes(save(tensors, metadata={"format": "pt"}))
        (folder / CONFIG).write_text(json.dumps(config, indent=2, allow_nan=False) + "\n")
