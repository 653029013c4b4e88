"""Effect of demonstrations on answers of several tokens, token by token and as a ledger that sums over them."""

from random import Random
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from duat_jax.in_context.compute import ledger
from duat_jax.in_context.prompts import EXCHANGED, REDRAWN, FewShotQuestion, question_of
from duat_jax.in_context.result import Ledger
from duat_jax.in_context.runs import Task, logits_of
from duat_jax.inputs.few_shot_tasks import WORDS
from duat_jax.models.transformer import Transformer
from duat_jax.processes import on_host

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DEMONSTRATIONS, DRAWS, LENGTH, PLACES = 4, 12, 64, 6
"""The numbers of demonstrations and of draws; the length to which texts are padded, and the number of places to which
those of a ledger are repeated, so that few programs are compiled."""

RIGHT = "right"
KINDS = (RIGHT, EXCHANGED, REDRAWN)
NUMBERS, SWAPPED = "number words", "swapped words"

TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
ONES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def _swapped() -> list[tuple[str, str]]:
    words = Random("swapped words").sample(WORDS.split(), len(WORDS.split()))
    return [(f"{first} {second}", f"{second} {first}") for first, second in zip(words[::2], words[1::2], strict=True)]


PAIRS: dict[str, list[tuple[str, str]]] = {
    NUMBERS: [
        (f"{10 * i + j}", f"{ten}-{one}") for i, ten in enumerate(TENS, start=2) for j, one in enumerate(ONES, start=1)
    ],
    SWAPPED: _swapped(),
}
"""The pairs of question and answer of each task; all answers of a task have as many tokens."""


def padded(question: FewShotQuestion) -> Task:
    """Return the task of a question's whole answer, its text of `LENGTH` tokens."""
    task = question.whole
    ids, hidden = (jnp.pad(of, (0, LENGTH - len(task.ids))) for of in (task.ids, task.hidden))
    return task._replace(ids=ids, hidden=hidden)


def draw(tokenizer: "Tokenizer", task: str, seed: int) -> dict[str, FewShotQuestion]:
    """Return a drawn question after each kind of demonstrations; every seed has another question."""
    order = Random(task).sample(PAIRS[task], len(PAIRS[task]))
    (word, answer), rest = order[seed], order[:seed] + order[seed + 1 :]
    drawn = Random(f"{seed} {task}").sample(rest, 2 * DEMONSTRATIONS)
    shown, others = drawn[:DEMONSTRATIONS], drawn[DEMONSTRATIONS:]
    answers = [right for _, right in shown]
    # A cycle leaves no answer at its place.
    by_kind = {
        RIGHT: answers,
        EXCHANGED: answers[1:] + answers[:1],
        REDRAWN: [right for _, right in others],
    }
    return {
        kind: question_of(
            tokenizer,
            [f"{line} -> {right}" for (line, _), right in zip(shown, of_kind, strict=True)],
            f"{word} ->",
            f" {answer}",
        )
        for kind, of_kind in by_kind.items()
    }


@jax.jit
def _logs(
    model: Transformer, ids: Int[Array, "tokens"], seen: Bool[Array, "tokens"], places: Int[Array, "asked"]
) -> Float[Array, "asked vocab"]:
    return jax.nn.log_softmax(logits_of(model, model.states(model.embed(ids), seen)[places]))


def _replies(model: Transformer, asked: FewShotQuestion, hidden: bool) -> dict[str, Any]:
    task = padded(asked)
    logs = np.asarray(on_host(_logs(model, task.ids, ~(task.hidden & hidden), task.places)), float)
    answers = np.asarray(task.answers)
    right = logs.argmax(-1) == answers
    return {"logs": logs[np.arange(len(answers)), answers].tolist(), "right": right.tolist()}


def measure_answers(model: Transformer, tokenizer: "Tokenizer", task: str, seed: int) -> dict[str, Any]:
    """Return the log-probability of every token of the answer, with each kind of demonstrations, visible and hidden."""
    asked = draw(tokenizer, task, seed)
    return {
        kind: {"in view": _replies(model, each, False), "hidden": _replies(model, each, True)}
        for kind, each in asked.items()
    }


def split(model: Transformer, task: Task, tokens: int | None = None) -> dict[str, Any]:
    """Return the sums of a ledger over the answer's tokens, or over its first ones, in nats."""
    # A ledger is of the mean over the places, so that its parts times the number of tokens are sums over them; a place
    # that stands there several times, as all do, doesn't change the mean.
    count = len(task.places[:tokens])
    places, answers = (jnp.tile(of[:tokens], max(1, PLACES // count)) for of in (task.places, task.answers))
    account = ledger(model, task._replace(places=places, answers=answers), run_again=False)
    parts = {name: count * part for name, part in _parts(account).items()}
    form = account.form
    moved_form = {
        "inputs": form.inputs.sum() + form.inner_inputs.sum(),
        "`W'_1`": form.path.sum(),
        "`W'_3`": form.outer.sum(),
        "`W'_2`": form.inner.sum(),
        "`c_j`": form.inner_bias.sum() + form.bias,
    }
    return {
        "difference": count * account.difference,
        "parts": parts,
        "form": {name: count * float(part) for name, part in moved_form.items()},
        "error": count * float(account.completeness.error),
    }


def _parts(account: Ledger) -> dict[str, float]:
    totals = account.totals
    return {
        "moved inputs": 0.0 if account.inputs is None else float(account.inputs.sum()),
        "parameters at the part": totals["parameters at the part"],
        # Only the sum of both is determined, as in the other ledgers.
        "attention": totals["attention to the part"] + totals["attention to other tokens"],
        "norm scales": totals["norm scales"],
        "gates and others": totals["gates and others"],
    }


def measure_ledgers(model: Transformer, tokenizer: "Tokenizer", task: str, seed: int) -> dict[str, Any]:
    """Return the ledgers of the mapping, right against exchanged, and of the format, exchanged against hidden."""
    # Each is over the whole answer and over its first token alone.
    asked = draw(tokenizer, task, seed)
    right, exchanged = padded(asked[RIGHT]), padded(asked[EXCHANGED])
    runs = {"mapping": right._replace(other=exchanged.ids), "format": exchanged}
    return {part: {"whole": split(model, both), "first": split(model, both, 1)} for part, both in runs.items()}
