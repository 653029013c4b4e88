"""Tables of a training that was followed."""

import numpy as np
import pandas as pd

from duat_jax.evaluation.statistics import agreement
from experiments.emergence.courses import EARLY, HALF, LATE, RULES, Course, courses, last_crossing
from experiments.emergence.moving import NOTHING
from experiments.emergence.own_texts import OTHER_FILES, READ_BY, lower_when_read
from experiments.emergence.training import FOLLOWED, REPETITION
from experiments.estimate import estimate
from experiments.markdown import table
from experiments.table import Frames

RANKED = ("last", -1), ("part", 1)
"""Columns whose order is compared with that of setting heads back, with the sign in which they agree."""


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


def shares(frames: Frames) -> list[str]:
    """Return attention's, MLPs', embeddings' and norms' shares in every fall while repetition forms."""
    rows = pd.DataFrame(
        {"fall of": number, "rule": rule, **course.shares(number, rule)}
        for number in FOLLOWED
        for rule in RULES
        for course in courses(frames)
    )
    kinds = ("attention", "mlp", "embedding", "norms", "all")
    shown = [
        [*map(str, names), *(estimate(of[kind]).written(2) for kind in kinds)]
        for names, of in rows.groupby(["fall of", "rule"], sort=False)
    ]
    return table(["fall of", "rule", "attention", "MLPs", "embeddings", "norms", "all"], shown)


def heads(frames: Frames) -> list[str]:
    """Return the three heads of each seed that attend most to what follows a copy."""
    rows = frames["heads"].merge(frames["head parts"], on=["seed", "layer", "head"])
    back = frames["set back"]
    back = back[back.number == REPETITION].set_index(["seed", "part"]).lost
    rows["last"] = [attention[-1] for attention in rows.attention]
    rows["lost"] = [back[seed, f"head {i}:{j}"] for seed, i, j in zip(rows.seed, rows.layer, rows["head"], strict=True)]
    shown = []
    for seed, of in rows.groupby("seed"):
        steps = Course(frames, int(str(seed))).steps
        for head in of.nlargest(3, "last").itertuples():
            rise = [f"{last_crossing(np.array(head.attention), steps, share):.0f}" for share in (EARLY, HALF, LATE)]
            ends = [f"{head.attention[0]:.3f}", f"{head.last:.3f}"]
            shown.append(
                [f"{seed}, head {head.layer}:{head.head}", *ends, *rise, f"{head.part:+.3f}", f"{head.lost:+.3f}"]
            )
        ranks = [f"{agreement(of[name].to_numpy(), sign * of.lost.to_numpy())[0]:.2f}" for name, sign in RANKED]
        shown.append([f"{seed}, rank agreement with set back", "", ranks[0], "", "", "", ranks[1], ""])
    rise = [f"steps at {share:.0%} of the rise" for share in (EARLY, HALF, LATE)]
    return table(["seed and head", "attention at first", "at the end", *rise, "part in repetition", "set back"], shown)


def read_texts(frames: Frames) -> list[str]:
    """Return the losses of texts that a training read and of others, and how much lower reading makes them."""
    losses = {seed: of.set_index("texts").losses for seed, of in frames["texts"].groupby("seed")}
    groups = {
        "of files that it doesn't read": [np.mean(of[OTHER_FILES]) for of in losses.values()],
        "read by another seed alone": [
            np.mean([of[f"{READ_BY}{other}"] for other in losses if other != seed]) for seed, of in losses.items()
        ],
        "read by it alone": [np.mean(of[f"{READ_BY}{seed}"]) for seed, of in losses.items()],
    }
    lower = lower_when_read({seed: of.to_dict() for seed, of in losses.items()})
    rows = [[name, estimate(of).written(), ""] for name, of in groups.items()]
    rows[-1][-1] = f"{lower.mean():+.3f}"
    rows += [[f"of these, in eighth {k} of the steps", "", f"{of.mean():+.3f}"] for k, of in enumerate(lower.T, 1)]
    return table(["texts", "loss at the end", "lower by reading"], rows)
