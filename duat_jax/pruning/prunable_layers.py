"""The layers that can be pruned, and a check that a model can be."""

from collections.abc import Iterable

from duat_jax.models import layer_parts
from duat_jax.models.transformer import Transformer


def problems_of(model: Transformer, layers: Iterable[int] | None = None) -> list[str]:
    """Return an error message for every reason why layers of a model can't be pruned."""
    # The model has to predict the next token, and to have one MLP in every layer, each with parameters of its own.
    problems, known = [], range(model.config.layers)
    if model.config.head.kind != "next token":
        problems.append(
            f"pruning needs a model that predicts the next token; this one reads out {model.config.head.kind}"
        )
    if len(layer_parts.mlps(model)) < model.config.layers:
        problems.append("a layer has a mixture of experts: only plain and gated MLPs can be pruned")
    if model.config.stored_layers < model.config.layers:
        problems.append("layers share their parameters: removing a neuron of one layer would remove it from the others")
    named = chosen(model, layers)
    if missing := [str(layer) for layer in named if layer not in known]:
        problems.append(f"there is no layer {', '.join(missing)}: the model has layers 0 to {len(known) - 1}")
    if not named:
        problems.append(
            "the list of layers is empty: name at least one layer, or leave layers out to prune all of them"
        )
    return problems


def chosen(model: Transformer, layers: Iterable[int] | None) -> list[int]:
    """Return layer indices sorted and without duplicates; all of the model's layers if none are given."""
    return sorted(set(range(model.config.layers) if layers is None else layers))
