"""Removals of neurons and layers, what they add to the loss, and the sum of removed terms beside the change."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from duat_jax.evaluation.running_text import mean_loss, token_losses
from duat_jax.models.transformer import Transformer
from duat_jax.pruning import layers as of_layers
from duat_jax.pruning.budget import equally
from duat_jax.pruning.calibration import moments
from duat_jax.pruning.compensation import COMPENSATIONS
from duat_jax.pruning.pruner import keep_largest, prune, scores, silenced
from duat_jax.pruning.removal import Terms, measure_removal, without
from duat_jax.pruning.resizing import resized, with_biases
from duat_jax.pruning.scores import METHODS
from duat_jax.pruning.study import Pruner, losses_of
from experiments.pruning.draws import EMBEDDED, SMOLLM2, Draws
from experiments.study import Row

FRACTIONS = {EMBEDDED: (0.1, 0.2, 0.3, 0.5, 0.7), SMOLLM2: (0.1, 0.2, 0.3, 0.5)}
AS_ONE_LIST, OF_AS_ONE_LIST = ("contributions", "fisher", "fluctuation", "flap"), (0.3, 0.5, 0.7)
IN_A_LAYER = tuple(method for method in METHODS if method != "flap")
"""Which methods rank the neurons of one layer differently."""
SEEN, COMPARED = 6, 8
"""Of how many layers the inequality is tried, and on how many texts."""
WAYS: dict[str, dict[str, Any]] = {
    "4 rounds": {"rounds": 4},
    "4 rounds, together": {"rounds": 4, "budget": "together"},
    "measured budget": {"budget": "measured"},
}


def pruners(name: str) -> list[Pruner]:
    """Return the settings of a model's pruned models."""
    equal = [Pruner(*of) for of in _every(IN_A_LAYER, FRACTIONS[name])]
    listed = _every(AS_ONE_LIST, OF_AS_ONE_LIST) if name == EMBEDDED else []
    return equal + [Pruner(*of, "together") for of in listed]


def _every(methods: tuple[str, ...], fractions: tuple[float, ...]) -> list[tuple[str, str, float]]:
    return [(method, how, fraction) for how in COMPENSATIONS for method in methods for fraction in fractions]


def without_neurons(of: Draws, pruners: list[Pruner], whole: float, draw: int) -> list[Row]:
    """Return the added loss of every pruned model."""
    losses = losses_of(of.model, pruners, of.ids(draw), of.held_out, seed=draw)
    return [
        {
            "budget": pruner.budget,
            "ranking": pruner.method,
            "in their place": pruner.compensation,
            "removed": f"{pruner.fraction:.0%}",
            "added": loss - whole,
        }
        for pruner, loss in losses.items()
    ]


def in_ways(of: Draws, whole: float, draw: int) -> list[Row]:
    """Return the added loss of neurons that go in rounds, or by what each layer's measured loss allows."""
    rows = []
    for method in ("fisher", "contributions"):
        for way, options in WAYS.items():
            for fraction in OF_AS_ONE_LIST[1:]:
                smaller = prune(of.model, of.ids(draw), fraction, method=method, **options)
                rows.append(
                    {
                        "ranking": method,
                        "way": way,
                        "removed": f"{fraction:.0%}",
                        "added": mean_loss(smaller, of.held_out) - whole,
                        "neurons": [block.neurons for block in smaller.config.blocks],
                    }
                )
    return rows


def without_layers(of: Draws, whole: float, draw: int) -> list[Row]:
    """Return the added loss without whole layers."""
    rows, ids = [], of.ids(draw)
    for method in of_layers.RANKINGS:
        for count in (1, 2, 3):
            gone = of_layers.least_important(of.model, ids, count, method, seed=draw)
            for how in COMPENSATIONS:
                loss = mean_loss(of_layers.remove_layers(of.model, ids, gone, compensation=how), of.held_out)
                row = {"ranking": method, "count": count, "in their place": how, "added": loss - whole}
                rows.append({**row, "layers": gone})
    return rows


def _compared(model: Transformer, rest: Transformer, ids: np.ndarray) -> Row:
    """Return the sizes of the sum of removed terms and of what changes, and how often the sum bounds it."""
    removed = jax.vmap(measure_removal, (None, None, 0))(model, rest, jnp.asarray(ids[:COMPARED, :-1]))

    def size(array: jax.Array) -> jax.Array:
        """Return the root mean square of logits less their mean at each token, which has no effect."""
        return jnp.sqrt(((array - array.mean(-1, keepdims=True)) ** 2).mean())

    return {
        "terms": size(removed.terms),
        "change": size(removed.change),
        "moved": size(removed.held - removed.anew),
        "within": (jnp.abs(removed.change).max(-1) <= jnp.abs(removed.terms).max(-1)).mean(),
    }


def inequality(of: Draws) -> list[Row]:
    """Return what the inequality says of neurons by contributions, and of single heads, terms and layers."""
    model, rows = of.model, []
    layer_moments = moments(model, of.ids(0), "contribution")
    for fraction in FRACTIONS[EMBEDDED]:
        for how in COMPENSATIONS:
            ranked = scores(model, layer_moments, "contributions", how)
            kept = keep_largest(ranked, equally(ranked, fraction))
            rest = silenced(model, kept, layer_moments, how)
            rows.append({"removed": f"neurons, {fraction:.0%}, {how}", **_compared(model, rest, of.held_out)})
    for layer in range(0, model.config.layers, model.config.layers // SEEN):
        for name, terms in (
            ("head 0", Terms(heads={layer: [0]})),
            ("term, linear path kept", Terms(terms=[layer])),
            ("layer, linear path removed", Terms(layers=[layer])),
        ):
            rows.append({"removed": f"{layer}, {name}", **_compared(model, without(model, terms), of.held_out)})
    return rows


def _seconds(run: Callable[[], Any]) -> dict[str, float]:
    """Return the wall-clock time of a call, and its processor time, which other programs don't change."""
    clock, cores = time.perf_counter(), time.process_time()
    jax.block_until_ready(run())
    return {"clock": time.perf_counter() - clock, "cores": time.process_time() - cores}


def _means(of: Draws, weights: str) -> list[Any]:
    return [layer.mean for layer in moments(of.model, of.ids(0), weights)]


def costs(of: Draws) -> list[Row]:
    """Return sizes and seconds of a forward pass of 8 texts, dense and pruned, and the seconds of calibration."""
    ids, models = jnp.asarray(of.held_out[:8]), {"nothing": of.model}
    for fraction in (0.5, 0.7):
        sizes = [block.neurons for block in of.model.config.blocks]
        kept = {layer: np.arange(size) >= round(fraction * size) for layer, size in enumerate(sizes)}
        models[f"{fraction:.0%} of the neurons"] = with_biases(resized(of.model, kept))
    times: dict[str, list[dict[str, float]]] = {name: [] for name in models}
    for _ in range(6):
        for name, model in models.items():
            times[name].append(_seconds(partial(token_losses, model, ids)))
    rows: list[Row] = [
        {
            "what": f"a forward pass without {name}",
            "parameters": sum(leaf.size for leaf in jax.tree.leaves(model)),
            **pd.DataFrame(times[name][1:]).median(),
        }
        for name, model in models.items()
    ]
    for weights in ("contribution", "gradient"):
        spent = _seconds(partial(_means, of, weights))
        rows.append({"what": f"calibration by {weights}s", "parameters": None, **spent})
    return rows
