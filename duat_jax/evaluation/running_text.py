"""Running text as a model reads it: windows of one length, and what the model loses on them."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from duat_jax.errors import BadText
from duat_jax.inputs.encoding import encode
from duat_jax.models.transformer import Transformer

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def read_texts(paths: Iterable[Path]) -> list[str]:
    """Return text files, whole.

    Args:
        paths: the files, in UTF-8.

    Raises:
        BadText: naming every file that isn't there, isn't UTF-8 or is empty.
    """
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
        raise BadText("; ".join(problems) or "there is no text: give at least one file")
    return texts


def stream(tokenizer: "Tokenizer", texts: Iterable[str]) -> Int[np.ndarray, "tokens"]:
    """Return all tokens of several texts, one after another, each with a model's special tokens around it.

    Args:
        tokenizer: the model's tokenizer.
        texts: the texts.

    Raises:
        BadText: if a text is empty or can't be split.
    """
    return np.concatenate([np.array(encode(tokenizer, text, f"text {i}"), np.int32) for i, text in enumerate(texts)])


def windows(
    tokens: Int[np.ndarray, "tokens"], count: int | None, length: int, *, seed: int | None = None
) -> Int[np.ndarray, "windows length"]:
    """Return windows of running text that don't overlap.

    Args:
        tokens: the text's token ids, from `stream`.
        count: how many; all there are if absent.
        length: tokens of each.
        seed: which ones, in what order; the first ones if absent.

    Raises:
        BadText: if the text is too short for them, or they are empty.

    Example:
        >>> windows(np.arange(10, dtype=np.int32), 2, 3)
        array([[0, 1, 2],
               [3, 4, 5]], dtype=int32)
    """
    if length < 1:
        raise BadText(f"pieces of {length} tokens are asked for: give at least 1")
    all_of_them = tokens[: len(tokens) // length * length].reshape(-1, length)
    wanted = max(1, len(all_of_them)) if count is None else count
    if len(all_of_them) < wanted:
        raise BadText(
            f"the text has {len(tokens)} tokens, and {wanted} pieces of {length} are asked for: give more text, or ask"
            " for fewer or shorter pieces"
        )
    if seed is not None:
        all_of_them = np.random.default_rng(seed).permutation(all_of_them)
    return all_of_them[:wanted]


@jax.jit
def token_losses(model: Transformer, ids: Int[Array, "batch tokens"]) -> Float[Array, "batch predicted"]:
    """Return `−log p` of every token but the first of each text, given those before it, in nats.

    Args:
        model: a language model.
        ids: token ids, `[batch, tokens]`.
    """
    log_probabilities = jax.nn.log_softmax(model(ids[:, :-1]))
    return -jnp.take_along_axis(log_probabilities, ids[:, 1:, None], -1)[..., 0]


def mean_loss(model: Transformer, ids: Int[np.ndarray, "windows tokens"], *, batch: int = 8) -> float:
    """Return the mean of `token_losses` over many texts of one length, a batch at a time.

    Args:
        model: a language model.
        ids: token ids, `[windows, tokens]`.
        batch: how many texts are read at once.
    """
    total = 0.0
    for start in range(0, len(ids), batch):
        rows = ids[start : start + batch]
        # The last batch is filled up, so that one program reads all.
        losses = token_losses(model, jnp.asarray(np.resize(rows, (batch, rows.shape[1]))))
        total += float(np.asarray(losses, np.float64)[: len(rows)].sum())
    return total / (len(ids) * (ids.shape[1] - 1))
