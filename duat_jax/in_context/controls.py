"""Controls of demonstrations: what their form adds to an answer, and what the mapping of questions to answers adds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from duat_jax.errors import BadText
from duat_jax.in_context.prompts import EXCHANGED, REDRAWN, Question, after_start, draw_question
from duat_jax.in_context.runs import Task, logits_of
from duat_jax.in_context.tasks import PAIRS
from duat_jax.inputs.batching import bucket
from duat_jax.models.transformer import Transformer

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Reply(NamedTuple):
    """What a model says after a question: `log p(answer) = of_task + among_task`.

    Args:
        of_task: the log-probability that the answer's first token is one with which some answer of the task begins.
        among_task: the log-probability of the right first token, given that it is such a token.
        right: whether the right first token is the most probable token of all.
    """

    of_task: float
    among_task: float
    right: bool


def exchange(question: Question, other: Question) -> Task:
    """Return the task whose first run has one question's demonstrations, and whose second run has the other's.

    Args:
        question: the question, after its demonstrations.
        other: the same question, after as many tokens of other demonstrations.

    Raises:
        BadText: if the texts differ in length, or in what stands outside of the demonstrations.
    """
    texts = (question, other)
    if len(question.ids) != len(other.ids):
        raise BadText(f"the texts have {len(question.ids)} and {len(other.ids)} tokens: give two of one length")
    first, second = (text.ids[~text.hidden].tolist() for text in texts)
    if (question.hidden != other.hidden).any() or first != second or question.answer != other.answer:
        raise BadText("the texts differ outside of their demonstrations: ask the same question")
    return question.task._replace(other=jnp.asarray(other.ids))


def controls_of(task: str) -> list[str | None]:
    """Return the kinds of demonstrations that are compared: the right ones, and every control of a task.

    Args:
        task: a name in `PAIRS`.

    Example:
        >>> controls_of("capitals")
        [None, 'exchanged', 'redrawn', 'antonyms', 'uppercase']
    """
    return [None, EXCHANGED, REDRAWN, *(name for name in PAIRS if name != task)]


def answers_of(tokenizer: "Tokenizer", task: str) -> list[int]:
    """Return the first tokens of all answers of a task, each once.

    Args:
        tokenizer: the model's tokenizer.
        task: a name in `PAIRS`.
    """
    return sorted({after_start(tokenizer, f" {answer}")[0] for _, answer in PAIRS[task]})


def distinct_seeds(task: str, tokenizer: "Tokenizer", count: int) -> list[int]:
    """Return the first seeds whose questions are all different.

    Args:
        task: a name in `PAIRS`.
        tokenizer: the model's tokenizer.
        count: how many.

    Raises:
        BadText: if the task has fewer pairs.
    """
    if count > len(PAIRS[task]):
        raise BadText(f"{task!r} has {len(PAIRS[task])} questions: ask for at most so many")
    found: dict[str, int] = {}
    seed = 0
    while len(found) < count:
        found.setdefault(draw_question(tokenizer, task, 0, seed=seed).text, seed)
        seed += 1
    return list(found.values())


def replies(
    model: Transformer, questions: Sequence[Question], answers: Sequence[int], *, hidden: bool = False
) -> list[Reply]:
    """Return what a model says after each question, with its demonstrations in view or hidden; all read at once.

    Args:
        model: a causal language model.
        questions: the questions, of one task.
        answers: the first tokens of all answers of the task, the right ones among them.
        hidden: whether nothing after the demonstrations attends to them.

    Raises:
        BadText: if a right answer's first token isn't among them.
    """
    if any(question.answer not in answers for question in questions):
        raise BadText("the right answer's first token isn't among those of the task")
    longest = bucket(max(len(question.ids) for question in questions), model.config.positions)
    ids, seen = np.zeros((len(questions), longest), np.int32), np.ones((len(questions), longest), bool)
    for i, question in enumerate(questions):
        tokens = len(question.ids)
        ids[i, :tokens], seen[i, :tokens] = question.ids, ~(question.hidden & hidden)
    last = np.array([len(question.ids) - 1 for question in questions])
    found = []
    logs = np.asarray(_logs(model, *map(jnp.asarray, (ids, seen, last))), np.float64)
    for each, question in zip(logs, questions, strict=True):
        of_task = np.logaddexp.reduce(each[list(answers)])
        right = bool(each.argmax() == question.answer)
        found.append(Reply(float(of_task), float(each[question.answer] - of_task), right))
    return found


@jax.jit
def _logs(
    model: Transformer, ids: Int[Array, "texts tokens"], seen: Bool[Array, "texts tokens"], last: Int[Array, "texts"]
) -> Float[Array, "texts vocab"]:
    states = model.states(model.embed(ids), seen)
    return jax.nn.log_softmax(logits_of(model, jnp.take_along_axis(states, last[:, None, None], 1)[:, 0]))
