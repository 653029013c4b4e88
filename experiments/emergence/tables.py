"""Tables of a training that was followed."""

import numpy as np

from experiments.emergence.courses import EARLY, LATE, courses
from experiments.emergence.moving import NOTHING
from experiments.estimate import estimate
from experiments.markdown import table
from experiments.table import Frames


def along(frames: Frames) -> list[str]:
    """Return the numbers at some states, and the steps at which they begin and end to fall."""
    of, names = courses(frames), frames["numbers"].number.drop_duplicates()

    def row(title: str, of_seeds: list[list[float]], digits: int = 2) -> list[str]:
        return [title, *(estimate(values).written(digits) for values in of_seeds)]

    states = np.unique(np.linspace(0, len(of[0].steps) - 1, 9).astype(int))
    rows = [
        row(f"{of[0].steps[i]:,.0f}", [[course.values(name)[i] for course in of] for name in names]) for i in states
    ]
    for share in (EARLY, LATE):
        steps = [[course.crossing(name, share) for course in of] for name in names]
        rows.append(row(f"steps at {share:.0%} of the fall", steps, 0))
    return table(["steps", *names], rows)


def frozen(frames: Frames) -> list[str]:
    """Return the cost of freezing parameters, and their movement, in the first and the last state."""
    rows = frames["frozen"]
    rows = rows.merge(rows[rows.group == NOTHING], on="seed", suffixes=("", " whole"))
    shown = []
    for group, of in rows.groupby("group", sort=False):
        costs = np.stack(of.losses) - np.stack(of["losses whole"])
        moved = np.stack(of.movement) if of.movement.notna().all() else None
        cells = [estimate(values[:, state]) for values in (costs, moved) if values is not None for state in (0, -1)]
        shown.append([str(group), *(cell.written(2) for cell in cells), *[""] * (4 - len(cells))])
    return table(["frozen", "cost at first, nats", "at the end", "movement at first", "movement at the end"], shown)
