"""Where a model's neurons, heads and streams are marked, and which models have what is pruned."""

from collections.abc import Iterable

from duat_jax.models.transformer import Transformer
from duat_jax.nn.attention import Attention, SlicedAttention
from duat_jax.nn.block import Block
from duat_jax.nn.mlp import MLP, GatedMLP
from duat_jax.transform import marks
from duat_jax.transform.keys import Key, Site


def blocks(model: Transformer) -> list[Block]:
    """Return a model's blocks.

    Args:
        model: the model.
    """
    return [block for block in model.stack.blocks if isinstance(block, Block)]


def mlps(model: Transformer) -> list[MLP | GatedMLP]:
    """Return the MLPs of a model's blocks; experts are none.

    Args:
        model: the model.
    """
    return [block.mlp for block in blocks(model) if isinstance(block.mlp, MLP | GatedMLP)]


def attentions(model: Transformer) -> list[Attention | SlicedAttention]:
    """Return the attentions of a model's blocks.

    Args:
        model: the model.
    """
    return [block.attention for block in blocks(model) if isinstance(block.attention, Attention | SlicedAttention)]


def neurons(layer: int) -> Site:
    """Return the mark of a layer's neurons, as the outer map reads them: `σ(z)`, or with a gate `σ(g) u`.

    Args:
        layer: the layer, from 0.
    """
    return Site(marks.POINT, Key((f"layers.{layer}",), "mlp.neurons", 0))


def heads(layer: int) -> Site:
    """Return the mark of what each head of a layer mixes.

    Args:
        layer: the layer, from 0.
    """
    return Site(marks.POINT, Key((f"layers.{layer}",), "attention.mixed", 0))


def streams(layers: int) -> list[Site]:
    """Return the marks of the stream before the first block and after every one.

    Args:
        layers: number of blocks.
    """
    return [Site(marks.STREAM, Key((), "layer", i)) for i in range(layers + 1)]


def problems_of(model: Transformer, layers: Iterable[int] | None = None) -> list[str]:
    """Return everything that keeps layers of a model from being pruned.

    It has to predict the next token, and to have one MLP in every layer, each with parameters of its own.

    Args:
        model: the model.
        layers: which layers, from 0; all if absent.
    """
    problems, known = [], range(model.config.layers)
    if model.config.head.kind != "next token":
        problems.append(f"the model reads out {model.config.head.kind}, but its loss is that of the next token")
    if len(mlps(model)) < model.config.layers:
        problems.append("a layer has experts, whose neurons aren't one list: only plain and gated MLPs are pruned")
    if model.config.stored_layers < model.config.layers:
        problems.append("layers share their parameters: what is removed of one would be removed of others")
    named = chosen(model, layers)
    if missing := [str(layer) for layer in named if layer not in known]:
        problems.append(f"there is no layer {', '.join(missing)}: the model has layers 0 to {len(known) - 1}")
    if not named:
        problems.append("no layer is named: name at least one, or leave layers out for all of them")
    return problems


def chosen(model: Transformer, layers: Iterable[int] | None) -> list[int]:
    """Return layers in order, each once; all of a model's if none are named.

    Args:
        model: the model.
        layers: which ones, from 0.
    """
    return sorted(set(range(model.config.layers) if layers is None else layers))
