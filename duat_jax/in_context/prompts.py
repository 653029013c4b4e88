"""A question after demonstrations, as a model reads it."""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from duat_jax.errors import BadText
from duat_jax.in_context.runs import Task
from duat_jax.in_context.tasks import PAIRS
from duat_jax.inputs.encoding import encode
from duat_jax.models.checkpoint.tokenizer import one_error

if TYPE_CHECKING:
    from tokenizers import Tokenizer

START = "\n"
"""What every text begins with, demonstrations or not: the first token of a text is read like no other."""


class Question(NamedTuple):
    """A text with demonstrations in it, and what comes next.

    Args:
        ids: token ids of all: what every text begins with, the demonstrations, the question, `[tokens]`.
        hidden: true for the demonstrations' tokens, `[tokens]`.
        answer: the token that comes next: the answer's first one.
        text: the text.
    """

    ids: Int[np.ndarray, "tokens"]
    hidden: Bool[np.ndarray, "tokens"]
    answer: int
    text: str

    @property
    def task(self) -> Task:
        """What the in-context ledger is asked."""
        return Task(*map(jnp.asarray, (self.ids, self.hidden, [len(self.ids) - 1], [self.answer])))


def question_of(tokenizer: "Tokenizer", demonstrations: Sequence[str], question: str, answer: str) -> Question:
    """Return a question after demonstrations as a model reads it; the question's tokens are the same without them.

    Args:
        tokenizer: the model's tokenizer.
        demonstrations: each a line.
        question: what follows them, and is to be continued.
        answer: what comes next.

    Raises:
        BadText: if the question or the answer is empty, or the tokenizer can't split them off what stands before.

    Example:
        >>> import duat_jax as duat
        >>> question_of(duat.load_tokenizer(), ["a = 1"], "b =", " 2").hidden.tolist()
        [False, True, True, True, True, False, False]
    """
    if problems := [f"the {what} is empty" for what, text in (("question", question), ("answer", answer)) if not text]:
        raise BadText(f"{'; '.join(problems)}: give some text")
    lines = "".join(f"{line}\n" for line in demonstrations)

    with one_error("the tokenizer can't split the question", BadText):
        inner = [after_start(tokenizer, text) for text in (lines, question, answer)]
    if not inner[2]:
        raise BadText(f"the tokenizer has no token for the answer {answer!r}: give another one")
    pieces = [encode(tokenizer, START, "the beginning"), *inner[:2]]
    hidden = np.repeat([False, True, False], [len(piece) for piece in pieces])
    ids = np.concatenate([np.array(piece, np.int32) for piece in pieces])
    return Question(ids, hidden, inner[2][0], START + lines + question)


def after_start(tokenizer: "Tokenizer", text: str) -> list[int]:
    """Return a text's tokens where it doesn't begin the text: some tokenizers put a space before what does.

    Args:
        tokenizer: the model's tokenizer.
        text: the text.

    Raises:
        BadText: if the tokenizer joins it with the line break before it.
    """
    start, whole = (tokenizer.encode(each, add_special_tokens=False).ids for each in (START, START + text))
    if whole[: len(start)] != start:
        raise BadText(f"the tokenizer makes one token of a line break and what follows it: begin {text!r} otherwise")
    return whole[len(start) :]


EXCHANGED, REDRAWN = "exchanged", "redrawn"
"""Controls that keep a demonstration's form, and its task's words and answers, but not which answer is right."""


def draw_question(
    tokenizer: "Tokenizer", task: str, demonstrations: int, *, seed: int = 0, control: str | None = None
) -> Question:
    r"""Draw a question of a task; with one seed, more demonstrations stand before the same ones and the same question.

    Args:
        tokenizer: the model's tokenizer.
        task: a name in `PAIRS`.
        demonstrations: how many.
        seed: which ones.
        control: what stands in the place of the right demonstrations: the same with their answers `"exchanged"` so
            that none is right; with answers `"redrawn"` from the task's other pairs; or demonstrations of another
            task, by its name.  The right ones if absent.

    Raises:
        BadText: if there is no such task or control, or it has too few pairs.

    Example:
        >>> import duat_jax as duat
        >>> draw_question(duat.load_tokenizer(), "capitals", 1).text
        '\nBulgaria -> Sofia\nRussia ->'
    """
    if task not in PAIRS:
        raise BadText(f"there is no task {task!r}: choose one of {', '.join(PAIRS)}")
    if not 0 <= demonstrations < len(PAIRS[task]):
        raise BadText(
            f"{demonstrations} demonstrations of {task!r} are asked for, which has {len(PAIRS[task])} pairs: ask for 0"
            f" to {len(PAIRS[task]) - 1}"
        )
    drawn = _drawn(task, seed)
    asked, answer = drawn[0]
    pairs = _shown(task, drawn, demonstrations, seed, control)
    return question_of(tokenizer, [f"{one} -> {other}" for one, other in pairs], f"{asked} ->", f" {answer}")


def _drawn(task: str, seed: int) -> list[tuple[str, str]]:
    return Random(f"{seed} {task}").sample(PAIRS[task], len(PAIRS[task]))


def _shown(
    task: str, drawn: list[tuple[str, str]], count: int, seed: int, control: str | None
) -> list[tuple[str, str]]:
    """Return the pairs that stand before a question."""
    pairs, rest = drawn[count:0:-1], drawn[count + 1 :]
    inputs, answers = [one for one, _ in pairs], [other for _, other in pairs]
    if control is None:
        return pairs
    if control == EXCHANGED:
        if count < 2:
            raise BadText(f"the answers of {count} demonstrations can't be exchanged: ask for at least 2")
        draw, order = Random(f"{seed} {task} {count} exchanged"), list(range(count))
        while any(i == place for i, place in enumerate(order)):
            draw.shuffle(order)
        return [(one, answers[i]) for one, i in zip(inputs, order, strict=True)]
    if control == REDRAWN:
        if len(rest) < count:
            raise BadText(f"{task!r} has {len(rest)} other pairs: ask for at most so many demonstrations")
        return [(one, other) for one, (_, other) in zip(inputs, rest, strict=False)]
    if control not in PAIRS or control == task:
        names = ", ".join((EXCHANGED, REDRAWN, *(name for name in PAIRS if name != task)))
        raise BadText(f"there is no control {control!r} of {task!r}: choose one of {names}")
    return _drawn(control, seed)[:count]
