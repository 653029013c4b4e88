"""Question: does a fixed network need more parameters for few functions and long prompts, and fit dense regions alone?

Run `python -m experiments generalization_scarce`; it writes experiments/results/generalization_scarce.json, and the
tables and a picture of docs/findings/generalization.md, which states beforehand what decides.  Networks that a killed
run has
trained aren't trained again.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from typing import Any

import numpy as np

from experiments.generalization.curves import (
    DENSE,
    EVEN,
    INSIDE,
    POINTS,
    REGIONS,
    WAVES,
    WEIGHTED,
    WIDTH,
    Curves,
    measured,
    thinned,
)
from experiments.generalization.measures import TESTED
from experiments.generalization.padded import Padded
from experiments.generalization.plan import (
    BATCH,
    LAYERS,
    NORMS,
    SEEDS,
    Plan,
    Study,
    Unit,
    chosen,
    networks,
    run,
    sizes_of,
    trained,
    tuning,
)
from experiments.generalization.report import tables_of
from experiments.generalization.scarce_tables import SECTIONS
from experiments.generalization.scarce_verdicts import CURVES, FEW, LENGTHS
from experiments.generalization.tasks import Named
from experiments.kept_results import journal_of, store
from experiments.markdown import Fields, cells

RATES = 3e-3, 1e-2, 3e-2, 1e-1

STUDIES: dict[str, Study] = {
    FEW[0]: Study(Named(digits=1, base=4), (4, 8, 16)),
    FEW[1]: Study(Named(digits=2, base=4), (4, 8, 16), 6000),
    **{
        name: Study(Padded(named=Named(digits=2, base=4), further=6, filling=filling), (8, 16, 32), 6000)
        for filling, name in LENGTHS.items()
    },
    CURVES[EVEN]: Study(Curves(digits=2, base=4, density=EVEN), (4, 8, 16, 32)),
    CURVES[DENSE]: Study(Curves(digits=2, base=4, density=DENSE), (4, 8, 16, 32)),
    CURVES[WEIGHTED]: Study(Curves(digits=2, base=4, density=WEIGHTED), (16,)),
    **{f"4 {CURVES[of]}": Study(Curves(digits=1, base=4, density=of), (4, 8, 16)) for of in (EVEN, DENSE)},
}
PLAN = Plan(STUDIES, RATES, whole=False)

LONGER, TIMES = ("one layer", "perceptron", "fixed pattern", "transformer"), 4
"""The networks that also train longer on dense curves, at the width of the tuning, and how many times."""


def longer(tuned: dict[str, dict[str, Any]]) -> Iterator[Unit]:
    """Yield the networks that train longer on dense curves."""
    study = STUDIES[CURVES[DENSE]]
    for kind in LONGER:
        norms, rate = chosen(RATES, tuned, CURVES[DENSE], kind)
        sizes = sizes_of(study.task, kind, study.widths[len(study.widths) // 2], norms)
        yield f"{CURVES[DENSE]}; {kind}; longer", trained, (study.task, sizes, study.budget(TIMES), rate, SEEDS, False)


def blind() -> dict[str, Any]:
    """Return what the best outputs independent of the prompt have, and an output of zero, on curves."""
    found = {}
    for name, (task, *_) in STUDIES.items():
        if not isinstance(task, Curves):
            continue
        y = np.asarray(task.blind())
        found[name] = {"blind": measured(task, y), "zero": measured(task, 0 * y)}
    return found


def drawn() -> dict[str, Any]:
    """Return what is drawn beside the networks' outputs: points, regions, functions and the best blind outputs."""
    task, *_ = STUDIES[f"4 {CURVES[DENSE]}"]
    assert isinstance(task, Curves)
    functions, x = task.grid()
    return {
        "x": thinned(np.asarray(x[:POINTS])),
        "centres": np.asarray(task.centres()).round(3).tolist(),
        "functions": thinned(np.asarray(task.values(functions, x)).reshape(task.functions, -1)),
        "blind": thinned(np.asarray(task.blind())),
    }


def settings() -> dict[str, Any]:
    """Return all settings that the results depend on."""
    return {
        "studies": {name: [asdict(task), *rest] for name, (task, *rest) in STUDIES.items()},  # type: ignore[call-overload]
        "layers": LAYERS,
        "seeds": SEEDS,
        "batch": BATCH,
        "rates": RATES,
        "norms": NORMS,
        "longer": [LONGER, TIMES],
        "tested": TESTED,
        "regions": [REGIONS, WIDTH, INSIDE, WAVES, POINTS],
    }


def main() -> None:
    """Train the networks, and store the results."""
    journal = journal_of("generalization_scarce", settings())
    tuned = run(journal, tuning(PLAN, STUDIES), "Tuning")
    trainings = run(journal, chain(networks(PLAN, tuned, STUDIES), longer(tuned)), "Networks")
    asked = json.loads(json.dumps(settings()))
    results = {
        "settings": asked,
        "tuned": tuned,
        "blind": blind(),
        "drawn": drawn(),
        "networks": trainings,
    }
    store("generalization_scarce", results)


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation page."""
    text = tables_of(results, SECTIONS)
    return {"tables": text, **cells(text)}
