"""Claim: terms whose sum is within an error can be pruned at that error (Wang & Li, Eq. 13 to 16).

Run `python -m experiments pruning_inequality`; it writes experiments/results/pruning_inequality.json and the tables in
docs/findings/pruning.md, whose section on a stated error says beforehand what decides.  A set that a stopped run has
measured
isn't measured again.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from rich.progress import track

from duat_jax.evaluation.journal import Journal, fingerprint
from duat_jax.forms.coefficients import coefficients
from duat_jax.forms.decomposition import KINDS
from duat_jax.models import layer_parts, sites
from duat_jax.models.transformer import Transformer
from duat_jax.transform import marks
from duat_jax.transform.recording import record_kinds
from experiments.environment import environment
from experiments.markdown import Fields, cells, interval, table
from experiments.pruning.draws import Draws, embedded, smollm2_135m
from experiments.pruning.run import SMOLLM2

RESULTS, WORK = Path("experiments/results/pruning_inequality.json"), Path("experiments/results/work")
ERRORS = (0.1, 0.3, 1.0)
"""The stated errors `ε`, in units of the logit."""
CHUNK, LARGER_CHUNK, BATCH = 128, 2304, 8
"""Neurons that go at once where the model is run again for each choice, of the larger model too, and texts that are
read at once."""

SIZES, SIGNED, AGAIN, RANDOM = "sum of sizes", "size of the sum", "run again", "random, as many as by "

Removed = Bool[np.ndarray, "terms"]


class Measured(NamedTuple):
    """A number of each text, and the part of every neuron in it with every parameter held.

    Args:
        value: the number.
        parts: the parts, neurons of all layers in one list.
    """

    value: Float[np.ndarray, "texts"]
    parts: Float[np.ndarray, "texts terms"]


def _readout(logits: Float[Array, "texts tokens vocab"], following: Int[Array, "texts"]) -> Array:
    """Return the covector of the logit of the token after each text, less the mean of all logits there."""
    vocab = logits.shape[-1]
    here = jax.nn.one_hot(following, vocab, dtype=logits.dtype) - 1 / vocab
    return jnp.zeros_like(logits).at[:, -1].set(here)


@jax.jit
def _parts(model: Transformer, ids: Int[Array, "texts length"]) -> tuple[Array, Array]:
    every = [sites.neurons(layer) for layer in range(model.config.layers)]
    recording = record_kinds(model.output, model.embed(ids[:, :-1]), (*KINDS, marks.POINT))
    readout = _readout(recording.value, ids[:, -1])
    covectors = coefficients(recording, every, readout)
    by_layer = [(covectors[site] * recording.seen[site]).sum(1) for site in every]
    return (recording.value * readout).sum((1, 2)), jnp.concatenate(by_layer, -1)


@jax.jit
def _value(model: Transformer, ids: Int[Array, "texts length"]) -> Array:
    logits = model.output(model.embed(ids[:, :-1]))
    return (logits * _readout(logits, ids[:, -1])).sum((1, 2))


def _batches(ids: np.ndarray) -> list[Array]:
    return [jnp.asarray(part) for part in np.split(ids, range(BATCH, len(ids), BATCH))]


def parts_of(model: Transformer, ids: Int[np.ndarray, "texts length"]) -> Measured:
    """Return the number of every text, and what each neuron adds to it over all tokens, every parameter held."""
    # The number is the logit of each text's last token after those before it, less the mean of all logits there.
    by_batch = [_parts(model, batch) for batch in _batches(ids)]
    value, parts = (np.concatenate([np.asarray(of, np.float64) for of in each]) for each in zip(*by_batch, strict=True))
    return Measured(value, parts)


def run_again(model: Transformer, ids: Int[np.ndarray, "texts length"], removed: Removed) -> Float[np.ndarray, "texts"]:
    """Return the number of every text by a model without some neurons, everything computed anew."""
    rest, first = layer_parts.written_out(model), 0
    for mlp in layer_parts.mlps(rest):
        kernel = mlp.output.kernel
        of_layer = removed[first : (first := first + len(kernel[...]))]
        kernel.set_value(jnp.where(of_layer[:, None], 0, kernel[...]))
    return np.concatenate([np.asarray(_value(rest, batch), np.float64) for batch in _batches(ids)])


def by_size(parts: Float[np.ndarray, "texts terms"]) -> Int[np.ndarray, "terms"]:
    """Return the neurons in the order of the largest size of their parts over all texts, the smallest first."""
    return np.argsort(np.abs(parts).max(0), kind="stable")


def by_sum(parts: Float[np.ndarray, "texts terms"]) -> Int[np.ndarray, "terms"]:
    """Return the neurons in an order in which each next one leaves the smallest sum, of squares over all texts."""
    left, total, order = np.ones(parts.shape[1], bool), np.zeros(len(parts)), []
    squares = (parts**2).sum(0)
    for _ in range(parts.shape[1]):
        after = np.where(left, squares + 2 * total @ parts, np.inf)
        order.append(int(after.argmin()))
        left[order[-1]] = False
        total = total + parts[:, order[-1]]
    return np.array(order)


def permitted(
    parts: Float[np.ndarray, "texts terms"], order: Int[np.ndarray, "terms"], error: float, *, signed: bool
) -> Removed:
    """Return the largest beginning of an order that an inequality permits at an error, for every text."""
    in_order = parts[:, order]
    sums = np.abs(np.cumsum(in_order, 1)) if signed else np.cumsum(np.abs(in_order), 1)
    within = np.flatnonzero(sums.max(0) <= error)
    removed = np.zeros(parts.shape[1], bool)
    removed[order[: within[-1] + 1 if len(within) else 0]] = True
    return removed


def greedily(added: Callable[[Removed], float], order: Int[np.ndarray, "terms"], error: float, chunk: int) -> Removed:
    """Return a large set whose true error is within a stated one: of an order, each chunk goes that leaves it so."""
    removed = np.zeros(len(order), bool)
    for start in range(0, len(order), chunk):
        tried = removed.copy()
        tried[order[start : start + chunk]] = True
        if added(tried) <= error:
            removed = tried
    return removed


def measured(
    model: Transformer,
    texts: tuple[Int[np.ndarray, "texts length"], Measured],
    held_out: tuple[Int[np.ndarray, "others length"], Measured],
    removed: Removed,
    error: float,
) -> dict[str, float]:
    """Return how a set of neurons keeps a stated error, and how the error of Eq. 15, once measured, is kept."""
    (held, true), (held_elsewhere, true_elsewhere) = (
        (np.abs(of.parts[:, removed].sum(1)), np.abs(run_again(model, ids, removed) - of.value))
        for ids, of in (texts, held_out)
    )
    apart, constant = float(np.abs(true - held).max()), float(true.max())
    bound = apart + held_elsewhere
    return {
        "removed": float(removed.mean()),
        "within": float((true <= error).mean()),
        "within elsewhere, held": float((held_elsewhere <= error).mean()),
        "within elsewhere": float((true_elsewhere <= error).mean()),
        "share of error": float(np.median(true_elsewhere) / error),
        "sum": float(np.mean(held_elsewhere)),
        "true": float(np.mean(true_elsewhere)),
        "measured error": apart,
        "bound": float(np.mean(bound)),
        "covered": float((true_elsewhere <= bound).mean()),
        "constant": constant,
        "covered by constant": float((true_elsewhere <= constant).mean()),
    }


def choices(
    model: Transformer, ids: Int[np.ndarray, "texts length"], of: Measured, error: float, chunk: int, seed: int
) -> Iterator[tuple[str, Removed]]:
    """Yield the name of every way to choose neurons at a stated error, and which it removes."""
    sizes = by_size(of.parts)

    def added(removed: Removed) -> float:
        return float(np.abs(run_again(model, ids, removed) - of.value).max())

    chosen = {
        SIZES: permitted(of.parts, sizes, error, signed=False),
        SIGNED: permitted(of.parts, by_sum(of.parts), error, signed=True),
        AGAIN: greedily(added, sizes, error, chunk),
    }
    for name, removed in chosen.items():
        yield name, removed
    for name, removed in chosen.items():
        yield RANDOM + name, np.random.default_rng(seed).permutation(removed)


def of_draw(draws: Draws, draw: int, chunk: int, held_out: Measured) -> dict[str, dict[str, Any]]:
    """Return what is measured of every choice at every stated error, by error and choice."""
    ids = draws.ids(draw)
    of = parts_of(draws.model, ids)
    return {
        str(error): {
            name: measured(draws.model, (ids, of), (draws.held_out, held_out), removed, error)
            for name, removed in choices(draws.model, ids, of, error, chunk, draw)
        }
        for error in ERRORS
    }


def _tables(results: dict[str, Any], of_model: str = "") -> list[str]:
    def cell(error: str, name: str, key: str, percent: bool = False) -> str:
        numbers = [draw[error][name][key] for draw in results["draws"]]
        return interval([100 * number for number in numbers], 1) if percent else interval(numbers, 2)

    errors, names = (list(results["draws"][0]), list(results["draws"][0][str(ERRORS[0])]))
    shares = ("removed", "within", "within elsewhere, held", "within elsewhere")
    kept = [
        [error, name, *(cell(error, name, key, percent=True) for key in shares), cell(error, name, "share of error")]
        for error in errors
        for name in names
    ]
    bounds = [
        [
            error,
            name,
            *(cell(error, name, key) for key in ("sum", "true", "measured error", "bound")),
            cell(error, name, "covered", percent=True),
            cell(error, name, "constant"),
            cell(error, name, "covered by constant", percent=True),
        ]
        for error in errors
        for name in names
    ]
    return [
        f"### A stated error{of_model}",
        "",
        *table(
            [
                *("ε", "chosen by", "neurons removed, %", "within ε on calibration texts, %"),
                *("held on other texts, %", "within ε on other texts, %", "true error / ε"),
            ],
            kept,
        ),
        "",
        f"### A measured error{of_model}",
        "",
        *table(
            [
                *("ε", "chosen by", "sum of terms", "true error", "measured error", "bound", "covered, %"),
                *("constant bound", "covered by it, %"),
            ],
            bounds,
        ),
    ]


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages."""
    further = results.get("further", {})
    lines = [line for name, of in further.items() for line in ("", *_tables(of, f", {name}"))]
    text = "\n".join(_tables(results) + lines)
    spreads = {f"spread, {name}": f"{of['spread']:.2f}" for name, of in further.items()}
    return {"tables": text, "spread": f"{results['spread']:.2f}", **spreads, **cells(text)}


def of_model(draws: Draws, name: str, chunk: int, kept: dict[str, Any]) -> dict[str, Any]:
    """Return what is measured on a model; what is kept of the same texts isn't measured again."""
    asked = {"errors": ERRORS, "chunk": chunk, "texts": draws.texts, "held out": fingerprint(draws.held_out)}
    if kept.get("asked") == json.loads(json.dumps(asked)) and len(kept["draws"]) == len(draws.draws):
        return kept
    journal = Journal(WORK / name, asked)
    held_out = parts_of(draws.model, draws.held_out)
    found = [
        journal.once(f"draw {draw}", partial(of_draw, draws, draw, chunk, held_out))
        for draw in track(draws.draws, "Draws")
    ]
    return {"environment": environment(), "asked": asked, "spread": float(held_out.value.std()), "draws": found}


def main() -> None:
    """Measure the models that aren't kept, and store the results."""
    WORK.mkdir(parents=True, exist_ok=True)
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    further = results.pop("further", {})
    results = of_model(embedded(), "pruning_inequality.jsonl", CHUNK, results)
    name = f"pruning_inequality_{SMOLLM2}.jsonl"
    further[SMOLLM2] = of_model(smollm2_135m(), name, LARGER_CHUNK, further.get(SMOLLM2, {}))
    content = json.dumps(results | {"further": further}, ensure_ascii=False, allow_nan=False)
    RESULTS.write_text(content + "\n", encoding="utf-8")
