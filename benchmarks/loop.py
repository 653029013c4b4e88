"""Claim: a secant of a model whose layers are the steps of one loop compiles in half the time of layers written out.

Run `make install && python -m benchmarks.loop` on two quiet cores (three minutes).

SmolLM2-135M, of 30 layers, loaded both ways; one logit of a text at the last position, its complete table and the
secant with neurons. Every program is compiled once, and both ways run in turn in the same run. For a CPU, tracing is
most of what a table's compilation takes, and a loop doesn't shorten it.
"""

from pathlib import Path
from typing import Any, NamedTuple

import duat_jax as duat
from benchmarks import secant
from benchmarks.table import forward, run, smollm2, with_neurons
from duat_jax.models.layer_parts import scanned
from experiments.markdown import Fields, table

RESULTS = Path("benchmarks/results/loop.json")


class BothWays(NamedTuple):
    """A model with its layers written out, and the same with its layers in a loop."""

    written: duat.models.Transformer
    loop: duat.models.Transformer


def both_ways() -> BothWays:
    """Return SmolLM2-135M both ways."""
    model = smollm2()
    return BothWays(model, scanned(model))


QUESTIONS = {"forward": forward, "table": with_neurons, "secant": secant.with_neurons}

PROGRAMS = {
    f"{name}{way}": lambda models, ids, program=program, which=which: program(models[which], ids)
    for name, program in QUESTIONS.items()
    for which, way in enumerate(("", ", loop"))
}


def beside_written_out(measured: dict[str, Any], name: str) -> str:
    """Return a program's memory beside that of layers written out.

    Args:
        measured: of every program.
        name: the program.
    """
    mine, other = (measured[which]["temporary_mb"] for which in (name, name.removesuffix(", loop")))
    return f"temporaries {mine:.0f} MB beside {other:.0f} MB"


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: the kept results.
    """
    rows = []
    for case, measured in results.items():
        if not isinstance(measured, dict) or "forward" not in measured:
            continue
        for name in QUESTIONS:
            written, loop = measured[name], measured[f"{name}, loop"]
            pairs = [("compile_s", "{:.1f} s"), ("median_s", "{:.3f} s"), ("temporary_mb", "{:.0f} MB")]
            numbers = [form.format(each[what]) for what, form in pairs for each in (written, loop)]
            rows.append([case.partition(", ")[2], name, *numbers])
    head = ["", "program", "compiled", "in a loop", "run", "in a loop", "temporaries", "in a loop"]
    return {"table": "\n".join(table(head, rows))}


if __name__ == "__main__":
    run(__doc__, RESULTS, [("SmolLM2-135M", both_ways, (64, 256))], PROGRAMS, beside_written_out)
