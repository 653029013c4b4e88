"""Tables of docs/findings/in-context.md on context as rank-one updates of weights."""

import json
from typing import Any

import numpy as np

from duat_jax.evaluation.statistics import bootstrap
from duat_jax.in_context.prompts import EXCHANGED
from experiments.in_context.cells import MODELS, TASKS, Pieces, draws, mean, ratio, share, table
from experiments.in_context.ledgers import BAND
from experiments.in_context.rank_one_identity import RANDOM, UNRELATED, Composed
from experiments.in_context.rank_one_study import (
    ATTENTIONS,
    BOTH,
    DEMONSTRATIONS,
    IN_VIEW,
    KINDS,
    MASKS,
    MLPS,
    NAMES,
    OTHER_QUERIES,
    OTHER_SINGLE,
    PLACES,
    RIGHT,
    WHOLE,
)


def _of_tasks(pieces: Pieces, name: str) -> list[Any]:
    """Return the results of every draw of every task, which stands in the name of the piece in place of `{task}`."""
    return [found for task in TASKS for found in draws(pieces, name.replace("{task}", task))]


def gains(pieces: Pieces, query: str, kind: str, name: str, field: str = "answer") -> list[float]:
    """Return each draw's gain over the query alone."""
    return [draw[query][kind][name][field] for draw in _of_tasks(pieces, "rank_one_updates, {task}, {}")]


def _runs_again(pieces: Pieces) -> list[str]:
    """Return the table of the model run again with updates."""
    if not _of_tasks(pieces, "rank_one_updates, {task}, {}"):
        return []
    rows = []
    for name in (IN_VIEW, *NAMES):
        cells = [mean(gains(pieces, query, kind, name)) for query in ("own", "other") for kind in KINDS]
        finer = [mean(gains(pieces, "other", RIGHT, name, field)) for field in ("any answer", "own answer")]
        rows.append([name, *cells, *finer, share(gains(pieces, "other", RIGHT, name, "right"))])
    head = [f"{query}: {kind}" for query in ("same query", "other queries") for kind in KINDS]
    finer_head = [
        f"other queries, right: {column}" for column in ("any answer", "the first query's answer", "accuracy")
    ]
    return table(["updated", *head, *finer_head], rows)


def _single_layers(pieces: Pieces) -> list[str]:
    """Return the table of single layers' updates, the mean over the layers of each band."""
    found = [draw["layers"] for draw in _of_tasks(pieces, "rank_one_updates, {task}, {}")]
    if not found:
        return []
    names = [(MLPS, RIGHT, "own"), (MLPS, RIGHT, "other"), *((WHOLE, RIGHT, query) for query in ("own", "other"))]
    names.append((WHOLE, EXCHANGED, "other"))
    columns = [np.array([draw[", ".join(name)] for draw in found]) for name in names]
    columns.append(columns[-2] - columns[-1])
    layers = columns[0].shape[1]
    rows = [
        [f"{first} to {min(first + BAND, layers) - 1}", *(mean(c[:, first : first + BAND].mean(1)) for c in columns)]
        for first in range(0, layers, BAND)
    ]
    return table(
        [
            *("layer", "MLP, same query", "MLP, other queries", "whole output, same query", "whole output, other"),
            *("whole output, other: exchanged", "whole output, other: right − exchanged"),
        ],
        rows,
    )


def by_layer(pieces: Pieces) -> dict[str, Any]:
    """Return the gains by each layer's update alone with their intervals over draws, for a picture."""
    found = [draw["layers"] for draw in _of_tasks(pieces, "rank_one_updates, {task}, {}")]

    def curve(*name: str) -> list[list[float]]:
        layers = np.array([draw[", ".join(name)] for draw in found]).T
        return [[round(number, 4) for number in bootstrap(layer)] for layer in layers]

    queries = {"own": "same query", "other": "other queries"}
    exchanged = {"other queries, exchanged demonstrations": curve(WHOLE, EXCHANGED, "other")}
    return {
        title: ["gain in nats", {shown: curve(part, RIGHT, query) for query, shown in queries.items()} | further]
        for title, part, further in (("MLP's weights", MLPS, {}), ("the layer's whole output", WHOLE, exchanged))
    }


def _identities(pieces: Pieces) -> list[str]:
    """Return the table of the identity's errors in float32."""
    rows = []
    for model in MODELS:
        found = _of_tasks(pieces, f"rank_one_identity, {model}, {{task}}, {{}}")
        for context in (RIGHT, UNRELATED, RANDOM) if found else ():
            errors = [
                f"{max(draw[context][f'error of the {part}'] for draw in found):.0e}" for part in ("MLP", "layer")
            ]
            shown = f"{context} demonstrations" if context == RIGHT else context
            rows.append([model, shown, *errors, share([draw[context]["change"] for draw in found])])
    return table(
        ["model", "the context", "largest error, MLP", "largest error, layer", "change of the MLP's output"], rows
    )


def rank_one(pieces: Pieces) -> str:
    """Return the tables on context as rank-one updates."""
    lines = [
        "### The identity",
        "",
        f"Largest errors in float32 over layers, tokens of the question and draws, and the mean change, all relative to"
        f" the norm of what is to come out; {DEMONSTRATIONS} demonstrations, 8 draws of each task.",
        "",
        *_identities(pieces),
        "### Run again with updated weights",
        "",
        f"{MODELS[1]} without demonstrations; the gain in log-probability of the right answer's first token over the"
        " query alone, in nats. The unit is the draw,"
        f" {len(_of_tasks(pieces, 'rank_one_updates, {task}, {}'))} of all tasks; in each, the mean over"
        f" {OTHER_QUERIES} other queries.",
        "",
        *_runs_again(pieces),
        f"The update of one layer alone, at the last token; the mean over {BAND} layers, the other queries' over"
        f" {OTHER_SINGLE}:",
        "",
        *_single_layers(pieces),
    ]
    return "\n".join(lines)


def numbers_of_updates(pieces: Pieces) -> dict[str, str]:
    """Return single numbers of these tables for the text, by name."""
    found, fields = _of_tasks(pieces, "rank_one_updates, {task}, {}"), {}
    for model in MODELS:
        if forms := _of_tasks(pieces, f"rank_one_form, {model}, {{task}}, {{}}"):
            fields[f"{model}, error of the closed form"] = f"{max(form['error'] for form in forms):.0e}"
            parts = Composed._fields
            fields |= {f"{model}, pre-activation, {part}": share([form[part] for form in forms]) for part in parts}
    if not found:
        return fields
    fields["rank-one updates by layer"] = json.dumps(by_layer(pieces))
    for name in (IN_VIEW, *(f"{variant}, {place}" for variant in MASKS for place in PLACES)):
        for query in ("own", "other"):
            right, in_view = (gains(pieces, query, RIGHT, update) for update in (name, IN_VIEW))
            fields[f"{query}, {name}, of the gain"] = ratio(right, in_view)
        fields[f"other, {name}, mapping"] = _difference(pieces, (RIGHT, name), (EXCHANGED, name))
    for place in PLACES:
        names = [(RIGHT, f"{variant}, {place}") for variant in (BOTH, ATTENTIONS)]
        fields[f"other, MLPs beside attention, {place}"] = _difference(pieces, *names)
    exact = [
        abs(draw["own"][kind][f"{BOTH}, {place}"]["answer"] - draw["own"][kind][IN_VIEW]["answer"])
        for draw in found
        for kind in KINDS
        for place in PLACES
    ]
    fields |= {"own, largest difference": f"{max(exact):.0e}", "size": share([draw["size"] for draw in found])}
    return fields | {
        f"cosine, {name}": mean([draw["cosines"][name] for draw in found], 2, "") for name in found[0]["cosines"]
    }


def _difference(pieces: Pieces, first: tuple[str, str], second: tuple[str, str]) -> str:
    """Return the difference of two gains at other queries, each of a kind of demonstrations and an update."""
    return mean(np.subtract(gains(pieces, "other", *first), gains(pieces, "other", *second)).tolist())
