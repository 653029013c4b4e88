"""Can the layers with the smallest parameters be removed at as little loss as those that a ranking by text picks?

Wang & Li: "when parameters in certain layers are small enough, we can directly remove those layers since their impact
on the final result is minimal" (Section 4.3).  If so, ranking layers by the size of their parameters costs much less
than removing as many at random, and about as little as the best ranking that reads text.  The opposite view is that
size says nothing, as weights can be rescaled against norms, values and gates without any effect.  The added loss
without a quarter of the layers, 2 of 6 and 8 of 30, decides, beside that of ten random orders and of the best ranking
by text.  The rows with the first layer kept and the secant from 1 to ¾ were added after the first results.

A removed layer adds nothing to the stream, neither its attention nor its MLP; or its MLP alone is removed.  All at once
go those with the smallest score:

- *‖W‖*: the Frobenius norm of all matrices of the layer, or of its MLP;
- *‖W'2‖* and *‖W'3‖*: those of the closed form (Eq. 11), from the embeddings to the pre-activations of the layer, and
  from its activations to the last stream, with everything held at a window's values;
- *contributions*: the mean size of what the layer contributes to the logit of the most probable token;
- *block influence*: 1 − cos between the stream before and after it (Men et al., "ShortGPT", 2024);
- *angular distance*: so many neighbouring layers between which the stream turns least (Gromov et al., "The
  Unreasonable Ineffectiveness of the Deeper Layers", 2024);
- *secant*: the layer's part of the loss that is added when the outputs of all layers are scaled together, from 1 to
  0, or to ¾;
- *removed alone*: the loss with this layer alone removed; *one after another*: the cheapest one is removed, and all
  others are measured anew.

Calibration windows of 128 tokens are drawn five times, 32 for the embedded model and 4 for SmolLM2-135M; added losses
are on 128 and 8 windows of held-out text, of which the means are kept.  Where there is no interval, every draw removes
the same layers, and n is the number of windows.  The brackets of random layers are over the ten orders.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float

from duat_jax.evaluation.statistics import agreement
from duat_jax.pruning.layers import remove_layers
from experiments.estimate import Estimate, estimate
from experiments.pruning import rankings
from experiments.pruning.draws import DRAWS, EMBEDDED, SMOLLM2, Draws, draws_of, window_losses
from experiments.pruning.rankings import by_removal
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table, rows_of
from experiments.verdict import above, below, every

ORDERS = range(10)
"""Random orders of the layers."""
RANDOM, ANGULAR, ALONE, GREEDY = "random", "angular distance", "removed alone", "removed one after another"
FIRST_KEPT = ", the first kept"
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
LAYERS = {EMBEDDED: 6, SMOLLM2: 30}

Scores = Mapping[tuple[str, str, int], Row]
"""Scores of the layers by what is removed, ranking and draw."""


def quarter(layers: int) -> int:
    """Return a quarter of a number of layers: 2 of 6, 8 of 30."""
    return round(layers / 4)


class Case:
    """A model with its texts, and the losses without some of its layers, each of which is measured once.

    Args:
        draws: the model and its texts.
        settings: the sizes.
    """

    def __init__(self, draws: Draws, settings: Settings) -> None:
        self.draws, self.model, self.settings = draws, draws.model, settings
        self.layers: int = draws.model.config.layers
        self.loss = cache(self._loss)
        self._mean = cache(lambda draw: rankings.mean_outputs(self.model, draws.ids(draw)))

    def _loss(self, kind: str, removed: tuple[int, ...], how: str = "none", draw: int = 0) -> float:
        """Return the loss without some layers, with nothing, their means, or a refit in their place."""
        if how == "refit":
            smaller = remove_layers(self.model, self.draws.ids(draw), list(removed))
            return float(window_losses(smaller, self.draws.held_out, rankings.BATCH).mean())
        mean = self._mean(draw) if how == "mean" else None
        return float(by_removal(self.model, self.draws.held_out, kind, removed, mean).mean())


def removed(layers: int, kind: str, ranking: str, count: int, draw: int, known: Scores) -> tuple[int, ...] | None:
    """Return the layers that a ranking removes, sorted, or `None` where it has no finite scores."""
    name, kept = ranking.removesuffix(FIRST_KEPT), ranking.endswith(FIRST_KEPT)
    if name == RANDOM:
        score: Any = np.random.default_rng(draw).permutation(layers)
    elif name == ANGULAR:
        start = known[kind, name, draw]["starts"][str(count)]
        return tuple(range(start, start + count))
    else:
        score = known[kind, name, draw]["scores"]
    if score is None:
        return None
    order = [layer for layer in np.argsort(score, kind="stable").tolist() if not (kept and layer == 0)]
    return tuple(sorted(order[:count]))


def alone(case: Case, kind: str) -> Row:
    """Return the added loss on held-out text without each layer."""
    return {"alone": [case.loss(kind, (layer,)) - case.loss("layers", ()) for layer in range(case.layers)]}


def scores(case: Case, draw: int, alone: Mapping[str, list[float]]) -> list[Row]:
    """Return every layer's score by each ranking; the layers of smallest score are removed first."""
    model, ids, settings = case.model, case.draws.ids(draw), case.settings
    batches = [batch[:, :-1] for batch in rankings.batches(ids)]
    keys = jax.random.split(jax.random.key(draw), len(batches))
    x = [rankings.streams(model, batch) for batch in batches]
    squares = [rankings.operator_squares(model, batch, key) for batch, key in zip(batches, keys, strict=True)]
    contributed = [rankings.contributions(model, *pair) for pair in zip(batches, x, strict=True)]

    def mean(of_batches: Iterable[Any]) -> Float[np.ndarray, "layers"]:
        return np.mean([np.asarray(part, float) for part in of_batches], 0)

    def secant(kind: str, end: float) -> Float[np.ndarray, "layers"]:
        return mean(rankings.secant_of_removal(model, batch, kind, end) for batch in rankings.batches(ids))

    def added(kind: str, removed: list[int]) -> float:
        return float(by_removal(model, ids, kind, removed, None).mean() - whole)

    whole = by_removal(model, ids, "layers", [], None).mean()
    rows = []
    for kind, counts in settings.counts.items():
        found = {
            "‖W‖": rankings.size(model, kind),
            **{name: np.sqrt(mean(square[name] for square in squares)) for name in squares[0]},
            "contributions": mean(part[kind] for part in contributed),
            "block influence": mean(rankings.block_influence(streams, kind) for streams in x),
            **({ANGULAR: mean(rankings.angular_distance(streams, 1) for streams in x)} if kind == "layers" else {}),
            "secant, 1 to 0": secant(kind, 0.0),
            "secant, 1 to ¾": secant(kind, rankings.STEP),
            ALONE: np.array([added(kind, [layer]) for layer in range(case.layers)]),
        }
        if settings.thorough:
            found[GREEDY] = _greedy(partial(added, kind), case.layers, max(counts))
        for name, score in found.items():
            finite = np.isfinite(score).all()
            rows.append(
                {
                    "kind": kind,
                    "ranking": name,
                    "scores": score if finite else None,
                    "correlation": agreement(score, np.array(alone[kind]))[0] if finite else None,
                    "starts": {
                        str(count): int(mean(rankings.angular_distance(streams, count) for streams in x).argmin())
                        for count in counts
                    }
                    if name == ANGULAR
                    else None,
                }
            )
    return rows


def _greedy(added: Callable[[list[int]], float], layers: int, count: int) -> Float[np.ndarray, "layers"]:
    """Return every layer's place in the order of removal, where each time the one of least loss goes, measured anew."""
    removed: list[int] = []
    for _ in range(count):
        rest = [layer for layer in range(layers) if layer not in removed]
        removed.append(min(rest, key=lambda layer: added([*removed, layer])))
    return np.array([removed.index(layer) if layer in removed else count for layer in range(layers)], float)


def removals(case: Case, kind: str, ranking: str, known: Scores) -> list[Row]:
    """Return what a ranking removes, and the added losses by what is left in its place, for every draw and number."""
    rows, settings = [], case.settings
    for draw in ORDERS if ranking.startswith(RANDOM) else DRAWS:
        for count in settings.counts[kind]:
            gone = removed(case.layers, kind, ranking, count, draw, known)
            if gone is None:
                continue
            compensated = count == quarter(case.layers) and kind in settings.compensated
            refitted = compensated and settings.thorough and kind == "layers" and 0 not in gone
            for how in ("none", *["mean"] * compensated, *["refit"] * refitted):
                # There are more random orders than draws of calibration text; nothing in the place needs no text.
                loss = case.loss(kind, gone, how, 0 if how == "none" else draw % len(DRAWS))
                added = loss - case.loss("layers", ())
                rows.append({"draw": draw, "count": count, "in their place": how, "layers": gone, "added": added})
    return rows


def measure() -> Measurements:
    """Yield every model's scores and removals."""
    for model, settings in SETTINGS.items():
        yield from of_case(model, Case(draws_of(model, settings.calibration, settings.held_out), settings))


def of_case(model: str, case: Case) -> Measurements:
    """Yield a model's scores and removals."""
    each_alone, known = {}, {}
    for kind in case.settings.counts:
        (row,) = yield Piece("alone", {"model": model, "kind": kind}, partial(alone, case, kind))
        each_alone[kind] = row["alone"]
    for draw in DRAWS:
        for row in (yield Piece("scores", {"model": model, "draw": draw}, partial(scores, case, draw, each_alone))):
            known[row["kind"], row["ranking"], draw] = row
    for kind in case.settings.counts:
        scored = dict.fromkeys(ranking for of, ranking, _ in known if of == kind)
        for ranking in [*scored, RANDOM, *(name + FIRST_KEPT for name in WITH_THE_FIRST_KEPT)]:
            keys = {"model": model, "kind": kind, "ranking": ranking}
            yield Piece("removals", keys, partial(removals, case, kind, ranking, known))


def added(model: str, ranking: str, frames: Frames) -> Float[np.ndarray, "draws"]:
    """Return the added loss without a quarter of the layers, of every draw or random order."""
    keys = {"model": model, "kind": "layers", "ranking": ranking, "in their place": "none"}
    return rows_of(frames["removals"], **keys, count=quarter(LAYERS[model])).added.to_numpy()


def without(model: str, ranking: str) -> Measure:
    """Return the added loss without a quarter of the layers."""

    def values(frames: Frames) -> Estimate:
        found = estimate(added(model, ranking, frames))
        return found if found.low < found.high else found._replace(n=SETTINGS[model].held_out)

    return Measure(f"added loss, {model}, {ranking}", values, 2)


def beyond_influence(model: str, ranking: str) -> Measure:
    """Return by how much a ranking costs more than block influence, draw by draw."""
    name = f"{ranking} more than block influence, {model}"
    return Measure(name, lambda frames: added(model, ranking, frames) - added(model, "block influence", frames), 2, "+")


def saved(model: str, ranking: str) -> Measure:
    """Return by how much random orders cost more than a ranking."""
    name = f"random orders more than {ranking}, {model}"
    return Measure(name, lambda frames: added(model, RANDOM, frames) - added(model, ranking, frames).mean(), 2, "+")


def predictions(ranking: str) -> tuple[Prediction, ...]:
    """Return what was stated of a ranking by the size of parameters."""
    return (
        Prediction(
            f"layers with small parameters, by {ranking}, cost about as little as by the best ranking that reads text",
            "confirmed if no more than by block influence, in each model; refuted if more in each",
            (without(SMOLLM2, ranking), *(beyond_influence(model, ranking) for model in (SMOLLM2, EMBEDDED))),
            lambda _cost, *more: every(below)(*more),
        ),
        Prediction(
            f"they cost less than as many layers at random, by {ranking}",
            "confirmed if random orders cost more in each model, refuted if they cost less in each",
            tuple(saved(model, ranking) for model in (SMOLLM2, EMBEDDED)),
            every(above),
        ),
    )


def a_quarter(removals: pd.DataFrame) -> pd.DataFrame:
    """Return removals of a quarter of the layers with nothing in their place, by what is removed of which model."""
    layers = removals.model.map(LAYERS)
    shown = removals[(removals["in their place"] == "none") & (removals["count"] == layers.map(quarter))]
    of = (
        shown.model
        + ": "
        + shown["count"].astype(str)
        + " of "
        + shown.model.map(LAYERS).astype(str)
        + " "
        + shown.kind
    )
    return shown.assign(removed=of)


def by_count(removals: pd.DataFrame) -> pd.DataFrame:
    """Return all removals by their number, and a quarter also with what is left in its place."""
    shown = removals.sort_values(["in their place", "count"], key=lambda of: of.replace({"none": ""}), kind="stable")
    how = shown["in their place"].map(lambda how: "" if how == "none" else f", {how}")
    return shown.assign(removed=shown["count"].astype(str) + how)


STUDY = Study(
    protocol=__doc__,
    page="pruning",
    claim='"when parameters in certain layers are small enough, we can directly remove those layers" (Section 4.3)',
    unit="windows of text; random layers have ten orders, other rankings five draws of calibration text",
    stated="before the run",
    predictions=(*predictions("‖W‖"), *predictions("‖W'3‖")),
    control=without(SMOLLM2, RANDOM),
    headline="SmolLM2-135M's layers hardly differ in size; the 8 of 30 with the smallest ‖W‖ cost {outcome} nats a"
    " token, those of the least block influence {A quarter / block influence / SmolLM2-135M: 8 of 30 layers}, random"
    " ones {control} ({n} windows of text; random: ten orders).",
    short="Of SmolLM2's thirty layers, nearly equal in size, the eight smallest cost {outcome / value} nats a token,"
    " about as random ones; those of the least block influence (ShortGPT) far less.",
    against="The 4 smallest cost {By the number of layers / SmolLM2-135M, layers, ‖W‖ / 4}, random ones"
    " {By the number of layers / SmolLM2-135M, layers, random / 4}, and 8 by the closed form's ‖W'3‖"
    " {A quarter / ‖W'3‖ / SmolLM2-135M: 8 of 30 layers}. Of the embedded model's 6 layers, the first one kept, the 2"
    " smallest cost {A quarter / ‖W‖, the first kept / embedded: 2 of 6 layers}, random ones"
    " {A quarter / random, the first kept / embedded: 2 of 6 layers}.",
    limits="The papers' premise, layers that are small enough, isn't met: far smaller ones might go.",
    tables={
        "A quarter": Table("removals", ("ranking",), {"": Cell("added", 2)}, columns="removed", prepare=a_quarter),
        "By the number of layers": Table(
            "removals",
            ("model", "kind", "ranking"),
            {"": Cell("added", 2)},
            columns="removed",
            prepare=by_count,
            note="Added loss, nats a token, with nothing, the means or a refit in their place.",
        ),
        "Rank correlation with the loss of each layer alone": Table(
            "scores",
            ("ranking",),
            {"": Cell("correlation", 2)},
            columns="of",
            prepare=lambda scores: scores.assign(of=scores.model + ", " + scores.kind),
        ),
        "Each layer alone": Table(
            "alone",
            ("model", "kind"),
            {"added loss, from the first": Cell(lambda rows: ", ".join(f"{of:.2f}" for of in rows.alone.iloc[0]))},
        ),
    },
    measure=measure,
    settings={name: settings._asdict() for name, settings in SETTINGS.items()},
)
