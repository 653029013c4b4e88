"""Pruning of a model's neurons: moments, scores, budget, removal and compensation, at once or in rounds."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Int

from duat_jax.errors import DuatError
from duat_jax.models import layer_parts
from duat_jax.models.ids import require_ids
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import require_layers, require_loaded
from duat_jax.pruning import layers as of_layers
from duat_jax.pruning import prunable_layers
from duat_jax.pruning.budget import BUDGETS, MEASURED, Scores, measured
from duat_jax.pruning.calibration import Moments, moments
from duat_jax.pruning.compensation import COMPENSATIONS, compensated
from duat_jax.pruning.resizing import Kept, resized, rewrite, with_biases
from duat_jax.pruning.scores import METHODS, neurons_of
from duat_jax.pruning.validation import fraction_problems, name_problems

KNOWN: dict[str, Iterable[str]] = {"neurons": METHODS, "layers": of_layers.RANKINGS}
"""The parts of a model that can be pruned, with their ranking methods."""


def check(
    model: Transformer,
    fractions: Iterable[float],
    methods: Iterable[str],
    compensations: Iterable[str],
    budget: str,
    layers: Sequence[int] | None,
    what: str = "neurons",
) -> None:
    """Validate pruning arguments."""
    require_loaded(model)
    require_layers(model.config)
    problems = fraction_problems(fractions)
    choices: tuple[tuple[str, Iterable[str], Iterable[str]], ...] = (
        ("prunable part", [what], KNOWN),
        ("method", methods, KNOWN.get(what, METHODS)),
        ("compensation", compensations, COMPENSATIONS),
        ("budget", [budget], (*BUDGETS, MEASURED)),
    )
    for kind, names, known in choices:
        problems += name_problems(kind, names, known)
    problems += prunable_layers.problems_of(model, layers)
    if what == "layers":
        if budget != "equal" or layers is not None:
            problems.append("whole layers are pruned without a budget or a list of layers: leave both out")
        problems += [
            problem
            for compensation in compensations
            for problem in of_layers.compensation_problems(model, compensation)
        ]
    if problems:
        raise DuatError("; ".join(dict.fromkeys(problems)))


def scores(
    model: Transformer,
    layer_moments: Sequence[Moments],
    method: str,
    compensation: str,
    *,
    layers: Sequence[int] | None = None,
    seed: int = 0,
) -> Scores:
    """Return a score for each neuron; the neurons with the smallest scores are removed first."""
    random, replaced = np.random.default_rng(seed), compensation != "none"
    return {
        layer: METHODS[method].score(
            neurons_of(layer_parts.mlps(model)[layer], layer_moments[layer], replaced=replaced, random=random)
        )
        for layer in prunable_layers.chosen(model, layers)
    }


def keep_largest(ranked: Scores, counts: Mapping[int, int]) -> Kept:
    """Return which neurons are kept if those with the smallest scores are removed; each layer keeps at least one."""
    kept = {}
    for layer, of_layer in ranked.items():
        kept[layer] = np.ones(len(of_layer), bool)
        kept[layer][np.argsort(of_layer, kind="stable")[: min(counts[layer], len(of_layer) - 1)]] = False
    return kept


def silenced(model: Transformer, kept: Kept, layer_moments: Sequence[Moments], compensation: str) -> Transformer:
    """Return a model of the same size whose removed neurons have zero outer weights, with compensation."""
    # If the compensation needs a bias that the model doesn't have, every MLP gets biases, zero where they aren't
    # needed.
    rest = layer_parts.written_out(model) if compensation == "none" else with_biases(model)
    for layer, stays in kept.items():
        output = layer_parts.mlps(rest)[layer].output
        rewrite(
            output, *compensated(np.asarray(output.kernel[...], np.float64), stays, layer_moments[layer], compensation)
        )
    return rest


def removal_counts(
    model: Transformer,
    layer_moments: Sequence[Moments],
    ranked: Scores,
    compensation: str,
    fraction: float,
    budget: str,
    ids: Int[np.ndarray, "texts tokens"],
) -> dict[int, int]:
    """Return how many neurons to remove from each layer."""
    if budget != MEASURED:
        return BUDGETS[budget](ranked, fraction)

    def without(removed: Mapping[int, int]) -> Transformer:
        return silenced(model, keep_largest(ranked, removed), layer_moments, compensation)

    return measured(ranked, fraction, without, ids)


def pruned(
    model: Transformer,
    layer_moments: Sequence[Moments],
    ranked: Scores,
    removed: Mapping[int, int],
    compensation: str,
) -> Transformer:
    """Return a smaller model without the neurons of the smallest scores."""
    kept = keep_largest(ranked, removed)
    return resized(silenced(model, kept, layer_moments, compensation), kept)


def prune(
    model: Transformer,
    ids: Int[np.ndarray, "texts tokens"],
    fraction: float,
    *,
    method: str = "contributions",
    compensation: str = "refit",
    budget: str = "equal",
    rounds: int = 1,
    layers: Sequence[int] | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Transformer:
    """Return a smaller model without the MLP neurons of the smallest scores on calibration text.

    `W_3 σ(W_2 x + b_2) + b_3` keeps some neurons; the means of the removed ones on calibration text are folded into
    `b_3`, or `W_3` and `b_3` are refitted by least squares to the output of all neurons.

    Args:
        model: a language model; it stays as it is.
        ids: calibration text, token ids `[texts, tokens]`.
        fraction: the fraction of neurons to remove, in `[0, 1)`; every layer keeps at least one.
        method: the ranking, such as `"contributions"`; an unknown one is answered with the list.
        compensation: the compensation for removed neurons: `"none"`, `"mean"` or `"refit"`.
        budget: how many each layer loses: the same fraction (`"equal"`), by one list of all scores (`"together"`), or
            by the loss measured with each layer pruned alone (`"measured"`).
        rounds: the number of rounds, with moments and scores computed anew in each.
        layers: which layers are pruned; all if absent.
        seed: the seed of random scores.
        progress: called with the number of texts read and their number over all rounds.

    Raises:
        DuatError: if an argument is wrong; the message names every problem.
        InvalidInput: if there is no calibration text, or it has an id outside the model's vocabulary.

    Example:
        >>> import duat_jax as duat, numpy as np
        >>> model = duat.load()
        >>> smaller = prune(model, np.arange(40, dtype=np.int32).reshape(2, 20), 0.5, compensation="mean")
        >>> [block.neurons for block in smaller.config.blocks]
        [384, 384, 384, 384, 384, 384]

    Source: Wang & Li, Section 4.3, for the terms that can be removed; see `METHODS` for the rankings.
    """
    check(model, [fraction], [method], [compensation], budget, layers)
    require_ids(model.config, {"the calibration text": ids})
    if rounds < 1:
        raise DuatError(f"rounds must be at least 1, not {rounds}")
    chosen = prunable_layers.chosen(model, layers)
    total_neurons = sum(model.config.blocks[layer].neurons for layer in chosen)
    for done in range(rounds):
        left = sum(model.config.blocks[layer].neurons for layer in chosen)
        # Each round removes the same number, so its fraction of the remaining neurons grows.
        share = 1 - total_neurons * (1 - fraction * (done + 1) / rounds) / left

        def report(texts: int, total: int, done: int = done) -> None:
            if progress is not None:
                progress(done * total + texts, rounds * total)

        layer_moments = moments(model, ids, METHODS[method].weights, progress=report)
        ranked = scores(model, layer_moments, method, compensation, layers=chosen, seed=seed)
        removed = removal_counts(model, layer_moments, ranked, compensation, share, budget, ids)
        model = pruned(model, layer_moments, ranked, removed, compensation)
    return model
