"""Claim: the secant finds the units that carry a task at least as well as integrated gradients with ten steps.

Run `make circuits`; it writes benchmarks/results/circuits.json and the tables in docs/circuits.md and README.md.  A
study that the JSON has already isn't run again: remove the file to measure anew.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import duat_jax as duat
from benchmarks import smollm2
from benchmarks.environment import environment
from benchmarks.page import Fields, write_pages
from duat_jax.analysis.attribution import METHODS
from duat_jax.analysis.study import study
from duat_jax.cli.compiled import keep_compiled
from duat_jax.cli.progress import progress_bar

RESULTS = Path("benchmarks/results/circuits.json")
NEURONS = ("neuron x position",)
RIVALS = (
    "secant",
    "secant, two half-steps",
    "secant, patterns held",
    "half rule",
    "integrated gradients, 10 steps",
    "gradient x change",
)


SHOWN = (
    *("secant", "half rule", "gradient x change", "integrated gradients, 10 steps", "contributions x change"),
    *("contributions", "random"),
)
"""Of the first study, what the README shows."""


class Asked(NamedTuple):
    """One study.

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
OF_LANGUAGE = ("indirect object", "agreement", "capital", "language")
STUDIES = {
    "Every method": Asked(SMOLLM2, ("indirect object", "agreement", "capital"), tuple(METHODS), NEURONS, 30),
    "A hundred prompts": Asked(SMOLLM2, OF_LANGUAGE, ("secant", "integrated gradients, 10 steps"), NEURONS, 100),
    "Other units": Asked(SMOLLM2, ("agreement",), RIVALS, ("neuron", "head x position", "layer x token"), 30),
    "A code task": Asked(EMBEDDED, ("parameter",), tuple(METHODS), (*NEURONS, "head x position"), 100),
}


def _measure(asked: Asked) -> dict[str, Any]:
    path = smollm2.path() if asked.model == SMOLLM2 else None
    model, tokenizer = duat.load(path), duat.load_tokenizer(path)
    began = time.perf_counter()
    found = study(
        model,
        tokenizer,
        asked.tasks,
        asked.methods,
        asked.units,
        prompts=asked.prompts,
        progress=lambda task: progress_bar(task, "methods on prompts"),
    )
    return {"asked": asked._asdict(), "seconds": time.perf_counter() - began, **found.as_dict()}


def _number(measured: dict[str, Any]) -> str:
    return f"{measured['value']:.3f} ± {measured['standard_error']:.3f}"


def _ahead(measured: dict[str, Any]) -> str:
    return f"{measured['value']:+.3f} [{measured['interval'][0]:+.3f}, {measured['interval'][1]:+.3f}]"


def _table(result: dict[str, Any], units: str) -> list[str]:
    """Return the rows of all methods: logf of each task, and the means over tasks."""
    tasks, mean = result["tasks"], result["mean"][units]
    over = ["mean"] if len(tasks) > 1 else []
    head = ["method", *(f"logf, {task}" for task in tasks), *over, "CPR", "CMD", "removed", "the first is ahead by"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for i, (method, row) in enumerate(mean.items()):
        cells = [method, *(_number(task["units"][units][method]["logf"]) for task in tasks.values())]
        cells += [_number(row["logf"])] if over else []
        cells += [f"{row[name]['value']:.3f}" for name in ("CPR", "CMD", "removed")]
        lines.append(f"| {' | '.join([*cells, _ahead(row['first_ahead']) if i else ''])} |")
    return lines


def _in_words(mean: dict[str, Any]) -> str:
    """Return which methods the first one is ahead of, which are ahead of it, and which can't be told apart."""
    first, *others = mean
    said: dict[str, list[str]] = {"is ahead of": [], "is behind": [], "can't be told apart from": []}
    for method in others:
        low, high = mean[method]["first_ahead"]["interval"]
        said["is ahead of" if low > 0 else "is behind" if high < 0 else "can't be told apart from"].append(
            f"*{method}*"
        )
    return f"*{first}* " + "; it ".join(f"{how} {', '.join(of)}" for how, of in said.items() if of) + "."


def _page(results: dict[str, Any]) -> str:
    lines = []
    for name, result in results["studies"].items():
        asked = result["asked"]
        read = ", ".join(f"{task} {found['prompts']} of {found['read']}" for task, found in result["tasks"].items())
        lines += [f"### {name}", ""]
        for units in asked["units"]:
            lines += [f"{asked['model']}, {units}. {_in_words(result['mean'][units])}", "", *_table(result, units), ""]
        lines += [f"Prompts that the model answers rightly: {read}. {result['seconds'] / 60:.0f} minutes.", ""]
    return "\n".join(lines)


def _short(results: dict[str, Any]) -> str:
    """Return the first study's means over tasks."""
    mean = results["studies"]["Every method"]["mean"][NEURONS[0]]
    lines = ["| ranked by | mean faithfulness over log k | the secant is ahead by |", "|---|---|---|"]
    lines += [
        f"| {method} | {_number(row['logf'])} | {_ahead(row['first_ahead']) if i else ''} |"
        for i, (method, row) in enumerate(mean.items())
        if method in SHOWN
    ]
    return "\n".join(lines) + "\n"


def fields(results: dict[str, Any]) -> Fields:
    """Return what the pages show of the results.

    Args:
        results: what was kept.
    """
    return {"tables": _page(results), "short table": _short(results)}


def main() -> None:
    """Run the studies that are missing, keep the results, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", choices=STUDIES, action="append", help="only this one")
    arguments = parser.parse_args()
    keep_compiled()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"environment": environment(), "studies": {}}
    for name in arguments.study or STUDIES:
        if name not in results["studies"]:
            results["studies"][name] = _measure(STUDIES[name])
            results["studies"] = {n: results["studies"][n] for n in STUDIES if n in results["studies"]}
            RESULTS.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")
    write_pages()


if __name__ == "__main__":
    main()
