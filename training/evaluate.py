"""Held-out bits per byte of the embedded model, beside `xz -9` and a 5-gram byte model on the same files.

Run `python -m training.evaluate --json experiments/results/language_model.json`.
"""

import argparse
import json
import lzma
import platform
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

import duat_jax as duat
from training.corpus import fingerprint, sources, split, unseen
from training.train import encode

ORDER = 5
"""The n of the n-gram byte model."""

BATCH = 16


def _keys(data: np.ndarray, length: int) -> np.ndarray:
    """Return every window of `length` bytes as one number."""
    keys = np.zeros(len(data) - length + 1, np.uint64)
    for i in range(length):
        keys = keys << np.uint64(8) | data[i : len(data) - length + 1 + i].astype(np.uint64)
    return keys


def _look_up(table: tuple[np.ndarray, np.ndarray], keys: np.ndarray) -> np.ndarray:
    known, values = table
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.where(known[at] == keys, values[at], 0)


def ngram_bits_per_byte(training: bytes, held_out: bytes, order: int = ORDER) -> float:
    """Return the held-out cross-entropy of an interpolated (Witten–Bell) n-gram byte model.

    `p_n(c|h) = (count(hc) + distinct(h) · p_{n−1}(c|h')) / (count(h) + distinct(h))`, with `p_0 = 1/256`.

    Args:
        training: bytes to count.
        held_out: bytes to predict.
        order: the n.
    """
    train, test = (np.frombuffer(text, np.uint8) for text in (training, held_out))
    probability = np.full(len(test), 1 / 256)
    for n in range(1, order + 1):
        known, counts = np.unique(_keys(train, n), return_counts=True)
        histories, first = np.unique(known >> np.uint64(8), return_index=True)
        totals = np.add.reduceat(counts, first)
        distinct = np.diff(np.append(first, len(known)))
        grams = _keys(test, n)
        count = _look_up((known, counts), grams)
        total = _look_up((histories, totals), grams >> np.uint64(8))
        kinds = _look_up((histories, distinct), grams >> np.uint64(8))
        lower = probability[n - 1 :]
        seen = total > 0
        probability[n - 1 :][seen] = ((count + kinds * lower) / np.maximum(total + kinds, 1))[seen]
    return float(-np.log2(probability).mean())


def model_bits_per_byte(texts: list[str], path: Path | None) -> float:
    """Return the held-out cross-entropy of a language model, each token predicted from at least half a context.

    Args:
        texts: held-out files.
        path: a checkpoint directory; the embedded model if absent.
    """
    model, tokenizer = duat.load(path), duat.load_tokenizer(path)
    stream = encode(tokenizer, texts)
    context = model.config.positions
    stride = context // 2

    @jax.jit
    def nats(windows: jax.Array) -> jax.Array:
        log_probabilities = jax.nn.log_softmax(model(windows[:, :-1]))
        return -jnp.take_along_axis(log_probabilities, windows[:, 1:, None], -1)[..., 0]

    starts = np.arange(0, len(stream) - context - 1, stride)
    total = 0.0
    for rows in track(np.array_split(starts, -(-len(starts) // BATCH)), "held-out bits per byte"):
        losses = np.asarray(nats(jnp.asarray(stream[rows[:, None] + np.arange(context + 1)], jnp.int32)), np.float64)
        total += losses[:, stride:].sum() + (losses[0, :stride].sum() if rows[0] == 0 else 0.0)
    predicted = len(starts) * stride + stride
    size = sum(len(text.encode()) for text in texts) * predicted / len(stream)
    return float(total / np.log(2) / size)


def compare(texts: list[str], training: bytes, path: Path | None) -> dict[str, float]:
    """Return bits per byte of some files by `xz -9`, by the n-gram model and by the language model.

    Args:
        texts: held-out files.
        training: bytes that the n-gram model counts.
        path: a checkpoint directory; the embedded model if absent.
    """
    joined = "".join(texts).encode()
    return {
        "files": len(texts),
        "bytes": len(joined),
        "xz_9": 8 * len(lzma.compress(joined, preset=9)) / len(joined),
        "five_gram": ngram_bits_per_byte(training, joined),
        "model": model_bits_per_byte(texts, path),
    }


def main() -> None:
    """Print and write the numbers, for all held-out files and for those that share few lines with training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="checkpoint directory; the embedded model if absent")
    parser.add_argument("--json", type=Path, help="file for the result")
    arguments = parser.parse_args()
    training, held_out = split(sources())
    counted = "".join(training.values()).encode()
    new = list(unseen(training, held_out).values())
    result = {
        "held_out_text": fingerprint(held_out),
        "python": platform.python_version(),
        "all_files": compare(list(held_out.values()), counted, arguments.model),
        "files_with_under_10_percent_known_lines": compare(new, counted, arguments.model),
    }
    print(json.dumps(result, indent=2, allow_nan=False))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
