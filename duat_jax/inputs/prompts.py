"""Prompts of tasks: pairs of texts that a model answers rightly, as token ids."""

from collections import Counter
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from duat_jax.deprecation import tokenizer_was_second
from duat_jax.errors import InvalidInput
from duat_jax.inputs.tasks.case import Case
from duat_jax.inputs.tasks.registry import TASKS
from duat_jax.models.checkpoint.tokenizer import one_error
from duat_jax.models.config import Config
from duat_jax.models.transformer import Transformer
from duat_jax.processes import on_host

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DRAWS, BATCH = 4000, 16
"""The largest number of cases that are drawn, and the number that are read at once."""


_Ids = tuple[list[int], list[int], int, int]


class Prompt(NamedTuple):
    """A case as a model reads it, or many of the same number of tokens: a pytree.

    Args:
        clean: token ids of the clean text, `[..., tokens]`.
        corrupted: those of the corrupted text, `[..., tokens]`.
        right: the token that follows the clean text, `[...]`.
        wrong: the token that follows the corrupted text, `[...]`.
    """

    clean: Int[Array, "*prompts tokens"]
    corrupted: Int[Array, "*prompts tokens"]
    right: Int[Array, "*prompts"]
    wrong: Int[Array, "*prompts"]


class Drawn(NamedTuple):
    """The prompts of a task that a model answers rightly.

    Args:
        prompts: the prompts.
        cases: their texts, in the same order.
        read: how many the model read to find so many.
    """

    prompts: Prompt
    cases: tuple[Case, ...]
    read: int


def logit_difference(
    model: Transformer, x: Float[Array, "tokens features"], right: Int[Array, ""], wrong: Int[Array, ""]
) -> Float[Array, ""]:
    """Return by how much a model prefers one token to another after a text."""
    return difference_at(model, model.states(x)[-1], right, wrong)


def difference_at(
    model: Transformer, state: Float[Array, "features"], right: Int[Array, ""], wrong: Int[Array, ""]
) -> Float[Array, ""]:
    """Return by how much a model prefers one token to another at a state."""
    logits = model.head.logits(state, model.unembedding)
    return logits[right] - logits[wrong]


@jax.jit
def differences(model: Transformer, prompts: Prompt) -> tuple[Float[Array, "prompts"], Float[Array, "prompts"]]:
    """Return by how much a model prefers the right answer to the wrong one."""

    def after(ids: Array) -> Array:
        return jax.vmap(partial(logit_difference, model))(model.embed(ids), prompts.right, prompts.wrong)

    return after(prompts.clean), after(prompts.corrupted)


def _encoded(tokenizer: "Tokenizer", task: str, seed: int) -> list[tuple[Case, _Ids]]:
    """Return different cases of the commonest number of tokens, in the order in which they are drawn."""
    random = Random(seed)
    cases = list(dict.fromkeys(TASKS[task](random) for _ in range(DRAWS)))
    texts = [
        t for case in cases for t in (case.clean, case.corrupted, case.clean + case.right, case.corrupted + case.wrong)
    ]
    with one_error("the tokenizer can't split the task's texts", InvalidInput):
        ids = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    encoded = []
    for i, case in enumerate(cases):
        clean, corrupted, *answered = ids[4 * i : 4 * i + 4]
        # An answer is one token if it leaves the text's own as they are.
        if len(clean) == len(corrupted) and [answer[:-1] for answer in answered] == [clean, corrupted]:
            encoded.append((case, (clean, corrupted, answered[0][-1], answered[1][-1])))
    if not encoded:
        raise InvalidInput(f"the tokenizer has no single token for any answer of {task!r}: choose another task")
    tokens, _ = Counter(len(clean) for _, (clean, *_) in encoded).most_common(1)[0]
    return [(case, ids) for case, ids in encoded if len(ids[0]) == tokens]


def require_next_token(config: Config) -> None:
    """Raise unless a model says the next token."""
    if (kind := config.head.kind) != "next token":
        raise InvalidInput(
            f"tasks are for models that say the next token, and this one's head is {kind!r}: load a language model"
        )


@tokenizer_was_second
def draw(model: Transformer, task: str, count: int, *, seed: int = 0, tokenizer: "Tokenizer | None" = None) -> Drawn:
    """Draw prompts of which a model answers both texts rightly; all have the same number of tokens.

    Args:
        model: a language model.
        task: a name in `TASKS`.
        count: how many.
        seed: which ones.
        tokenizer: reads texts and names tokens, in the place of the model's own.

    Raises:
        InvalidInput: if the model says no next token, there is no such task, or it answers too few of its prompts
            rightly.

    Example:
        >>> import duat_jax as duat
        >>> drawn = draw(duat.load(), "parameter", 2)
        >>> drawn.cases[0].clean
        'def write(self, key, config=None): return self.file.write(key,'
        >>> drawn.cases[0].right, drawn.cases[0].wrong, drawn.prompts.clean.shape
        (' config', ' name', (2, 20))
    """
    require_next_token(model.config)
    if task not in TASKS:
        raise InvalidInput(f"there is no task {task!r}: choose one of {', '.join(TASKS)}")
    pairs = _encoded(model.tokenizer if tokenizer is None else tokenizer, task, seed)
    kept: list[tuple[Case, _Ids]] = []
    read = 0
    while len(kept) < count and read < len(pairs):
        some = pairs[read : read + BATCH]
        # The last batch is filled up, so that one program reads all.
        clean, corrupted = on_host(differences(model, _stacked((some * BATCH)[:BATCH])))
        for pair, right in zip(some, (clean > 0) & (corrupted < 0), strict=False):
            if len(kept) < count:
                read += 1
                kept += [pair] if right else []
    if len(kept) < count:
        raise InvalidInput(
            f"the model answers {len(kept)} of {read} prompts of {task!r} rightly, and {count} are asked for: ask for"
            " fewer, or choose another task"
        )
    return Drawn(_stacked(kept), tuple(case for case, _ in kept), read)


def _stacked(pairs: list[tuple[Case, _Ids]]) -> Prompt:
    return Prompt(*map(jnp.array, zip(*(ids for _, ids in pairs), strict=True)))
