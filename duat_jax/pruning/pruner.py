"""Prune a model's neurons: moments, scores, how many of each layer, the cut; all at once or in rounds."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from flax import nnx
from jaxtyping import Int

from duat_jax.errors import DuatError
from duat_jax.models.transformer import Transformer
from duat_jax.pruning import layers as of_layers
from duat_jax.pruning import places
from duat_jax.pruning.budget import BUDGETS, MEASURED, Scores, measured
from duat_jax.pruning.calibration import Moments, moments
from duat_jax.pruning.compensation import COMPENSATIONS, compensated
from duat_jax.pruning.resizing import Kept, resized, rewrite
from duat_jax.pruning.scores import METHODS, neurons_of
from duat_jax.pruning.validation import not_shares, unknown

KNOWN: dict[str, Iterable[str]] = {"neurons": METHODS, "layers": of_layers.RANKINGS}
"""What may go, and how it may be ranked."""


def check(
    model: Transformer,
    fractions: Iterable[float],
    methods: Iterable[str],
    compensations: Iterable[str],
    budget: str,
    layers: Sequence[int] | None,
    what: str = "neurons",
) -> None:
    """Raise for ways to prune that there aren't.

    Args:
        model: the model.
        fractions: which shares of their neurons or layers go.
        methods: how these are ranked.
        compensations: what takes their place.
        budget: how many each layer loses.
        layers: which layers are pruned; all if absent.
        what: what goes, a name in `KNOWN`.

    Raises:
        DuatError: naming everything that is wrong with these.
    """
    problems = not_shares(fractions)
    asked: tuple[tuple[str, Iterable[str], Iterable[str]], ...] = (
        ("part of a model that could go", [what], KNOWN),
        ("method", methods, KNOWN.get(what, METHODS)),
        ("compensation", compensations, COMPENSATIONS),
        ("budget", [budget], (*BUDGETS, MEASURED)),
    )
    for kind, names, known in asked:
        problems += unknown(kind, names, known)
    problems += places.problems_of(model, layers)
    if what == "layers":
        if budget != "equal" or layers is not None:
            problems.append("where whole layers go, no layer and no budget is chosen: leave them out")
        problems += [problem for how in compensations for problem in of_layers.uncompensated(model, how)]
    if problems:
        raise DuatError("; ".join(dict.fromkeys(problems)))


def scores(
    model: Transformer,
    found: Sequence[Moments],
    method: str,
    compensation: str,
    *,
    layers: Sequence[int] | None = None,
    seed: int = 0,
) -> Scores:
    """Return a number for each neuron; what is smallest is removed first.

    Args:
        model: the model.
        found: the moments of every layer's neurons.
        method: a name in `METHODS`.
        compensation: a name in `COMPENSATIONS`: where there is any, what is removed leaves its mean.
        layers: which layers are scored; all if absent.
        seed: of random scores.
    """
    random, replaced = np.random.default_rng(seed), compensation != "none"
    return {
        layer: METHODS[method].score(
            neurons_of(places.mlps(model)[layer], found[layer], replaced=replaced, random=random)
        )
        for layer in places.chosen(model, layers)
    }


def smallest_go(ranked: Scores, removed: Mapping[int, int]) -> Kept:
    """Return which neurons stay where so many of each layer go, those of the smallest scores; one stays in any case.

    Args:
        ranked: every neuron's score.
        removed: how many go, of each layer.
    """
    kept = {}
    for layer, of_layer in ranked.items():
        kept[layer] = np.ones(len(of_layer), bool)
        kept[layer][np.argsort(of_layer, kind="stable")[: min(removed[layer], len(of_layer) - 1)]] = False
    return kept


def silenced(model: Transformer, kept: Kept, found: Sequence[Moments], compensation: str) -> Transformer:
    """Return a model of the same size in which removed neurons write nothing, compensated.

    Where means or refits go into a bias that the model doesn't have, every MLP gets biases; the others are zero.

    Args:
        model: the model; it stays as it is.
        kept: which neurons stay, of each layer that is pruned.
        found: the moments of every layer's neurons.
        compensation: a name in `COMPENSATIONS`.
    """
    rest = nnx.clone(model) if compensation == "none" else resized(model, {}, bias=True)
    for layer, stays in kept.items():
        output = places.mlps(rest)[layer].output
        rewrite(output, *compensated(np.asarray(output.kernel[...], np.float64), stays, found[layer], compensation))
    return rest


def how_many(
    model: Transformer,
    found: Sequence[Moments],
    ranked: Scores,
    compensation: str,
    fraction: float,
    budget: str,
    ids: Int[np.ndarray, "texts tokens"],
) -> dict[int, int]:
    """Return how many neurons of each layer go.

    Args:
        model: the model.
        found: the moments of every layer's neurons.
        ranked: every neuron's score, of each layer that is pruned.
        compensation: what takes their place, a name in `COMPENSATIONS`.
        fraction: which share of all of them goes.
        budget: a name in `BUDGETS`, or `MEASURED`.
        ids: calibration text, token ids `[texts, tokens]`.
    """
    if budget != MEASURED:
        return BUDGETS[budget](ranked, fraction)

    def without(removed: Mapping[int, int]) -> Transformer:
        return silenced(model, smallest_go(ranked, removed), found, compensation)

    return measured(ranked, fraction, without, ids)


def pruned(
    model: Transformer,
    found: Sequence[Moments],
    ranked: Scores,
    removed: Mapping[int, int],
    compensation: str,
) -> Transformer:
    """Return a smaller model, without the neurons of the smallest scores.

    Args:
        model: the model; it stays as it is.
        found: the moments of every layer's neurons.
        ranked: every neuron's score, of each layer that is pruned.
        removed: how many go, of each of these.
        compensation: what takes their place, a name in `COMPENSATIONS`.
    """
    kept = smallest_go(ranked, removed)
    return resized(silenced(model, kept, found, compensation), kept)


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
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Transformer:
    """Return a smaller model: the MLP neurons that matter least on calibration text are removed.

    `W_3 σ(W_2 x + b_2) + b_3` keeps some neurons; of those that go, the means on calibration text are folded into
    `b_3`, or `W_3` and `b_3` are refitted by least squares to what all neurons wrote.

    Args:
        model: a language model; it stays as it is.
        ids: calibration text, token ids `[texts, tokens]`.
        fraction: which share of the neurons goes, of `[0, 1)`; one neuron stays in every layer.
        method: how neurons are ranked, a name in `METHODS`.
        compensation: what takes their place: `"none"`, `"mean"` or `"refit"`.
        budget: how many each layer loses: the same share (`"equal"`), those of the smallest scores `"together"`, or
            what costs least when each layer is pruned alone (`"measured"`).
        rounds: in how many rounds they go, moments and scores taken anew in each.
        layers: which layers are pruned; all if absent.
        seed: of random scores.
        progress: called with the number of texts read and that of all rounds.

    Raises:
        DuatError: naming everything that is wrong with these.
        BadText: if there is no calibration text.

    Example:
        >>> import duat_jax as duat, numpy as np
        >>> model = duat.load()
        >>> smaller = prune(model, np.arange(40, dtype=np.int32).reshape(2, 20), 0.5, compensation="mean")
        >>> [block.neurons for block in smaller.config.blocks]
        [384, 384, 384, 384, 384, 384]

    Source: Wang & Li, Section 4.3, for what may go; see `METHODS` for the rankings.
    """
    check(model, [fraction], [method], [compensation], budget, layers)
    if rounds < 1:
        raise DuatError(f"rounds are at least 1, not {rounds}")
    chosen = places.chosen(model, layers)
    all_of_them = sum(model.config.blocks[layer].neurons for layer in chosen)
    for done in range(rounds):
        left = sum(model.config.blocks[layer].neurons for layer in chosen)
        # Each round takes as many, so its share of what is left grows.
        share = 1 - all_of_them * (1 - fraction * (done + 1) / rounds) / left

        def report(texts: int, total: int, done: int = done) -> None:
            progress(done * total + texts, rounds * total)

        found = moments(model, ids, METHODS[method].weights, progress=report)
        ranked = scores(model, found, method, compensation, layers=chosen, seed=seed)
        removed = how_many(model, found, ranked, compensation, share, budget, ids)
        model = pruned(model, found, ranked, removed, compensation)
    return model
