"""Correlation of the elements of attention's matrix `W'_HVO = Σ_h H_h ⊗ (W_{V,h} W_{O,h})ᵀ`, without building it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from duat_jax.in_context.reach import weights_of
from duat_jax.models.layer_parts import blocks
from duat_jax.models.sites import PATTERN
from duat_jax.models.transformer import Transformer
from duat_jax.transform import marks
from duat_jax.transform.recording import record_kinds

TOKENS, TEXTS, GROUPS = 32, 40, 8
"""The tokens of a text, the texts over which a correlation is taken, and the groups of texts: the units."""

PAIRS = 400
"""Pairs of elements of each kind, drawn in every layer."""

SAME_BLOCK, SAME_QUERY, SAME_KEY, APART = "one block", "one query", "one key", "neither"
KINDS = (SAME_BLOCK, SAME_QUERY, SAME_KEY, APART)
"""The tokens that the blocks of both elements share: query and key, one of them, or none."""

NULL = "texts exchanged"
TEXT, SHUFFLED, RANDOM = "text", "shuffled tokens", "random tokens"
INPUTS = (TEXT, SHUFFLED, RANDOM)


class Elements(NamedTuple):
    """Elements of the matrix: the query and key of their blocks, and the row and column inside.

    Args:
        query: `[pairs]`.
        key: `[pairs]`.
        row: `[pairs]`.
        column: `[pairs]`.
    """

    query: Int[np.ndarray, "pairs"]
    key: Int[np.ndarray, "pairs"]
    row: Int[np.ndarray, "pairs"]
    column: Int[np.ndarray, "pairs"]


def draw_elements(draw: np.random.Generator, kind: str, tokens: int, features: int) -> tuple[Elements, Elements]:
    """Draw pairs of elements that the mask permits; queries are of the later half of a text."""

    def other_than(values: np.ndarray, low: int, high: Any) -> np.ndarray:
        drawn = draw.integers(low, high - 1, PAIRS)
        return drawn + (drawn >= values)

    query = draw.integers(tokens // 2, tokens, PAIRS)
    other_query = query if kind in (SAME_BLOCK, SAME_QUERY) else other_than(query, tokens // 2, tokens)
    visible = np.minimum(query, other_query) + 1
    key = draw.integers(0, visible)
    other_key = key if kind in (SAME_BLOCK, SAME_KEY) else other_than(key, 0, visible)
    inner = [draw.integers(0, features, PAIRS) for _ in range(4)]
    return Elements(query, key, *inner[:2]), Elements(other_query, other_key, *inner[2:])


def values_of(
    patterns: Float[np.ndarray, "texts heads queries keys"],
    value: Float[np.ndarray, "heads features head_features"],
    output: Float[np.ndarray, "heads head_features features"],
    elements: Elements,
) -> Float[np.ndarray, "texts pairs"]:
    """Return elements of the matrix on several texts."""
    maps = np.einsum("hpa,hap->hp", value[:, elements.row], output[:, :, elements.column])
    return np.einsum("thp,hp->tp", patterns[:, :, elements.query, elements.key], maps)


def correlations(first: Float[np.ndarray, "texts pairs"], second: Float[np.ndarray, "texts pairs"]) -> np.ndarray:
    """Return Pearson's correlation of every pair over texts, 0 where one doesn't vary."""
    a, b = (of - of.mean(0) for of in (first, second))
    size = np.sqrt((a**2).sum(0) * (b**2).sum(0))
    return np.where(size > 0, (a * b).sum(0) / np.where(size > 0, size, 1), 0)


def within_one_matrix(
    vectors: Float[np.ndarray, "texts heads pairs"],
    others: Float[np.ndarray, "texts heads pairs"],
    products: Float[np.ndarray, "heads heads"],
) -> np.ndarray:
    """Return the correlation over entries of two blocks `Σ_h a_h G_h` and `Σ_h b_h G_h`, for every text and pair."""
    products_of = [
        np.einsum("tgp,gh,thp->tp", first, products, second)
        for first, second in ((vectors, others), (vectors, vectors), (others, others))
    ]
    return products_of[0] / np.sqrt(products_of[1] * products_of[2])


def covariances(value: Float[np.ndarray, "heads m a"], output: Float[np.ndarray, "heads a n"]) -> np.ndarray:
    """Return the covariances over entries of `G_h = W_{V,h} W_{O,h}`, of every pair of heads."""
    values = np.einsum("gma,hmb->ghab", value, value, optimize=True)
    outputs = np.einsum("gan,hbn->ghab", output, output, optimize=True)
    means = np.einsum("ha,ha->h", value.mean(1), output.mean(2))
    return (values * outputs).sum((-2, -1)) / (value.shape[1] * output.shape[2]) - np.outer(means, means)


@jax.jit
def _patterns(model: Transformer, ids: Int[Array, "texts tokens"]) -> list[Float[Array, "texts heads queries keys"]]:
    recording = record_kinds(model.states, model.embed(ids), (marks.HOLD,))
    return [recording.seen[site] for site in recording.program.of_kind(marks.HOLD) if site.key.name == PATTERN]


def inputs_of(ids: Int[np.ndarray, "texts tokens"], kind: str, vocab: int, seed: int) -> np.ndarray:
    """Return texts, the same with the tokens of each in a random order, or tokens that are drawn at random."""
    draw = np.random.default_rng(seed)
    if kind == RANDOM:
        return draw.integers(0, vocab, ids.shape).astype(np.int32)
    return draw.permuted(ids, axis=1) if kind == SHUFFLED else ids


def measure_correlation(model: Transformer, ids: Int[np.ndarray, "texts tokens"], seed: int) -> dict[str, Any]:
    """Return mean sizes of correlations of elements of the matrix, over texts and within one matrix, by layer."""
    found: dict[str, list[float]] = {}

    def keep(name: str, sizes: np.ndarray) -> None:
        found.setdefault(name, []).append(float(np.abs(sizes).mean()))

    draw = np.random.default_rng(seed)
    for block, of_layer in zip(blocks(model), _patterns(model, jnp.asarray(ids)), strict=True):
        patterns = np.asarray(of_layer, float)
        value, output = (np.asarray(weight, float) for weight in weights_of(block.attention))
        for kind in KINDS:
            pair = draw_elements(draw, kind, ids.shape[1], value.shape[1])
            first, second = (values_of(patterns, value, output, elements) for elements in pair)
            keep(kind, correlations(first, second))
            if kind == APART:
                keep(NULL, correlations(first, draw.permuted(second, axis=0)))
                products = covariances(value, output)
                vectors = [patterns[:, :, elements.query, elements.key] for elements in pair]
                keep("within", within_one_matrix(*vectors, products))
                # Each head's attention is dealt out anew among the places, without the other heads'.
                dealt = [draw.permuted(of, axis=2) for of in vectors]
                keep("within, heads by themselves", within_one_matrix(*dealt, products))
    return found
