"""Deletion and insertion: how a number changes as a text's tokens go, masked out or really removed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from duat_jax.attribution.tokens import Asked, Method, number, read
from duat_jax.errors import BadText, NotFinite
from duat_jax.inputs.baselines import BASELINES, TOKENS, Reference, as_it_is, check_contrast, special_tokens
from duat_jax.inputs.batching import bucket
from duat_jax.inputs.encoding import encode
from duat_jax.inputs.model_inputs import Inputs
from duat_jax.interpret.pipeline import embedded, pinned, readers_of, row, stack
from duat_jax.models.targets.base import Target
from duat_jax.models.targets.logit import LogProbability
from duat_jax.models.targets.similarity import Similarity
from duat_jax.models.transformer import Transformer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SIZES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Which parts of a text's tokens are taken away: the middles of five equal steps, so that the mean is the area."""

REMOVALS = ("masked", "removed")
"""How a token is taken away: another embedding stands in its place, or the text is read without it."""

FEWEST = 5
"""How many tokens a text has at least, special ones not counted."""

AT_ONCE, LENGTHS = 32, 8
"""How many texts are read at once, and of what their padded lengths are multiples."""


class Question(NamedTuple):
    """A number that a model computes of one text.

    Args:
        given: the text.
        others: the text with another thing in the place of every token that isn't special, by a baseline's name.
        removable: the tokens that aren't special, `[tokens]`.
        reader: what reads the number.
    """

    given: Inputs
    others: dict[str, Reference]
    removable: Bool[np.ndarray, "tokens"]
    reader: Any


def baselines_of(tokenizer: "Tokenizer") -> tuple[str, ...]:
    """Return the baselines that a tokenizer has tokens for, and the vocabulary's mean, for which none is needed.

    Args:
        tokenizer: a model's tokenizer.
    """
    known = {name for name, tokens in TOKENS.items() if any(tokenizer.token_to_id(t) is not None for t in tokens)}
    return tuple(name for name in BASELINES if name in {*known, "mean"})


def questions_of(
    model: Transformer, tokenizer: "Tokenizer", texts: Sequence[str], count: int, *, longest: int, seed: int = 0
) -> list[Question]:
    """Draw texts, and ask of each one number.

    Of a language model, the log-probability of the token that it finds the most probable next; of a sentence encoder,
    the cosine similarity to the text that follows in the list.

    Args:
        model: a language model or a sentence encoder.
        tokenizer: its tokenizer.
        texts: the texts, in order.
        count: how many are drawn.
        longest: of a language model's text at most so many tokens are read, from its beginning.
        seed: which ones are drawn.

    Raises:
        BadText: if the model is of another kind, or there are too few texts of at least `FEWEST` tokens.
    """
    kind, names = model.config.head.kind, baselines_of(tokenizer)
    if kind not in ("next token", "hidden"):
        raise BadText(
            f"faithfulness is measured on language models and sentence encoders, and this model's head is {kind!r}:"
            " load one of these"
        )
    ids = [encode(tokenizer, text, f"text {i}") for i, text in enumerate(texts)]
    if kind == "next token":
        ids = [one[:longest] for one in ids]
    nothing = special_tokens(tokenizer)
    fits = [len(one) <= model.config.positions for one in ids]
    long_enough = [i for i, one in enumerate(ids) if fits[i] and (~np.isin(one, nothing)).sum() >= FEWEST]
    if kind == "hidden":  # the last one is followed by none
        long_enough = [i for i in long_enough if i + 1 < len(ids) and fits[i + 1] and ids[i] != ids[i + 1]]
    if len(long_enough) < count:
        raise BadText(
            f"there are {len(long_enough)} texts of at least {FEWEST} tokens that aren't special and at most"
            f" {model.config.positions} in all, and {count} are asked for: give more texts, or ask for fewer"
        )
    drawn = np.random.default_rng(seed).permutation(long_enough)[:count]
    found = []
    for i in map(int, drawn):
        target: Target = LogProbability() if kind == "next token" else Similarity(ids[i + 1])
        asked = check_contrast(model.config, ids[i], list(names), target, tokenizer=tokenizer)
        (reader,) = readers_of(model, [asked.target])
        others = dict(zip(names, asked.others, strict=True))
        found.append(Question(asked.given, others, others["mean"].averaged, reader))
    return found


def masking(baselines: Iterable[str]) -> str:
    """Return what stands for a token that is masked out: the mask, or the vocabulary's mean where there is none.

    Args:
        baselines: names in `duat_jax.inputs.baselines.BASELINES`.
    """
    return "mask" if "mask" in baselines else "mean"


def _batch(questions: Sequence[Question], longest: int) -> tuple[Reference, dict[str, Reference], Any]:
    """Return texts, their baselines and their readers, padded to one length."""
    length = bucket(max(len(one.removable) for one in questions), longest)
    texts = stack(as_it_is(one.given).padded(length) for one in questions)
    others = {name: stack(one.others[name].padded(length) for one in questions) for name in questions[0].others}
    return texts, others, stack(one.reader for one in questions)


def _asked(model: Transformer, text: Reference, others: dict[str, Reference], reader: Any) -> Asked:
    x = embedded(model, text)
    real = jnp.asarray(text.inputs.real)
    asked = Asked(x, {name: embedded(model, other) for name, other in others.items()}, real, reader)
    return asked._replace(reader=pinned(reader, read(model, asked, x)))


@jax.jit
def _plainly(model: Transformer, texts: Reference, readers: Any) -> tuple[Float[Array, "texts"], Any]:
    def one(text: Reference, reader: Any) -> tuple[Array, Any]:
        asked = _asked(model, text, {}, reader)
        return number(model, asked, asked.x), asked.reader

    return jax.vmap(one)(texts, readers)


@partial(jax.jit, static_argnames="method")
def _scores(
    method: Method, model: Transformer, texts: Reference, others: dict[str, Reference], readers: Any
) -> Float[Array, "texts tokens"]:
    return jax.vmap(lambda *row: method(model, _asked(model, *row)))(texts, others, readers)


def settled(model: Transformer, questions: Sequence[Question]) -> tuple[Float[np.ndarray, "texts"], list[Question]]:
    """Return the numbers on the whole texts, and questions that ask for the token that is the most probable there.

    Args:
        model: the model.
        questions: what is asked.

    Raises:
        NotFinite: if a number isn't finite.
    """
    texts, _, readers = _batch(questions, model.config.positions)
    values, readers = jax.device_get(_plainly(model, texts, readers))
    asked = [one._replace(reader=row(readers, i)) for i, one in enumerate(questions)]
    return _finite(np.asarray(values, np.float64)), asked


def _finite(numbers: np.ndarray) -> np.ndarray:
    if not np.isfinite(numbers).all():
        raise NotFinite("what the model says of a text is NaN or infinite: nothing can be learned from it")
    return numbers


def scores_of(
    name: str, method: Method, model: Transformer, questions: Sequence[Question]
) -> list[Float[np.ndarray, "_"]]:
    """Return a method's scores of every text's removable tokens.

    Args:
        name: what the method is called.
        method: the method.
        model: the model.
        questions: what is asked.

    Raises:
        NotFinite: if a score isn't.
    """
    scores = np.asarray(_scores(method, model, *_batch(questions, model.config.positions)), np.float64)
    if not np.isfinite(scores).all():
        raise NotFinite(f"{name!r} gives scores that aren't finite: leave it out")
    return [row[: len(one.removable)][one.removable] for row, one in zip(scores, questions, strict=True)]


def without(question: Question, kept: Bool[np.ndarray, "tokens"], removal: str) -> tuple[Any, Reference]:
    """Return a text without some of its tokens, and what reads the number there.

    Where a token is removed, those after it move up, and what was read at it is read at the one before.

    Args:
        question: what is asked of the whole text.
        kept: the tokens that stay, `[tokens]`.
        removal: a name in `REMOVALS`.
    """
    given = question.given
    if removal == "masked":
        other = question.others[masking(question.others)]
        ids = np.where(kept, given.given, other.inputs.given)
        return question.reader, Reference(given._replace(given=ids), other.averaged & ~kept)
    segments = None if given.segments is None else given.segments[kept]
    text = as_it_is(Inputs(given.given[kept], given.real[kept], segments))
    place = getattr(question.reader, "position", None)
    if place is None:
        return question.reader, text
    return replace(question.reader, position=np.array(kept[: place + 1].sum() - 1, np.asarray(place).dtype)), text


@jax.jit
def _numbers(model: Transformer, readers: Any, texts: Reference) -> Float[Array, "rows"]:
    def one(reader: Any, text: Reference) -> Array:
        asked = Asked(embedded(model, text), {}, jnp.asarray(text.inputs.real), reader)
        return number(model, asked, asked.x)

    return jax.vmap(one)(readers, texts)


def numbers(model: Transformer, rows: Sequence[tuple[Any, Reference]]) -> Float[np.ndarray, "rows"]:
    """Return what a model says of many texts, of any lengths.

    Args:
        model: the model.
        rows: of each text what reads the number, and the text.

    Raises:
        NotFinite: if a number isn't finite.
    """
    found = np.empty(len(rows))
    of_length: dict[int, list[int]] = {}
    for i, (_, text) in enumerate(rows):
        length = min(-(-len(text.averaged) // LENGTHS) * LENGTHS, model.config.positions)
        of_length.setdefault(length, []).append(i)
    for length, indices in of_length.items():
        for start in range(0, len(indices), AT_ONCE):
            some = indices[start : start + AT_ONCE]
            # The last rows are filled up, so that one program reads all.
            filled = [rows[i] for i in (some * AT_ONCE)[:AT_ONCE]]
            readers, texts = stack(reader for reader, _ in filled), stack(t.padded(length) for _, t in filled)
            found[some] = np.asarray(_numbers(model, readers, texts), np.float64)[: len(some)]
    return _finite(found)


def run(
    model: Transformer, questions: Sequence[Question], kept: Sequence[Bool[np.ndarray, "_ _"]], removal: str
) -> list[Float[np.ndarray, "_"]]:
    """Return the number on each text while only some of its removable tokens are kept; equal runs are made once.

    Args:
        model: the model.
        questions: what is asked.
        kept: of each text, which removable tokens stay in each of its runs, `[runs, removable]`.
        removal: a name in `REMOVALS`.
    """
    rows: list[tuple[Any, Reference]] = []
    places = []
    for one, sets in zip(questions, kept, strict=True):
        different, inverse = np.unique(sets, axis=0, return_inverse=True)
        places.append(len(rows) + inverse.reshape(-1))
        for choice in different:
            everywhere = np.ones(len(one.removable), bool)
            everywhere[one.removable] = choice
            rows.append(without(one, everywhere, removal))
    found = numbers(model, rows)
    return [found[place] for place in places]


def leave_one_out(
    model: Transformer, questions: Sequence[Question], values: Float[np.ndarray, "texts"], removal: str
) -> list[Float[np.ndarray, "_"]]:
    """Return by how much the number falls where one token is taken away, for every removable token.

    Args:
        model: the model.
        questions: what is asked.
        values: the numbers on the whole texts, `[texts]`.
        removal: a name in `REMOVALS`.
    """
    kept = [~np.eye(one.removable.sum(), dtype=bool) for one in questions]
    return [value - row for value, row in zip(values, run(model, questions, kept, removal), strict=True)]


def kept_sets(scores: Float[np.ndarray, "tokens"]) -> Bool[np.ndarray, "orders sizes tokens"]:
    """Return which tokens stay while the most relevant ones go first, and while the least relevant ones do.

    Args:
        scores: a score of each token.

    Returns:
        For both orders and each of `SIZES`; at least one token goes, and at least one stays.

    Example:
        >>> most_first, least_first = kept_sets(np.array([3.0, -1.0, 2.0, 0.0, 1.0]))
        >>> most_first[[0, 2]].astype(int).tolist(), least_first[2].astype(int).tolist()
        ([[0, 1, 1, 1, 1], [0, 1, 0, 1, 1]], [1, 0, 1, 0, 1])
    """
    gone = np.clip(np.rint(np.multiply(SIZES, len(scores))), 1, len(scores) - 1)[:, None]
    rank = np.empty(len(scores), int)
    rank[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return np.stack([rank >= gone, len(scores) - 1 - rank >= gone])


def curves(
    model: Transformer,
    questions: Sequence[Question],
    scores: Mapping[str, Sequence[Float[np.ndarray, "_"]]],
    removal: str,
) -> dict[str, list[Float[np.ndarray, "orders sizes"]]]:
    """Return the number on each text while its tokens go in each method's order.

    Args:
        model: the model.
        questions: what is asked.
        scores: of each method, each text's scores of its removable tokens.
        removal: a name in `REMOVALS`.

    Returns:
        Of each method and text, the numbers while the most relevant tokens go first, and while the least relevant do.
    """
    kept = [np.concatenate([np.concatenate(kept_sets(of[i])) for of in scores.values()]) for i in range(len(questions))]
    found = [row.reshape(len(scores), 2, len(SIZES)) for row in run(model, questions, kept, removal)]
    return {name: [row[m] for row in found] for m, name in enumerate(scores)}


def agreement(scores: Float[np.ndarray, "tokens"], others: Float[np.ndarray, "tokens"]) -> tuple[float, float]:
    """Return how far two rankings of tokens agree: Spearman's ρ and Kendall's τ; what ranks nothing agrees by 0.

    Args:
        scores: scores of tokens.
        others: other scores of the same tokens.

    Example:
        >>> agreement(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0]))
        (0.5, 0.333...)

    Sources: Spearman, "The Proof and Measurement of Association between Two Things", 1904; Kendall, "A New Measure of
    Rank Correlation", 1938 (τ-b, for ties).
    """
    from scipy.stats import kendalltau, spearmanr

    if np.ptp(scores) == 0 or np.ptp(others) == 0:
        return 0.0, 0.0
    return float(spearmanr(scores, others).statistic), float(kendalltau(scores, others).statistic)
