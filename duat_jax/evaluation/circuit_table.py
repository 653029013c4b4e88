"""Tables of circuits for a terminal: methods beside each other, one circuit's units, and what their columns say."""

import shlex
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from duat_jax.display.tables import NumberTable, number
from duat_jax.evaluation.circuit_curve import FRACTIONS, STATISTICS, faithfulness
from duat_jax.evaluation.circuit_study import Study
from duat_jax.evaluation.circuits import UNITS
from duat_jax.evaluation.comparison import Row
from duat_jax.evaluation.task_circuit import RULE, TaskCircuit, Unit
from duat_jax.inputs.tasks.case import Case
from duat_jax.models.vocabulary.token import token_label

SHOWN = (0.001, 0.01, 0.1)
"""The sizes of circuits in a table; the JSON has all."""

LARGEST = 20
"""The number of units that a table lists, beside the largest one of each layer."""

NINE_TENTHS = 0.9
PAGE = "docs/how-to/circuits.md"


def render(study: Study, mean: bool, chosen: bool, model: str | None) -> Iterator[RenderableType]:
    """Yield tables and sentences: methods beside each other, circuits, what columns say, and what to do next."""
    for name, drawn in study.drawn.items():
        count, tokens = drawn.prompts.clean.shape
        yield Text(
            f"{name}: the first {count} of {drawn.read} prompts whose answers the model knows, {tokens} tokens each"
        )
    methods = study.titled()
    for title, rows in methods.items():
        yield ""
        yield render_methods(title, rows)
    yield ""
    yield from map(Text, columns_explained(mean, any(len(rows) > 1 for rows in methods.values())))
    for name, circuits in study.circuits.items():
        for kind, circuit in circuits.items():
            yield ""
            title = f"{name}, {kind}: the circuit of {circuit.method}" + ", refined" * bool(circuit.refinement)
            yield render_circuit(title, circuit, study.tokens[name])
            yield from map(Text, circuit_lines(circuit, study.drawn[name].cases[0], chosen))
    yield ""
    yield Text("What to do next", style="bold")
    names = list(study.drawn)
    example = study.drawn[names[0]].cases[0]
    steps = next_steps(study.tables(names), study.circuits[names[0]], example, model)
    # A command is one line, to be copied.
    yield from (Text(step, no_wrap=step.startswith("duat ") or None) for step in steps)


def render_methods(title: str, rows: Mapping[str, Row]) -> NumberTable:
    """Return the table of methods beside each other."""
    sizes = [f"{size:.1%}" for size in SHOWN]
    table = NumberTable("", *sizes, "logf", "CPR", "CMD", "removed", "first ahead by", title=title)
    table.columns[0].max_width = 26
    columns = [FRACTIONS.index(size) for size in SHOWN]
    for i, (method, row) in enumerate(rows.items()):
        table.add_row(
            method,
            *(f"{row.kept[k]:z.2f}" for k in columns),
            row.numbers["logf"].written(),
            *(f"{row.numbers[name].value:z.3f}" for name in ("CPR", "CMD", "removed")),
            row.ahead.written(sign="+") if i else "",
        )
    return table


def _of_layers(circuit: TaskCircuit) -> dict[int, tuple[int, float]]:
    """Return of each layer in the circuit how many units it has there, and the sum of their scores."""
    inside = circuit.circuit
    counts = inside.reshape(len(inside), -1).sum(1)
    sums = np.where(inside, circuit.scores, 0).reshape(len(inside), -1).sum(1)
    return {i: (int(counts[i]), float(sums[i])) for i in range(len(inside)) if counts[i]}


def _listed(circuit: TaskCircuit) -> list[Unit]:
    """Return each layer's largest unit and the largest units of all, by layer."""
    units, layers = list(circuit.units()), set[int]()
    chosen = []
    for i, unit in enumerate(units):
        if i < LARGEST or unit.layer not in layers:
            chosen.append(unit)
        layers.add(unit.layer)
    return sorted(chosen, key=lambda unit: unit.layer)


def render_circuit(title: str, circuit: TaskCircuit, tokens: Sequence[str]) -> NumberTable:
    """Return the table of a circuit's units by layer: the largest ones, and of every layer the largest."""
    kind, layers = UNITS[circuit.kind], _of_layers(circuit)
    columns = [
        "layer" if kind.unit else "layers before",
        *(["token", "in the example"] if kind.positions else []),
        *([kind.unit] if kind.unit else []),
    ]
    table = NumberTable(labels=len(columns), title=title)
    for column in columns:
        table.add_column(column, justify="left" if column == "in the example" else "right")
    for column in ("score", "units in this layer", "sum of their scores"):
        table.add_column(column, justify="right")
    for unit in _listed(circuit):
        cells: list[str | Text] = [str(unit.layer)]
        if unit.position is not None:
            cells += [str(unit.position), Text(token_label(tokens[unit.position]))]
        if unit.unit is not None:
            cells.append(str(unit.unit))
        count, total = layers.pop(unit.layer, (0, 0.0))  # a layer's own numbers stand in its first row
        table.add_row(*cells, number(unit.score), *((f"{count:,}", number(total)) if count else ("", "")))
    return table


def circuit_lines(circuit: TaskCircuit, example: Case, chosen: bool) -> list[str]:
    """Return sentences on a circuit: its size, why this one, and what it keeps."""
    i, size, count = FRACTIONS.index(circuit.size), circuit.size, int(circuit.circuit.sum())
    left_out, largest = count - len(_listed(circuit)), "largest"
    rule = "as asked for" if chosen else RULE
    whose, prompts, refined = (
        f"whose scores by {circuit.method} are largest in absolute value, as means over prompts",
        "",
        [],
    )
    if refinement := circuit.refinement:
        every = refinement.prompts + len(circuit.curve.clean)
        whose, largest = "of the highest ranks", "highest-ranked"
        prompts = " on prompts that it wasn't optimised on"
        means = [
            STATISTICS["logf"](faithfulness(curve, curve.kept), faithfulness(curve, curve.removed))
            for curve in (refinement.before, circuit.curve)
        ]
        refined = [
            f"The ranking by {circuit.method} was optimised on the difference between the logits of the two answers, in"
            f" {refinement.steps} steps with {refinement.prompts} of the {every} prompts; scores are from before, as"
            f" means over these. On the others it keeps {means[1]:z.3f} of the effect as a mean over all sizes (logf),"
            f" {means[0]:z.3f} before."
        ]
    lines = [
        f"One circuit for all prompts: of {circuit.scores.size:,} units the {count:,} {whose}."
        f" Size: {size:.1%}, {rule}.",
        *refined,
        f"The model was run again{prompts}: with only this circuit computed it keeps {circuit.kept[i]:z.2f} of the"
        f" effect, with only this circuit corrupted {circuit.removed[i]:z.2f}.",
        f"The example is {example.clean!r}, answered by {example.right!r}; the corrupted text by {example.wrong!r}.",
    ]
    if left_out:
        lines.append(f"Listed are the {LARGEST} {largest} units and each layer's {largest}; {left_out:,} more are not.")
    return lines


def columns_explained(mean: bool, compared: bool) -> list[str]:
    """Return plain sentences on the columns of the table of methods."""
    value = "its mean over all corrupted texts" if mean else "its value on the corrupted text"
    low, high = FRACTIONS[0], FRACTIONS[-1]
    lines = [
        f"{', '.join(f'{size:.1%}' for size in SHOWN)}: the share of the effect that is kept if only so many of all"
        f" units are computed, those with the largest scores on each prompt, and every other unit is set to {value}."
        " 1 is the whole model, 0 the corrupted text.",
        f"logf: the mean of this share over the logarithm of the size, from {low:.1%} to {high:.0%}; the higher the"
        " better. Brackets are intervals of 95%.",
        "CPR: the area under this share over the size, up to the whole model; 1 is best. CMD: the area between the"
        " share and 1; 0 is best.",
        "removed: as logf, with the circuit's units corrupted and all others computed; the lower the better.",
    ]
    if compared:
        lines.append(
            "first ahead by: the first method's logf minus this one's, paired by prompt. If the interval has 0 in it,"
            " the two can't be told apart."
        )
    return lines


def _best_method(rows: Mapping[str, Row]) -> str:
    first, *further = rows
    if not further:
        return f"Only {first} was measured; leave --method out to compare it with all methods."
    ahead = [name for name in further if rows[name].ahead.high < 0]
    level = [name for name in further if rows[name].ahead.low <= 0 <= rows[name].ahead.high]
    if ahead:
        return f"Ahead of {first}: {'; '.join(ahead)}. Give one of these as the first --method to list its circuit."
    if level:
        return f"No method is ahead of {first}; it can't be told apart from {'; '.join(level)}."
    return f"{first} is ahead of all other methods here."


def _best_size(circuit: TaskCircuit) -> str:
    enough = [size for size, kept in zip(FRACTIONS, circuit.kept, strict=True) if kept >= NINE_TENTHS]
    if not enough:
        return f"No size up to {FRACTIONS[-1]:.0%} keeps nine tenths of the effect with one circuit for all prompts."
    return f"From {enough[0]:.1%} of the units on, the circuit keeps nine tenths of the effect: --size {enough[0]}."


def edit_of(circuit: TaskCircuit, unit: Unit) -> str:
    """Return the edit that sets a unit to zero, as `duat intervene` takes it."""
    place = UNITS[circuit.kind].unit or "stream"
    units = "" if unit.unit is None else f":{unit.unit}"
    tokens = "" if unit.position is None else f"@{unit.position}"
    return f"{place} {unit.layer}{units}{tokens} set 0"


def next_steps(
    tables: Mapping[str, Mapping[str, Row]], circuits: Mapping[str, TaskCircuit], example: Case, model: str | None
) -> list[str]:
    """Return sentences on what to do next: which method, which size, and a command that turns a unit off."""
    lines = [f"{kind}: {_best_method(tables[kind])} {_best_size(circuit)}" for kind, circuit in circuits.items()]
    circuit = next(iter(circuits.values()))
    words = ["duat", "intervene", example.clean, "--edit", edit_of(circuit, next(circuit.units()))]
    words += ["--target", example.right, "--contrast", example.wrong, *(["--model", model] if model else [])]
    unit = f"the largest unit of the circuit of {circuit.kind}"
    return [*lines, f"Set {unit} to zero on the example, and see what changes:", shlex.join(words), f"More: {PAGE}"]
