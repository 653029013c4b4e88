"""Adapter files in the layout of PEFT: `adapter_config.json` and `adapter_model.safetensors`."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save

from duat_jax.errors import BadCheckpoint, warn_caller
from duat_jax.files import check_new_directory, new_directory, path_of
from duat_jax.lora.adaptable_layers import EMBEDDING, TABLES, AdaptableLayer, adaptable_layers, entries_of, shapes_of
from duat_jax.lora.adapter import Adapter, Adapters
from duat_jax.lora.names import full_module, full_tensor, prefixed, stored_module
from duat_jax.lora.peft_settings import AdapterSettings
from duat_jax.lora.replacement import Replacement, stored_tensors
from duat_jax.lora.target_modules import ALL
from duat_jax.models.checkpoint.json_file import read_json
from duat_jax.models.checkpoint.problems import quoted, raise_problems
from duat_jax.models.checkpoint.safetensors_files import BYTES, Safetensors
from duat_jax.models.families.tensor_map import Entry, parameter_at
from duat_jax.models.registry import family_of
from duat_jax.models.transformer import Transformer
from duat_jax.models.untied import untied
from duat_jax.nn.linear import computed_in
from duat_jax.processes import on_host

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
UNREAD_ROUTERS = ("granitemoe", "gpt_oss")
"""Families of which PEFT 0.21 doesn't read an adapter of a router: it drops the one, and refuses the other."""


def _opened(directory: Path | str) -> tuple[Path, AdapterSettings, Safetensors]:
    """Return an adapter's directory, its configuration and its tensors."""
    place = path_of(directory, "an adapter's directory")
    for name in (CONFIG, WEIGHTS):
        if not (place / name).is_file():
            raise BadCheckpoint(f"{place} has no {name}: an adapter's directory has {CONFIG} and {WEIGHTS}")
    values = read_json(place / CONFIG)
    if not isinstance(values, dict):
        raise BadCheckpoint(f"{place / CONFIG}: must be fields, not {quoted(values)}")
    settings = AdapterSettings(values)
    raise_problems(place / CONFIG, settings.problems)
    return place, settings, Safetensors(place / WEIGHTS, [place / WEIGHTS])


def require_base(directory: Path | str, model: Transformer) -> None:
    """Raise if an adapter's files hold an embedding or a read-out that isn't the model's."""
    place, settings, stored = _opened(directory)
    raise_problems(place / WEIGHTS, _AdapterTensors(model, settings, stored).of_other_bases())


def load_adapters(directory: Path | str, model: Transformer) -> Adapters:
    """Load adapters in the layout of PEFT, for a model of the same shapes as their base model.

    The files don't identify the base model: another model of the same family and sizes is accepted too, unless they
    hold an embedding or a read-out that isn't its own. Modules that `modules_to_save` names replace the model's. As in
    PEFT, tensors of layers that `adapter_config.json` leaves out (`target_modules`, `exclude_modules`,
    `layers_to_transform`) aren't used, which a warning says.

    Args:
        directory: the directory with `adapter_config.json` and `adapter_model.safetensors`.
        model: the base model.

    Returns:
        The adapters, in the model's dtype, in float32 at least.

    Raises:
        BadCheckpoint: naming every field that isn't supported, and every tensor that is missing, misshapen, not finite,
            or belongs to no linear layer of the model, at once.
    """
    place, settings, stored = _opened(directory)
    known = adaptable_layers(model)
    files = _AdapterTensors(model, settings, stored)
    problems = files.problems
    if not stored.names():
        problems.append("it has no tensors: save the adapters again")
    if left_out := [name for name in files.halves if not _is_target(settings, files.called[name], known[name])]:
        warn_caller(
            f"{place / CONFIG} leaves out stored adapters, which aren't used, as in PEFT: {', '.join(left_out)}"
        )
    halves = {module: tensors for module, tensors in files.halves.items() if module not in left_out}
    if stored.names() and not halves and not files.whole and not problems:
        problems.append("none of its adapters is named by target_modules")
    for module, tensors in halves.items():
        problems += _problems(module, tensors, stored, known[module], settings.rank(files.called[module]))
    if model.config.head.tied and settings.ties:
        changed = {path for module in halves for path in known[module].paths}
        changed |= {path for entries in files.whole.values() for entry in entries for path in entry.parameters}
        if changed & {*TABLES}:
            problems.append("ensure_weight_tying with an adapter of the tied embedding isn't supported")
    if sum(problem.startswith("tensor ") for problem in problems) == len(stored.names()) > 1:
        base = f", which {CONFIG} calls {quoted(settings.base)}," if settings.base else ""
        problems = [
            f"none of its tensors fits this {model.config.family} model (the embedded one, if none is given):"
            f" give the adapter's base{base} as the model (--model); the first of {len(problems)} problems follow",
            *problems[:3],
        ]
    raise_problems(place / WEIGHTS, problems)
    dtype = computed_in(jax.tree.leaves(model)[0].dtype)  # as in PEFT, also beside a model in half precision
    names = [name for tensors in halves.values() for name in tensors.values()]
    read = {name: stored.read(name, dtype) for name in [*names, *files.tensors.values()]}
    problems = [
        f"tensor {name} has NaN or infinite entries" for name, tensor in read.items() if not np.isfinite(tensor).all()
    ]
    raise_problems(place / WEIGHTS, problems + files.of_other_bases())
    adapters: Adapters = {
        module: Adapter(
            jnp.asarray(read[halves[module]["A"]].T),
            jnp.asarray(read[halves[module]["B"]].T),
            jnp.asarray(settings.scale(files.called[module]), dtype),
        )
        for module in known
        if module in halves
    }
    shapes = files.shapes
    for module, entries in files.whole.items():
        new: dict[str, jax.Array] = {}
        for entry in entries:
            tensor = read[files.tensors[entry.names[0]]]
            unpacked = entry.transform.unpack([tensor], [shapes[path] for path in entry.parameters])
            new |= {path: jnp.asarray(value) for path, value in zip(entry.parameters, unpacked, strict=True)}
        adapters[module] = Replacement(new, jnp.ones((), dtype))
    return adapters


class _AdapterTensors:
    """The tensors of an adapter's file, by their kinds."""

    def __init__(self, model: Transformer, settings: AdapterSettings, stored: Safetensors) -> None:
        self.problems: list[str] = []
        self.halves: dict[str, dict[str, str]] = {}
        self.called: dict[str, str] = {}
        self.bases: dict[str, str] = {}
        self.whole: dict[str, list[Entry]] = {}
        self.tensors: dict[str, str] = {}
        known, absent = adaptable_layers(model), []
        self.model, self.stored, self.shapes = model, stored, shapes_of(model)
        single = {entry.names[0]: entry for entry in entries_of(model.config) if len(entry.names) == 1}
        modules = {name: _whole(settings, model, name) for name in single}
        for tensor in sorted(stored.names()):
            called, half, of_table, base_layer, end = _split(tensor)
            module = stored_module(model, called)
            place, entry = known.get(module), single.get(f"{module}.{end}")
            if place and (which := half or of_table) and bool(of_table) == (place.paths == (EMBEDDING,)):
                self.halves.setdefault(module, {})[which] = tensor
                self.called[module] = called
            elif entry and base_layer and entry.parameters[0] in (*TABLES, "head.bias"):
                self.bases[tensor] = entry.parameters[0]
            elif entry and not base_layer and modules[f"{module}.{end}"] is not None:
                (wanted,) = entry.transform.shapes([self.shapes[path] for path in entry.parameters])
                self._check(tensor, stored, wanted)
                self.tensors[f"{module}.{end}"] = tensor
            elif not entry and re.fullmatch(family_of(model.config).heads, f"{module}.{end}"):
                absent.append(tensor)
            else:
                self.problems.append(
                    f"tensor {tensor} {stored.shape(tensor)} belongs to no linear layer of a {model.config.family}"
                    " model, nor to a part of it that modules_to_save names"
                )
        if absent:
            classified = "Image" if model.config.image else "Sequence"
            self.problems.append(
                f"{', '.join(absent)} are of a read-out that the base model doesn't have: save it with that read-out"
                " and give this one, in transformers"
                f" AutoModelFor{classified}Classification.from_pretrained(BASE, num_labels=N).save_pretrained(DIR)"
            )
        for name, whole in modules.items():
            if whole is None:
                continue
            if name in self.tensors:
                self.whole.setdefault(whole, []).append(single[name])
            else:
                self.problems.append(f"modules_to_save names {whole}, but tensor {name} isn't stored")
            if any(layer == whole or layer.startswith(f"{whole}.") for layer in self.halves):
                self.problems.append(f"modules_to_save and target_modules both name {whole}")

    def of_other_bases(self) -> list[str]:
        """Return a sentence for every stored embedding and read-out that isn't the model's; none of a skeleton's."""
        dtype, whole = np.dtype(jax.tree.leaves(self.model)[0].dtype), untied(self.model) if self.bases else self.model
        return [
            f"tensor {name} differs from the model's: it is of another base model"
            for name, path in self.bases.items()
            if isinstance(own := parameter_at(whole, path)[...], jax.Array)
            and not np.array_equal(on_host(own), self.stored.read(name, dtype))
        ]

    def _check(self, tensor: str, stored: Safetensors, wanted: Any) -> None:
        """Note a tensor whose shape or storage type doesn't fit."""
        shape, kind = stored.shape(tensor), stored.kind(tensor)
        if len(shape) != len(wanted) or any(size not in (None, own) for size, own in zip(wanted, shape, strict=True)):
            self.problems.append(f"tensor {tensor} has shape {shape}, but the model says {list(wanted)}")
        elif kind not in BYTES:
            self.problems.append(f"tensor {tensor} is of {kind}, only {', '.join(BYTES)} are supported")


class _Name(NamedTuple):
    """A tensor's name: its module, the half of a layer's or a table's adapter, or the end of a tensor of its own."""

    called: str
    half: str | None = None
    of_table: str | None = None
    base_layer: str | None = None
    end: str | None = None


def _split(tensor: str) -> _Name:
    """Return the parts of a stored tensor's name; no module's where it isn't PEFT's."""
    kinds = r"(?:\.lora_(?:([AB])\.weight|embedding_([AB]))|(\.base_layer)?\.([^.]*))"
    match = re.fullmatch(re.escape(PREFIX) + r"(.+?)" + kinds, tensor)
    return _Name(*match.groups()) if match else _Name("")


def _whole(settings: AdapterSettings, model: Transformer, name: str) -> str | None:
    """Return the stored name of the module that is stored whole, to which a tensor of the model belongs, or `None`."""
    module = settings.whole(prefixed(model, name)) or settings.whole(full_tensor(model, name))
    return None if module is None else stored_module(model, module)


def _is_target(settings: AdapterSettings, called: str, place: AdaptableLayer) -> bool:
    """Return whether the configuration names a layer; "all-linear" leaves embedding and read-out out."""
    if settings.targets.targets == ALL and place.paths[0] in TABLES:
        return False
    return called in settings.targets


def _problems(module: str, tensors: dict[str, str], stored: Safetensors, place: AdaptableLayer, rank: int) -> list[str]:
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


def save_adapters(directory: Path | str, adapters: Adapters, model: Transformer, *, base: str | None = None) -> None:
    """Write adapters in the layout of PEFT; if that fails, nothing is left behind.

    Adapters of the routers of a Granite MoE and a GPT-OSS, which PEFT 0.21 doesn't read, are written with a warning.

    Args:
        directory: a new directory, or an empty one.
        adapters: the adapters.
        model: their base model.
        base: name or path of the base model, for PEFT.

    Raises:
        BadCheckpoint: if the directory exists and isn't empty, or there is no adapter.
    """
    check_new_directory(directory)
    if not adapters:
        raise BadCheckpoint("there is no adapter to save: give at least one")
    tensors: dict[str, np.ndarray] = {}
    ranks, alphas, whole = {}, {}, []
    known = adaptable_layers(model)
    for module, adapter in adapters.items():
        name = full_module(model, module)
        if isinstance(adapter, Replacement):
            whole.append(name)
            tensors |= {f"{PREFIX}{full_tensor(model, n)}": t for n, t in stored_tensors(model, adapter).items()}
            continue
        ranks[name] = adapter.down.shape[1]
        alphas[name] = float(adapter.scale) * ranks[name]
        in_embedding = known[module].paths == (EMBEDDING,)
        for half, matrix in (("A", adapter.down), ("B", adapter.up)):
            part = f"lora_embedding_{half}" if in_embedding else f"lora_{half}.weight"
            tensors[f"{PREFIX}{name}.{part}"] = np.ascontiguousarray(np.asarray(matrix).T)
    if not ranks:
        raise BadCheckpoint("PEFT needs an adapter of low rank besides weights that are stored whole: give one")
    (rank, _), (alpha, _) = (Counter(numbers.values()).most_common(1)[0] for numbers in (ranks, alphas))
    linear = [known[module] for module, adapter in adapters.items() if isinstance(adapter, Adapter)]
    routers = [module for module in adapters if module in known and known[module].is_router]
    if routers and model.config.family in UNREAD_ROUTERS:
        warn_caller(
            f"PEFT 0.21 reads no adapter of a router of {model.config.family}, such as {routers[0]}: the files are for"
            " load_adapters; save_merged writes a checkpoint that has the update"
        )
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM" if model.config.head.kind == "next token" else None,
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": alpha,
        "rank_pattern": {name: number for name, number in ranks.items() if number != rank},
        "alpha_pattern": {name: number for name, number in alphas.items() if number != alpha},
        "target_modules": list(ranks),
        "modules_to_save": whole or None,
        "fan_in_fan_out": not all(place.transposed for place in linear if place.paths != (EMBEDDING,)),
        "bias": "none",
        "lora_dropout": 0.0,
        "inference_mode": True,
    }
    with new_directory(directory) as folder:
        (folder / WEIGHTS).write_bytes(save(tensors, metadata={"format": "pt"}))
        (folder / CONFIG).write_text(json.dumps(config, indent=2, allow_nan=False) + "\n")
