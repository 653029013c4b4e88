"""Does a collapse rank neurons better with half of each factor of a gated neuron than with either alone?

A gated neuron is a product of two factors, and the collapse may flow through either: "gate" lets the slope of the
activation flow and holds the other factor, "factor" the other way round, "halves" lets half of each flow. The parts
sum to the value under each rule. Neurons of SmolLM2-135M at every token are ranked by coefficient times change as in
the study "circuits", with 30 prompts of each of three tasks; the share of the effect that a circuit keeps is averaged
over the logarithm of its size (logf). Nothing was stated beforehand; intervals are over tasks.
"""

from functools import partial

import numpy as np
import pandas as pd

import duat_jax as duat
from duat_jax.attribution.units import collapse_times_change
from duat_jax.evaluation.circuit_curve import STATISTICS, faithfulness
from duat_jax.evaluation.circuits import measure as curves_of
from duat_jax.evaluation.circuits import on_prompts
from duat_jax.inputs.prompts import draw
from duat_jax.models.transformer import Transformer
from experiments.estimate import Estimate, estimate
from experiments.smollm2 import path
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table
from experiments.verdict import above, together

RULES = HALVES, GATE, FACTOR = "halves", "gate", "factor"
TASKS = ("indirect object", "agreement", "capital")
UNITS, PROMPTS = "neuron x position", 30


def rows_on_task(model: Transformer, task: str) -> list[Row]:
    """Return the curve and its statistics for every gate rule."""
    methods = {rule: on_prompts(collapse_times_change(rule)) for rule in RULES}
    found = curves_of(model, draw(model, task, PROMPTS).prompts, methods, [UNITS])[UNITS]
    rows = []
    for rule, curve in found.items():
        kept = faithfulness(curve, curve.kept)
        statistics = {name: STATISTICS[name](kept, kept) for name in ("logf", "CPR", "CMD")}
        rows.append({"gate_rule": rule, "kept": kept, **statistics})
    return rows


def measure() -> Measurements:
    """Yield every task."""
    model = duat.load(path())
    for task in TASKS:
        yield Piece("circuits", {"task": task}, partial(rows_on_task, model, task))


def with_leads(circuits: pd.DataFrame) -> pd.DataFrame:
    """Return circuits with the lead of halves on the same task."""
    halves = circuits[circuits.gate_rule == HALVES].set_index("task").logf
    return circuits.assign(lead=circuits.task.map(halves) - circuits.logf)


def lead(rule: str) -> Measure:
    """Return the measure of the lead of halves over another rule."""

    def values(frames: Frames) -> np.ndarray:
        leads = with_leads(frames["circuits"])
        return leads[leads.gate_rule == rule].lead.to_numpy()

    return Measure(f"lead of halves over {rule}", values, 3, "+")


def _on_task(task: str, rows: pd.DataFrame) -> str:
    return f"{rows[rows.task == task].logf.iloc[0]:.3f}"


def _lead(rows: pd.DataFrame) -> Estimate | str:
    return "" if rows.gate_rule.iloc[0] == HALVES else estimate(rows.lead.to_numpy())


STUDY = Study(
    protocol=__doc__,
    page="circuits",
    claim="none: how a collapse of gated neurons is defined",
    unit="tasks",
    stated="after the run",
    predictions=(
        Prediction(
            "halves rank neurons better than either factor alone",
            "confirmed if both intervals over tasks are above zero",
            (lead(GATE), lead(FACTOR)),
            lambda gate, factor: together(above(gate), above(factor)),
        ),
    ),
    control=lead(FACTOR),
    headline="Circuits by a collapse through half of each factor of a gated neuron keep {outcome} more of the effect"
    " than by the gate alone, {control} more than by the other factor ({n} tasks).",
    against="On the indirect object the other factor alone keeps {Gate rules / factor / indirect object}, hardly less"
    " than halves ({Gate rules / halves / indirect object}).",
    limits="Three tasks of one model, neurons at tokens.",
    tables={
        "Gate rules": Table(
            "circuits",
            ("gate_rule",),
            {
                **{task: Cell(partial(_on_task, task)) for task in TASKS},
                "mean": Cell("logf"),
                "halves are ahead by": Cell(_lead, 3, "+"),
            },
            prepare=with_leads,
        )
    },
    measure=measure,
    settings={"prompts": PROMPTS},
)
