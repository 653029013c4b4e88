"""Question: can single small parameters be removed, and are they in certain layers (Wang & Li, Section 4.3)?

Run `python -m experiments pruning_parameters`; it writes experiments/results/pruning_parameters.json and the tables in
docs/findings/pruning.md, which states beforehand what decides.  What is measured is kept in experiments/results/work
as it is
finished: a run that was stopped goes on.
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from rich.progress import track

import duat_jax as duat
from duat_jax.evaluation.journal import Journal
from duat_jax.evaluation.running_text import stream, windows
from duat_jax.evaluation.statistics import IntervalEstimate, bootstrap
from duat_jax.models.transformer import Transformer
from duat_jax.weights.rounded import sizes_of_matrices
from duat_jax.weights.units import name_of, parameters_of
from experiments import smollm2
from experiments.bits.run import losses
from experiments.kept_results import store
from experiments.markdown import Fields, cells, sections, table
from experiments.pruning.run import EMBEDDED, SMOLLM2
from experiments.texts import held_out_sources, manual

WORK = Path("experiments/results/work")
WINDOWS = {EMBEDDED: 96, SMOLLM2: 24}
"""Windows of held-out text, of 128 tokens."""
LENGTH, DRAWS = 128, 3
SHARES, DECISIVE = (0.05, 0.1, 0.2, 0.3, 0.5), 0.2
"""The shares of parameters that are removed; the one that decides."""
SMALLEST, WITHIN, AT_RANDOM = "smallest of all", "smallest of each matrix", "at random"
LITTLE, MUCH = 0.05, 0.2
"""Added losses in nats a token: below the one small parameters can go, above the other they can't."""
TWICE, EVEN = 2.0, 1.5
"""The largest share of a layer in the smallest tenth, as a multiple of an even one: above the one they are in certain
layers, below the other they aren't."""

Found = dict[str, Any]


def without(model: Transformer, share: float, how: str, seed: int = 0) -> Transformer:
    """Return a model in which a share of the entries of its layers' matrices is zero."""
    names, draw = list(sizes_of_matrices(model)), np.random.default_rng(seed)
    matrices = {name: np.abs(np.asarray(parameters_of(model)[name])) for name in names}
    overall = np.quantile(np.concatenate([of.ravel() for of in matrices.values()]), share) if how == SMALLEST else 0.0
    kept = {
        name: jnp.asarray(
            draw.random(of.shape) >= share
            if how == AT_RANDOM
            else of > (np.quantile(of, share) if how == WITHIN else overall)
        )
        for name, of in matrices.items()
    }

    def of_leaf(path: Any, leaf: Array) -> Array:
        mask = kept.get(name_of(path))
        return leaf if mask is None else jnp.where(mask, leaf, 0)

    found: Transformer = jax.tree_util.tree_map_with_path(of_leaf, model)
    return found


def losses_without(
    model: Transformer, ids: Int[np.ndarray, "windows tokens"], share: float, how: str, seed: int
) -> list[float]:
    """Return the loss of every window without a share of the parameters."""
    return losses(without(model, share, how, seed), ids)


def shares_of_layers(model: Transformer) -> dict[str, list[float]]:
    """Return of every layer its share of the smallest tenth of all parameters, as a multiple of an even share."""
    names = list(sizes_of_matrices(model))
    matrices = {name: np.abs(np.asarray(parameters_of(model)[name])) for name in names}
    tenth = np.quantile(np.concatenate([of.ravel() for of in matrices.values()]), 0.1)
    below, sizes = (
        {name: float(of(matrix)) for name, matrix in matrices.items()} for of in (lambda m: (m <= tenth).sum(), np.size)
    )
    whole = sum(below.values()) / sum(sizes.values())
    layers: dict[int, list[str]] = {}
    for name in names:
        layers.setdefault(int(name.split(".")[1]), []).append(name)
    of_layers = [sum(below[name] for name in of) / sum(sizes[name] for name in of) / whole for of in layers.values()]
    of_matrices = {name: below[name] / sizes[name] / whole for name in names}
    ends = [f(of_matrices.values()) for f in (min, max)]
    return {"layers": [round(of, 4) for of in of_layers], "matrices": [round(of, 4) for of in ends]}


def case(name: str) -> tuple[Transformer, Int[np.ndarray, "windows tokens"]]:
    """Return a model with its held-out windows."""
    path = smollm2.path() if name == SMOLLM2 else None
    texts = list(dict.fromkeys(manual()))[1::2] if name == SMOLLM2 else held_out_sources()
    model = duat.load(path)
    tokenizer = model.tokenizer
    return model, windows(stream(tokenizer, texts), WINDOWS[name], LENGTH, seed=0)


def measure_all(work: Path = WORK, cases: dict[str, Any] | None = None) -> Found:
    """Run what isn't measured yet, and return the results."""
    work.mkdir(parents=True, exist_ok=True)
    cases = {name: partial(case, name) for name in WINDOWS} if cases is None else cases
    journal = Journal(work / "pruning_parameters", {"windows": WINDOWS, "shares": list(SHARES), "draws": DRAWS})
    found: Found = {}
    for name, make in cases.items():
        model, ids = make()
        removals = [(share, how, 0) for share in SHARES for how in (SMALLEST, WITHIN)]
        removals += [(share, AT_RANDOM, seed) for share in SHARES for seed in range(DRAWS)]
        found[f"{name}, shares"] = journal.once(f"{name}, shares", partial(shares_of_layers, model))
        found[f"{name}, whole"] = journal.once(f"{name}, whole", partial(losses, model, ids))
        for share, how, seed in track(removals, name):
            piece = f"{name}, {how}, {share:.0%}, {seed}"
            found[piece] = journal.once(piece, partial(losses_without, model, ids, share, how, seed))
    return {"models": list(cases), "pieces": found}


def added(results: Found, name: str, how: str, share: float) -> Float[np.ndarray, "windows"]:
    """Return by how much the loss of every window grows, of random choices their mean."""
    seeds = range(DRAWS if how == AT_RANDOM else 1)
    changed = [results["pieces"][f"{name}, {how}, {share:.0%}, {seed}"] for seed in seeds]
    return np.mean(changed, 0) - np.array(results["pieces"][f"{name}, whole"])


def _written(results: Found, name: str, how: str, share: float) -> str:
    """Format an added loss with its interval over windows, and of random choices the smallest and the largest."""
    written = bootstrap(added(results, name, how, share)).written(3, "+")
    if how != AT_RANDOM:
        return written
    whole = np.mean(results["pieces"][f"{name}, whole"])
    draws = [np.mean(results["pieces"][f"{name}, {how}, {share:.0%}, {seed}"]) - whole for seed in range(DRAWS)]
    return f"{written} ({min(draws):+.3f} to {max(draws):+.3f})"


def verdicts(results: Found) -> list[list[str]]:
    """Return the verdicts by the rules of the page."""
    grown = {name: bootstrap(added(results, name, SMALLEST, DECISIVE)) for name in results["models"]}
    most = {name: max(results["pieces"][f"{name}, shares"]["layers"]) for name in results["models"]}

    def decide(confirmed: list[bool], refuted: list[bool]) -> str:
        return "confirmed" if all(confirmed) else "refuted" if all(refuted) else "undecided"

    def by(estimates: dict[str, IntervalEstimate]) -> str:
        return "; ".join(f"{name} {each.written(3, '+')}" for name, each in estimates.items())

    can_go = decide([each.high < LITTLE for each in grown.values()], [each.low > MUCH for each in grown.values()])
    in_layers = decide([each > TWICE for each in most.values()], [each < EVEN for each in most.values()])
    return [
        ["small parameters can go", can_go, by(grown)],
        ["in certain layers", in_layers, "; ".join(f"{name} {each:.2f}" for name, each in most.items())],
    ]


def fields(results: Found) -> Fields:
    """Return the fields of the documentation pages."""
    rows = [
        [f"{name}, {how}", *(_written(results, name, how, share) for share in SHARES)]
        for name in results["models"]
        for how in (SMALLEST, WITHIN, AT_RANDOM)
    ]
    matrices = ["the matrix with the least", "the matrix with the most"]
    places = []
    for name in results["models"]:
        of = results["pieces"][f"{name}, shares"]
        layers = np.array(of["layers"])
        first, last = int(layers.argmin()), int(layers.argmax())
        cells_ = [f"{layers[i]:.2f} (layer {i})" for i in (first, last)]
        places.append([name, *cells_, *(f"{each:.2f}" for each in of["matrices"])])
    parts = {
        "Verdicts on small parameters": table(["claim", "verdict", "by"], verdicts(results)),
        "Small parameters removed": table(["model, choice", *(f"{share:.0%}" for share in SHARES)], rows),
        "Places of the smallest tenth": table(
            ["model", "the layer with the least", "the layer with the most", *matrices], places
        ),
    }
    text = sections(parts)
    return {"tables": text, **cells(text)}


def main() -> None:
    """Run what isn't measured yet, and store the results."""
    store("pruning_parameters", measure_all())
