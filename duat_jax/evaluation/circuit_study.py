"""Comparison of attribution methods by the circuits they find, on several tasks with one model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

from duat_jax.errors import BadText
from duat_jax.evaluation.circuit_curve import FRACTIONS, Curve
from duat_jax.evaluation.circuits import METHODS, UNITS, measure
from duat_jax.evaluation.comparison import Row, as_dict, compare
from duat_jax.evaluation.record import CircuitsRecord
from duat_jax.inputs.prompts import Drawn, draw
from duat_jax.inputs.tasks import TASKS
from duat_jax.json_record import as_record
from duat_jax.models.transformer import Transformer

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Study(NamedTuple):
    """Prompts and curves of a comparison.

    Args:
        drawn: the prompts of each task.
        curves: for each task and each kind of units, the curve of each method.
    """

    drawn: dict[str, Drawn]
    curves: dict[str, dict[str, dict[str, Curve]]]

    def tables(self, tasks: Sequence[str]) -> dict[str, dict[str, Row]]:
        """Return the row of each method for each kind of units, as means over tasks.

        Args:
            tasks: names of tasks of the study.
        """
        return {kind: compare([self.curves[task][kind] for task in tasks]) for kind in self.curves[tasks[0]]}

    def as_dict(self, **asked: Any) -> dict[str, Any]:
        """Return the results as plain data for JSON, with the fields of `CircuitsRecord`.

        Args:
            asked: fields of the record that aren't in the results.
        """

        def plain(tasks: Sequence[str]) -> dict[str, Any]:
            return {kind: as_dict(table) for kind, table in self.tables(tasks).items()}

        tasks = {
            task: {
                "prompts": len(drawn.cases),
                "read": drawn.read,
                "tokens": drawn.prompts.clean.shape[1],
                "example": drawn.cases[0],
                "units": plain([task]),
            }
            for task, drawn in self.drawn.items()
        }
        return as_record(CircuitsRecord, self, fractions=FRACTIONS, tasks=tasks, mean=plain(list(self.drawn)), **asked)


def check(tasks: Iterable[str], methods: Iterable[str], units: Iterable[str]) -> None:
    """Validate names of tasks, methods and units.

    Args:
        tasks: names in `TASKS`.
        methods: names in `METHODS`.
        units: names in `UNITS`.

    Raises:
        BadText: naming every unknown name.
    """
    choices: tuple[tuple[str, Iterable[str], Mapping], ...] = (
        ("task", tasks, TASKS),
        ("method", methods, METHODS),
        ("kind of units", units, UNITS),
    )
    problems = [
        f"there is no {kind} {name!r}: choose one of {'; '.join(known)}"
        for kind, names, known in choices
        for name in names
        if name not in known
    ]
    if problems:
        raise BadText("; ".join(problems))


def study(
    model: Transformer,
    tokenizer: "Tokenizer",
    tasks: Sequence[str],
    methods: Sequence[str],
    units: Sequence[str],
    *,
    prompts: int,
    progress: Callable[[str], AbstractContextManager[Callable[[int, int], None]]],
    seed: int = 0,
    mean: bool = False,
) -> Study:
    """Evaluate the circuits of several methods on prompts that a model answers correctly.

    Args:
        model: a language model.
        tokenizer: its tokenizer.
        tasks: names in `TASKS`.
        methods: names in `METHODS`; the others are compared with the first one.
        units: names in `UNITS`.
        prompts: the number of prompts of each task, at least 2.
        progress: returns for each task a context manager with the progress callback of `measure`.
        seed: the seed of the prompts.
        mean: whether units are replaced by the mean of their values over all corrupted texts.

    Raises:
        BadText: naming every unknown name, or if the model answers too few prompts correctly.
    """
    check(tasks, methods, units)
    chosen = {name: METHODS[name] for name in methods}
    drawn = {task: draw(model, tokenizer, task, prompts, seed=seed) for task in tasks}
    curves = {}
    for task, prompts_of_task in drawn.items():
        with progress(task) as report:
            curves[task] = measure(model, prompts_of_task.prompts, chosen, units, mean=mean, progress=report)
    return Study(drawn, curves)
