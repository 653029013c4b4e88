"""Claim: among the gauges of gated terms in a collapse, half of each factor ranks neurons best.

Run `python -m experiments gauges [PROMPTS]`: SmolLM2's neurons at every token, ranked by coefficient times change
as in `duat circuit`, on three tasks. The table stands in docs/findings/tables/gate-rules.md.
"""

from collections.abc import Sequence
from typing import Any

import duat_jax as duat
from duat_jax.attribution.units import collapse_times_change
from duat_jax.evaluation.circuits import measure, on_prompts
from duat_jax.evaluation.comparison import as_dict, compare
from duat_jax.evaluation.statistics import IntervalEstimate
from duat_jax.inputs.prompts import draw
from experiments.kept_results import store
from experiments.markdown import Fields, table
from experiments.smollm2 import path

GATE_RULES = ("halves", "gate", "factor")
TASKS = ("indirect object", "agreement", "capital")
UNITS = "neuron x position"


def main(options: Sequence[str]) -> None:
    """Run all measurements, print the means over log k, and store the results."""
    prompts = int(options[0]) if options else 30
    model = duat.load(path())
    methods = {gate_rule: on_prompts(collapse_times_change(gate_rule)) for gate_rule in GATE_RULES}
    curves = {}
    for task in TASKS:
        drawn = draw(model, task, prompts)
        curves[task] = measure(model, drawn.prompts, methods, [UNITS])[UNITS]
    tables = {task: compare([of_methods]) for task, of_methods in curves.items()}
    tables["mean"] = compare(list(curves.values()))
    for task, rows in tables.items():
        for gate_rule, row in rows.items():
            print(f"{task:16} {gate_rule:7} {row.numbers['logf'].written()}  halves ahead by {row.ahead.written()}")
    store("gauges", {"prompts": prompts} | {task: as_dict(rows) for task, rows in tables.items()})


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages."""
    head = ["gate rule", *TASKS, "mean", "halves ahead by, paired"]
    rows = []
    for gate_rule in GATE_RULES:
        numbers = [IntervalEstimate(**results[task][gate_rule]["logf"]).written() for task in (*TASKS, "mean")]
        ahead = (
            IntervalEstimate(**results["mean"][gate_rule]["first_ahead"]).written()
            if gate_rule != GATE_RULES[0]
            else ""
        )
        rows.append([gate_rule, *numbers, ahead])
    return {"table": "\n".join(table(head, rows))}
