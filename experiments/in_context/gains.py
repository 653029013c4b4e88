"""Tables of docs/findings/in-context.md on the effect of demonstrations on an answer, right ones and each control."""

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from experiments.in_context.cells import COUNTS, TASKS, Pieces, draws, mean, ratio, table

OfReply = Callable[[dict[str, Any]], float]
"""A number of one reply."""

PARTS = ("exchanged", "mapping")
OF_TASK, AMONG_TASK = itemgetter("of_task"), itemgetter("among_task")


def log_of_answer(reply: dict[str, float]) -> float:
    """Return `log p(answer)` of a reply."""
    return reply["of_task"] + reply["among_task"]


def other_tasks(task: str) -> list[str]:
    """Return all other tasks."""
    return [name for name in TASKS if name != task]


def added(pieces: Pieces, task: str, count: int, control: str, number_of: OfReply = log_of_answer) -> np.ndarray:
    """Return each draw's increase of a number by visible demonstrations over hidden ones, `[draws]`."""
    drawn = (draw[control] for draw in draws(pieces, f"replies, {task}, {count}, {{}}"))
    return np.array([number_of(draw["in view"]) - number_of(draw["hidden"]) for draw in drawn])


def split(pieces: Pieces, task: str, count: int, of: OfReply = log_of_answer) -> dict[str, np.ndarray]:
    """Return each draw's effect of right demonstrations, of exchanged ones, and the difference, the mapping's part."""
    right = added(pieces, task, count, "None", of)
    if count < 2:
        return {"all": right}
    exchanged, redrawn = (added(pieces, task, count, control, of) for control in ("exchanged", "redrawn"))
    return {
        "all": right,
        "exchanged": exchanged,
        "mapping": right - exchanged,
        "redrawn": right - redrawn,
        "exchanged - redrawn": exchanged - redrawn,
    }


def _measured(pieces: Pieces) -> Iterable[tuple[str, int, list[dict[str, Any]]]]:
    """Yield the tasks and numbers of demonstrations with several draws."""
    for task in TASKS:
        for count in COUNTS:
            if len(drawn := draws(pieces, f"replies, {task}, {count}, {{}}")) > 1:
                yield task, count, drawn


def replies(pieces: Pieces) -> list[str]:
    """Return the tables on the effect of each kind of demonstrations, and on the accuracy of the answers."""
    whole, finer, accuracy = [], [], []
    for task, count, drawn in _measured(pieces):
        first = [task, str(count), str(len(drawn))]
        columns = split(pieces, task, count)
        names = ("all", *PARTS, "redrawn", "exchanged - redrawn")
        whole.append([*first, *(mean(columns[name]) if name in columns else "" for name in names)])
        if count > 1:
            of_task, among_task = (split(pieces, task, count, of) for of in (OF_TASK, AMONG_TASK))
            cells = [mean(parts[name]) for parts in (of_task, among_task) for name in PARTS]
            finer.append([*first, *cells, ratio(of_task["all"], columns["all"])])
        kinds = (other_tasks(task), ["redrawn"], ["exchanged"], ["None"])
        accuracy.append([*first, rights(drawn, ["None"], "hidden"), *(rights(drawn, kind) for kind in kinds)])
    if not whole:
        return []
    head = ["task", "demonstrations", "draws"]
    return [
        *table(
            [
                *(*head, "added in all", "exchanged ones add", "mapping: right − exchanged", "right − redrawn"),
                "exchanged − redrawn",
            ],
            whole,
        ),
        "The same two parts by `log p(answer) = log p(any answer of the task) + log p(answer | one of them)`, and how"
        " much of the whole gain is in any answer:",
        "",
        *table(
            [
                *head,
                *(f"{of}, {part}" for of in ("any answer", "which of them") for part in PARTS),
                "any answer, of all",
            ],
            finer,
        ),
        *_of_other_tasks(pieces),
        "How often the right answer's first token is the most probable one:",
        "",
        *table([*head, "hidden", "another task's", "redrawn", "exchanged", "right"], accuracy),
    ]


def _of_other_tasks(pieces: Pieces) -> list[str]:
    """Return the table on the effect of other tasks' demonstrations, four of them also split by any answer."""
    rows = []
    measured = {(task, count) for task, count, _ in _measured(pieces)}
    for task in TASKS:
        for other in other_tasks(task):
            cells = [mean(added(pieces, task, n, other)) if (task, n) in measured else "" for n in COUNTS]
            parts = [
                mean(added(pieces, task, 4, other, of)) if (task, 4) in measured else "" for of in (OF_TASK, AMONG_TASK)
            ]
            if any(cells):
                rows.append([task, other, *cells, *parts])
    head = ("question", "demonstrations of", *map(str, COUNTS), "4: any answer", "4: which of them")
    return ["Another task's demonstrations, by their number, add:", "", *table(head, rows)]


def rights(drawn: Sequence[dict[str, Any]], controls: Sequence[str], where: str = "in view") -> str:
    """Return the accuracy of the most probable token, as a count over draws and controls."""
    if not all(control in draw for draw in drawn for control in controls):
        return ""
    cells = [draw[control][where]["right"] for draw in drawn for control in controls]
    return f"{sum(cells)} of {len(cells)}"


def count_shared(answers: Sequence[int], questions: Sequence[tuple[int, Sequence[int]]]) -> dict[str, int]:
    """Describe how often several answers begin with the same token."""
    return {
        "pairs": len(answers),
        "first tokens": len(set(answers)),
        "shared": sum(answers.count(right) > 1 for right, _ in questions),
        "demonstrated": sum(right in demonstrated for right, demonstrated in questions),
    }


def numbers_of_gains(pieces: Pieces) -> dict[str, str]:
    """Return single numbers of these tables for the text, by name."""
    fields = {}
    for task in TASKS:
        if len(draws(pieces, f"replies, {task}, 4, {{}}")) > 1:
            columns = split(pieces, task, 4)
            fields |= {f"{task}, {part}": f"{np.mean(values):+.1f}" for part, values in columns.items()}
            of_task = split(pieces, task, 4, OF_TASK)
            fields[f"{task}, in any answer"] = f"{100 * np.mean(of_task['all']) / np.mean(columns['all']):.0f} %"
        counts = pieces.get(f"shared_tokens, {task}", {})
        fields |= {f"{task}, {name}": str(count) for name, count in counts.items()}
    return fields
