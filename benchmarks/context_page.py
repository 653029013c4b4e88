"""The tables of docs/in-context.md, made of what `benchmarks.context` has measured so far."""

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from duat_jax.analysis.context_ledger import COLUMNS
from duat_jax.analysis.statistics import bootstrap

TASKS = ("antonyms", "capitals", "uppercase")
MODELS = ("The embedded model", "SmolLM2-135M-Instruct", "all-MiniLM-L6-v2")
KEPT = ("nothing else", "and the first token", "and the ninth token")
COUNTS = (1, 2, 4, 8)
WEIGHTS = {"written": "written", "map": "map alone", "map and scale": "map and scale"}
SIDES = ("after the part", "the part")
PARAMETERS = (
    "moved inputs",
    *(f"`W'_1`, {side}" for side in SIDES),
    "`q`",
    *(f"`W'_{number}`, {side}" for number in (3, 2) for side in SIDES),
    "`c_j`",
)
OTHER = "another task's"
BAND = 5
"""Layers that stand in one row."""

Pieces = dict[str, Any]
Row = list[str]


def _mean(values: Sequence[float], digits: int = 2, sign: str = "+") -> str:
    """Return a mean and its interval; the mean alone of a single value."""
    if len(values) < 2:
        return f"{values[0]:{sign}.{digits}f}"
    return bootstrap(np.asarray(values, np.float64)).written(digits, sign)


def _plain(values: Sequence[float]) -> str:
    return _mean(values, 1, "")


def _share(values: Sequence[float]) -> str:
    return f"{_plain([100 * value for value in values])} %"


def _table(head: Sequence[str], rows: Iterable[Row]) -> list[str]:
    found = list(rows)
    if not found:
        return []
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *found)] + [""]


def _density(pieces: Pieces) -> list[str]:
    rows = []
    for name in MODELS:
        for masked, which in ((True, "with mask"), (False, "without")):
            if (found := pieces.get(f"reach, {name}, {masked}, written")) is not None:
                columns = ("tokens", "distance")
                layers = [found[column]["layers"] for column in columns]
                spread = [f" ({min(each):.1f} to {max(each):.1f})" for each in layers]
                read = [_plain(found[column]["texts"]) + each for column, each in zip(columns, spread, strict=True)]
                shares = [_share(found[column]["texts"]) for column in ("first", "itself")]
                beyond = [_share(found[f"beyond {kernel}"]["texts"]) for kernel in (4, 16, 64)]
                density = f"{100 * np.mean(found['density']['texts']):.1f} %"
                none = name == MODELS[2]
                rows.append([name, "it has none" if none else which, density, *read, *shares, *beyond])
    return _table(
        [
            *("model", "mask", "entries not zero", "tokens read", "mean distance", "on the first token", "on itself"),
            *(f"beyond a kernel of {kernel}" for kernel in (4, 16, 64)),
        ],
        rows,
    )


def _weights(pieces: Pieces) -> list[str]:
    """Return the first token's share by what it is weighed."""
    rows = []
    for name in MODELS:
        found = {weight: pieces.get(f"reach, {name}, True, {weight}") for weight in WEIGHTS}
        if all(found.values()):
            shares = [_share(found[weight]["first"]["texts"]) for weight in ("map", "map and scale", "written")]
            others = ("first, norms not squared", "first, along the sum")
            written = [_share(found["written"][what]["texts"]) for what in others]
            rows.append(
                [name, *shares, *written, *(_plain(found["map"][of]["texts"]) for of in ("tokens", "distance"))]
            )
    return _table(
        [
            *("the first token's share", "map alone", "map and the norm's scale", "what is written"),
            *(
                "the same, norms not squared",
                "the same, along the sum",
                "tokens read, map alone",
                "distance, map alone",
            ),
        ],
        rows,
    )


def _windows(pieces: Pieces) -> list[str]:
    rows = []
    for name in MODELS[:2]:
        everything = pieces.get(f"windowed, {name}, 128, nothing else")
        for kept in KEPT:
            row = []
            for kernel in (2, 4, 8, 16, 32, 64, 128):
                losses = pieces.get(f"windowed, {name}, {kernel}, {kept}")
                cell = "" if losses is None else f"{np.mean(losses):.2f}"
                if losses is not None and everything is not None and kernel < 128:
                    cell += f" ({_mean(np.subtract(losses, everything))})"
                row.append(cell)
            if any(row):
                rows.append([name, kept, *row])
    return _table(["model", "each layer sees the last … tokens", *map(str, (2, 4, 8, 16, 32, 64, "all 128"))], rows)


def _draws(pieces: Pieces, name: str) -> list[Any]:
    """Return what was measured of every draw; the names of pieces have the draw where `{}` stands."""
    return [pieces[each] for draw in range(100) if (each := name.format(draw)) in pieces]


def _log(reply: dict[str, float]) -> float:
    return reply["of_task"] + reply["among_task"]


def _added(of: Callable[[dict[str, Any]], float], found: dict[str, Any], controls: Iterable[str]) -> float:
    """Return by how much a number is larger with demonstrations in view than with them hidden, a mean over controls."""
    return float(np.mean([of(found[each]["in view"]) - of(found[each]["hidden"]) for each in controls]))


def _others(task: str) -> list[str]:
    return [name for name in TASKS if name != task]


def _split(pieces: Pieces, task: str, count: int, of: Callable[[dict[str, Any]], float]) -> dict[str, list[float]]:
    """Return of each draw what right demonstrations add: format, what exchanged ones add, and mapping, the rest."""
    every = _draws(pieces, f"replies, {task}, {count}, {{}}")
    added = {"all": [_added(of, found, ["None"]) for found in every]}
    added[OTHER] = [_added(of, found, _others(task)) for found in every]
    if count > 1:
        exchanged, redrawn = ([_added(of, found, [each]) for found in every] for each in ("exchanged", "redrawn"))
        added |= {"format": exchanged, "mapping": np.subtract(added["all"], exchanged).tolist()}
        added |= {"redrawn": np.subtract(added["all"], redrawn).tolist()}
    return added


def _replies(pieces: Pieces) -> list[str]:
    split, finer, accuracy = [], [], []
    for task in TASKS:
        for count in COUNTS:
            every = _draws(pieces, f"replies, {task}, {count}, {{}}")
            if len(every) < 2:
                continue
            first = [task, str(count), str(len(every))]
            added = _split(pieces, task, count, _log)
            columns = ("all", "format", "mapping", "redrawn", OTHER)
            split.append([*first, *(_mean(added[column]) if column in added else "" for column in columns)])
            if count > 1:
                each = (_split(pieces, task, count, itemgetter(of)) for of in ("of_task", "among_task"))
                finer.append([*first, *(_mean(parts[column]) for parts in each for column in ("format", "mapping"))])
            rights = [_rights(every, controls) for controls in (_others(task), ["redrawn"], ["exchanged"], ["None"])]
            accuracy.append([*first, _rights(every, ["None"], "hidden"), *rights])
    if not split:
        return []
    head, parts = ["task", "demonstrations", "draws"], ("format", "mapping")
    return [
        *_table(
            [
                *(*head, "added in all", "format: exchanged", "mapping: right − exchanged"),
                *("mapping by redrawn ones: right − redrawn", "another task's add"),
            ],
            split,
        ),
        "The same two parts by `log p(answer) = log p(any answer of the task) + log p(answer | one of them)`:",
        "",
        *_table([*head, *(f"{of}, {part}" for of in ("any answer", "which of them") for part in parts)], finer),
        "How often the right answer's first token is the most probable one:",
        "",
        *_table([*head, "hidden", OTHER, "redrawn", "exchanged", "right"], accuracy),
    ]


def _rights(every: Sequence[dict[str, Any]], controls: Sequence[str], where: str = "in view") -> str:
    """Return how often the right token is the most probable one, a mean over draws and controls."""
    if not all(control in found for found in every for control in controls):
        return ""
    return f"{100 * np.mean([found[control][where]['right'] for found in every for control in controls]):.0f} %"


def _form(found: Sequence[dict[str, Any]]) -> list[str]:
    """Return the closed form's parameters, summed over its terms."""
    sums = []
    for one in found:
        form = one["form"]
        inputs = form["inputs"] + form["inner_inputs"]
        sums.append([inputs, *form["path"], form["bias"], *form["outer"], *form["inner"], form["inner_bias"]])
    return [_mean(column) for column in zip(*sums, strict=True)]


def _columns(found: Sequence[dict[str, Any]]) -> list[str]:
    inputs = [float(np.sum(one["inputs"])) if one.get("inputs") else 0.0 for one in found]
    return [_mean(column) for column in (inputs, *np.array([np.sum(one["layers"], 0) for one in found]).T)]


def _ledgers(pieces: Pieces) -> list[str]:
    moved, form, errors = [], [], [0.0]
    for part, said in (("mapping", "mapping: right − exchanged"), ("format", "format: exchanged − hidden")):
        for task in TASKS:
            for count in COUNTS:
                found = _draws(pieces, f"ledger, {task}, {count}, {{}}, {part}")
                if len(found) < 2:
                    continue
                first = [said, task, str(count), str(len(found))]
                moved.append([*first, _mean([one["difference"] for one in found]), *_columns(found)])
                form.append([*first, *_form(found)])
                errors += [abs(of["completeness"]["error"]) for one in found for of in (one, one["form"])]
    head = ["part", "task", "demonstrations", "draws"]
    return [
        *_table([*head, "difference", "moved inputs", *COLUMNS], moved),
        *(["The same differences in the parameters of the closed form, summed over its terms:", ""] if form else []),
        *_table([*head, *PARAMETERS], form),
        *([f"In float32 the sums miss the differences by at most {max(errors):.0e}.", ""] if moved else []),
    ]


def _layers(pieces: Pieces) -> list[str]:
    """Return the mapping's part by layers, beside the model run again, over the draws of which both are there."""
    found, again = [], []
    for task in TASKS:
        for draw in range(100):
            names = f"ledger, {task}, 4, {draw}, mapping", f"again, {task}, {draw}"
            if all(name in pieces for name in names):
                found.append(pieces[names[0]])
                again.append(pieces[names[1]])
    if len(found) < 2:
        return []
    layers, reads = np.array([one["layers"] for one in found]), np.array([one["reads"] for one in found])
    alone, later = (np.array([one[name] for one in again]) for name in ("alone", "later"))
    rows, last = [], reads.shape[1]
    for first in range(0, last, BAND):
        band = slice(first, first + BAND)
        cells = [layers[:, band].sum((1, 2)), reads[:, band].sum(1), alone[:, band].sum(1), later[:, first]]
        rows.append([f"{first} to {min(first + BAND, last) - 1}", *map(_mean, cells)])
    agreement = []
    for name, scores in (("the layer's moved parameters", layers[:, :-1].sum(-1)), ("what the layer reads", reads)):
        each = [spearmanr(one, other).statistic for one, other in zip(scores, alone, strict=True)]
        agreement.append(f"{name} {_mean(each)}")
    head = ["layers", "moved parameters", "what they read, nothing held", "run again: one layer alone, summed"]
    return [
        "### Which layers",
        "",
        f"The mapping's part, 4 demonstrations, the mean over {len(found)} draws of all tasks, summed over {BAND}"
        " layers each; the unit is the draw.",
        "",
        *_table([*head, "run again: from the first of them on"], rows),
        f"Rank agreement (Spearman) over layers with one layer run again: {'; '.join(agreement)}.",
        "",
    ]


def _copying(pieces: Pieces) -> list[str]:
    rows, form, heads, counts = [], [], [], []
    for name in MODELS[:2]:
        found = _draws(pieces, f"copying, {name}, {{}}")
        if len(found) < 2:
            continue
        counts.append(len(found))
        losses = [_mean([one[time] for one in found]) for time in ("first time", "second time")]
        rows.append([name, str(len(found)), *losses, _mean([one["difference"] for one in found]), *_columns(found)[2:]])
        form.append([name, *_form(found)[1:]])
        for count in (1, 2, 4, 8):
            i = found[0]["removed"].index(count)
            heads.append(
                [name, str(count), *(_mean([one[of][i] for one in found]) for of in ("predicted", "measured"))]
            )
    if not rows:
        return []
    head = ["model", "sequences", "loss, first time", "loss, second time", "gain by seeing the first"]
    return [
        "### Copying",
        "",
        "25 random tokens twice; the part is the first occurrence, hidden in the second run. The unit is the sequence.",
        "",
        *_table([*head, *COLUMNS[1:]], rows),
        *_table(["model", *PARAMETERS[1:]], form),
        *_table(["model", "heads with the largest parts", "their parts", "gain lost without them, run again"], heads),
    ]


def _summary(pieces: Pieces) -> list[str]:
    """Return what the tables say, in sentences whose numbers are theirs."""
    return [f"- {line}" for part in (_of_reach, _of_windows, _of_mapping) for line in part(pieces)] + [""]


def _of_reach(pieces: Pieces) -> list[str]:
    lines = []
    for name in MODELS:
        found, of_map = (pieces.get(f"reach, {name}, True, {weight}") for weight in ("written", "map"))
        if found and of_map:
            tokens, distance = (_plain(found[column]["texts"]) for column in ("tokens", "distance"))
            beyond, first = (_share(found[column]["texts"]) for column in ("beyond 16", "first"))
            far, alone = (_share(of_map[column]["texts"]) for column in ("beyond 16", "first"))
            lines.append(
                f"{name}: a position reads as much as {tokens} tokens of equal shares, {distance} tokens away on"
                f" average; {beyond} of what is written comes from outside of the last 16 tokens, {first} from the"
                " first token."
                f" Weighed by the map alone that would be {far} and {alone}."
            )
    return lines


def _of_windows(pieces: Pieces) -> list[str]:
    lines = []
    for name in MODELS[:2]:
        for kernel in (16, 64):
            names = [f"windowed, {name}, {kernel}, {kept}" for kept in KEPT]
            if all(each in pieces for each in names):
                nothing, first, ninth = (f"{np.mean(pieces[each]):.2f}" for each in names)
                less = _mean(np.subtract(pieces[names[1]], pieces[names[0]]))
                lines.append(
                    f"{name}, each layer cut to the last {kernel} tokens: the loss is {nothing} nats, {first} with the"
                    f" first token kept ({less}), {ninth} with the ninth one kept instead."
                )
    return lines


def _of_mapping(pieces: Pieces) -> list[str]:
    lines = []
    for task in TASKS:
        if len(_draws(pieces, f"replies, {task}, 4, {{}}")) > 1:
            added = {part: _mean(values) for part, values in _split(pieces, task, 4, _log).items()}
            lines.append(
                f"Four demonstrations of {task} add {added['all']} nats: with exchanged answers they add"
                f" {added['format']}, the mapping adds {added['mapping']}. Four of another task add {added[OTHER]}."
            )
        found = _draws(pieces, f"ledger, {task}, 4, {{}}, mapping")
        if len(found) > 1:
            inputs, *columns = _columns(found)
            difference = _mean([one["difference"] for one in found])
            lines.append(
                f"The mapping's part in {len(found)} draws of {task}, {difference} nats:"
                f" moved inputs carry {inputs}; the rest are moved parameters: "
                + ", ".join(f"{name} {part}" for name, part in zip(COLUMNS, columns, strict=True))
                + "."
            )
    return lines


def numbers(pieces: Pieces) -> dict[str, str]:
    """Return single numbers of the tables, by name, for sentences of other pages.

    Args:
        pieces: what was measured.
    """
    found = {}
    for name in MODELS:
        if (written := pieces.get(f"reach, {name}, True, written")) is not None:
            for column in ("first", "beyond 16"):
                found[f"{name}, {column}"] = f"{100 * np.mean(written[column]['texts']):.1f} %"
            found[f"{name}, tokens"] = f"{np.mean(written['tokens']['texts']):.1f}"
        everything = pieces.get(f"windowed, {name}, 128, nothing else")
        for kernel in (16, 64):
            for kept in KEPT:
                losses = pieces.get(f"windowed, {name}, {kernel}, {kept}")
                if losses is not None and everything is not None:
                    costs = np.subtract(losses, everything)
                    found[f"{name}, the last {kernel} {kept}"] = f"{np.mean(costs):.2f}"
    for task in TASKS:
        if len(_draws(pieces, f"replies, {task}, 4, {{}}")) > 1:
            parts = _split(pieces, task, 4, _log)
            found |= {f"{task}, {part}": f"{np.mean(values):+.1f}" for part, values in parts.items()}
        if len(ledgers := _draws(pieces, f"ledger, {task}, 4, {{}}, mapping")) > 1:
            found[f"{task}, moved inputs"] = f"{np.mean([np.sum(one['inputs']) for one in ledgers]):+.2f}"
            found[f"{task}, moved parameters"] = f"{np.mean([np.sum(one['layers']) for one in ledgers]):+.2f}"
    return found


def page(results: dict[str, Any]) -> str:
    """Return the page's tables.

    Args:
        results: what `benchmarks.context` keeps.
    """
    sizes, pieces = results["sizes"], results["pieces"]
    texts = f"{sizes['texts']} texts of {sizes['tokens']} tokens"
    lines = [
        "In square brackets stands the 95 % interval, by bootstrap over the unit that is named.",
        "",
        "### How dense, how far",
        "",
        f"{texts}; the mean over layers (in brackets the smallest and the largest layer), over the later half of each"
        " text. The unit is the text.",
        "",
        *_density(pieces),
        "The first token's share, by what it is weighed:",
        "",
        *_weights(pieces),
        "### Windows",
        "",
        f"The loss in nats, the model run again; in brackets how much more it is than with the whole text. {texts}; the"
        " unit is the text.",
        "",
        *_windows(pieces),
        "### Format and mapping",
        "",
        "SmolLM2-135M-Instruct; the gain in log-probability of the answer's first token by demonstrations in view, in"
        " nats, against the same demonstrations hidden. The unit is the draw, each with another question.",
        "",
        *_replies(pieces),
        "### The ledgers",
        "",
        "SmolLM2-135M-Instruct, in nats; the unit is the draw.",
        "",
        *_ledgers(pieces),
        *_layers(pieces),
        *_copying(pieces),
        *(["### Summary", "", *summary] if (summary := _summary(pieces))[1:] else []),
    ]
    return "\n".join(lines)
