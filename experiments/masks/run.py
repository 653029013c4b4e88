"""Question: do secants over masks find smaller circuits than other methods of the same cost, on tasks that are new?

Run `python -m experiments masks`; it writes experiments/results/masks.json and the tables in
docs/findings/circuits.md, whose
section on masks states beforehand what decides.  A task that a killed run has finished isn't run again.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from rich.progress import track

import duat_jax as duat
from duat_jax.attribution import units as of_texts
from duat_jax.attribution.masks import integrated_gradients, once, parts_of_secant, twice
from duat_jax.evaluation import circuit_curve
from duat_jax.evaluation.circuit_curve import Curve, faithfulness
from duat_jax.evaluation.circuits import UNITS, batches, on_prompts, run, scores_of, top, values
from duat_jax.evaluation.statistics import IntervalEstimate, students_mean
from duat_jax.inputs.batching import row
from duat_jax.inputs.prompts import differences, draw
from experiments import smollm2
from experiments.kept_results import journal_of, store
from experiments.markdown import Fields, cells, table

FIRST = "secant over masks, twice"
_RULES = {
    FIRST: (twice(parts_of_secant), 8),
    "secant over masks": (once(parts_of_secant), 5),
    "integrated gradients over masks, 2 steps": (once(partial(integrated_gradients, steps=2)), 7),
    "gradient at half masks, twice": (twice(partial(integrated_gradients, steps=1)), 7),
    "integrated gradients over masks, 10 steps": (once(partial(integrated_gradients, steps=10)), 31),
    **{
        name: (of_texts.METHODS[name].rule, passes)
        for name, passes in {
            "secant": 4,
            "gradient x change": 4,
            "integrated gradients, 2 steps": 8,
            "integrated gradients, 10 steps": 32,
        }.items()
    },
}
METHODS = {name: (on_prompts(rule), passes) for name, (rule, passes) in _RULES.items()}
"""The scores of each method, and its cost by counting, in forward passes, a gradient's way back being two."""
TASKS = ("opposite", "comparative", "successor", "repetition", "bracket", "tense", "property", "colour")
"""Tasks that nobody had seen a method's circuits of when the first method was chosen."""
PROMPTS, SEED = 100, 1
OF_OTHERS = 32
"""The number of prompts in the first two of the following tests."""
HELD = "another prompt's corrupted text", "reversed", "one circuit for other prompts"
"""The tests that no score is made for: units are set to their values on the next prompt's corrupted text; the corrupted
text is read, and the circuit's units set to their values on the clean one; the circuit of the mean scores of one half
of the prompts is kept on the other half."""
KIND = UNITS["neuron x position"]
DIGITS = 5

Runs = dict[str, dict[str, list[Any]]]


def _piece(model: duat.models.Transformer, tokenizer: Any, task: str, count: int) -> dict[str, Any]:
    """Return the logit differences of every method on one task."""
    # The scores of the first half of the prompts, averaged, make one circuit for all prompts of the second half.
    began = time.perf_counter()
    drawn = draw(model, task, count, seed=SEED)
    prompts, half = drawn.prompts, count // 2
    plain = [np.asarray(each, np.float64) for each in differences(model, prompts)]
    runs: Runs = {method: {"kept": [], **{test: [] for test in HELD}} for method in METHODS}
    sums: dict[str, Any] = dict.fromkeys(METHODS, 0.0)
    done = 0
    for batch in batches(prompts, mean=False):
        scores = {
            method: scores_of(scorer, model, batch.prompts, (KIND,))[0] for method, (scorer, _) in METHODS.items()
        }
        for i in range(batch.new):
            prompt = row(batch.prompts, i)
            replaced = values(model, prompt.corrupted, KIND)
            tests = {"kept": (prompt, replaced, False)}
            if done < OF_OTHERS:
                other = values(model, prompts.corrupted[(done + 1) % count], KIND)
                onto_corrupted = prompt._replace(clean=prompt.corrupted)
                tests |= {
                    HELD[0]: (prompt, other, False),
                    HELD[1]: (onto_corrupted, values(model, prompt.clean, KIND), True),
                }
            for method, of_method in scores.items():
                live = jnp.asarray(top(np.asarray(of_method[i])))
                for test, (text, given, restored) in tests.items():
                    found = run(model, text, KIND, live != restored, given)
                    runs[method][test].append(np.asarray(found, np.float64))
                if done < half:
                    sums[method] += np.asarray(of_method[i], np.float64)
            done += 1
    for method, total in sums.items():
        live = jnp.asarray(top(np.asarray(total)))
        for i in range(half, count):
            prompt = row(prompts, i)
            found = run(model, prompt, KIND, live, values(model, prompt.corrupted, KIND))
            runs[method][HELD[2]].append(np.asarray(found, np.float64))
    return {
        "prompts": count,
        "read": drawn.read,
        "tokens": prompts.clean.shape[1],
        "example": drawn.cases[0]._asdict(),
        "seconds": time.perf_counter() - began,
        "clean": np.round(plain[0], DIGITS).tolist(),
        "corrupted": np.round(plain[1], DIGITS).tolist(),
        "runs": {
            method: {test: np.round(found, DIGITS).tolist() for test, found in of_method.items()}
            for method, of_method in runs.items()
        },
    }


def _faithfulness(task: dict[str, Any], method: str, test: str) -> Float[np.ndarray, "fractions"]:
    """Return the faithfulness of a method's circuits of each size on one task."""
    measured = np.array(task["runs"][method][test])
    read = slice(-len(measured), None) if test == HELD[2] else slice(len(measured))
    clean, corrupted = (np.array(task[name])[read] for name in ("clean", "corrupted"))
    return faithfulness(Curve(clean, corrupted, measured, measured), measured)


def _over_sizes(f: Float[np.ndarray, "fractions"]) -> float:
    return float(circuit_curve.STATISTICS["logf"](f, f))


STATISTICS: dict[str, Callable[[np.ndarray], float]] = {
    "logf": _over_sizes,
    "without overshoot": lambda f: _over_sizes(1 - np.abs(1 - f)),
}
"""Statistics of a curve: the mean of `f` over log k, and of `1 − |1 − f|`, which counts what is beyond the model
against a circuit."""


def _of_method(tasks: dict[str, Any], method: str, test: str, statistic: str) -> np.ndarray:
    return np.array([STATISTICS[statistic](_faithfulness(task, method, test)) for task in tasks.values()])


def summary(tasks: dict[str, Any]) -> dict[str, Any]:
    """Return of each method its statistics over tasks in every test, and by how much the first method is ahead."""

    def of_test(method: str, test: str, statistic: str) -> dict[str, Any]:
        own, first = (_of_method(tasks, name, test, statistic) for name in (method, FIRST))
        return {"value": own.mean(), "by task": own.tolist(), "ahead": students_mean(first - own)._asdict()}

    return {
        method: {
            "passes": passes,
            "tests": {test: of_test(method, test, "logf") for test in ("kept", *HELD)},
            "without overshoot": of_test(method, "kept", "without overshoot"),
        }
        for method, (_, passes) in METHODS.items()
    }


def _row(method: str, found: dict[str, Any], tests: Sequence[dict[str, Any]]) -> list[str]:
    cells = [method, str(found["passes"])]
    for test in tests:
        ahead = "" if method == FIRST else f" ({IntervalEstimate(**test['ahead']).written(sign='+')})"
        cells.append(f"{test['value']:.3f}{ahead}")
    return cells


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages."""
    methods, tasks = results["methods"], results["tasks"]
    primary = [_row(name, of, [of["tests"]["kept"], of["without overshoot"]]) for name, of in methods.items()]
    held = [_row(name, of, [of["tests"][test] for test in HELD]) for name, of in methods.items()]
    by_task = [[name, *(f"{n:.3f}" for n in of["tests"]["kept"]["by task"])] for name, of in methods.items()]
    sizes = [[name, str(task["prompts"]), str(task["read"]), str(task["tokens"])] for name, task in tasks.items()]
    blocks = [
        *("#### New tasks", ""),
        *table(["method", "passes", "logf (the first is ahead by)", "overshoot counted against it"], primary),
        *("", "#### Other tests of the same scores", ""),
        *table(["method", "passes", *HELD], held),
        *("", "#### Each task", ""),
        *table(["method", *tasks], by_task),
        "",
        *table(["task", "prompts", "read for them", "tokens"], sizes),
    ]
    text = "\n".join(blocks)
    leads_of = [method for method in methods if method != FIRST]
    leads = {
        f"ahead of {method}, {test}": IntervalEstimate(**methods[method]["tests"][test]["ahead"]).written(sign="+")
        for method in leads_of
        for test in methods[method]["tests"]
    }
    first = _of_method(tasks, FIRST, "kept", "logf")
    together = {
        f"ahead of {method}, with the others": students_mean(
            first - _of_method(tasks, method, "kept", "logf"), len(methods) - 1
        ).written(sign="+")
        for method in leads_of
    }
    return {"tables": text, **leads, **together, **cells(text)}


def main() -> None:
    """Run the tasks that aren't kept, and store the results."""
    model, tokenizer = duat.load(smollm2.path()), duat.load_tokenizer(smollm2.path())
    asked = {"methods": list(METHODS), "prompts": PROMPTS, "seed": SEED, "fractions": circuit_curve.FRACTIONS}
    journal = journal_of("masks", {"asked": asked})
    tasks = {
        task: journal.once(task, partial(_piece, model, tokenizer, task, PROMPTS)) for task in track(TASKS, "Tasks")
    }
    results = {"asked": asked, "methods": summary(tasks), "tasks": tasks}
    store("masks", results)
