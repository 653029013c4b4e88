"""Contrasts of two prompts: which tokens the difference comes from, and the model run again with single tokens."""

from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

import duat_jax as duat
from duat_jax.evaluation.statistics import agreement
from duat_jax.in_context.prompts import START
from duat_jax.in_context.runs import logits_of, streams_of
from duat_jax.models.transformer import Transformer
from experiments.in_context.pairs import Pair, draw_pair
from experiments.study import Row

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DECIDING, OTHERS, BETWEEN, LAST = "deciding words", "other words", "between", "last token"
"""The places where parts of a difference stand."""

LENGTH = 32
"""The length to which texts are padded."""

PATCHED = (10, 20)
"""The layers of SmolLM2 before which the stream is patched, one token at a time."""

ROWS = (5, 10, 15, 20, 25, 29)
"""The layers before which it is kept where the difference is."""

CLOSE = 1.5
"""A control's stream moves at most so many times more or less than that of the deciding token."""

SENTENCES = (
    "Nui zi created Nui zi dynamics.",
    "Nui zi created gravitation and relativity theory.",
)
"""The papers' sentences, of Appendix D."""

WRITTEN = 60
"""Tokens of the replies to them."""


@jax.jit
def difference_of(
    model: Transformer, ids: Int[Array, "texts tokens"], last: Int[Array, ""], answers: Int[Array, "two"]
) -> Float[Array, "texts"]:
    """Return the difference of two tokens' logits after each text."""
    logits = logits_of(model, model.states(model.embed(ids))[:, last])
    return logits[:, answers[0]] - logits[:, answers[1]]


@partial(jax.jit, static_argnames=("layer",))
def patched(
    model: Transformer,
    ids: Int[Array, "tokens"],
    other: Int[Array, "tokens"],
    last: Int[Array, ""],
    answers: Int[Array, "two"],
    layer: int,
) -> tuple[Float[Array, "tokens"], Float[Array, "tokens"]]:
    """Return the difference of two logits with one token's stream before a layer from another text, for every token."""
    streams = [streams_of(model, text)[layer] for text in (ids, other)]
    rows = jnp.where(jnp.eye(len(ids), dtype=bool)[..., None], streams[1], streams[0])
    for block in model.stack.blocks[layer:]:
        rows = block(rows, jnp.ones(rows.shape[:-1], bool))
    rows = rows if model.final_norm is None else model.final_norm(rows)
    logits = logits_of(model, model.head.states(rows)[:, last])
    return logits[:, answers[0]] - logits[:, answers[1]], jnp.linalg.norm(streams[1] - streams[0], axis=-1)


def _spread(row: np.ndarray, pair: Pair) -> dict[str, float]:
    """Return the shares of the parts' sizes, by where the tokens stand, and how many tokens carry them."""
    shares = np.abs(row) / np.abs(row).sum()
    deciding, rest = float(shares[pair.deciding].sum()), float(shares[pair.rest].sum())
    last = 0.0 if (pair.deciding | pair.rest)[-1] else float(shares[-1])
    spread = {DECIDING: deciding, OTHERS: rest, BETWEEN: 1 - deciding - rest - last, LAST: last}
    return spread | {"tokens": float(1 / (shares**2).sum())}


def _single_tokens(parts: np.ndarray, measured: np.ndarray, moved: np.ndarray, draw: np.random.Generator) -> Row:
    """Compare the token of the largest part with controls: as far a move of another's stream, and one at random."""
    changed = np.flatnonzero(moved > 0)
    top = int(changed[np.abs(parts[changed]).argmax()])
    others = np.array([token for token in changed if token != top])
    near = others[np.abs(np.log(moved[others] / moved[top])) <= np.log(CLOSE)] if len(others) else others
    result: Row = {"token": top, "its part": float(parts[top]), "run again": float(measured[top])}
    result |= dict.fromkeys(("at random", "as far", "rank agreement"))
    if len(others):
        result["at random"] = float(measured[draw.choice(others)])
        result["rank agreement"] = agreement(parts[changed], measured[changed])[0]
    if len(near):
        # Of several, the one of the smallest part.
        result["as far"] = float(measured[near[np.abs(parts[near]).argmin()]])
    return result


def measure_pair(
    model: Transformer, tokenizer: "Tokenizer", task: str, seed: int, layers: tuple[int, ...] = PATCHED
) -> dict[str, list[Row]]:
    """Contrast two prompts, and run the model with their tokens exchanged, in the input and in a layer's stream."""
    pair = draw_pair(tokenizer, task, seed)
    found = duat.contrast(model, pair.ids, pair.other, pair.answers[0], contrast=pair.answers[1])
    padding = (0, LENGTH - len(pair.ids))
    mixed = [np.where(where, pair.other, pair.ids) for where in (pair.deciding, pair.rest)]
    texts = jnp.stack([jnp.pad(jnp.asarray(ids), padding) for ids in (pair.ids, pair.other, *mixed)])
    last, answers = jnp.asarray(len(pair.ids) - 1), jnp.asarray(pair.answers)
    first, second, *without = np.asarray(difference_of(model, texts, last, answers), float).tolist()
    single, draw = [], np.random.default_rng(seed)
    for layer in layers:
        values, moved = (
            np.asarray(column, float)[: len(pair.ids)]
            for column in patched(model, texts[0], texts[1], last, answers, layer)
        )
        of_layer = _single_tokens(found.flow[layer].astype(float), first - values, moved, draw)
        single.append({"order": pair.order, "layer": layer, **of_layer})
    rows = [
        {"order": pair.order, "layer": i, **_spread(found.flow[i].astype(float), pair)}
        for i in ROWS
        if i < len(found.flow)
    ]
    whole = {
        "order": pair.order,
        "text": pair.text,
        "first": first,
        "second": second,
        "difference": first - second,
        "part of the deciding words": float(found.flow[0][pair.deciding].sum()),
        "part of the others": float(found.flow[0][pair.rest].sum()),
        "run again: deciding": first - without[0],
        "run again: others": first - without[1],
        "error": float(found.completeness.error),
    }
    return {"pairs": [whole], "rows": rows, "single": single}


def measure_sentence(model: Transformer, tokenizer: "Tokenizer", sentence: str, written: int = WRITTEN) -> list[Row]:
    """Return a model's reply to a sentence, and what each word of the sentence adds to the reply's log-probability."""
    # A word is hidden: nothing after it attends to it.
    ends = "<|im_end|>"
    before = f"{START}<|im_start|>user\n"
    ids = tokenizer.encode(f"{before}{sentence}{ends}\n<|im_start|>assistant\n", add_special_tokens=False).ids
    start, length = len(ids), len(ids) + written
    places = jnp.arange(length)
    end = tokenizer.token_to_id(ends)
    for _ in range(written):
        logits = _last_logits(model, jnp.pad(jnp.asarray(ids, jnp.int32), (0, length - len(ids))), len(ids) - 1)
        if (token := int(np.asarray(logits).argmax())) == end:
            break
        ids.append(token)
    spans = _words(tokenizer, before, sentence)
    seen = [jnp.ones(length, bool), *((places < span[0]) | (places >= span[1]) for _, span in spans)]
    text = jnp.pad(jnp.asarray(ids, jnp.int32), (0, length - len(ids)))
    logs = [float(_reply_log(model, text, mask, jnp.asarray(start), jnp.asarray(len(ids)))) for mask in seen]
    reply = {"reply": tokenizer.decode(ids[start:]), "tokens": len(ids) - start}
    return [{"word": word, "lost": logs[0] - log, **reply} for (word, _), log in zip(spans, logs[1:], strict=True)]


def _words(tokenizer: "Tokenizer", before: str, sentence: str) -> list[tuple[str, tuple[int, int]]]:
    """Return the words of a sentence with their tokens; the invented name is one word."""
    spans, text = [], before
    for i, word in enumerate(sentence.replace("Nui zi", "Nui_zi").rstrip(".").split()):
        start = len(tokenizer.encode(text, add_special_tokens=False).ids)
        text += ("" if i == 0 else " ") + word.replace("_", " ")
        spans.append(
            (f"{i + 1}. {word.replace('_', ' ')}", (start, len(tokenizer.encode(text, add_special_tokens=False).ids)))
        )
    return spans


@jax.jit
def _last_logits(model: Transformer, ids: Int[Array, "tokens"], last: int | Int[Array, ""]) -> Float[Array, "vocab"]:
    return logits_of(model, model.states(model.embed(ids))[last][None])[0]


@jax.jit
def _reply_log(model: Transformer, ids: Array, seen: Array, start: Array, stop: Array) -> Array:
    """Return the log-probability of the tokens from one place to before another."""
    logs = jax.nn.log_softmax(logits_of(model, model.states(model.embed(ids), seen)))
    places = jnp.arange(1, len(ids))
    of_tokens = jnp.take_along_axis(logs[:-1], ids[1:, None], -1)[:, 0]
    return jnp.where((places >= start) & (places < stop), of_tokens, 0).sum()
