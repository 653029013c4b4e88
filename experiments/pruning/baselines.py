"""Question: what of the layers is best removed at an equal number of parameters, beside three published methods?

Run `python -m experiments pruning_baselines`; it writes experiments/results/pruning_baselines.json and the tables in
docs/findings/pruning.md, whose section on equal budgets says beforehand what decides.  A loss that a stopped run has
measured
isn't measured again.
"""

import json
import time
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

from duat_jax.evaluation.journal import Journal, fingerprint
from duat_jax.evaluation.running_text import mean_loss, token_losses
from duat_jax.evaluation.statistics import students_mean
from duat_jax.models import layer_parts
from duat_jax.models.transformer import Transformer
from duat_jax.pruning.calibration import Moments, moments
from duat_jax.pruning.pruner import keep_largest, removal_counts, scores, silenced
from duat_jax.pruning.resizing import resized
from experiments.environment import environment
from experiments.markdown import Fields, cells, interval, table
from experiments.pruning.draws import Draws, embedded, smollm2_135m
from experiments.pruning.run import SMOLLM2
from experiments.pruning.slicing import largest_within, principal_rotations, random_rotation, sliced

RESULTS, WORK = Path("experiments/results/pruning_baselines.json"), Path("experiments/results/work")
KEPT = (0.9, 0.75, 0.5)
"""The shares of the layers' parameters that are kept."""
ROUNDS = 6
"""Paired timings, of which the first is left out."""

OURS = "contributions, refit"
NEURONS = {
    OURS: ("contributions", "refit", "equal"),
    "Wanda-like": ("wanda", "none", "equal"),
    "FLAP-like": ("flap", "mean", "together"),
    "Wanda-like, refit": ("wanda", "refit", "equal"),
    "FLAP-like, refit": ("flap", "refit", "together"),
    "contributions, none": ("contributions", "none", "equal"),
    "random, refit": ("random", "refit", "equal"),
    "random, none": ("random", "none", "equal"),
}
"""Rankings of neurons, what is put in their place, and the budget of each layer."""
SLICEGPT, SHARED, AT_RANDOM = "SliceGPT-like", "SliceGPT-like, one rotation", "one random rotation"
METHODS = (*NEURONS, SLICEGPT, SHARED, AT_RANDOM)


def parameters(model: Transformer) -> dict[str, int]:
    """Return the number of parameters of a model's layers, and of all of it."""
    of_layers, every = (sum(leaf.size for leaf in jax.tree.leaves(part)) for part in (model.stack, model))
    return {"layers": of_layers, "all": every}


def products(model: Transformer) -> int:
    """Return the multiplications of a token with matrices: those of the layers, and the one that reads logits."""
    matrices = [leaf for leaf in jax.tree.leaves(model.stack) if leaf.ndim == 2]
    return sum(leaf.size for leaf in matrices) + model.unembedding.size


def removed_share(model: Transformer, kept: float) -> float:
    """Return the share of neurons without which a model's layers keep a share of their parameters."""
    mlps = layer_parts.mlps(model)
    a_neuron = sum(leaf.size // len(mlps[0].output.kernel[...]) for leaf in _of_neurons(mlps[0]))
    removed = np.ceil((1 - kept) * parameters(model)["layers"] / a_neuron / len(mlps)) * len(mlps)
    return float(removed / sum(len(mlp.output.kernel[...]) for mlp in mlps))


def _of_neurons(mlp: Any) -> list[Any]:
    """Return the parameters that an MLP has of each neuron."""
    inner = [mlp.input, *([mlp.factor] if hasattr(mlp, "factor") else [])]
    every = [parameter for linear in inner for parameter in (linear.kernel, linear.bias)] + [mlp.output.kernel]
    return [parameter[...] for parameter in every if parameter is not None]


class Calibrated:
    """A model, what a draw of calibration text says of it, and the smaller models made with that.

    Args:
        draws: the model and its texts.
        draw: the draw.
    """

    def __init__(self, draws: Draws, draw: int) -> None:
        self.model, self.draw, self._ids = draws.model, draw, draws.ids(draw)
        self._moments: list[Moments] | None = None
        self.rotations = cache(self._rotations)

    def pruned(self, method: str, kept: float, *, resize: bool) -> Transformer:
        """Return a model whose layers keep a share of their parameters."""
        return self._without_neurons(method, kept, resize) if method in NEURONS else self._sliced(method, kept)

    def _without_neurons(self, method: str, kept: float, resize: bool) -> Transformer:
        ranking, compensation, budget = NEURONS[method]
        if self._moments is None:
            self._moments = moments(self.model, self._ids, "contribution")
        ranked = scores(self.model, self._moments, ranking, compensation, seed=self.draw)
        share = removed_share(self.model, kept)
        counts = removal_counts(self.model, self._moments, ranked, compensation, share, budget, self._ids)
        stays = keep_largest(ranked, counts)
        rest = silenced(self.model, stays, self._moments, compensation)
        return resized(rest, stays) if resize else rest

    def _rotations(self, method: str) -> Any:
        if method == AT_RANDOM:
            return random_rotation(self.model, self.draw)
        return principal_rotations(self.model, self._ids, shared=method == SHARED)

    def _sliced(self, method: str, kept: float) -> Transformer:
        rotations, whole = self.rotations(method), self.model.config.features

        def size(features: int) -> int:
            return parameters(sliced(self.model, rotations, features))["layers"]

        # Layers grow by a quadratic polynomial of the directions, which three of its values determine.
        known = [1, whole // 2, whole]
        polynomial = np.polynomial.Polynomial.fit(known, [size(n) for n in known], 2)
        limit = kept * parameters(self.model)["layers"]
        return sliced(self.model, rotations, largest_within(lambda n: round(polynomial(n)), limit, whole))


def of_draw(draws: Draws, draw: int) -> dict[str, dict[str, float]]:
    """Return the loss and the sizes of every smaller model by a draw of calibration text."""
    calibrated, found = Calibrated(draws, draw), {}
    for method, kept in product(METHODS, KEPT):
        loss = mean_loss(calibrated.pruned(method, kept, resize=False), draws.held_out)
        smaller = calibrated.pruned(method, kept, resize=True)
        found[f"{method}, {kept}"] = {"loss": loss, **parameters(smaller), "products": products(smaller)}
    return found


def seconds(draws: Draws, kept: float) -> dict[str, float]:
    """Return the seconds of a forward pass of eight texts, the median of paired timings of each method's model."""
    calibrated = Calibrated(draws, 0)
    # Magnitudes don't change the time: of models of one shape one is timed.
    models = {"whole": draws.model} | {
        method: calibrated.pruned(method, kept, resize=True) for method in (OURS, "FLAP-like", SLICEGPT, SHARED)
    }
    ids = jnp.asarray(draws.held_out[:8])
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(ROUNDS):
        for name, model in models.items():
            began = time.perf_counter()
            jax.block_until_ready(token_losses(model, ids))
            times[name].append(time.perf_counter() - began)
    return {name: float(np.median(of[1:])) for name, of in times.items()}


def _tables(results: dict[str, Any], of: str = "") -> list[str]:
    whole, draws = results["whole"], results["draws"]

    def added(method: str, kept: float) -> np.ndarray:
        return np.array([draw[f"{method}, {kept}"]["loss"] for draw in draws]) - whole["loss"]

    def size(method: str, key: str) -> list[str]:
        return [f"{np.mean([d[f'{method}, {kept}'][key] for d in draws]) / whole[key]:.0%}" for kept in KEPT]

    shares = [f"{kept:.0%}" for kept in KEPT]
    return [
        f"### Loss at equal budgets{of}",
        "",
        *table(
            ["method", *(f"{share} kept" for share in shares), *(f"difference, {share} kept" for share in shares)],
            [
                [
                    method,
                    *(interval(added(method, kept)) for kept in KEPT),
                    *(
                        "" if method == OURS else interval(added(method, kept) - added(OURS, kept), 3, "+")
                        for kept in KEPT
                    ),
                ]
                for method in METHODS
            ],
        ),
        "",
        f"### Sizes at equal budgets{of}",
        "",
        *table(
            [
                "method",
                *(f"{title}, {share} kept" for title in ("layers", "all parameters", "products") for share in shares),
            ],
            [[method, *size(method, "layers"), *size(method, "all"), *size(method, "products")] for method in METHODS],
        ),
        "",
        f"### Seconds at equal budgets{of}",
        "",
        *table(
            ["method", *(f"{share} kept" for share in shares)],
            [
                [method, *(f"{results['seconds'][str(kept)][method]:.3f}" for kept in KEPT)]
                for method in results["seconds"][str(KEPT[0])]
            ],
        ),
    ]


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages."""
    further = [line for name, of in results.get("further", {}).items() for line in ("", *_tables(of, f", {name}"))]
    text = "\n".join(_tables(results) + further)
    against = {
        f"{name}, {method}, {kept}, by Student's t": students_mean(
            np.array([draw[f"{method}, {kept}"]["loss"] - draw[f"{OURS}, {kept}"]["loss"] for draw in of["draws"]])
        ).written(sign="+")
        for name, of in results.get("further", {}).items()
        for method in METHODS[1:]
        for kept in KEPT
    }
    return {**against, "tables": text, "loss": f"{results['whole']['loss']:.4f}", **cells(text)}


def measured(draws: Draws, name: str, kept: dict[str, Any]) -> dict[str, Any]:
    """Return what is measured on a model; what is kept of the same texts isn't measured again."""
    asked = {"methods": METHODS, "kept": KEPT, "texts": draws.texts, "held out": fingerprint(draws.held_out)}
    if kept.get("asked") == json.loads(json.dumps(asked)) and len(kept["draws"]) == len(draws.draws):
        return kept
    journal = Journal(WORK / name, asked)
    whole = {**parameters(draws.model), "products": products(draws.model)}
    return {
        "environment": environment(),
        "asked": asked,
        "whole": {"loss": journal.once("whole", partial(mean_loss, draws.model, draws.held_out)), **whole},
        "draws": [journal.once(f"draw {draw}", partial(of_draw, draws, draw)) for draw in track(draws.draws, "Draws")],
        "seconds": {str(share): journal.once(f"seconds, {share}", partial(seconds, draws, share)) for share in KEPT},
    }


def main() -> None:
    """Measure the models that aren't kept, and store the results."""
    WORK.mkdir(parents=True, exist_ok=True)
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    further = results.pop("further", {})
    results = measured(embedded(), "pruning_baselines.jsonl", results)
    further[SMOLLM2] = measured(smollm2_135m(), f"pruning_baselines_{SMOLLM2}.jsonl", further.get(SMOLLM2, {}))
    content = json.dumps(results | {"further": further}, ensure_ascii=False, allow_nan=False)
    RESULTS.write_text(content + "\n", encoding="utf-8")
