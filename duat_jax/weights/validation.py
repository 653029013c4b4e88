"""Validation of two models whose weights are compared: one program, and weights of one shape."""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from duat_jax.errors import DuatError, InvalidInput
from duat_jax.models.config import Config
from duat_jax.models.encoding import encode
from duat_jax.models.layer_parts import written_out
from duat_jax.models.loader import skeleton
from duat_jax.models.transformer import Transformer
from duat_jax.models.untied import untied
from duat_jax.models.validation import require_layers, require_loaded
from duat_jax.weights.filled import filled, is_pruned
from duat_jax.weights.units import parameters_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SHOWN = 8
"""The largest number of differences that a message names."""
NAMES_ALONE = "family", "positions"
"""Fields of a configuration that don't change what is computed of a text that both models take."""


def require_alike(before: Transformer, after: Transformer) -> None:
    """Raise unless two models are one function of weights of one shape."""
    known = parameters_of(skeleton(after.config, "float32"))
    if parameters_of(after).keys() != known.keys():
        raise DuatError(
            "the model isn't made of the layers of its configuration: give one that duat.load returns, and of one with"
            " adapters duat.lora.merge(model, adapters)"
        )
    depths = before.config.layers, after.config.layers
    problems = [f"the reference has {depths[0]} layers and the model {depths[1]}"] * (depths[0] != depths[1])
    problems = problems or [*_settings(before.config, after.config), *_shapes(before, after)]
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise DuatError(
            f"the two models aren't one function of weights of one shape: {'; '.join(problems[:SHOWN])}{more}. Compare"
            " a model with what was made of it without changing its shape, such as a fine-tuned or a rounded one; of"
            " one with adapters give duat.lora.merge(model, adapters)"
        )


def check_configs(before: Config, after: Config, dtype: str) -> None:
    """Raise unless two models that aren't loaded yet can be compared."""
    for config in (before, after):
        require_layers(config)
    if not (is_pruned(before, after) or is_pruned(after, before)):
        require_alike(*untied_alike(skeleton(before, dtype), skeleton(after, dtype)))


def require_same_tokens(first: "Tokenizer", second: "Tokenizer", texts: Iterable[str]) -> None:
    """Raise unless two tokenizers give the same tokens of each text."""
    if any(encode(first, text, "the text") != encode(second, text, "the text") for text in texts):
        raise InvalidInput(
            "the tokenizers of the two models give different tokens, so that they read two inputs: compare models that"
            " share a tokenizer"
        )


def untied_alike(before: Transformer, after: Transformer) -> tuple[Transformer, Transformer]:
    """Return two models, the tied read-out of one as a matrix of its own where the other one has that."""
    heads = before.config.head, after.config.head
    if {head.kind for head in heads} == {"next token"} and heads[0].tied != heads[1].tied:
        return untied(before), untied(after)
    return before, after


def alike_models(before: Transformer, after: Transformer) -> tuple[Transformer, Transformer]:
    """Return two models as two values of one function's weights: of one structure, dtype and division among devices."""
    for model in (before, after):
        require_loaded(model)
        require_layers(model.config)
    before, after = untied_alike(*filled(before, after))
    require_alike(before, after)
    if type(before.stack) is not type(after.stack):
        before, after = written_out(before), written_out(after)
    shorter = min((before, after), key=lambda model: _longest(model.config))
    leaves = [jax.tree.leaves(model) for model in (before, after)]
    with jax.numpy_dtype_promotion("standard"):
        wider = jnp.result_type(jnp.float32, *(leaf.dtype for leaf in (*leaves[0], *leaves[1])))
    structure = jax.tree.structure(shorter)
    pairs = zip(*leaves, strict=True)
    alike = [(a.astype(wider), jax.device_put(b.astype(wider), a.sharding)) for a, b in pairs]
    first, second = (jax.tree.unflatten(structure, of_model) for of_model in zip(*alike, strict=True))
    return first, second


def _longest(config: Config) -> int:
    """Return the number of tokens of the longest text that a model, or a sentence encoder, reads whole."""
    return min(config.positions, config.pooling.longest or config.positions)


def _settings(before: Config, after: Config) -> list[str]:
    """Return a sentence for every setting in which the programs of two models differ, one for all layers."""
    layers_of: dict[str, list[int]] = {}
    for i, (first, second) in enumerate(zip(before.blocks, after.blocks, strict=True)):
        for words in _different(_flat(first), _flat(second)):
            layers_of.setdefault(words, []).append(i)
    of_layers = [f"in layers {', '.join(map(str, layers))} {words}" for words, layers in layers_of.items()]
    return [*_different(*(_flat(config, without=("blocks", *NAMES_ALONE)) for config in (before, after))), *of_layers]


def _different(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """Return a sentence for every setting in which two configurations differ."""
    return [
        f"{name} is {first.get(name)!r} in the reference and {second.get(name)!r} in the model"
        for name in dict.fromkeys([*first, *second])
        if first.get(name) != second.get(name)
    ]


def _flat(value: Any, name: str = "", without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the settings of a configuration, and of those in it, by their names."""
    if not is_dataclass(value):
        return {name: value}
    beginning = f"{name}." if name else ""
    inner = [
        (field.name, getattr(value, field.name))
        for field in fields(value)
        if field.compare and field.name not in without
    ]
    return {path: leaf for key, each in inner for path, leaf in _flat(each, f"{beginning}{key}").items()}


def _shapes(before: Transformer, after: Transformer) -> list[str]:
    """Return a sentence for every parameter whose shape differs, or that one of the models doesn't have."""

    def described(parameters: dict[str, Any], name: str) -> str:
        return f"{list(parameters[name].shape)}" if name in parameters else "absent"

    first, second = map(parameters_of, (before, after))
    return [
        f"{name} is {described(first, name)} in the reference and {described(second, name)} in the model"
        for name in dict.fromkeys([*first, *second])
        if described(first, name) != described(second, name)
    ]
