"""Claim: the secant finds the units that carry a task at least as well as integrated gradients with ten steps.

Run `python -m experiments circuits`; it writes experiments/results/circuits.json and the tables in
docs/findings/circuits.md and
README.md.  A study that the JSON has as it is defined here isn't run again, nor a task that a killed run has finished.
"""

import argparse
import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import duat_jax as duat
from duat_jax.cli.progress import progress_bar
from duat_jax.evaluation.circuit_curve import FRACTIONS, Curve
from duat_jax.evaluation.circuit_study import study
from duat_jax.evaluation.circuits import METHODS
from duat_jax.evaluation.comparison import as_dict, compare
from duat_jax.evaluation.journal import Journal
from duat_jax.evaluation.statistics import IntervalEstimate
from experiments import smollm2
from experiments.environment import environment
from experiments.markdown import Fields, cells, table

RESULTS, WORK = Path("experiments/results/circuits.json"), Path("experiments/results/work")
NEURONS = ("neuron x position",)
RIVALS = (
    "secant",
    "secant, two half-steps",
    "secant, patterns held",
    "collapse x change",
    "integrated gradients, 10 steps",
    "gradient x change",
)


SHOWN = (
    *("secant", "collapse x change", "gradient x change", "integrated gradients, 10 steps", "contributions x change"),
    *("contributions", "random"),
)
"""Of the first study, what the README shows."""


class Settings(NamedTuple):
    """Settings of one study.

    Args:
        model: which model.
        tasks: names of tasks.
        methods: names of methods.
        units: names of kinds of units.
        prompts: how many of each task.
    """

    model: str
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    units: tuple[str, ...]
    prompts: int


SMOLLM2, EMBEDDED = "SmolLM2-135M-Instruct", "The embedded model"
OF_LANGUAGE = "indirect object", "agreement", "capital", "language", "greater than", "pronoun"
PAIR = ("secant", "integrated gradients, 10 steps")
OF_TEXTS = tuple(method for method in METHODS if "over masks" not in method)
"""The methods that move from text to text; those over masks have a study of their own."""
STUDIES = {
    "Every method": Settings(SMOLLM2, OF_LANGUAGE, OF_TEXTS, NEURONS, 30),
    "A hundred prompts": Settings(SMOLLM2, OF_LANGUAGE, PAIR, NEURONS, 100),
    "Other units": Settings(SMOLLM2, ("agreement",), RIVALS, ("neuron", "head x position", "layer x token"), 30),
    "A code task": Settings(EMBEDDED, ("parameter",), OF_TEXTS, (*NEURONS, "head x position"), 100),
}
ALL_TASKS = "A hundred prompts", "A code task"
"""The studies that have every task between them, as many prompts of each, and both methods of `PAIR`."""
DIGITS = 5
"""Of what the model says after each prompt."""


def _piece(model: duat.models.Transformer, tokenizer: Any, settings: Settings, task: str) -> dict[str, Any]:
    """Return the results on one task: its prompts, and the measurements of each kind of units and method."""
    began = time.perf_counter()
    bar = partial(progress_bar, unit="methods on prompts")
    result = study(model, [task], settings.methods, settings.units, prompts=settings.prompts, progress=bar)
    drawn = result.drawn[task]
    curves = {
        kind: {method: [np.round(part, DIGITS).tolist() for part in curve] for method, curve in of_methods.items()}
        for kind, of_methods in result.curves[task].items()
    }
    sizes = {"prompts": len(drawn.cases), "read": drawn.read, "tokens": drawn.prompts.clean.shape[1]}
    example = drawn.cases[0]._asdict()
    return {**sizes, "example": example, "seconds": time.perf_counter() - began, "curves": curves}


def _measure(name: str, settings: Settings) -> dict[str, Any]:
    """Run a study; tasks that are finished in the journal aren't run again."""
    path = smollm2.path() if settings.model == SMOLLM2 else None
    model, tokenizer = duat.load(path), duat.load_tokenizer(path)
    WORK.mkdir(parents=True, exist_ok=True)
    journal = Journal(WORK / f"circuits {name}", {"asked": settings._asdict()})
    tasks = {task: journal.once(task, partial(_piece, model, tokenizer, settings, task)) for task in settings.tasks}
    seconds = sum(task["seconds"] for task in tasks.values())
    return {"asked": _plain(settings), "seconds": seconds, "fractions": FRACTIONS, "tasks": tasks}


def _curves(task: dict[str, Any], kind: str) -> dict[str, Curve]:
    return {method: Curve(*map(np.array, parts)) for method, parts in task["curves"][kind].items()}


def _compared(result: dict[str, Any]) -> dict[str, Any]:
    """Return a study with its tables: one for every task, and the mean over tasks."""
    tasks, kinds = result["tasks"], result["asked"]["units"]
    by_task = {
        name: task | {"units": {kind: as_dict(compare([_curves(task, kind)])) for kind in kinds}}
        for name, task in tasks.items()
    }
    mean = {kind: as_dict(compare([_curves(task, kind) for task in tasks.values()])) for kind in kinds}
    return result | {"tasks": by_task, "mean": mean}


def _over_all_tasks(studies: dict[str, Any]) -> dict[str, Any]:
    """Return two methods' statistics over the tasks of several studies, if all of these are complete."""
    complete = [studies.get(name, {}).get("asked") == _plain(STUDIES[name]) for name in ALL_TASKS]
    if not all(complete):
        return {}
    curves = [_curves(task, NEURONS[0]) for name in ALL_TASKS for task in studies[name]["tasks"].values()]
    return as_dict(compare([{method: of_methods[method] for method in PAIR} for of_methods in curves]))


def _plain(settings: Settings) -> dict[str, Any]:
    return json.loads(json.dumps(settings._asdict()))


def _number(measured: dict[str, float]) -> str:
    return IntervalEstimate(**measured).written()


def _ahead(measured: dict[str, float]) -> str:
    return IntervalEstimate(**measured).written(sign="+")


def _table(result: dict[str, Any], units: str) -> list[str]:
    """Return the table of all methods: logf of each task, and the means over tasks."""
    tasks, mean = result["tasks"], result["mean"][units]
    over = ["mean"] if len(tasks) > 1 else []
    head = ["method", *(f"logf, {task}" for task in tasks), *over, "CPR", "CMD", "removed", "the first is ahead by"]
    rows = []
    for i, (method, row) in enumerate(mean.items()):
        cells = [method, *(_number(task["units"][units][method]["logf"]) for task in tasks.values())]
        cells += [_number(row["logf"])] if over else []
        cells += [f"{row[name]['value']:.3f}" for name in ("CPR", "CMD", "removed")]
        rows.append([*cells, _ahead(row["first_ahead"]) if i else ""])
    return table(head, rows)


def _in_words(mean: dict[str, Any]) -> str:
    """Describe which methods the first one is ahead of, behind, or not distinguishable from."""
    first, *rest = mean
    verdicts: dict[str, list[str]] = {"is ahead of": [], "is behind": [], "can't be told apart from": []}
    for method in rest:
        low, high = (mean[method]["first_ahead"][bound] for bound in ("low", "high"))
        verdicts["is ahead of" if low > 0 else "is behind" if high < 0 else "can't be told apart from"].append(
            f"*{method}*"
        )
    return (
        f"*{first}* "
        + "; it ".join(f"{verdict} {', '.join(methods)}" for verdict, methods in verdicts.items() if methods)
        + "."
    )


def _page(results: dict[str, Any]) -> str:
    lines = []
    for name, result in results["studies"].items():
        settings = result["asked"]
        read = ", ".join(f"{task} {drawn['prompts']} of {drawn['read']}" for task, drawn in result["tasks"].items())
        lines += [f"### {name}", ""]
        for units in settings["units"]:
            lines += [
                f"{settings['model']}, {units}. {_in_words(result['mean'][units])}",
                "",
                *_table(result, units),
                "",
            ]
        lines += [f"Prompts that the model answers rightly: {read}.", ""]
    return "\n".join(lines)


def _of_all_tasks(results: dict[str, Any]) -> list[str]:
    """Return the table over the tasks of all studies together."""
    rows = [
        [
            method,
            _number(row["logf"]),
            *(f"{row[name]['value']:.3f}" for name in ("CPR", "CMD", "removed")),
            _ahead(row["first_ahead"]) if i else "",
        ]
        for i, (method, row) in enumerate(results["all tasks"].items())
    ]
    return table(["method", "logf, mean over seven tasks", "CPR", "CMD", "removed", "the first is ahead by"], rows)


def _by_task(results: dict[str, Any]) -> list[str]:
    """Return the table of what the first method is ahead by of the second, in each task with a hundred prompts."""
    rows = [
        [task, _ahead(next(iter(measured["units"].values()))[PAIR[1]]["first_ahead"])]
        for name in ALL_TASKS
        for task, measured in results["studies"][name]["tasks"].items()
    ]
    return table(["task", "ahead"], rows)


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages."""
    tables = _page(results)
    of_all = [
        *("### All seven tasks", "", "A hundred prompts of each, neuron x position.", "", *_of_all_tasks(results)),
        *("", "How far *secant* is ahead of *integrated gradients, 10 steps* in each:", "", *_by_task(results), ""),
    ]
    tables = "\n".join([*of_all, tables])
    return {"tables": tables, **cells(tables)}


def main(options: Sequence[str]) -> None:
    """Run missing studies, and store the results."""
    parser = argparse.ArgumentParser(
        prog="circuits", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--study", choices=STUDIES, action="append", help="only this one")
    arguments = parser.parse_args(options)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"environment": environment(), "studies": {}}
    for name in arguments.study or STUDIES:
        if results["studies"].get(name, {}).get("asked") != _plain(STUDIES[name]):
            results["studies"][name] = _compared(_measure(name, STUDIES[name]))
            results["studies"] = {n: results["studies"][n] for n in STUDIES if n in results["studies"]}
            results["all tasks"] = _over_all_tasks(results["studies"])
            RESULTS.write_text(json.dumps(results, allow_nan=False) + "\n")
