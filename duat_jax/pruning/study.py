"""Comparison of pruning methods and compensations, by the loss on held-out text."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int
from rich.console import RenderableType

from duat_jax.display.tables import NumberTable
from duat_jax.evaluation.journal import Journal, fingerprint
from duat_jax.evaluation.running_text import mean_loss
from duat_jax.json_record import as_record
from duat_jax.models.ids import require_ids
from duat_jax.models.transformer import Transformer
from duat_jax.pruning.calibration import Moments, moments
from duat_jax.pruning.layers import how_many_layers, prune_layers
from duat_jax.pruning.pruner import pruned, removal_counts, scores
from duat_jax.pruning.record import PrunedRecord, PruningRecord, WholeRecord
from duat_jax.pruning.scores import METHODS


class Pruner(NamedTuple):
    """The settings of one pruned model.

    Args:
        method: the ranking, such as `"contributions"`.
        compensation: `"none"`, `"mean"` or `"refit"`, as in `prune`.
        fraction: the fraction to remove.
        budget: the budget of each layer, `"equal"`, `"together"` or `"measured"`, as in `prune`.
        what: what is pruned: `"neurons"`, or whole `"layers"`, which have no budget.
    """

    method: str
    compensation: str
    fraction: float
    budget: str = "equal"
    what: str = "neurons"

    def __str__(self) -> str:
        suffix = self.what if self.what == "layers" else self.budget
        return f"{self.method}, {self.compensation}, {100 * self.fraction:.12g}%, {suffix}"


class PruningStudy(NamedTuple):
    """A model, and models that are pruned from it.

    Args:
        whole: the loss and the size of the model.
        pruned: the settings and the loss of each pruned model.
    """

    whole: WholeRecord
    pruned: list[PrunedRecord]

    @property
    def losses(self) -> dict[Pruner, float]:
        """The loss of each pruned model by its settings."""
        return {Pruner(*(getattr(each, name) for name in Pruner._fields)): each.loss for each in self.pruned}

    def as_dict(self, **settings: Any) -> dict[str, Any]:
        """Return the results as plain data for JSON, with the fields of `PruningRecord`.

        Args:
            settings: fields of the record that aren't in the results.
        """
        return as_record(PruningRecord, self, **settings)

    def table(self, title: str) -> RenderableType:
        """Return the table of losses.

        Args:
            title: the title above it.
        """
        names = "ranked by", "in their place"
        table = NumberTable(*names, "removed", "loss", "more than whole", labels=2, title=title, words=names)
        table.add_row("the whole model", "", "", f"{self.whole.loss:z.4f}", "")
        for each in self.pruned:
            more = each.loss - self.whole.loss
            table.add_row(each.method, each.compensation, f"{each.fraction:.0%}", f"{each.loss:z.4f}", f"{more:+z.4f}")
        return table


def study(
    model: Transformer,
    pruners: Iterable[Pruner],
    pieces: Int[np.ndarray, "pieces tokens"],
    *,
    layers: Sequence[int] | None = None,
    seed: int = 0,
    saved: Callable[[Transformer], Transformer] | None = None,
    work: Path | None = None,
    settings: dict[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PruningStudy:
    """Prune a model in several ways by the first half of some text, and measure losses on the second half.

    Args:
        model: a language model.
        pruners: the settings of the pruned models; of whole layers the fraction that is removed is told.
        pieces: pieces of text, token ids.
        layers: which layers are pruned; all if absent.
        seed: the seed of random scores.
        saved: saves a pruned model and reads it again: losses and sizes are those of the file.
        work: a file for finished losses, from which an interrupted run resumes.
        settings: what the file's losses depend on beside the model and the text.
        progress: called with the number of pruned models evaluated and their total number.
    """
    ids, held_out = np.split(pieces, 2)
    texts = {"text": fingerprint(pieces), "model": fingerprint(model, model.config)}
    journal = Journal(work, (settings or {}) | texts)
    whole = WholeRecord(journal.once("dense", lambda: mean_loss(model, held_out)), _parameters(model))
    pruners = list(dict.fromkeys(_with_whole_layers(model, pruner) for pruner in pruners))
    if saved is None:
        losses = losses_of(model, pruners, ids, held_out, layers=layers, seed=seed, journal=journal, progress=progress)
        return PruningStudy(whole, [PrunedRecord(*pruner, loss) for pruner, loss in losses.items()])
    prune_as, records = _calibrated(model, ids, layers, seed), []
    for i, pruner in enumerate(pruners):
        smaller = saved(prune_as(pruner))
        sizes = [block.neurons for block in smaller.config.blocks], _parameters(smaller)
        records.append(PrunedRecord(*pruner, mean_loss(smaller, held_out), *sizes))
        if progress is not None:
            progress(i + 1, len(pruners))
    return PruningStudy(whole, records)


def pruners_of(
    methods: Iterable[str], compensations: Iterable[str], fractions: Iterable[float], budget: str, what: str
) -> list[Pruner]:
    """Return the settings of a pruned model for each ranking, compensation and fraction, without copies."""
    every = product(dict.fromkeys(methods), dict.fromkeys(compensations), dict.fromkeys(fractions))
    return [Pruner(method, compensation, fraction, budget, what) for method, compensation, fraction in every]


def _with_whole_layers(model: Transformer, pruner: Pruner) -> Pruner:
    """Return settings whose fraction of layers is the one that is removed."""
    if pruner.what != "layers":
        return pruner
    return pruner._replace(fraction=how_many_layers(model, pruner.fraction) / model.config.layers)


def _parameters(model: Transformer) -> int:
    """Return the number of a model's parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(model))


def losses_of(
    model: Transformer,
    pruners: Iterable[Pruner],
    ids: Int[np.ndarray, "texts tokens"],
    held_out: Int[np.ndarray, "others length"],
    *,
    layers: Sequence[int] | None = None,
    seed: int = 0,
    journal: Journal | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[Pruner, float]:
    """Return each pruned model's loss on held-out text, in nats per token.

    Calibration text is read once for all methods with the same weights.

    Args:
        model: a language model.
        pruners: the settings of the pruned models.
        ids: calibration text, token ids `[texts, tokens]`.
        held_out: held-out text, token ids `[others, length]`.
        layers: which layers are pruned; all if absent.
        seed: the seed of random scores.
        journal: stores finished results.
        progress: called with the number of pruned models evaluated and their total number.

    Raises:
        InvalidInput: if a text has an id outside the model's vocabulary.
    """
    require_ids(model.config, {"the calibration text": ids, "the held-out text": held_out})
    prune_as = _calibrated(model, ids, layers, seed)

    def loss(pruner: Pruner) -> float:
        return mean_loss(prune_as(pruner), held_out)

    journal, pruners, results = journal or Journal(None, {}), list(pruners), {}
    for i, pruner in enumerate(pruners):
        results[pruner] = journal.once(f"seed {seed}, {pruner}", partial(loss, pruner))
        if progress is not None:
            progress(i + 1, len(pruners))
    return results


def _calibrated(
    model: Transformer, ids: Int[np.ndarray, "texts tokens"], layers: Sequence[int] | None, seed: int
) -> Callable[[Pruner], Transformer]:
    """Return a function that prunes a model; text is read once for all methods with the same weights."""

    @cache
    def moments_with(weights: str) -> list[Moments]:
        return moments(model, ids, weights)

    def smaller(pruner: Pruner) -> Transformer:
        method, compensation, fraction, budget, what = pruner
        if what == "layers":
            return prune_layers(model, ids, fraction, method=method, compensation=compensation, seed=seed)
        layer_moments = moments_with(METHODS[method].weights)
        ranked = scores(model, layer_moments, method, compensation, layers=layers, seed=seed)
        removed = removal_counts(model, layer_moments, ranked, compensation, fraction, budget, ids)
        return pruned(model, layer_moments, ranked, removed, compensation)

    return smaller
