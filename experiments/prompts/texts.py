"""Prompts of one length before the same texts: three tasks, each in two wordings."""

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Int

from experiments.texts import manual

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CONTINUE, SUMMARIZE, TRANSLATE = "continue", "summarize", "translate"
INSTRUCTIONS = {
    CONTINUE: ("Please continue the following text in English.", "Now continue the next passage in English."),
    SUMMARIZE: ("Please summarize the following text in English.", "Now summarize the next passage in English."),
    TRANSLATE: ("Please translate the following text into French.", "Now translate the next passage into French."),
}
"""The two wordings of every task, all of as many tokens; three differ, as between translating and another task."""
BEFORE, BETWEEN, AFTER = "<|im_start|>user\n", "\n\n", "<|im_end|>\n<|im_start|>assistant\n"


class Prompts(NamedTuple):
    """Texts after every prompt.

    Args:
        ids: of every text after each prompt, `[prompts, texts, tokens]`; prompts are tasks with their wordings in
            order, task by task.
        names: of the prompts, a task and the number of its wording.
        text: where the text stands.
    """

    ids: Int[np.ndarray, "prompts texts tokens"]
    names: list[tuple[str, int]]
    text: slice


def paragraphs() -> list[str]:
    """Return the paragraphs of Python's reference manual that are prose, in one line each."""
    found = []
    for chapter in manual():
        for paragraph in chapter.split("\n\n"):
            line = " ".join(paragraph.split())
            if re.match(r"[A-Z][a-z]+ [a-z]", line) and not re.search(r"[:=>|*`~^_\\]", line[:160]):
                found.append(line)
    return sorted(set(found))


def draw_prompts(tokenizer: "Tokenizer", count: int, length: int, seed: int) -> Prompts:
    """Draw texts and set every prompt before them."""
    encoded = [tokenizer.encode(line).ids for line in paragraphs()]
    long = [ids[:length] for ids in encoded if len(ids) >= length]
    texts = [long[i] for i in np.random.default_rng(seed).choice(len(long), count, replace=False)]
    after = tokenizer.encode(AFTER).ids
    begun = {
        (task, wording): tokenizer.encode(f"{BEFORE}{sentence}{BETWEEN}").ids
        for task, sentences in INSTRUCTIONS.items()
        for wording, sentence in enumerate(sentences)
    }
    lengths = {name: len(ids) for name, ids in begun.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"prompts have {lengths} tokens: word them with as many each")
    start = next(iter(lengths.values()))
    ids = np.array([[[*before, *text, *after] for text in texts] for before in begun.values()], np.int32)
    return Prompts(ids, list(begun), slice(start, start + length))
