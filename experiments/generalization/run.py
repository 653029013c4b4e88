"""Claim: a network whose parameters move with the prompt fits many functions and follows new ones, a fixed one doesn't.

Run `python -m experiments generalization`; it writes experiments/results/generalization.json, and the tables and
pictures of docs/findings/generalization.md, which states beforehand what decides.  Networks that a killed run has
trained aren't
trained again.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from duat_jax.evaluation.journal import Journal
from experiments.environment import environment
from experiments.generalization.measures import TESTED
from experiments.generalization.networks import FIXED, WHOLE
from experiments.generalization.picture import draw_errors
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
    norms_of,
    run,
    sizes_of,
    trained,
    tuning,
)
from experiments.generalization.report import tables_of
from experiments.generalization.tasks import FAMILIES, Demonstrated, Named
from experiments.markdown import Fields, cells

RESULTS, WORK = Path("experiments/results/generalization.json"), Path("experiments/results/work")
PICTURE = "docs/findings/generalization.png"
RATES = 3e-3, 1e-2, 3e-2
DEMONSTRATIONS = 16


STUDIES: dict[str, Study] = {
    "4 functions": Study(Named(digits=1, base=4)),
    "16 functions": Study(Named(digits=2, base=4)),
    "64 functions": Study(Named(digits=3, base=4), (8, 16, 32), 6000),
    "256 functions": Study(Named(digits=4, base=4), (8, 16, 32), 16000),
    "16 dense functions": Study(Named(digits=2, base=4, dense=True)),
    "64 dense functions": Study(Named(digits=3, base=4, dense=True), (8, 16, 32), 6000),
    "16 functions, unequal": Study(Named(digits=2, base=4, rarest=0.01)),
    **{family: Study(Demonstrated(family=family, demonstrations=DEMONSTRATIONS)) for family in FAMILIES},
    "linear, 64 in training": Study(Demonstrated(family="linear", demonstrations=DEMONSTRATIONS, pool=64)),
}
PLAN = Plan(STUDIES, RATES, whole=True)
"""The studies, whose largest networks are also taken apart."""

LONGER = "64 functions", "two layers"
"""The studies in which the closest network of fixed mixing also trains four times as long."""


def closest(tuned: dict[str, dict[str, Any]], name: str) -> str:
    """Return the network of fixed mixing with the smallest error in tuning."""
    errors = {
        kind: min(min(tuned[f"{name}; {kind}; {norms}"].values()) for norms in norms_of(kind)) for kind in WHOLE + FIXED
    }
    return min(errors, key=lambda kind: errors[kind])


def longer(tuned: dict[str, dict[str, Any]], names: Iterable[str]) -> Iterator[Unit]:
    """Yield the closest networks of fixed mixing, trained four times as long."""
    for name in filter(LONGER.__contains__, names):
        task, widths, _ = study = STUDIES[name]
        kind = closest(tuned, name)
        norms, rate = chosen(RATES, tuned, name, kind)
        sizes = sizes_of(task, kind, widths[-1], norms)
        yield f"{name}; longer", trained, (task, sizes, study.budget(4), rate, SEEDS, False)


def settings() -> dict[str, Any]:
    """Return all settings that the results depend on."""
    return {
        "studies": {name: [asdict(task), *rest] for name, (task, *rest) in STUDIES.items()},
        "layers": LAYERS,
        "seeds": SEEDS,
        "batch": BATCH,
        "rates": RATES,
        "norms": NORMS,
        "longer": LONGER,
        "tested": TESTED,
    }


def kept() -> dict[str, Any]:
    """Return the stored results, with no networks if they are of other settings."""
    asked = json.loads(json.dumps(settings()))
    if RESULTS.exists() and (results := json.loads(RESULTS.read_text(encoding="utf-8")))["settings"] == asked:
        return results
    blind = {name: study.task.blind() for name, study in STUDIES.items() if isinstance(study.task, Named)}
    return {"environment": environment(), "settings": asked, "tuned": {}, "blind": blind, "networks": {}}


def main() -> None:
    """Train the networks that aren't kept, first on named functions, and store the results."""
    WORK.mkdir(parents=True, exist_ok=True)
    journal, results = Journal(WORK / "generalization", settings()), kept()
    for name, found in (results["tuned"] | results["networks"]).items():
        journal.once(name, partial(dict, found))
    for kind in (Named, Demonstrated):
        names = [name for name, study in STUDIES.items() if isinstance(study.task, kind)]
        results["tuned"] |= run(journal, tuning(PLAN, names), f"{kind.__name__} functions: tuning")
        units = chain(networks(PLAN, results["tuned"], names), longer(results["tuned"], names))
        results["networks"] |= run(journal, units, f"{kind.__name__} functions")
        RESULTS.write_text(json.dumps(results, allow_nan=False) + "\n", encoding="utf-8")
    draw_errors(results).savefig(PICTURE, dpi=110)


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation page."""
    text = tables_of(results)
    return {"tables": text, **cells(text)}
