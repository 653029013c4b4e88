"""Stored names of a model's parts, from which its tensor map follows."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

from duat_jax.models.config import Config
from duat_jax.models.families.family import Family
from duat_jax.models.families.tensor_map import (
    SIDE_BY_SIDE,
    TRANSPOSED,
    Entry,
    Transform,
    in_layer,
    linear,
    norm,
    stacked,
    transposed,
)
from duat_jax.nn.config import BlockConfig

QUERY_KEY_VALUE = ("attention.query", "attention.key", "attention.value")
GATE_AND_FACTOR = ("mlp.input", "mlp.factor")
TOGETHER = transposed(SIDE_BY_SIDE)
"""The transform of several linear layers that are stored as one."""

Paths = str | tuple[str, ...]
Stored = str | tuple[str, Transform | Callable[[BlockConfig], Transform]]
Parts = Mapping[Paths, Stored]
"""The names of a layer's modules, by their paths in a block."""

PRESENT: dict[str, Callable[[BlockConfig], bool]] = {
    "norm_1": lambda block: block.norm_1,
    "norm_2": lambda block: block.norm_2,
    "attention_norm": lambda block: block.output_norms,
    "mlp_norm": lambda block: block.output_norms,
    "attention.query_norm": lambda block: block.query_key_norm != "none",
    "attention.key_norm": lambda block: block.query_key_norm != "none",
    "mlp.input": lambda block: block.mlp != "experts",
    "mlp.factor": lambda block: block.mlp == "gated",
    "mlp.output": lambda block: block.mlp != "experts",
    **dict.fromkeys(
        (f"experts.{part}" for part in ("router", "input", "factor", "output")), lambda block: block.mlp == "experts"
    ),
}
"""Whether a block has a part; parts that aren't here are in every block."""


@final
@dataclass(frozen=True, kw_only=True)
class Names:
    """The stored names of a family's modules, by the parts of the model that they become.

    A part without a name isn't stored; one that a model doesn't have isn't read.

    Args:
        parts: the names of a layer's modules, by their paths in a block: several paths where modules are stored
            together. `experts.` stands for an MLP of experts, whose name has `{expert}` where each is stored on its
            own. A name alone is a linear layer stored as `[outputs, inputs]`, or a norm; a pair has the transform too.
        outside: the names of modules outside of the layers, by their paths.
        heads: for each kind of head the names of its `"dense"` layer, its `"norm"` and its `"logits"`, and the one of
            a `"tied"` bias, where that is another.
        layer: the beginning of the names in a layer.
        further: the entries of a layer's tensors that are no modules.
    """

    parts: Parts
    outside: Mapping[str, str]
    heads: Mapping[str, Mapping[str, str]]
    layer: str = "layers.{i}."
    further: Callable[[BlockConfig], list[Entry]] = lambda _: []

    def but(self, parts: Parts, **fields: Any) -> "Names":
        """Return names of which some differ.

        Args:
            parts: these names; they replace those of every path in them.
            **fields: other fields.
        """
        taken = {path for paths in parts for path in _paths(paths)}
        kept = {paths: stored for paths, stored in self.parts.items() if not taken & set(_paths(paths))}
        return replace(self, parts=kept | dict(parts), **fields)

    def tensor_map(self, config: Config) -> list[Entry]:
        """Return the table of stored tensors and the parameters that they become.

        Args:
            config: the checkpoint's parts.
        """
        layers = (entry for i, block in enumerate(config.blocks) for entry in in_layer(i, self.of_block(block)))
        return [*self._outside(config), *layers, *self.of_head(config)]

    def of_block(self, block: BlockConfig) -> list[Entry]:
        """Return the entries of a layer.

        Args:
            block: its parts.
        """
        entries: list[Entry] = []
        for ours, stored in self.parts.items():
            paths = _paths(ours)
            if PRESENT.get(paths[0], lambda _: True)(block):
                usual = TOGETHER if len(paths) > 1 else TRANSPOSED
                name, transform = stored if isinstance(stored, tuple) else (stored, usual)
                entries += _entries(block, paths, self.layer + name, transform)
        return entries + self.further(block)

    def _outside(self, config: Config) -> Iterator[Entry]:
        """Yield the entries before and after the layers."""
        offset = _has_offset(config.blocks[0])
        present = {
            "embedding.token": True,
            "embedding.position": config.position_embedding,
            "embedding.segment": config.segments,
            "embedding_norm": config.embedding_norm,
            "projection": config.embedding_features,
            "final_norm": config.final_norm,
        }
        for path, name in self.outside.items():
            if not present[path]:
                continue
            if path.endswith("norm"):
                yield from norm(name, path, bias=offset)
            elif path == "projection":
                yield from linear(name, path)
            else:
                yield Entry(f"{name}.weight", (path,))

    def of_head(self, config: Config) -> list[Entry]:
        """Return the entries of the head.

        Args:
            config: the checkpoint's parts.
        """
        head, names = config.head, self.heads.get(config.head.kind, {})
        entries: list[Entry] = []
        if head.dense is not None:
            entries += linear(names["dense"], "head.dense", bias=head.dense_bias)
        if head.norm:
            entries += norm(names["norm"], "head.norm", bias=_has_offset(config.blocks[0]))
        if head.outputs and not head.tied:
            entries.append(Entry(f"{names['logits']}.weight", ("head.unembedding",)))
        if head.bias:
            name = names.get("tied", names["logits"]) if head.tied else names["logits"]
            entries.append(Entry(f"{name}.bias", ("head.bias",)))
        return entries

    def family(self, read_config: Callable[..., Config], **fields: Any) -> Family:
        """Return the family of checkpoints with these names.

        Args:
            read_config: reads its configuration.
            **fields: other fields of `Family`.
        """
        number = re.escape(self.layer).replace(r"\{i\}", r"(\d{1,9})")
        usual: dict[str, Any] = {"tensor_map": self.tensor_map, "layer": number, "copies": self.copies}
        family = Family(read_config, **usual | fields)
        return replace(family, parts=tuple(self._modules(family.prefix)))

    def _modules(self, prefix: str) -> Iterator[str]:
        """Yield the stored names of modules, those of the first layer for all layers and for all experts."""
        yield from (prefix + name for name in self.outside.values())
        for stored in self.parts.values():
            name = stored[0] if isinstance(stored, tuple) else stored
            yield prefix + self.layer.format(i=0) + name.replace(".{expert}", "")
        if "next token" in self.heads:
            yield self.heads["next token"]["logits"]

    @property
    def copies(self) -> dict[str, str]:
        """The names that a tied checkpoint may have too, and the tensors that they repeat."""
        copies: dict[str, str] = {}
        for names in (self.heads[kind] for kind in ("next token", "masked token") if kind in self.heads):
            copies[f"{names['logits']}.weight"] = f"{self.outside['embedding.token']}.weight"
            if "tied" in names:
                copies[f"{names['logits']}.bias"] = f"{names['tied']}.bias"
        return copies


def _paths(paths: Paths) -> tuple[str, ...]:
    return (paths,) if isinstance(paths, str) else paths


def _has_offset(block: BlockConfig) -> bool:
    return block.norm == "layer" and block.norm_bias


def _entries(
    block: BlockConfig, paths: tuple[str, ...], name: str, transform: Transform | Callable[[BlockConfig], Transform]
) -> list[Entry]:
    """Return the entries of one stored module."""
    transform = transform if isinstance(transform, Transform) else transform(block)
    if "norm" in paths[0]:
        offset = _has_offset(block) and not paths[0].startswith("attention.")
        return norm(name, *(f"block.{path}" for path in paths), bias=offset)
    ours = tuple("block." + path.replace("experts.", "mlp.") for path in paths)
    if not paths[0].startswith("experts.") or paths[0] == "experts.router":
        return linear(name, *ours, transform=transform, bias=_has_bias(block, paths[0]))
    if "{expert}" not in name:
        return [Entry(f"{name}.weight", ours, transform)]
    count = block.experts or 0
    return [Entry(tuple(f"{name}.weight".replace("{expert}", str(i)) for i in range(count)), ours, stacked(count))]


def _has_bias(block: BlockConfig, path: str) -> bool:
    """Return whether a linear layer of a block has a bias."""
    if path == "attention.output":
        return block.output_bias
    return block.attention_bias if path in QUERY_KEY_VALUE else block.mlp_bias
