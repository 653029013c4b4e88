"""Are the elements of attention's matrix highly correlated?

Section 4.2 calls `W'_HVO = Σ_h H_h ⊗ (W_{V,h} W_{O,h})ᵀ` "a dense matrix (almost devoid of zero elements and whose
internal elements are highly correlated)".  It doesn't say what correlations are taken over:

- *over texts*: two elements at fixed places.  Their blocks (query, key) may be the same, share a query or a key, or
  neither.  In one block all elements move with the same few attention weights, fully with one head; so only blocks that
  share nothing can show anything.
- *within one matrix*: the entries of two blocks that share neither query nor key.  With one head they are proportional
  whatever the weights.

The measure is the mean size of Pearson's correlation over 400 drawn pairs in every layer, over 40 texts of 32 tokens;
the unit is a group of such texts, 8 of each model.  Controls: the same texts *exchanged* for one of the two elements,
which gives chance's size with as many texts; tokens shuffled; random tokens; an untrained model of the same shape; and
within one matrix each head's attention permuted among the pairs of tokens.  The matrix is never built.

Stated beforehand: by the papers' view blocks that share nothing have at least 0.5 on text, and more than on the
controls.  If correlation comes with the formula, they have chance's size, and within one matrix no more than an
untrained model.  Differences of a few hundredths from chance can't be told with 40 texts.
"""

import itertools
from functools import cache, partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from flax import nnx
from jaxtyping import Array, Float, Int

from duat_jax.in_context.reach import weights_of
from duat_jax.models.layer_parts import blocks
from duat_jax.models.sites import PATTERN
from duat_jax.models.transformer import Transformer
from duat_jax.nn.attention import Attention
from duat_jax.transform import marks
from duat_jax.transform.recording import record_kinds
from experiments.in_context.models import EMBEDDED, SMOLLM2, model_of, texts_of
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table, rows_of
from experiments.verdict import above, below, decide, every

TOKENS, TEXTS, GROUPS = 32, 40, 8
"""The tokens of a text, the texts over which a correlation is taken, and the groups of texts: the units."""

PAIRS = 400
"""Pairs of elements of each kind, drawn in every layer."""

SAME_BLOCK, SAME_QUERY, SAME_KEY, APART = "one block", "one query", "one key", "neither"
KINDS = (SAME_BLOCK, SAME_QUERY, SAME_KEY, APART)
"""The tokens that the blocks of both elements share: query and key, one of them, or none."""

NULL = "texts exchanged"
WITHIN, PERMUTED = "two blocks of one matrix", "the same, heads permuted separately"
UNTRAINED = "untrained, text"
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


def measure_correlation(model: Transformer, ids: Int[np.ndarray, "texts tokens"], seed: int) -> list[Row]:
    """Return mean sizes of correlations of elements of the matrix, over texts and within one matrix, by layer."""
    found: dict[str, list[float]] = {}

    def keep(name: str, sizes: np.ndarray) -> None:
        found.setdefault(name, []).append(float(np.abs(sizes).mean()))

    draw = np.random.default_rng(seed)
    for block, of_layer in zip(blocks(model), _patterns(model, jnp.asarray(ids)), strict=True):
        patterns, attention = np.asarray(of_layer, float), cast(Attention, block.attention)
        value, output = (np.asarray(weight, float) for weight in weights_of(attention))
        for kind in KINDS:
            pair = draw_elements(draw, kind, ids.shape[1], value.shape[1])
            first, second = (values_of(patterns, value, output, elements) for elements in pair)
            keep(kind, correlations(first, second))
            if kind == APART:
                keep(NULL, correlations(first, draw.permuted(second, axis=0)))
                products = covariances(value, output)
                one, other = (patterns[:, :, elements.query, elements.key] for elements in pair)
                keep(WITHIN, within_one_matrix(one, other, products))
                # Each head's attention is dealt out anew among the places, without the other heads'.
                one, other = (draw.permuted(of, axis=2) for of in (one, other))
                keep(PERMUTED, within_one_matrix(one, other, products))
    return [
        dict(zip(["layer", *found], of, strict=True)) for of in zip(itertools.count(), *found.values(), strict=False)
    ]


@cache
def _untrained(name: str) -> Transformer:
    return Transformer(model_of(name)[0].config, rngs=nnx.Rngs(0))


@cache
def _many_texts(name: str) -> np.ndarray:
    return texts_of(name, GROUPS * TEXTS, TOKENS)


def correlated(name: str, inputs: str, group: int) -> list[Row]:
    """Return the sizes of correlations in every layer, over one group of texts."""
    model = _untrained(name) if inputs == UNTRAINED else model_of(name)[0]
    ids = _many_texts(name)[group * TEXTS : (group + 1) * TEXTS]
    kind = TEXT if inputs == UNTRAINED else inputs
    return measure_correlation(model, inputs_of(ids, kind, model.config.vocab, group), group)


def measure() -> Measurements:
    """Yield every group of texts and every control, of both models."""
    for group in range(GROUPS):
        for name in (SMOLLM2, EMBEDDED):
            for inputs in (*INPUTS, UNTRAINED):
                keys = {"model": name, "inputs": inputs, "group": group}
                yield Piece("layers", keys, partial(correlated, name, inputs, group))


def sizes(name: str, inputs: str, column: str, frames: Frames) -> pd.Series:
    """Return the mean size of correlations over layers, group by group."""
    return rows_of(frames["layers"], model=name, inputs=inputs).groupby("group")[column].mean()


def less(name: str, minuend: tuple[str, str], subtrahend: tuple[str, str], frames: Frames) -> pd.Series:
    """Return the difference of two sizes, each of inputs and a kind of pairs, group by group."""
    return sizes(name, *minuend, frames) - sizes(name, *subtrahend, frames)


def _both(title: str, values: Any, *given: Any, digits: int = 2, sign: str = "") -> tuple[Measure, ...]:
    short = {SMOLLM2: "SmolLM2", EMBEDDED: "embedded model"}
    return tuple(Measure(f"{title}, {short[of]}", partial(values, of, *given), digits, sign) for of in short)


SIZE = _both("size, blocks that share nothing", sizes, TEXT, APART)
CHANCE = _both("size by chance", sizes, TEXT, NULL)
BEYOND = _both("size − chance", less, (TEXT, APART), (TEXT, NULL), digits=3, sign="+")
TRAINED = _both("within one matrix, text − untrained", less, (TEXT, WITHIN), (UNTRAINED, WITHIN), sign="+")


def _beside_controls(layers: pd.DataFrame) -> pd.DataFrame:
    """Return every model's sizes on text minus those on each control."""
    means = layers.groupby(["model", "inputs", "group"], sort=False)[[*KINDS, WITHIN]].mean()
    text = means.xs(TEXT, level="inputs")
    return pd.concat(
        [(text - means.xs(of, level="inputs")).assign(control=of) for of in (SHUFFLED, RANDOM, UNTRAINED)]
    ).reset_index()


STUDY = Study(
    protocol=__doc__,
    page="in-context",
    claim="the elements of attention's dense matrix are highly correlated (Section 4.2)",
    unit="groups of texts",
    stated="before the run",
    predictions=(
        Prediction(
            "elements of blocks that share no token are highly correlated over texts",
            "confirmed if the sizes are above 0.5 in both models, refuted if below",
            SIZE,
            every(above, 0.5),
        ),
        Prediction(
            "they are as correlated as by chance",
            "confirmed if the difference is within 0.01 in both models (a bound set after the run), refuted if outside",
            BEYOND,
            every(lambda of: decide(of.low > -0.01 and of.high < 0.01, of.low > 0.01 or of.high < -0.01)),
        ),
        Prediction(
            "within one matrix they are no more correlated than in an untrained model",
            "confirmed if the differences are below zero in both models, refuted if above",
            TRAINED,
            every(below),
        ),
    ),
    control=CHANCE[0],
    headline="Elements of SmolLM2-135M's attention matrix that share no token correlate over texts by {outcome}, by"
    " chance {control} ({n} groups of texts).",
    against="Within one matrix blocks correlate by {Correlations of elements / SmolLM2-135M-Instruct, text / two blocks"
    " of one matrix}, but in an untrained model by {Correlations of elements / SmolLM2-135M-Instruct, untrained, text /"
    " two blocks of one matrix}.",
    limits="Correlations of a few hundredths can't be told from chance with 40 texts. Two causal models.",
    tables={
        "Correlations of elements": Table(
            "layers",
            ("model", "inputs"),
            {of: Cell(of, 2) for of in (*KINDS, NULL, WITHIN, PERMUTED)},
            unit="group",
        ),
        "Text minus controls": Table(
            "layers",
            ("model", "control"),
            {of: Cell(of, 2, "+") for of in (SAME_KEY, APART, WITHIN)},
            prepare=_beside_controls,
        ),
    },
    measure=measure,
    settings={"texts": TEXTS, "tokens": TOKENS, "groups": GROUPS, "pairs": PAIRS},
)
