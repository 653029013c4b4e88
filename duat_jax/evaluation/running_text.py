"""Running text: token windows of one length, and the cross-entropy of a model on them."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from duat_jax.errors import InvalidInput
from duat_jax.models.encoding import encode
from duat_jax.models.ids import require_ids
from duat_jax.models.transformer import Transformer
from duat_jax.processes import on_host

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def read_texts(paths: Iterable[Path]) -> list[str]:
    """Read text files."""
    texts, problems = [], []
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            problems.append(f"{path} isn't UTF-8 text")
        except OSError as error:
            problems.append(f"{path} can't be read: {error.strerror}")
        else:
            if text.strip():
                texts.append(text)
            else:
                problems.append(f"{path} is empty")
    if problems or not texts:
        raise InvalidInput("; ".join(problems) or "there is no text: give at least one file")
    return texts


def stream(tokenizer: "Tokenizer", texts: Iterable[str]) -> Int[np.ndarray, "tokens"]:
    """Concatenate the tokens of several texts, each with the model's special tokens.

    Args:
        tokenizer: the model's tokenizer.
        texts: the texts.

    Raises:
        InvalidInput: if a text is empty or can't be tokenised.
    """
    return np.concatenate([np.array(encode(tokenizer, text, f"text {i}"), np.int32) for i, text in enumerate(texts)])


def lines(tokenizer: "Tokenizer", texts: Iterable[str]) -> Int[np.ndarray, "tokens text_and_line"]:
    """Return of every token of `stream` the number of its text, from 0, and of the line where it begins, from 1."""
    numbered = []
    for i, text in enumerate(texts):
        starts, ends = np.array(tokenizer.encode(text).offsets).T
        # A special token has no characters: it begins where the one before it ended.
        before = np.maximum.accumulate(np.append(0, ends[:-1]))
        newlines = [newline.start() for newline in re.finditer("\n", text)]
        line = 1 + np.searchsorted(newlines, np.where(starts < ends, starts, before))
        numbered.append(np.stack([np.full_like(line, i), line], 1))
    return np.concatenate(numbered)


def windows(
    tokens: Int[np.ndarray, "tokens"], count: int | None, length: int, *, seed: int | None = None
) -> Int[np.ndarray, "windows length"]:
    """Split running text into windows that don't overlap.

    Args:
        tokens: the text's token ids, from `stream`.
        count: the number of windows; all if absent.
        length: the number of tokens of each window.
        seed: the seed of a random choice and order; the first windows if absent.

    Raises:
        InvalidInput: if the text is too short, or the windows are empty.

    Example:
        >>> windows(np.arange(10, dtype=np.int32), 2, 3)
        array([[0, 1, 2],
               [3, 4, 5]], dtype=int32)
    """
    if length < 1:
        raise InvalidInput(f"pieces of {length} tokens are requested: request at least 1 token")
    pieces = tokens[: len(tokens) // length * length].reshape(-1, length)
    wanted = max(1, len(pieces)) if count is None else count
    if len(pieces) < wanted:
        raise InvalidInput(
            f"the text has {len(tokens)} tokens, and {wanted} pieces of {length} are requested: give more text, or"
            " request fewer or shorter pieces"
        )
    if seed is not None:
        pieces = np.random.default_rng(seed).permutation(pieces)
    return pieces[:wanted]


def token_losses(model: Transformer, ids: Int[Array, "batch tokens"]) -> Float[Array, "batch predicted"]:
    """Return the cross-entropy `−log p` of every token but the first of each text, given the tokens before, in nats.

    Args:
        model: a language model.
        ids: token ids, `[batch, tokens]`.

    Raises:
        InvalidInput: if an id is outside the model's vocabulary. Within `jax.jit`, where ids aren't known, its loss is
            NaN or that of another token.
    """
    require_ids(model.config, {"the text": ids})
    return _token_losses(model, ids)


@jax.jit
def _token_losses(model: Transformer, ids: Int[Array, "batch tokens"]) -> Float[Array, "batch predicted"]:
    log_probabilities = jax.nn.log_softmax(model(ids[:, :-1]))
    return -jnp.take_along_axis(log_probabilities, ids[:, 1:, None], -1)[..., 0]


def mean_loss(model: Transformer, ids: Int[np.ndarray, "windows tokens"], *, batch: int = 8) -> float:
    """Return the mean cross-entropy of next tokens, in nats, over many texts of one length, a batch at a time.

    Args:
        model: a language model.
        ids: token ids, `[windows, tokens]`.
        batch: the number of texts in one batch.

    Raises:
        InvalidInput: if an id is outside the model's vocabulary, or no token follows another.
    """
    require_ids(model.config, {"the text": ids})
    if len(ids) < 1 or ids.shape[1] < 2:
        raise InvalidInput("there is no token after another: give at least one text of two tokens")
    total = 0.0
    for start in range(0, len(ids), batch):
        rows = ids[start : start + batch]
        # The last batch is filled up, so that one compiled program reads all.
        losses = _token_losses(model, jnp.asarray(np.resize(rows, (batch, rows.shape[1]))))
        total += float(np.asarray(on_host(losses), np.float64)[: len(rows)].sum())
    return total / (len(ids) * (ids.shape[1] - 1))
