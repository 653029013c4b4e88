"""Claim: of what may carry the gated terms of a collapse, half of each factor ranks neurons best.

Run `python -m benchmarks.gauges [PROMPTS]`: SmolLM2's neurons at every token, ranked by coefficient times change as in
`duat circuit`, on three tasks. The table stands in docs/how-it-works.md.
"""

import json
import sys
from pathlib import Path

import duat_jax as duat
from benchmarks.environment import environment
from benchmarks.smollm2 import path
from duat_jax.analysis.attribution import slopes_times_change
from duat_jax.analysis.circuits import measure
from duat_jax.analysis.comparison import as_dict, compare, over_tasks
from duat_jax.analysis.prompts import draw

CARRIES = ("halves", "gate", "factor")
TASKS = ("indirect object", "agreement", "capital")
UNITS = "neuron x position"


def main(prompts: int) -> None:
    """Measure, print the means over log k, and write everything down.

    Args:
        prompts: how many of each task.
    """
    model, tokenizer = duat.load(path()), duat.load_tokenizer(path())
    methods = {carries: slopes_times_change(carries) for carries in CARRIES}
    found = {}
    for task in TASKS:
        drawn = draw(model, tokenizer, task, prompts)
        found[task] = compare(measure(model, drawn.prompts, methods, [UNITS])[UNITS])
    found["mean"] = over_tasks(found.values())
    for task, rows in found.items():
        for carries, row in rows.items():
            logf, (low, high) = row.numbers["logf"], row.ahead.interval
            ahead = f"halves ahead by {row.ahead.value:.3f} [{low:.3f}, {high:.3f}]"
            print(f"{task:16} {carries:7} {logf.value:.3f} ± {logf.standard_error:.3f}  {ahead}")
    result = {"environment": environment(), "prompts": prompts} | {task: as_dict(rows) for task, rows in found.items()}
    (Path(__file__).parent / "results" / "gauges.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
