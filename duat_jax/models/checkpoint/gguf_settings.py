"""A GGUF file's metadata as fields of a `config.json`: every key is used, harmless, or refused by name."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from duat_jax.models.checkpoint.fields import LARGEST
from duat_jax.models.checkpoint.gguf_architectures import architecture_of
from duat_jax.models.checkpoint.gguf_header import Header
from duat_jax.models.checkpoint.problems import quoted, raise_problems

SIZES = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
}
"""Keys of sizes that every file has, and their names in a `config.json`."""

FACTORS = "rope_freqs.weight"
"""The tensor of factors by which the rotations' frequencies are divided."""

LONGROPE = ("rope_factors_long.weight", "rope_factors_short.weight")
"""The same for long and for short texts, where they differ."""

HARMLESS_ROOMS = ("general.", "tokenizer.", "quantize.", "split.")
"""Prefixes of keys about the file's origin, quantisation and parts, and the tokenizer, which is read on its own."""

HARMLESS = ("pooling_type", "rope.scaling.finetuned", "tensor_data_layout")
"""Keys of the pooling, which `GgufCheckpoint.pooling` reads, that say whether the model was trained with its scaling,
or that name the layout of all files of an architecture."""


class _Keys:
    """The keys of one architecture, which of them were read, and the problems found in them."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.values, self.room = metadata, metadata["general.architecture"]
        harmless_keys = {f"{self.room}.{key}" for key in HARMLESS}
        self.unread = {key for key in metadata if not key.startswith(HARMLESS_ROOMS) and key not in harmless_keys}
        self.problems: list[str] = []

    def take(self, key: str, default: Any = None) -> Any:
        """Return the value of a key; values per layer must be equal."""
        key = f"{self.room}.{key}"
        self.unread.discard(key)
        value = self.values.get(key, default)
        if not isinstance(value, list | np.ndarray):
            return value
        if len(value) == 0 or any(item != value[0] for item in value):
            self.problems.append(f"{key} differs from layer to layer, which isn't supported")
            return default
        return value[0] if isinstance(value, list) else value[0].item()

    def size(self, key: str, default: int | None = None) -> int:
        """Return a positive whole number; required if there is no default."""
        value = self.take(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST:
            self.problems.append(f"{self.room}.{key} must be a positive whole number, not {quoted(value)}")
            return 1
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a positive number; required if there is no default."""
        value = self.take(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            self.problems.append(f"{self.room}.{key} must be a positive number, not {quoted(value)}")
            return 1.0
        return float(value)

    def layer_types(self, layers: int) -> list[str]:
        """Return the attention type of each layer, where the file states it."""
        key = f"{self.room}.attention.sliding_window_pattern"
        self.unread.discard(key)
        value = self.values.get(key)
        if value is None:
            return []
        slides = [bool(item) for item in value] if isinstance(value, list | np.ndarray) else []
        if len(slides) != layers:
            self.problems.append(
                f"{key} = {quoted(value)} must say for each of {layers} layers whether it has a window"
            )
        return ["sliding_attention" if slide else "full_attention" for slide in slides]

    def expect(self, key: str, value: Any) -> None:
        """Note a problem unless a key is absent or has the only supported value."""
        actual = self.take(key, value)
        if actual != value:
            self.problems.append(f"{self.room}.{key} = {quoted(actual)} isn't supported here, only {value!r} is")

    def all_problems(self) -> list[str]:
        return self.problems + [
            f"{quoted(key)} = {quoted(self.values[key])} isn't known here and may change what the model computes"
            for key in sorted(self.unread)
        ]


def read_settings(path: Path, header: Header) -> dict[str, Any]:
    """Convert a file's metadata to the fields of a `config.json`."""
    architecture = architecture_of(path, header.metadata)
    keys = _Keys(header.metadata)
    config: dict[str, Any] = {"model_type": architecture.model_type}
    config |= {field: keys.size(key) for key, field in SIZES.items()}
    heads, width = config["num_attention_heads"], config["hidden_size"] // config["num_attention_heads"]
    config["num_key_value_heads"] = keys.size("attention.head_count_kv", heads)
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    config["vocab_size"] = keys.size("vocab_size", len(tokens) if isinstance(tokens, list | np.ndarray) else None)
    config["head_dim"] = width = keys.size("attention.key_length", max(width, 1))
    keys.expect("attention.value_length", width)
    keys.expect("attention.causal", architecture.causal)
    epsilon, field = architecture.epsilon
    config[field] = keys.number(epsilon)
    turned = width
    if architecture.turned is None:
        keys.expect("rope.dimension_count", width)
    else:
        turned = keys.size("rope.dimension_count", width)
        config[architecture.turned] = share_of(turned, width)
    config["rope_theta"] = keys.number("rope.freq_base", 10000.0)
    if "rope.freq_base_swa" not in architecture.fields:
        keys.expect("rope.freq_base_swa", config["rope_theta"])  # of layers with a window
    config["tie_word_embeddings"] = "output.weight" not in header.places
    config |= {field: value for key, field in architecture.fields.items() if (value := keys.take(key)) is not None}
    if "attention.sliding_window" in architecture.fields and (kinds := keys.layer_types(config["num_hidden_layers"])):
        config["layer_types"] = kinds
    if architecture.experts is None:
        keys.expect("expert_count", 0)
        keys.expect("expert_used_count", 0)
    scaling = _scaling(keys)
    if FACTORS in header.places and scaling:
        keys.problems.append(f"rope.scaling.type = {quoted(scaling['rope_type'])} and {FACTORS} both change the angles")
    elif FACTORS in header.places:
        scaling = _llama3(keys, path, header, width, config["rope_theta"])
    if any(name in header.places for name in LONGROPE):
        if scaling:
            keys.problems.append(
                f"rope.scaling.type = {quoted(scaling['rope_type'])} and {LONGROPE[0]} change the angles"
            )
        scaling = _longrope(keys, path, header, turned)
    kind = header.metadata.get("general.type", "model")
    if not isinstance(kind, str) or kind != "model":
        keys.problems.append(f"general.type = {quoted(kind)} isn't a model")
    raise_problems(path, keys.all_problems())
    config |= {"rope_scaling": scaling} if scaling else {}
    other = architecture.other_fields
    return config | (other(config, header) if callable(other) else dict(other))


def share_of(part: int, total: int) -> float:
    """Return the fraction `part / total`, rounded so that multiplying by the total gives the part again.

    Example:
        >>> 1 / 49 * 49 < 1, int(share_of(1, 49) * 49)
        (True, 1)
    """
    share = part / total
    return share if int(total * share) == part else math.nextafter(share, math.inf)


def _scaling(keys: _Keys) -> dict[str, Any]:
    """Return the scaling of the rotations."""
    kind = keys.take("rope.scaling.type", "none")
    if kind == "none":
        return {}
    if kind not in ("linear", "yarn"):
        keys.problems.append(
            f"{keys.room}.rope.scaling.type = {quoted(kind)} isn't supported, only linear and yarn are"
        )
        return {}
    scaling = {"rope_type": kind, "factor": keys.number("rope.scaling.factor")}
    if kind == "yarn":
        scaling["original_max_position_embeddings"] = keys.size("rope.scaling.original_context_length")
        scaling["beta_fast"] = keys.number("rope.scaling.yarn_beta_fast", 32.0)
        scaling["beta_slow"] = keys.number("rope.scaling.yarn_beta_slow", 1.0)
        keys.expect("rope.scaling.yarn_ext_factor", 1.0)
        scaling |= _strength(keys, max(scaling["factor"], 1.0))
    return scaling


def _strength(keys: _Keys, factor: float) -> dict[str, float]:
    """Return YaRN's factor of the rotated features, where it isn't the usual `0.1 log(factor) + 1`."""
    # In llama.cpp `attn_factor` multiplies the usual one. Its converter writes a `config.json`'s `attention_factor` as
    # `yarn_attn_factor`, which it doesn't read: only the usual one, and the default of 1, mean one thing.
    usual, times = 0.1 * math.log(factor) + 1, keys.number("rope.scaling.attn_factor", 1.0)
    if not math.isclose(keys.number("rope.scaling.yarn_attn_factor", 1.0), usual, rel_tol=1e-6):
        keys.expect("rope.scaling.yarn_attn_factor", 1.0)
    return {} if times == 1 else {"attention_factor": times * usual}


def _factors(keys: _Keys, path: Path, header: Header, name: str, count: int) -> list[float]:
    """Return a tensor of factors of rotations."""
    place = header.places.get(name)
    if place is None or place.kind != gguf.GGMLQuantizationType.F32 or place.shape != [count]:
        keys.problems.append(f"tensor {name} {place and place.shape} must have {count} entries of F32")
        return [1.0] * count
    return np.fromfile(path, "<f4", count, offset=place.start).tolist()


def _longrope(keys: _Keys, path: Path, header: Header, turned: int) -> dict[str, Any]:
    """Return the scaling of rotations in short and in long texts."""
    long, short = (_factors(keys, path, header, name, turned // 2) for name in LONGROPE)
    strength = keys.number("rope.scaling.attn_factor", 1.0)
    return {"rope_type": "longrope", "short_factor": short, "long_factor": long, "attention_factor": strength}


def _llama3(keys: _Keys, path: Path, header: Header, width: int, base: float) -> dict[str, Any]:
    """Return the scaling of the rotations from the file's factors: Llama 3's, or a problem."""
    factors = np.array(_factors(keys, path, header, FACTORS, width // 2))
    low, high, original = 1.0, 4.0, 8192
    turns = original * base ** (-np.arange(0, width, 2) / width) / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    factor = float(factors.max())
    if not np.allclose(factors, 1 / ((1 - share) / factor + share), rtol=1e-5, atol=0):
        keys.problems.append(f"tensor {FACTORS} has factors that aren't those of Llama 3, which isn't supported")
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }
