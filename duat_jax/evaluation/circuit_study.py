"""Comparison of attribution methods by the circuits they find, on several tasks with one model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from duat_jax.deprecation import tokenizer_was_second
from duat_jax.errors import InvalidInput
from duat_jax.evaluation.circuit_curve import FRACTIONS, Curve
from duat_jax.evaluation.circuits import METHODS, UNITS, Method, measure
from duat_jax.evaluation.comparison import Row, as_dict, compare
from duat_jax.evaluation.journal import Journal, fingerprint
from duat_jax.evaluation.record import CircuitRecord, CircuitsRecord, CircuitUnitRecord
from duat_jax.evaluation.task_circuit import TaskCircuit, check_size, check_steps, task_circuits
from duat_jax.files import path_of
from duat_jax.inputs.labels import readable
from duat_jax.inputs.prompts import Drawn, Prompt, draw
from duat_jax.inputs.tasks.registry import TASKS
from duat_jax.json_record import as_record, fields_of
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import require_layers

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Study(NamedTuple):
    """Prompts, curves and circuits of a comparison.

    Args:
        drawn: the prompts of each task.
        tokens: of each task, the tokens of its first clean text.
        curves: for each task and each kind of units, the curve of each method, each prompt with its own circuit.
        circuits: for each task and each kind of units, one circuit for all prompts, by the first method that scores
            these units.
    """

    drawn: dict[str, Drawn]
    tokens: Mapping[str, tuple[str, ...]]
    curves: dict[str, dict[str, dict[str, Curve]]]
    circuits: dict[str, dict[str, TaskCircuit]]

    def tables(self, tasks: Sequence[str]) -> dict[str, dict[str, Row]]:
        """Return the row of each method for each kind of units, as means over tasks.

        Args:
            tasks: names of tasks of the study.
        """
        return {kind: compare([self.curves[task][kind] for task in tasks]) for kind in self.curves[tasks[0]]}

    def titled(self) -> dict[str, dict[str, Row]]:
        """Return all tables by their titles: of each task and kind of units, and of several tasks the means."""
        names = list(self.drawn)
        groups = {name: [name] for name in names} | ({f"mean over {len(names)} tasks": names} if names[1:] else {})
        return {
            f"{title}, {kind}": rows for title, tasks in groups.items() for kind, rows in self.tables(tasks).items()
        }

    def as_dict(self, **fields: Any) -> dict[str, Any]:
        """Return the results as plain data for JSON, with the fields of `CircuitsRecord`.

        Args:
            fields: fields of the record that aren't in the results.
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
                "circuits": {kind: self._plain(task, each) for kind, each in self.circuits[task].items()},
            }
            for task, drawn in self.drawn.items()
        }
        return as_record(CircuitsRecord, self, fractions=FRACTIONS, tasks=tasks, mean=plain(list(self.drawn)), **fields)

    def _plain(self, task: str, circuit: TaskCircuit) -> dict[str, Any]:
        tokens = self.tokens[task]
        units = [
            fields_of(CircuitUnitRecord, unit, token=None if unit.position is None else tokens[unit.position])
            for unit in circuit.units()
        ]
        return fields_of(CircuitRecord, circuit, scored=circuit.scores.size, units=units, refinement=circuit.refinement)


def check(
    tasks: Iterable[str],
    methods: Iterable[str],
    units: Iterable[str],
    size: float | None = None,
    further: Sequence[str] = (),
) -> None:
    """Validate names of tasks, methods and units, and the size of a circuit."""
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
    ] + [*check_size(size), *further]
    if problems:
        raise InvalidInput("; ".join(problems))


@tokenizer_was_second
def study(
    model: Transformer,
    tasks: Sequence[str],
    methods: Sequence[str],
    units: Sequence[str],
    *,
    prompts: int,
    progress: "Callable[[str], AbstractContextManager[Callable[[int, int], None]]]",
    seed: int = 0,
    mean: bool = False,
    size: float | None = None,
    steps: int = 0,
    work: Path | None = None,
    tokenizer: "Tokenizer | None" = None,
) -> Study:
    """Evaluate the circuits of several methods on prompts that a model answers correctly.

    Args:
        model: a language model.
        tasks: names in `TASKS`.
        methods: names in `METHODS`; the others are compared with the first one.
        units: names in `UNITS`.
        prompts: the number of prompts of each task, at least 2.
        progress: returns for each task a context manager with a progress callback, as `measure` has one.
        seed: the seed of the prompts.
        mean: whether units are replaced by the mean of their values over all corrupted texts.
        size: the size of the circuits of `Study.circuits`, one of `FRACTIONS`; if absent the smallest one that keeps
            half of the effect.
        steps: the number of steps in which the ranking of these circuits is optimised on the metric, with half of the
            prompts; the others measure it.
        work: a file for finished results, from which an interrupted run resumes.
        tokenizer: reads texts and names tokens, in the place of the model's own.

    Raises:
        InvalidInput: naming every unknown name and a wrong number of steps, if the model answers too few prompts
            correctly, or the file holds other work.
        DuatError: for a model that PyTorch's code computes.
    """
    work = None if work is None else path_of(work, "a file for finished work")
    require_layers(model.config)
    check(tasks, methods, units, size, check_steps(steps, prompts))
    tokenizer = model.tokenizer if tokenizer is None else tokenizer
    chosen = {name: METHODS[name] for name in methods}
    settings = {"units": list(units), "mean": mean}
    if work is not None:
        settings["model"] = fingerprint(model, model.config, tokenizer.to_str())
    journal = Journal(work, settings)
    drawn = {task: draw(model, task, prompts, seed=seed, tokenizer=tokenizer) for task in tasks}
    tokens = {task: readable(tokenizer, each.prompts.clean[0].tolist()) for task, each in drawn.items()}
    curves, circuits = {}, {}
    for task, of_task in drawn.items():
        with progress(task) as report:
            curves[task], circuits[task] = _measured(
                model, of_task.prompts, chosen, units, mean, size, steps, journal, report
            )
    return Study(drawn, tokens, curves, circuits)


def _measured(
    model: Transformer,
    prompts: Prompt,
    methods: Mapping[str, Method],
    units: Sequence[str],
    mean: bool,
    size: float | None,
    steps: int,
    journal: Journal,
    report: Callable[[int, int], None],
) -> tuple[dict[str, dict[str, Curve]], dict[str, TaskCircuit]]:
    """Return of one task the curves of each kind of units and method, and each kind's circuit for all prompts."""
    count = len(prompts.clean)
    options: dict[str, Any] = {"mean": mean, "journal": journal}
    curves = measure(
        model, prompts, methods, units, progress=lambda done, total: report(done, total + count), **options
    )
    circuits: dict[str, TaskCircuit] = {}
    for method, scorer in methods.items():
        # The first method may not score every kind of units.
        if kinds := tuple(kind for kind, of_methods in curves.items() if next(iter(of_methods)) == method):
            circuits |= task_circuits(model, prompts, method, scorer, kinds, size=size, steps=steps, **options)
    report(count * (len(methods) + 1), count * (len(methods) + 1))
    return curves, {kind: circuits[kind] for kind in curves}
