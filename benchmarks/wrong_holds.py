"""Claim: no answer of a million whose verdict is "holds" is further from an independent evaluation than it says.

Run `python -m benchmarks.wrong_holds` (half an hour of processor time); with `--cases 5000` it is a minute, and nothing
is kept. Whatever differs by `--seed` is drawn from it.

Four kinds of cases are drawn. *Programs*: operations in four dtypes, each decomposed, collapsed and contrasted at a
batch of inputs, beside the same program in NumPy in extended precision. *Models*: checkpoints of random configurations,
explained and contrasted for random texts, beside their forward pass in NumPy. *Files*: the same with some bytes changed
or cut off. *Results*: kept explanations, changed so, or edited with a right digest. A case is one answer or refusal.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)  # before the programs' constants are made

from experiments.environment import environment  # noqa: E402
from experiments.markdown import Fields, table  # noqa: E402
from fuzzing import model_cases, program_cases  # noqa: E402
from fuzzing.verdicts import ROUNDED, VERDICTS, Tally  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "wrong_holds.json"
CASES = 1_000_000
BATCH = 800
"""The number of inputs of a program."""
FORGOTTEN = 20
"""The number of programs after which compiled ones are forgotten; none is needed again."""
OF_PROGRAMS = 0.9
"""The part of the cases that are programs."""


def counted(cases: int, seed: int = 0, batch: int = BATCH, sizes: model_cases.Sizes | None = None) -> dict[str, Tally]:
    """Ask as many cases as are wanted, or a few more, and return their counts by kind.

    Args:
        cases: their number.
        seed: what decides.
        batch: the number of inputs of a program.
        sizes: how much is asked of one checkpoint.
    """
    tallies = {name: Tally() for name in ("programs", *model_cases.KINDS)}
    number = seed * CASES
    while tallies["programs"].cases < OF_PROGRAMS * cases:
        program_cases.ask(number, tallies["programs"], batch)
        number += 1
        if number % FORGOTTEN == 0:
            jax.clear_caches()
    while sum(tally.cases for tally in tallies.values()) < cases:
        model_cases.ask(number, tallies, sizes or model_cases.Sizes())
        number += 1
    return tallies


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: the kept results.
    """
    counts: dict[str, dict[str, int]] = results["counts"]
    columns = (*VERDICTS, ROUNDED, "wrong")
    rows = [[name, *(f"{of[column]:,}" for column in ("cases", *columns))] for name, of in counts.items()]
    return {
        "cases": f"{sum(of['cases'] for of in counts.values()):,}",
        "wrong": str(sum(of["wrong"] for of in counts.values())),
        "minutes": f"{results['processor_s'] / 60:.0f}",
        "table": "\n".join(table(["", "cases", *columns], rows)),
    }


def main() -> None:
    """Ask the cases, print the counts and every wrong hold, and keep the counts of a whole run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    jax.config.update("jax_disable_most_optimizations", True)  # most of the time is the compiler's
    warnings.simplefilter("ignore")
    began = time.process_time()
    tallies = counted(arguments.cases, arguments.seed)
    counts = {
        name: {"cases": tally.cases, **tally.counts, "wrong": len(tally.wrong)} for name, tally in tallies.items()
    }
    results = {
        "environment": environment(),
        "seed": arguments.seed,
        "processor_s": round(time.process_time() - began),
        "counts": counts,
    }
    print(fields(results)["table"])
    for tally in tallies.values():
        print(*tally.wrong, sep="\n")
    if arguments.cases >= CASES:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
