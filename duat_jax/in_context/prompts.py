"""Few-shot prompts: demonstrations and a question, tokenised."""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from duat_jax.errors import InvalidInput
from duat_jax.in_context.runs import Task
from duat_jax.inputs.few_shot_tasks import PAIRS
from duat_jax.models.checkpoint.tokenizer import one_error
from duat_jax.models.encoding import encode

if TYPE_CHECKING:
    from tokenizers import Tokenizer

START = "\n"
"""Beginning of every text, with or without demonstrations: models treat the first token of a text specially."""


class FewShotQuestion(NamedTuple):
    """A tokenised question after demonstrations, with its answer.

    Args:
        ids: token ids of a line break, the demonstrations and the question, `[tokens]`.
        hidden: true for the demonstrations' tokens, `[tokens]`.
        answers: the tokens of the answer.
        text: the text.
    """

    ids: Int[np.ndarray, "tokens"]
    hidden: Bool[np.ndarray, "tokens"]
    answers: tuple[int, ...]
    text: str

    @property
    def answer(self) -> int:
        """The first token of the answer."""
        return self.answers[0]

    @property
    def task(self) -> Task:
        """The task for `ledger`: the first token of the answer after the last token of the question."""
        return self._replace(answers=self.answers[:1]).whole

    @property
    def whole(self) -> Task:
        """The task for `ledger`: every token of the answer, each after the question and the answer's earlier tokens."""
        ids = np.concatenate([self.ids, np.array(self.answers[:-1], np.int32)])
        hidden = np.pad(self.hidden, (0, len(ids) - len(self.ids)))
        places = len(self.ids) - 1 + np.arange(len(self.answers))
        return Task(*map(jnp.asarray, (ids, hidden, places, np.array(self.answers))))


def question_of(tokenizer: "Tokenizer", demonstrations: Sequence[str], question: str, answer: str) -> FewShotQuestion:
    """Tokenise a question after demonstrations, with the same tokens as without demonstrations.

    Args:
        tokenizer: the model's tokenizer.
        demonstrations: the demonstrations, one line each.
        question: the text after them, to be continued.
        answer: the right continuation.

    Raises:
        InvalidInput: if the question or the answer is empty, or the tokenizer can't split them from the preceding text.

    Example:
        >>> import duat_jax as duat
        >>> question_of(duat.load_tokenizer(), ["a = 1"], "b =", " 2").hidden.tolist()
        [False, True, True, True, True, False, False]
    """
    if problems := [
        f"the {field} is empty" for field, text in (("question", question), ("answer", answer)) if not text
    ]:
        raise InvalidInput(f"{'; '.join(problems)}: give some text")
    lines = "".join(f"{line}\n" for line in demonstrations)

    with one_error("the tokenizer can't split the question", InvalidInput):
        inner = [after_start(tokenizer, text) for text in (lines, question, answer)]
    if not inner[2]:
        raise InvalidInput(f"the tokenizer has no token for the answer {answer!r}: give another one")
    pieces = [encode(tokenizer, START, "the beginning"), *inner[:2]]
    hidden = np.repeat([False, True, False], [len(piece) for piece in pieces])
    ids = np.concatenate([np.array(piece, np.int32) for piece in pieces])
    return FewShotQuestion(ids, hidden, tuple(inner[2]), START + lines + question)


def after_start(tokenizer: "Tokenizer", text: str) -> list[int]:
    """Return a text's tokens after a line break: at the beginning some tokenizers add a space."""
    start, whole = (tokenizer.encode(string, add_special_tokens=False).ids for string in (START, START + text))
    if whole[: len(start)] != start:
        raise InvalidInput(f"the tokenizer merges a line break with the text after it: begin {text!r} differently")
    return whole[len(start) :]


EXCHANGED, REDRAWN = "exchanged", "redrawn"
"""Controls that keep the form, words and answers of demonstrations, but not which answer is right."""


def draw_question(
    tokenizer: "Tokenizer", task: str, demonstrations: int, *, seed: int = 0, control: str | None = None
) -> FewShotQuestion:
    r"""Draw a question of a task; with the same seed, more demonstrations are prepended to the same text.

    Args:
        tokenizer: the model's tokenizer.
        task: a name in `PAIRS`.
        demonstrations: the number of demonstrations.
        seed: the seed of the draw.
        control: the replacement of the right demonstrations: the same with their answers `"exchanged"` so
            that none is right; with answers `"redrawn"` from the task's other pairs; or demonstrations of another
            task, by its name.  The right ones if absent.

    Raises:
        InvalidInput: if there is no such task or control, or it has too few pairs.

    Example:
        >>> import duat_jax as duat
        >>> draw_question(duat.load_tokenizer(), "capitals", 1).text
        '\nBulgaria -> Sofia\nRussia ->'
    """
    if task not in PAIRS:
        raise InvalidInput(f"there is no task {task!r}: choose one of {', '.join(PAIRS)}")
    if not 0 <= demonstrations < len(PAIRS[task]):
        raise InvalidInput(
            f"{demonstrations} demonstrations of {task!r} are requested, which has {len(PAIRS[task])} pairs: request 0"
            f" to {len(PAIRS[task]) - 1}"
        )
    drawn = _drawn(task, seed)
    query, answer = drawn[0]
    pairs = _demonstrations(task, drawn, demonstrations, seed, control)
    return question_of(tokenizer, [f"{left} -> {right}" for left, right in pairs], f"{query} ->", f" {answer}")


def _drawn(task: str, seed: int) -> list[tuple[str, str]]:
    return Random(f"{seed} {task}").sample(PAIRS[task], len(PAIRS[task]))


def _demonstrations(
    task: str, drawn: list[tuple[str, str]], count: int, seed: int, control: str | None
) -> list[tuple[str, str]]:
    """Return the pairs of the demonstrations before a question."""
    pairs, rest = drawn[count:0:-1], drawn[count + 1 :]
    inputs, answers = [word for word, _ in pairs], [answer for _, answer in pairs]
    if control is None:
        return pairs
    if control == EXCHANGED:
        if count < 2:
            raise InvalidInput(f"the answers of {count} demonstrations can't be exchanged: request at least 2")
        draw, order = Random(f"{seed} {task} {count} exchanged"), list(range(count))
        while any(i == place for i, place in enumerate(order)):
            draw.shuffle(order)
        return [(word, answers[i]) for word, i in zip(inputs, order, strict=True)]
    if control == REDRAWN:
        if len(rest) < count:
            raise InvalidInput(f"{task!r} has {len(rest)} other pairs: request at most that many demonstrations")
        return [(word, answer) for word, (_, answer) in zip(inputs, rest, strict=False)]
    if control not in PAIRS or control == task:
        names = ", ".join((EXCHANGED, REDRAWN, *(name for name in PAIRS if name != task)))
        raise InvalidInput(f"there is no control {control!r} of {task!r}: choose one of {names}")
    return _drawn(control, seed)[:count]
