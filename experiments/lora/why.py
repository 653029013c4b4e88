"""Claim: adapters of few numbers do what fine-tuning of all parameters does (Wang & Li, Sections 1 and 4.4).

Run `python -m experiments lora_why`; it writes experiments/results/lora_why.json and the tables in
docs/findings/lora.md.  What
is measured is kept in experiments/results/work as it is finished: a run that was stopped goes on.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import duat_jax as duat
from duat_jax.evaluation.journal import Journal, fingerprint
from duat_jax.evaluation.running_text import stream, windows
from duat_jax.lora.parameters import moved_between
from duat_jax.models.transformer import Transformer
from experiments.kept_results import store
from experiments.lora import anatomy, tuning
from experiments.lora.agreement import Means, agreements, means_of, shuffled
from experiments.lora.tuning import EVERYTHING, IN_MLPS, LENGTH, MATRICES, METHODS, RANKS, TASKS, TESTED, Task
from experiments.lora.why_report import numbers
from experiments.markdown import Fields
from experiments.texts import held_out_sources

WORK = Path("experiments/results/work")
TUNING_SEED, SEEDS = 0, (1, 2, 3)
LADDERS, MOVED = 24, 3
"""Test texts on which losses are measured with parts of the change held, and on which the parameters are compared."""
DIGITS = 5
UNITS = "matrices", "heads", "neurons"
OF_RANK_16 = "rank 16"

Found = dict[str, Any]
"""Measurements, as plain data."""


def _rounded(values: Any) -> list:
    return np.round(np.asarray(values, float), DIGITS).tolist()


class Case:
    """The base model, one task, original text, and what is measured already.

    Args:
        model: the base model.
        task: the task's texts.
        original: texts of the kind that the base was trained on, which it hasn't seen.
        journal: finished results.
        ledgers: the folder and the beginning of the names of files with ledgers.
        methods: the ways to fine-tune.
    """

    def __init__(
        self,
        model: Transformer,
        task: Task,
        original: np.ndarray,
        journal: Journal,
        ledgers: Path,
        methods: dict[str, tuning.Method] = METHODS,
    ) -> None:
        self.model, self.task, self.original, self.journal, self.methods = model, task, original, journal, methods
        self.counted = jnp.asarray(task.counted)
        self._ledgers = ledgers

    def losses(self, model: Transformer, ids: np.ndarray) -> list[float]:
        """Return the loss of every text of the task."""
        return _rounded(tuning.text_losses(model, jnp.asarray(ids), self.counted))

    def forgotten(self, model: Transformer) -> list[float]:
        """Return the loss of every original text."""
        return _rounded(tuning.text_losses(model, jnp.asarray(self.original), jnp.ones(self.original.shape[1] - 1)))

    def accuracies(self, model: Transformer, ids: np.ndarray) -> list[float]:
        """Return the share of right answers of every text."""
        return _rounded(tuning.text_accuracies(model, jnp.asarray(ids), self.counted))

    def tried(self, name: str) -> list[Found]:
        """Return the validation losses of a method with each of its learning rates."""
        return [self.journal.once(f"{name}, rate {rate}", partial(self._try, name, rate)) for rate in self._rates(name)]

    def rate(self, name: str) -> float:
        """Return a method's learning rate of the lowest validation loss."""
        return min(self.tried(name), key=lambda found: found["loss"])["rate"]

    def lower(self, name: str) -> float | None:
        """Return the learning rate before a method's best one, if there is one."""
        rates = self._rates(name)
        at = rates.index(self.rate(name))
        return rates[at - 1] if at else None

    def between(self, name: str) -> list[float]:
        """Return two learning rates between a method's best one and the one before, in equal ratios."""
        lower, best = self.lower(name), self.rate(name)
        return [] if lower is None else [float(f"{lower * (best / lower) ** (i / 3):.2g}") for i in (1, 2)]

    def trained(self, name: str, rate: float, seed: int) -> Found:
        """Return everything that is measured on a trained model."""
        return self.journal.once(f"{name}, rate {rate}, seed {seed}", partial(self._measure, name, rate, seed))

    def ledgers(self, name: str, units: str, rate: float | None = None) -> dict[int, Means]:
        """Return the ledgers of all seeds, as means over texts and without each, at the best rate or another one."""
        found = {}
        for seed in SEEDS:
            with np.load(self._file(name, rate or self.rate(name), seed)) as file:
                found[seed] = means_of(file[units])
        return found

    def _rates(self, name: str) -> tuple[float, ...]:
        return self.methods[name].rates

    def _file(self, name: str, rate: float, seed: int) -> Path:
        return self._ledgers.with_name(
            f"{self._ledgers.name}-{name.replace(' ', '-').replace(',', '')}-{rate}-{seed}.npz"
        )

    def _train(self, name: str, rate: float, seed: int) -> Transformer:
        return tuning.train(self.model, self.task, self.methods[name], rate, seed)

    def _try(self, name: str, rate: float) -> Found:
        tuned = self._train(name, rate, TUNING_SEED)
        loss = float(np.mean(self.losses(tuned, self.task.validation)))
        return {
            "rate": rate,
            "loss": round(loss, DIGITS),
            "original": round(float(np.mean(self.forgotten(tuned))), DIGITS),
        }

    def _measure(self, name: str, rate: float, seed: int) -> Found:
        tuned, test = self._train(name, rate, seed), self.task.test
        found: Found = {
            "seed": seed,
            "loss": self.losses(tuned, test),
            "original": self.forgotten(tuned),
            "accuracy": self.accuracies(tuned, test),
        }
        ledger = anatomy.ledger(self.model, tuned, jnp.asarray(test), self.counted)
        of_units: Any = {units: np.asarray(getattr(ledger, units)) for units in UNITS}
        np.savez(self._file(name, rate, seed), **of_units)
        if rate != self.rate(name):
            return found
        layers = self.model.config.layers
        by_matrix = np.asarray(ledger.matrices, float).reshape(len(test), layers, -1)
        found |= {
            "by kind": _rounded(np.concatenate([by_matrix.sum(1), np.asarray(ledger.others, float)], 1)),
            "by layer": _rounded(by_matrix.sum(2)),
            "ledger error": float(jnp.abs(ledger.error).max()),
            "ledger holds": int(ledger.holds.sum()),
            "ranks": [
                {key: round(of, DIGITS) for key, of in each.items()} for each in anatomy.ranks_of(self.model, tuned)
            ],
            "ladder": {
                key: _rounded(losses)
                for key, losses in anatomy.ladder(self.model, tuned, jnp.asarray(test[:LADDERS]), self.counted)
                ._asdict()
                .items()
            },
        }
        if name == MATRICES:
            found["cut"] = anatomy.truncations(self.model, tuned, test, self.counted)
        if name in (IN_MLPS, OF_RANK_16, MATRICES):
            found["moved"] = [moved(self.model, tuned, text[:-1]) for text in test[:MOVED]]
        return found


def moved(base: Transformer, tuned: Transformer, ids: np.ndarray) -> dict[str, float]:
    """Return how far each parameter of the closed form moved, relative to its size, mean over the layers."""
    # The first layer is left out: nothing before it can move.
    by_parameter = moved_between(base, tuned, ids)

    def mean(values: Iterable[Any]) -> float:
        numbers = [float(value.value) if hasattr(value, "standard_error") else float(value) for value in values]
        return round(float(np.mean(numbers)), DIGITS)

    return {
        "W'₁": mean(list(by_parameter.input_maps.values())[2:]),
        "b'₃": mean(list(by_parameter.biases.values())[2:]),
        "W'₂": mean(list(by_parameter.inner_maps.values())[1:]),
        "b'₂": mean(list(by_parameter.inner_biases.values())[1:]),
        "W'₃": mean(list(by_parameter.outer_maps.values())[1:]),
    }


def measure(case: Case, other: Callable[[], Case] | None) -> Found:
    """Return everything that is measured on a task."""
    base = {
        "loss": case.losses(case.model, case.task.test),
        "original": case.forgotten(case.model),
        "accuracy": case.accuracies(case.model, case.task.test),
    }
    found: Found = {"base": base, "methods": {}}
    for name, method in case.methods.items():
        lower = case.lower(name) if name in (MATRICES, EVERYTHING) else None
        found["methods"][name] = {
            "numbers": tuning.trained_numbers(tuning.initial(case.model, method, 0)),
            "rate": case.rate(name),
            "tried": case.tried(name),
            "seeds": [case.trained(name, case.rate(name), seed) for seed in SEEDS],
            "lower": [] if lower is None else [case.trained(name, lower, seed) for seed in SEEDS],
            "between": [
                [case.trained(name, rate, seed) for seed in SEEDS]
                for rate in (case.between(name) if name == EVERYTHING else [])
            ],
        }
    found["agreement"] = {
        units: {
            compared: case.journal.once(f"agreement of {units}, {compared}", partial(agreements, pairs))
            for compared, pairs in _compared(case, other, units)
        }
        for units in UNITS
    }
    return found


def _compared(
    case: Case, other: Callable[[], Case] | None, units: str
) -> Iterator[tuple[str, list[tuple[Means, Means]]]]:
    """Yield pairs of ledgers, all but those named so with full fine-tuning of the same matrices by another seed."""
    full = case.ledgers(MATRICES, units)
    layers, lower = case.model.config.layers, case.lower(MATRICES)

    def across(of: dict[int, Means], other: dict[int, Means]) -> list[tuple[Means, Means]]:
        return [(of[seed], other[another]) for seed in SEEDS for another in SEEDS if another != seed]

    with_full = partial(across, other=full)
    for name in (MATRICES, EVERYTHING, *RANKS):
        yield name, with_full(case.ledgers(name, units))
    of_rank_16 = case.ledgers(OF_RANK_16, units)
    yield f"{OF_RANK_16}, with itself (added afterwards)", across(of_rank_16, of_rank_16)
    if lower is not None:
        yield f"{MATRICES}, a lower rate", with_full(case.ledgers(MATRICES, units, lower))
    if other is not None:
        elsewhere = other().ledgers(MATRICES, units)
        yield f"{MATRICES}, on the other task", [(one, of) for one in elsewhere.values() for of in full.values()]
    step = anatomy.first_step(case.model, jnp.asarray(case.task.train[:64]), case.counted)[units]
    yield "first step of Adam, no training", [(np.tile(step, (len(of), 1)), of) for of in full.values()]
    mixed = {seed: shuffled(of, layers) for seed, of in of_rank_16.items()}
    yield f"{OF_RANK_16}, shuffled within layers", with_full(mixed)


def cases() -> dict[str, Case]:
    """Return both tasks with the embedded model and what their journals have."""
    WORK.mkdir(parents=True, exist_ok=True)
    model, tokenizer = duat.load(), duat.load_tokenizer()
    original = windows(stream(tokenizer, held_out_sources()), TESTED, LENGTH, seed=0)
    settings = {
        "methods": {name: method._asdict() for name, method in METHODS.items()},
        "steps": tuning.STEPS,
        "batch": tuning.BATCH,
        "alpha": tuning.ALPHA,
    }
    found = {}
    for name, make in TASKS.items():
        task, stem = make(tokenizer), f"lora_why-{name.replace(' ', '-')}"
        work = {**settings, "texts": fingerprint((task, original)), "model": fingerprint(model, model.config)}
        found[name] = Case(model, task, original, Journal(WORK / f"{stem}.jsonl", work), WORK / stem)
    return found


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation page."""
    return numbers(results["tasks"]) if results else {}


def main() -> None:
    """Run what isn't measured yet, and store the results."""
    both = cases()
    for case in both.values():
        for name in case.methods:
            for seed in SEEDS:
                case.trained(name, case.rate(name), seed)
    names = list(both)
    tasks = {name: measure(both[name], partial(both.__getitem__, names[1 - i])) for i, name in enumerate(names)}
    store("lora_why", {"steps": tuning.STEPS, "tasks": tasks})
