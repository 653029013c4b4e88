"""Long texts that are one document each: chapters of Python's manual, and modules of its standard library."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from duat_jax.evaluation.running_text import stream
from experiments.texts import manual
from training.corpus import sources, split, unseen

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENS = 8192
MANUAL, SOURCE = "manual", "source"


def documents(tokenizer: "Tokenizer") -> dict[str, Int[np.ndarray, "documents tokens"]]:
    """Return the first tokens of every document that is long enough, by its kind."""
    # Sources are those that the embedded model wasn't trained on, without tests, whose lines are often alike.
    modules = [text for name, text in unseen(*split(sources())).items() if not name.startswith("test/")]
    texts = {MANUAL: list(dict.fromkeys(manual())), SOURCE: modules}
    ids = {kind: [stream(tokenizer, [text]) for text in of_kind] for kind, of_kind in texts.items()}
    return {kind: np.stack([text[:TOKENS] for text in of if len(text) >= TOKENS]) for kind, of in ids.items()}


def repeated(ids: Int[np.ndarray, "tokens"], length: int = 8) -> float:
    """Return the share of a text's second half whose tokens end a run of tokens that stands in the text before.

    Example:
        >>> repeated(np.array([1, 2, 3, 1, 2, 4]), 2), repeated(np.arange(6), 2)
        (0.333..., 0.0)
    """
    runs = [tuple(run) for run in np.lib.stride_tricks.sliding_window_view(ids, length).tolist()]
    first = {run: place for place, run in reversed(list(enumerate(runs)))}
    late = range(max(len(ids) // 2 - length + 1, 0), len(runs))
    return float(np.mean([first[runs[place]] < place for place in late]))
