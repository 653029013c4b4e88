"""Tables and verdicts of the study of scores over masks elsewhere, from what it kept, by the rules of its page."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from duat_jax.evaluation.circuit_curve import Curve, faithfulness
from duat_jax.evaluation.statistics import IntervalEstimate, students_mean
from experiments.markdown import Fields, table
from experiments.masks.elsewhere_scores import FIRST, GRADIENTS, METHODS, OPTIMISED
from experiments.masks.run import STATISTICS
from experiments.task_curves import AHEAD, Kept, compared

PLAIN, COUNTED = STATISTICS
TEXTS = tuple(name for name in METHODS if name not in (FIRST, *GRADIENTS))
STATED, LEVEL = 0.03, 0.02
"""The lead that was predicted, and below what a difference counts as level."""
CHOSEN_ON = "capital", "language", "agreement", "indirect object"
"""The tasks on which the first score had been chosen."""
DECIDED = "heads", "means"
AREAS = "CPR", "CMD"

Tasks = Mapping[str, Kept]


def statistic(task: Kept, method: str, name: str, runs: str = "runs") -> float:
    """Return a statistic of a method's circuits over all sizes on one task."""
    kept = np.array(task[runs][method])
    # With the own text's values nothing kept is nearly the corrupted text.
    zero = task["empty"] if runs == "runs" and "empty" in task else task["corrupted"]
    return STATISTICS[name](faithfulness(Curve(np.array(task["clean"]), np.array(zero), kept, kept), kept))


def of_tasks(tasks: Tasks, method: str, name: str = PLAIN, runs: str = "runs") -> Float[np.ndarray, "tasks"]:
    """Return a statistic of a method on each task."""
    return np.array([statistic(task, method, name, runs) for task in tasks.values()])


def lead(tasks: Tasks, method: str, name: str = PLAIN, runs: str = "runs") -> IntervalEstimate:
    """Return by how much the first score is ahead of another, over tasks, as one of its group's leads."""
    together = len(GRADIENTS if method in GRADIENTS else TEXTS)
    return students_mean(of_tasks(tasks, FIRST, name, runs) - of_tasks(tasks, method, name, runs), together)


def of_masks(tasks: Tasks) -> str:
    """Return the verdict on the prediction in one setting."""
    leads = [lead(tasks, method, name) for method in TEXTS for name in (PLAIN, COUNTED)]
    if any(each.high < 0 for each in leads):
        return "refuted"
    if not all(each.low > 0 for each in leads):
        return "undecided"
    return "confirmed" if all(each.value >= STATED for each in leads) else "smaller than stated"


def of_the_secant(tasks: Tasks, method: str) -> str:
    """Return the verdict on the first score beside a gradient over masks in one setting."""
    found = lead(tasks, method)
    if found.low > 0:
        return "ahead"
    if found.high < 0:
        return "behind"
    return "level" if found.low >= -LEVEL and found.high <= LEVEL else "undecided"


def of_knowing(tasks: Tasks) -> str:
    """Return the verdict on whether the lead over the secant of texts is that of having been told the corruption."""
    matched, crossed = lead(tasks, "secant"), lead(tasks, "secant", runs="crossed")
    if matched.low <= 0:
        return "undecided"
    return "refuted" if crossed.low > 0 else "confirmed"


def _verdicts(found: Mapping[str, Tasks]) -> list[str]:
    rows = []
    for name in DECIDED:
        tasks = found[name]
        least = min((lead(tasks, method, s) for method in TEXTS for s in (PLAIN, COUNTED)), key=lambda each: each.low)
        rows.append([f"masks, {name}", of_masks(tasks), f"the least certain lead: {least.written(sign='+')}"])
        rows += [
            [
                f"the secant, {name}, beside {method}",
                of_the_secant(tasks, method),
                lead(tasks, method).written(sign="+"),
            ]
            for method in GRADIENTS
        ]
    matched, crossed = (lead(found["means"], "secant", runs=runs).written(sign="+") for runs in ("runs", "crossed"))
    rows.append(["knowing the test", of_knowing(found["means"]), f"told: {matched}; crossed: {crossed}"])
    return table(["rule", "verdict", "by"], rows)


def far_apart(tasks: Tasks) -> Tasks:
    """Return the tasks in which clean text and empty circuit are at least half as far apart as both texts."""

    def share(task: Kept) -> float:
        clean, corrupted, empty = (np.mean(task[name]) for name in ("clean", "corrupted", "empty"))
        return float((clean - empty) / (clean - corrupted))

    return {name: task for name, task in tasks.items() if share(task) >= 0.5}


def _setting(tasks: Tasks) -> list[str]:
    """Return the table of a setting's methods; those of one task have intervals over prompts alone."""
    over = compared([task | {"corrupted": task.get("empty", task["corrupted"])} for task in tasks.values()], FIRST)
    rows = []
    for method, (_, passes) in METHODS.items():
        shown = [f"{of_tasks(tasks, method, name).mean():.3f}" for name in (PLAIN, COUNTED)]
        resampled = ""
        if method != FIRST:
            resampled = IntervalEstimate(**over[method][AHEAD]).written(sign="+")
            if len(tasks) > 1:
                leads = (lead(tasks, method, name).written(sign="+") for name in (PLAIN, COUNTED))
                shown = [f"{value} ({each})" for value, each in zip(shown, leads, strict=True)]
        rows.append([method, str(passes), *shown, resampled, *(f"{over[method][n]['value']:.3f}" for n in AREAS)])
    head = ["scores", "passes", "logf (the first is ahead by)", "overshoot counted against it"]
    return table([*head, "ahead, tasks and prompts resampled", *AREAS], rows)


def _subsets(found: Mapping[str, Tasks]) -> list[str]:
    def row(name: str, tasks: Tasks, runs: str = "runs") -> list[str]:
        leads = [lead(tasks, method, runs=runs).written(sign="+") for method in METHODS if method != FIRST]
        return [name, str(len(tasks)), *leads]

    rows = []
    for name in DECIDED:
        others = {task: kept for task, kept in found[name].items() if task not in CHOSEN_ON}
        rows.append(row(f"{name}, without those that had served for choosing", others))
    rows.append(row("means, effect at least half as large", far_apart(found["means"])))
    rows.append(row("means, crossed", found["means"], "crossed"))
    return table(["tasks", "number", *(f"before {name}" for name in METHODS if name != FIRST)], rows)


def _by_task(found: Mapping[str, Tasks], settings: Sequence[str]) -> list[str]:
    rows = [
        [setting, task, *(f"{statistic(kept, method, PLAIN):.3f}" for method in METHODS)]
        for setting in settings
        for task, kept in found[setting].items()
    ]
    return table(["setting", "task", *METHODS], rows)


def _optimised(tasks: Tasks) -> list[str]:
    methods = list(next(iter(tasks.values()))["runs"])
    last = methods[-1]

    def read_score(task: Kept, method: str) -> float:
        best = statistic(task, method, COUNTED)
        return max(best, statistic(task, FIRST, COUNTED)) if method == last else best

    rows = [[name, *(f"{read_score(task, method):.3f}" for method in methods)] for name, task in tasks.items()]
    mean = ["mean", *(f"{np.mean([read_score(task, method) for task in tasks.values()]):.3f}" for method in methods)]
    return table(["task", *methods], [*rows, mean])


def _all_tasks(studies: Sequence[Tasks]) -> list[str]:
    """Return the table over the tasks of several studies, of the methods that all of them have."""
    tasks = [task for study in studies for task in study.values()]
    common = [name for name in METHODS if all(name in task["runs"] for task in tasks)]
    found = compared([task | {"runs": {name: task["runs"][name] for name in common}} for task in tasks], FIRST)
    rows = [
        [
            name,
            str(METHODS[name][1]),
            f"{of['logf']['value']:.3f}",
            IntervalEstimate(**of[AHEAD]).written(sign="+") if name != FIRST else "",
            *(f"{of[area]['value']:.3f}" for area in AREAS),
        ]
        for name, of in found.items()
    ]
    return table(["scores", "passes", "logf", "the first is ahead by", *AREAS], rows)


def tables_of(found: Mapping[str, Tasks], before: Tasks) -> str:
    """Return the tables of the documentation page in Markdown."""
    settings = [name for name in found if name != OPTIMISED]
    sections = {
        "Verdicts elsewhere": _verdicts(found),
        **{f"Elsewhere, {name}": _setting(found[name]) for name in settings},
        "Elsewhere, neurons, all tasks of SmolLM2": _all_tasks([before, found["known tasks"]]),
        "Elsewhere, leads over other tasks and runs": _subsets(found),
        "Elsewhere, optimised on one prompt": _optimised(found[OPTIMISED]),
        "Elsewhere, each task": _by_task(found, settings),
    }
    return "\n".join(line for title, lines in sections.items() for line in (f"#### {title}", "", *lines, ""))[:-1]


def leads(found: Mapping[str, Tasks]) -> Fields:
    """Return the means of the first score and its leads in each setting, as fields of pages."""
    fields: Fields = {}
    for setting in (*DECIDED, "known tasks"):
        for shown, runs in ((setting, "runs"), *([("crossed", "crossed")] if setting == "means" else [])):
            for method in METHODS:
                fields[f"{shown}, {method}"] = f"{of_tasks(found[setting], method, runs=runs).mean():.3f}"
                for name in (PLAIN, COUNTED) if method != FIRST else ():
                    counted = "" if name == PLAIN else ", overshoot counted"
                    fields[f"{shown}, before {method}{counted}"] = lead(found[setting], method, name, runs).written(
                        sign="+"
                    )
    tasks = far_apart(found["means"])
    return fields | {"far apart": ", ".join(f"*{task}*" for task in tasks), "number far apart": str(len(tasks))}
