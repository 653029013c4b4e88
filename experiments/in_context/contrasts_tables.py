"""Tables of docs/findings/in-context.md on instructions, questions of two steps and the papers' invented sentences."""

from typing import Any

import numpy as np

from experiments.in_context.cells import Pieces, draws, mean, plain, share, table
from experiments.in_context.contrasts import SENTENCES
from experiments.in_context.instructions import ALONE, FIRST, LAST, TASKS
from experiments.markdown import counted

PLACES = ("deciding", "rest", "between", "last")
TITLES = ("deciding words", "other words", "between", "last token")


def _of(pieces: Pieces, task: str, order: str | None = None) -> list[dict[str, Any]]:
    return [draw for draw in draws(pieces, f"pair, {task}, {{}}") if order in (None, draw["order"])]


def _answers(pieces: Pieces) -> list[list[str]]:
    rows = []
    for task in TASKS:
        for order in (FIRST, LAST, ALONE):
            drawn = _of(pieces, task, order)
            if len(drawn) < 2:
                continue
            parts = [
                np.array([draw[field][where] for draw in drawn]) for field in ("parts", "again") for where in PLACES[:2]
            ]
            rows.append(
                [
                    task,
                    order,
                    str(len(drawn)),
                    counted([draw["first"] > 0 > draw["second"] for draw in drawn]),
                    mean([draw["first"] - draw["second"] for draw in drawn]),
                    *map(mean, (*parts[:2], parts[0] - parts[1])),
                    *map(mean, parts[2:]),
                ]
            )
    return rows


def _places(pieces: Pieces) -> list[list[str]]:
    rows = []
    for task in TASKS:
        drawn = _of(pieces, task)
        if len(drawn) < 2:
            continue
        for layer in drawn[0]["rows"]:
            of_layer = [draw["rows"][layer] for draw in drawn]
            shares = [share([row[place] for row in of_layer]) for place in PLACES]
            rows.append([task, layer, *shares, plain([row["tokens"] for row in of_layer])])
    return rows


def _patched(pieces: Pieces) -> list[list[str]]:
    rows = []
    for task in TASKS:
        drawn = _of(pieces, task)
        if len(drawn) < 2:
            continue
        for layer in drawn[0]["single"]:
            of_layer = [draw["single"][layer] for draw in drawn]
            ours = [abs(token["part"]) for token in of_layer]
            measured = [float(np.sign(token["part"]) * token["measured"]) for token in of_layer]
            pairs = [
                (m, abs(token["as far"])) for m, token in zip(measured, of_layer, strict=True) if "as far" in token
            ]
            rows.append(
                [
                    task,
                    layer,
                    mean(ours),
                    mean(measured),
                    mean([abs(token["random"]) for token in of_layer if "random" in token], sign=""),
                    str(len(pairs)),
                    mean([own - control for own, control in pairs]) if pairs else "",
                    mean([token["ranks"] for token in of_layer if "ranks" in token]),
                ]
            )
    return rows


def _sentences(pieces: Pieces) -> list[str]:
    lines = []
    for sentence in SENTENCES:
        if found := pieces.get(f"sentence, {sentence}"):
            reply = " ".join(found["reply"].split())
            lines += [
                f"The reply to “{sentence}”, {found['tokens']} tokens: “{reply}”",
                "",
                *table(
                    ["hidden word", *found["words"]],
                    [[sentence, *(f"{lost:+.2f}" for lost in found["words"].values())]],
                ),
            ]
    return lines


def contrasts(pieces: Pieces) -> str:
    """Return the tables."""
    answers = _answers(pieces)
    if not answers:
        return ""
    return "\n".join(
        [
            "### Two prompts",
            "",
            "SmolLM2-135M-Instruct; the logit of the first prompt's answer minus that of the second one's, the first"
            " prompt against the second, in nats. The unit is the draw.",
            "",
            *table(
                [
                    *("task", "the deciding words", "draws", "both right", "difference"),
                    *("part of the deciding words", "part of the others", "deciding − others"),
                    *("run again: deciding", "run again: others"),
                ],
                answers,
            ),
            "### Where the difference is",
            "",
            "Shares of the sizes of the tokens' parts in the stream before a layer; *tokens* are as many of equal"
            " shares as are as concentrated. The unit is the draw.",
            "",
            *table(["task", "layer", *TITLES, "tokens"], _places(pieces)),
            "### Single tokens run again",
            "",
            "The token with the largest part in the stream before a layer set to its stream on the other prompt; sizes"
            " in nats. *At random* is another token whose stream differs; *as far* one whose stream moves about as far."
            " Rank agreement (Spearman) is over all tokens whose streams differ. The unit is the draw.",
            "",
            *table(
                [
                    *("task", "layer", "its part", "run again", "run again: at random", "draws with a token as far"),
                    *("run again: its own − as far", "rank agreement"),
                ],
                _patched(pieces),
            ),
            "### The papers' sentences",
            "",
            "Nats of log-probability that the model's own reply loses if nothing after a word attends to it.",
            "",
            *_sentences(pieces),
        ]
    )
