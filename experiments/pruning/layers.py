"""Claim: layers with small parameters can be removed at little loss (Wang & Li, Section 4.3).

Run `python -m experiments pruning_layers`; it writes experiments/results/pruning_layers.json and the tables in
docs/findings/pruning.md.  What is measured is kept in experiments/results/work as it is finished: a run that was
stopped goes
on.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import duat_jax as duat
from duat_jax.evaluation.journal import Journal, fingerprint
from duat_jax.evaluation.running_text import stream, token_losses, windows
from duat_jax.models.transformer import Transformer
from duat_jax.pruning.layers import remove_layers
from experiments import smollm2
from experiments.kept_models import measure_models
from experiments.markdown import Fields
from experiments.pruning import rankings
from experiments.pruning.layers_report import FIRST_KEPT, RANDOM, numbers, quarter, tables
from experiments.pruning.rankings import by_removal
from experiments.pruning.run import EMBEDDED, SMOLLM2, SOME
from experiments.texts import held_out_sources, manual, trained_sources

RESULTS, WORK = Path("experiments/results/pruning_layers.json"), Path("experiments/results/work")
DRAWS, ORDERS, LENGTH = range(5), range(10), 128
"""Draws of calibration text, random orders of the layers, and tokens of a window."""
DIGITS = 5
"""Digits after the decimal point of every loss that is kept."""

ANGULAR, ALONE, GREEDY = "angular distance", "removed alone", "removed one after another"
WITH_THE_FIRST_KEPT = RANDOM, "‖W‖", "‖W'3‖"
"""Rankings that are tried once more with the first layer kept, which is unlike all others."""


class Settings(NamedTuple):
    """Sizes of the measurements on one model.

    Args:
        calibration: windows in each draw of calibration text.
        held_out: windows on which added losses are measured.
        counts: numbers of removed layers, by what is removed of each.
        compensated: what is also removed with its mean left in its place, a quarter of the layers.
        thorough: whether to measure also greedy removal, and the package's refit.
    """

    calibration: int
    held_out: int
    counts: dict[str, tuple[int, ...]]
    compensated: tuple[str, ...]
    thorough: bool


SETTINGS = {
    EMBEDDED: Settings(32, 128, {"layers": (1, 2, 3), "MLPs": (1, 2, 3)}, ("layers", "MLPs"), thorough=True),
    SMOLLM2: Settings(4, 8, {"layers": (1, 2, 4, 8), "MLPs": (1, 8)}, ("layers",), thorough=False),
}


class Case:
    """A model with calibration texts, held-out texts and a journal of results.

    Args:
        model: a language model.
        calibration: the tokens that calibration windows are drawn from.
        held_out: windows of other text.
        settings: the sizes.
        journal: finished results.
    """

    def __init__(
        self, model: Transformer, calibration: np.ndarray, held_out: np.ndarray, settings: Settings, journal: Journal
    ) -> None:
        self.model, self.held_out, self.settings, self.journal = model, held_out, settings, journal
        self._tokens = calibration
        self._means: dict[int, np.ndarray] = {}

    @property
    def layers(self) -> int:
        """The number of layers."""
        return self.model.config.layers

    def ids(self, draw: int) -> np.ndarray:
        """Return a draw's calibration windows."""
        return windows(self._tokens, self.settings.calibration, LENGTH, seed=draw)

    def mean(self, draw: int) -> np.ndarray:
        """Return the mean output of every part on a draw's calibration windows."""
        if draw not in self._means:
            self._means[draw] = rankings.mean_outputs(self.model, self.ids(draw))
        return self._means[draw]

    def loss(self, kind: str, removed: list[int]) -> np.ndarray:
        """Return the loss of every held-out window without some layers, nothing in their place."""
        return self._once(f"{kind}, {removed}", partial(by_removal, self.model, self.held_out, kind, removed, None))

    def loss_with_mean(self, kind: str, removed: list[int], draw: int) -> np.ndarray:
        """Return the same with the means of what is removed in its place."""
        return self._once(
            f"{kind}, {removed}, mean of draw {draw}",
            lambda: by_removal(self.model, self.held_out, kind, removed, self.mean(draw)),
        )

    def loss_refitted(self, removed: list[int], draw: int) -> np.ndarray:
        """Return the same without whole layers, the layer before them refitted by least squares."""

        def compute() -> np.ndarray:
            smaller = remove_layers(self.model, self.ids(draw), removed)
            parts = [token_losses(smaller, batch).mean(-1) for batch in rankings.batches(self.held_out)]
            return np.concatenate(parts)

        return self._once(f"layers, {removed}, refit of draw {draw}", compute)

    def scores(self, draw: int) -> dict[str, Any]:
        """Return every layer's scores by a draw's calibration windows, and where angular distance begins to remove."""
        return self.journal.once(f"scores of draw {draw}", lambda: scores(self, draw))

    def removed(self, kind: str, ranking: str, count: int, draw: int) -> list[int] | None:
        """Return the layers that a ranking removes, sorted, or `None` where it has no finite scores."""
        name, kept = ranking.removesuffix(FIRST_KEPT), ranking.endswith(FIRST_KEPT)
        if name == ANGULAR:
            start = self.scores(draw)["starts"][str(count)]
            return list(range(start, start + count))
        score = self._score(kind, name, draw)
        if score is None:
            return None
        order = [layer for layer in np.argsort(score, kind="stable").tolist() if not (kept and layer == 0)]
        return sorted(order[:count])

    def _score(self, kind: str, ranking: str, draw: int) -> Any:
        if ranking == RANDOM:
            return np.random.default_rng(draw).permutation(self.layers)
        return self.scores(draw)["scores"][kind][ranking]

    def _once(self, name: str, compute: Callable[[], np.ndarray]) -> np.ndarray:
        return np.array(self.journal.once(name, lambda: np.round(np.asarray(compute(), float), DIGITS).tolist()))


def scores(case: Case, draw: int) -> dict[str, Any]:
    """Return every layer's score by each ranking; the layers of smallest score are removed first."""
    model, ids, settings = case.model, case.ids(draw), case.settings
    batches = [batch[:, :-1] for batch in rankings.batches(ids)]
    keys = jax.random.split(jax.random.key(draw), len(batches))
    x = [rankings.streams(model, batch) for batch in batches]
    squares = [rankings.operator_squares(model, batch, key) for batch, key in zip(batches, keys, strict=True)]
    contributed = [rankings.contributions(model, *pair) for pair in zip(batches, x, strict=True)]

    def mean(of_batches: list[Any]) -> np.ndarray:
        return np.mean([np.asarray(part, float) for part in of_batches], 0)

    def secant(kind: str, end: float) -> np.ndarray:
        return mean([rankings.secant_of_removal(model, batch, kind, end) for batch in rankings.batches(ids)])

    def added(kind: str, removed: list[int]) -> float:
        return float(by_removal(model, ids, kind, removed, None).mean() - whole)

    whole = by_removal(model, ids, "layers", [], None).mean()
    found: dict[str, dict[str, np.ndarray]] = {}
    for kind in settings.counts:
        found[kind] = {
            "‖W‖": rankings.size(model, kind),
            **{name: np.sqrt(mean([square[name] for square in squares])) for name in squares[0]},
            "contributions": mean([part[kind] for part in contributed]),
            "block influence": mean([rankings.block_influence(streams, kind) for streams in x]),
            **({ANGULAR: mean([rankings.angular_distance(streams, 1) for streams in x])} if kind == "layers" else {}),
            "secant, 1 to 0": secant(kind, 0.0),
            "secant, 1 to ¾": secant(kind, rankings.STEP),
            ALONE: np.array([added(kind, [layer]) for layer in range(case.layers)]),
        }
        if settings.thorough:
            found[kind][GREEDY] = _greedy(partial(added, kind), case.layers, max(settings.counts[kind]))
    return {
        "scores": {
            kind: {name: score.tolist() if np.isfinite(score).all() else None for name, score in of_kind.items()}
            for kind, of_kind in found.items()
        },
        "starts": {
            str(count): int(mean([rankings.angular_distance(streams, count) for streams in x]).argmin())
            for count in settings.counts["layers"]
        },
    }


def _greedy(added: Callable[[list[int]], float], layers: int, count: int) -> np.ndarray:
    """Return every layer's place in the order of removal, where each time the one of least loss goes, measured anew."""
    removed: list[int] = []
    for _ in range(count):
        rest = [layer for layer in range(layers) if layer not in removed]
        removed.append(min(rest, key=lambda layer: added([*removed, layer])))
    return np.array([removed.index(layer) if layer in removed else count for layer in range(layers)], float)


def measure(case: Case) -> dict[str, Any]:
    """Return the added loss of every removal, by kind, ranking and number of layers, each run once."""
    whole = case.loss("layers", [])
    found: dict[str, Any] = {"layers": case.layers, "whole": float(whole.mean()), "kinds": {}}
    for kind, counts in case.settings.counts.items():
        alone = np.array([case.loss(kind, [layer]).mean() - whole.mean() for layer in range(case.layers)])
        by_ranking = {}
        scored = list(case.scores(0)["scores"][kind])
        for ranking in [*scored, RANDOM, *(name + FIRST_KEPT for name in WITH_THE_FIRST_KEPT)]:
            removed = list(_removals(case, kind, ranking, counts, whole))
            a_quarter = [case.loss(kind, of["layers"]) for of in removed if of["count"] == quarter(case.layers)]
            by_ranking[ranking] = {
                "scores": [case.scores(draw)["scores"][kind][ranking] for draw in DRAWS] if ranking in scored else [],
                "removed": removed,
                "windows": (np.mean(a_quarter, 0) - whole).round(DIGITS).tolist() if a_quarter else [],
            }
        found["kinds"][kind] = {"alone": alone.round(DIGITS).tolist(), "rankings": by_ranking}
    return found


def _removals(
    case: Case, kind: str, ranking: str, counts: tuple[int, ...], whole: np.ndarray
) -> Iterator[dict[str, Any]]:
    """Yield what is removed, and the added losses by what is left in its place, for every draw and number of layers."""
    for draw in ORDERS if ranking.startswith(RANDOM) else DRAWS:
        for count in counts:
            removed = case.removed(kind, ranking, count, draw)
            if removed is None:
                continue
            losses = {"none": case.loss(kind, removed)}
            # There are more random orders than draws of calibration text.
            calibrated = draw % len(DRAWS)
            if count == quarter(case.layers) and kind in case.settings.compensated:
                losses["mean"] = case.loss_with_mean(kind, removed, calibrated)
                if case.settings.thorough and kind == "layers" and 0 not in removed:
                    losses["refit"] = case.loss_refitted(removed, calibrated)
            added = {how: round(float(loss.mean() - whole.mean()), DIGITS) for how, loss in losses.items()}
            yield {"draw": draw, "count": count, "layers": removed, "added": added}


def case_of(name: str) -> Case:
    """Return a model with its texts, the same ones as in the study of neurons, and what its journal has."""
    WORK.mkdir(parents=True, exist_ok=True)
    path, settings = smollm2.path() if name == SMOLLM2 else None, SETTINGS[name]
    model, tokenizer = duat.load(path), duat.load_tokenizer(path)
    # One chapter of the manual stands there by two names.
    chapters = list(dict.fromkeys(manual()))
    calibration, held_out = (
        (chapters[::2], chapters[1::2]) if name == SMOLLM2 else (trained_sources()[::SOME], held_out_sources())
    )
    pieces = windows(stream(tokenizer, held_out), settings.held_out, LENGTH, seed=0)
    work = {"model": name, "settings": settings._asdict(), "held out": fingerprint(pieces)}
    journal = Journal(WORK / f"pruning_layers-{name}.jsonl", work)
    return Case(model, stream(tokenizer, calibration), pieces, settings, journal)


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages."""
    return {"tables": tables(results["models"]), **numbers(results["models"])}


def main() -> None:
    """Run what isn't measured yet, and store the results."""
    measure_models(RESULTS, SETTINGS, lambda name: measure(case_of(name)))
