"""Claim: compensation and the budget of each layer count for more than how neurons are ranked.

Run `python -m experiments pruning`; it writes experiments/results/pruning.json and the tables in
docs/findings/pruning.md.  What
is measured is kept in experiments/results/work as it is finished: a run that was stopped goes on, `--minutes` says when
to stop.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import duat_jax as duat
from duat_jax.evaluation.journal import Journal, fingerprint
from duat_jax.evaluation.running_text import mean_loss, stream, token_losses, windows
from duat_jax.pruning import layers as of_layers
from duat_jax.pruning.budget import equally
from duat_jax.pruning.calibration import moments
from duat_jax.pruning.compensation import COMPENSATIONS
from duat_jax.pruning.pruner import keep_largest, prune, scores, silenced
from duat_jax.pruning.removal import Terms, measure_removal, without
from duat_jax.pruning.resizing import resized, with_biases
from duat_jax.pruning.scores import METHODS
from duat_jax.pruning.study import Pruner, losses_of
from experiments import smollm2
from experiments.environment import environment
from experiments.markdown import Fields
from experiments.pruning.report import numbers, tables
from experiments.texts import held_out_sources, manual, trained_sources

RESULTS, WORK = Path("experiments/results/pruning.json"), Path("experiments/results/work")
SEEDS, FRACTIONS = range(5), (0.5, 0.7, 0.3, 0.1, 0.2)
IN_A_LAYER = tuple(method for method in METHODS if method != "flap")
"""Which methods rank the neurons of one layer differently."""
TEXTS, LENGTH, HELD_OUT = 64, 128, 480
"""Texts of calibration, tokens of each, and texts that nothing is calibrated on."""
SOME = 25
"""Every which file of the trained sources calibration texts are drawn from: reading all of them takes a minute."""
SEEN = 6
"""Of how many layers the inequality is tried."""
COMPARED = 8
"""On how many texts the sum of removed terms is compared with what changes."""

EMBEDDED, SMOLLM2 = "embedded", "SmolLM2-135M"

Piece = tuple[str, Callable[[], Any]]


def _journal(model: str) -> Path:
    return WORK / f"pruning-{model}.jsonl"


def _results() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {"environment": environment(), "models": {}}


def _same(result: Any) -> Any:
    return result


def _finished(model: str) -> dict[str, Any]:
    """Return the results in a model's journal."""
    work, *pieces = map(json.loads, _journal(model).read_text().splitlines())
    return {"work": work, "found": {piece["name"]: piece["found"] for piece in pieces}}


class Case:
    """A model with calibration texts, held-out texts and a journal of results.

    Args:
        name: what it is called.
        path: its checkpoint; the embedded model if absent.
        calibration: texts to calibrate on.
        held_out: other texts.
        count: how many pieces of them.
    """

    def __init__(self, name: str, path: Path | None, calibration: list[str], held_out: list[str], count: int) -> None:
        WORK.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.model, tokenizer = duat.load(path), duat.load_tokenizer(path)
        self.held_out = windows(stream(tokenizer, held_out), count, LENGTH, seed=0)
        self._tokens = stream(tokenizer, calibration)
        work = {"model": name, "texts": TEXTS, "length": LENGTH, "held out": fingerprint(self.held_out)}
        self.journal = Journal(_journal(name), work)
        kept = _results()["models"].get(name, {})
        if kept.get("work") == work:
            for piece, result in kept["found"].items():
                self.journal.once(piece, partial(_same, result))

    def ids(self, seed: int) -> np.ndarray:
        """Return the token ids of a seed's calibration texts."""
        return windows(self._tokens, TEXTS, LENGTH, seed=seed)

    def loss(self, model: duat.models.Transformer) -> float:
        """Return the loss of a model on the held-out texts."""
        return mean_loss(model, self.held_out)

    def measure(self, pieces: Iterable[Piece], stop: Callable[[], None]) -> None:
        """Run missing measurements."""
        for name, compute in pieces:
            self.journal.once(name, compute)
            stop()

    def prune(self, seed: int, pruners: Iterable[Pruner], stop: Callable[[], None]) -> None:
        """Measure missing losses of pruned models."""
        losses_of(self.model, pruners, self.ids(seed), self.held_out, seed=seed, journal=self.journal)
        stop()


def _compared(model: duat.models.Transformer, rest: duat.models.Transformer, ids: np.ndarray) -> dict[str, float]:
    removed = jax.vmap(measure_removal, (None, None, 0))(model, rest, jnp.asarray(ids[:COMPARED, :-1]))

    def size(array: jax.Array) -> float:
        """Return the root mean square of logits less their mean at each token, which has no effect."""
        return float(jnp.sqrt(((array - array.mean(-1, keepdims=True)) ** 2).mean()))

    return {
        "terms": size(removed.terms),
        "change": size(removed.change),
        "moved": size(removed.held - removed.anew),
        "within": float((jnp.abs(removed.change).max(-1) <= jnp.abs(removed.terms).max(-1)).mean()),
    }


def embedded() -> Case:
    """Return the embedded model with sources from its training and held-out sources."""
    return Case(EMBEDDED, None, trained_sources()[::SOME], held_out_sources(), HELD_OUT)


def smollm2_135m() -> Case:
    """Return SmolLM2-135M with chapters of Python's manual, every other one for calibration."""
    # One chapter stands there by two names.
    chapters = list(dict.fromkeys(manual()))
    return Case(SMOLLM2, smollm2.path(), chapters[::2], chapters[1::2], 40)


def _pruners(fraction: float) -> list[Pruner]:
    pruners = [Pruner(method, how, fraction) for method in IN_A_LAYER for how in COMPENSATIONS]
    if fraction in FRACTIONS[:3]:
        pruners += [
            Pruner(method, how, fraction, "together")
            for method in ("contributions", "fisher", "fluctuation", "flap")
            for how in COMPENSATIONS
        ]
    return pruners


WAYS: dict[str, dict[str, Any]] = {
    "4 rounds": {"rounds": 4},
    "4 rounds, together": {"rounds": 4, "budget": "together"},
    "measured budget": {"budget": "measured"},
}


def _ways(case: Case, seed: int) -> Iterator[Piece]:
    for fraction in FRACTIONS[:2]:
        for method in ("fisher", "contributions"):
            for name, options in WAYS.items():

                def measure(fraction: float = fraction, method: str = method, options: dict = options) -> dict:
                    smaller = prune(case.model, case.ids(seed), fraction, method=method, **options)
                    sizes = [block.neurons for block in smaller.config.blocks]
                    return {"loss": case.loss(smaller), "neurons": sizes}

                yield f"seed {seed}, {method}, {fraction:.0%}, {name}", measure


def _layers(case: Case, seed: int) -> Iterator[Piece]:
    for method in of_layers.RANKINGS:
        for count in (1, 2, 3):
            for how in COMPENSATIONS:

                def measure(method: str = method, count: int = count, how: str = how) -> dict:
                    ids = case.ids(seed)
                    gone = of_layers.least_important(case.model, ids, count, method, seed=seed)
                    smaller = of_layers.remove_layers(case.model, ids, gone, compensation=how)
                    return {"loss": case.loss(smaller), "layers": gone}

                yield f"seed {seed}, layers, {method}, {count}, {how}", measure


def _inequality(case: Case) -> Iterator[Piece]:
    model, ids = case.model, case.held_out
    layer_moments = cache(lambda: moments(model, case.ids(0), "contribution"))
    for fraction in sorted(FRACTIONS):
        for how in COMPENSATIONS:

            def measure(fraction: float = fraction, how: str = how) -> dict:
                ranked = scores(model, layer_moments(), "contributions", how)
                kept = keep_largest(ranked, equally(ranked, fraction))
                return _compared(model, silenced(model, kept, layer_moments(), how), ids)

            yield f"inequality, neurons, {fraction:.0%}, {how}", measure
    for layer in range(0, model.config.layers, model.config.layers // SEEN):
        for name, terms in (
            ("head 0", Terms(heads={layer: [0]})),
            ("term, linear path kept", Terms(terms=[layer])),
            ("layer, linear path removed", Terms(layers=[layer])),
        ):

            def compare(terms: Terms = terms) -> dict:
                return _compared(model, without(model, terms), ids)

            yield f"inequality, {layer}, {name}", compare


def _seconds(run: Callable[[], Any]) -> dict[str, float]:
    """Return the wall-clock time of a call, and its processor time, which other programs don't change."""
    clock, cores = time.perf_counter(), time.process_time()
    jax.block_until_ready(run())
    return {"clock": time.perf_counter() - clock, "cores": time.process_time() - cores}


def _speed(case: Case) -> Iterator[Piece]:
    """Yield measurements of calibration time, of a forward pass of 8 texts, dense and pruned, and of parameters."""

    def forward() -> dict[str, Any]:
        ids, models = jnp.asarray(case.held_out[:8]), {"nothing": case.model}
        for fraction in (0.5, 0.7):
            sizes = [block.neurons for block in case.model.config.blocks]
            kept = {layer: np.arange(size) >= round(fraction * size) for layer, size in enumerate(sizes)}
            models[f"{fraction:.0%} of the neurons"] = with_biases(resized(case.model, kept))
        times: dict[str, list[dict[str, float]]] = {name: [] for name in models}
        for _ in range(6):
            for name, model in models.items():
                times[name].append(_seconds(partial(token_losses, model, ids)))
        return {
            name: {
                "parameters": sum(leaf.size for leaf in jax.tree.leaves(model)),
                **{
                    kind: float(np.median([measured[kind] for measured in times[name][1:]]))
                    for kind in ("clock", "cores")
                },
            }
            for name, model in models.items()
        }

    yield "seconds of a forward pass", forward
    for weights in ("contribution", "gradient"):

        def calibration(weights: str = weights) -> dict[str, float]:
            return _seconds(lambda: [layer.mean for layer in moments(case.model, case.ids(0), weights)])

        yield f"seconds of calibration by {weights}s", calibration


def _of_smollm2(fraction: float) -> list[Pruner]:
    return [Pruner(method, how, fraction) for how in reversed(COMPENSATIONS) for method in IN_A_LAYER]


class Stopped(Exception):
    """The time limit is reached; finished results are stored."""


def measure(stop: Callable[[], None]) -> None:
    """Run missing measurements, the most informative ones first."""
    small, large = embedded(), smollm2_135m()
    for case in (small, large):
        case.measure([("dense", partial(case.loss, case.model)), *_speed(case)], stop)
    small.measure([*_inequality(small), *_layers(small, 0), *_ways(small, 0)], stop)
    for seed in SEEDS:
        for fraction in FRACTIONS:
            small.prune(seed, _pruners(fraction), stop)
    for fraction in (0.5, 0.3, 0.2, 0.1):
        large.prune(0, _of_smollm2(fraction), stop)
    large.measure([*_inequality(large), *_layers(large, 0)], stop)
    for fraction in (0.5, 0.3, 0.2, 0.1):
        for seed in SEEDS[1:]:
            large.prune(seed, _of_smollm2(fraction), stop)
    for seed in SEEDS[1:]:
        small.measure([*_layers(small, seed), *_ways(small, seed)], stop)


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages."""
    models = {name: model["found"] for name, model in results["models"].items()}
    return {"tables": tables(models, FRACTIONS), **numbers(models, FRACTIONS)}


def main(options: Sequence[str]) -> None:
    """Run the measurements, and store the results."""
    parser = argparse.ArgumentParser(
        prog="pruning", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after the pieces during which these are over")
    end = time.monotonic() + 60 * parser.parse_args(options).minutes

    def stop() -> None:
        if time.monotonic() > end:
            raise Stopped

    try:
        measure(stop)
    except Stopped:
        print("stopped: the next run goes on from here")
    report()


def report() -> None:
    """Store the results so far."""
    results = _results()
    results["models"] |= {name: _finished(name) for name in (EMBEDDED, SMOLLM2) if _journal(name).exists()}
    RESULTS.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")
