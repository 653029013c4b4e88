"""Control experiments on demonstrations: the effect of their form apart from that of their answers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from duat_jax.deprecation import renamed_arguments
from duat_jax.errors import InvalidInput
from duat_jax.in_context.prompts import EXCHANGED, REDRAWN, FewShotQuestion, after_start, draw_question
from duat_jax.in_context.runs import Task, logits_of
from duat_jax.inputs.batching import bucket
from duat_jax.inputs.few_shot_tasks import PAIRS
from duat_jax.models.ids import require_ids
from duat_jax.models.transformer import Transformer
from duat_jax.processes import on_host
from duat_jax.transform.stored_program import stored_program

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Reply(NamedTuple):
    """A model's log-probability of an answer, split in two: `log p(answer) = of_task + among_task`.

    Args:
        of_task: the log-probability that the next token is the first token of any answer of the task.
        among_task: the log-probability of the right first token, given that it is one of these.
        right: whether the right first token is the most probable token of all.
    """

    of_task: float
    among_task: float
    right: bool


@renamed_arguments(other="reference")
def exchange(question: FewShotQuestion, reference: FewShotQuestion, *, whole: bool = False) -> Task:
    """Return a task that compares two sets of demonstrations before the same question.

    Args:
        question: the question, after its demonstrations.
        reference: the same question after other demonstrations of the same number of tokens.
        whole: whether all tokens of the answer are counted, or the first one alone.

    Raises:
        InvalidInput: if the texts differ in length, or outside of the demonstrations.
    """
    texts = (question, reference)
    if len(question.ids) != len(reference.ids):
        raise InvalidInput(
            f"the texts have {len(question.ids)} and {len(reference.ids)} tokens: give two of one length"
        )
    outside = [(text.ids[~text.hidden].tolist(), text.answers) for text in texts]
    if (question.hidden != reference.hidden).any() or outside[0] != outside[1]:
        raise InvalidInput("the texts differ outside of their demonstrations: give the same question and answer")
    first, second = (text.whole if whole else text.task for text in texts)
    return first._replace(other=second.ids)


def controls_of(task: str) -> list[str | None]:
    """Return the kinds of demonstrations of a task: `None` for the right ones, and the name of every control.

    Example:
        >>> controls_of("capitals")
        [None, 'exchanged', 'redrawn', 'antonyms', 'uppercase']
    """
    return [None, EXCHANGED, REDRAWN, *(name for name in PAIRS if name != task)]


def answers_of(tokenizer: "Tokenizer", task: str) -> list[int]:
    """Return the first tokens of all answers of a task, sorted and without duplicates.

    Args:
        tokenizer: the model's tokenizer.
        task: a name in `PAIRS`.
    """
    return sorted({after_start(tokenizer, f" {answer}")[0] for _, answer in PAIRS[task]})


def distinct_seeds(task: str, tokenizer: "Tokenizer", count: int) -> list[int]:
    """Return the first seeds whose questions are pairwise different."""
    if count > len(PAIRS[task]):
        raise InvalidInput(
            f"{task!r} has {len(PAIRS[task])} questions, and {count} are requested: request at most that many"
        )
    seeds: dict[str, int] = {}
    seed = 0
    while len(seeds) < count:
        seeds.setdefault(draw_question(tokenizer, task, 0, seed=seed).text, seed)
        seed += 1
    return list(seeds.values())


def replies(
    model: Transformer, questions: Sequence[FewShotQuestion], answers: Sequence[int], *, hidden: bool = False
) -> list[Reply]:
    """Evaluate a model's answers to questions, with their demonstrations visible or hidden, in one batch.

    Args:
        model: a causal language model.
        questions: the questions, of one task.
        answers: the first tokens of all answers of the task, the right ones among them.
        hidden: whether nothing after the demonstrations attends to them.

    Raises:
        InvalidInput: if the first token of a right answer isn't among these, or an id is outside the vocabulary.
    """
    if any(question.answer not in answers for question in questions):
        raise InvalidInput("the right answer's first token isn't among those of the task")
    texts = {f"question {i}": np.append(each.ids, each.answer) for i, each in enumerate(questions)}
    require_ids(model.config, texts | {"the list of answers": answers})
    longest = bucket(max(len(question.ids) for question in questions), model.config.positions)
    ids, seen = np.zeros((len(questions), longest), np.int32), np.ones((len(questions), longest), bool)
    for i, question in enumerate(questions):
        tokens = len(question.ids)
        ids[i, :tokens], seen[i, :tokens] = question.ids, ~(question.hidden & hidden)
    last = np.array([len(question.ids) - 1 for question in questions])
    results = []
    logs = np.asarray(on_host(_logs(model, *map(jnp.asarray, (ids, seen, last)))), np.float64)
    for log_probabilities, question in zip(logs, questions, strict=True):
        of_task = np.logaddexp.reduce(log_probabilities[list(answers)])
        right = bool(log_probabilities.argmax() == question.answer)
        results.append(Reply(float(of_task), float(log_probabilities[question.answer] - of_task), right))
    return results


@stored_program
def _logs(
    model: Transformer, ids: Int[Array, "texts tokens"], seen: Bool[Array, "texts tokens"], last: Int[Array, "texts"]
) -> Float[Array, "texts vocab"]:
    states = model.states(model.embed(ids), seen)
    return jax.nn.log_softmax(logits_of(model, jnp.take_along_axis(states, last[:, None, None], 1)[:, 0]))
