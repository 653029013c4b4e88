"""Singular triplets of a model's map, decoded to tokens."""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from duat_jax.errors import DuatError
from duat_jax.inputs.labels import readable
from duat_jax.models.embedding import TokenEmbedding
from duat_jax.models.tokenizer import tokenizer_of
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import checked_ids
from duat_jax.nn.linear import PRECISION
from duat_jax.operators.shapes import describe
from duat_jax.operators.spectrum import SingularTriplets
from duat_jax.processes import on_host

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class TokenScore(NamedTuple):
    """A token and its score.

    Args:
        token: what it says.
        score: the score.
    """

    token: str
    score: float


class DecodedVector(NamedTuple):
    """A singular vector's part at one place, decoded to tokens.

    Args:
        share: its part of the whole vector's squared length; all places' sum to 1.
        highest: the tokens with the highest scores, the highest first.
        lowest: the tokens with the lowest scores, the lowest first.
    """

    share: float
    highest: tuple[TokenScore, ...]
    lowest: tuple[TokenScore, ...]


class DecodedTriplet(NamedTuple):
    """A singular triplet decoded to tokens, its sign such that this text drives the output along `u`.

    Args:
        value: the singular value `σ`.
        error: how far from it a singular value may lie.
        strength: `σ ⟨v, x_0⟩`, how far this text drives the output along `u`; over all triplets there
            are, `Σ strength · u = W x_0`.
        reads: `v` at each token of the text; a token's score is its embedding's cosine with it.
        writes: `u` at each place of the output, or at the only one; a token's score is what `u` adds to its logit,
            before a model's soft cap.
    """

    value: float
    error: float
    strength: float
    reads: tuple[DecodedVector, ...]
    writes: tuple[DecodedVector, ...]


def decode_triplets(
    model: Transformer, ids: Any, triplets: SingularTriplets, tokenizer: "Tokenizer | None" = None, *, top: int = 5
) -> tuple[DecodedTriplet, ...]:
    """Decode singular triplets to tokens: which embeddings each reads, and which tokens' logits it raises and lowers.

    Args:
        model: a loaded language model.
        ids: the text's token ids, `[tokens]`.
        triplets: of a map from the text's embeddings to states of the model's read-out, `[tokens, features]` or, at one
            position, `[features]`.
        tokenizer: says what tokens are, in the place of the model's own.
        top: how many tokens to name.

    Raises:
        DuatError: naming everything that doesn't fit the model and the text.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import duat_jax as duat
        >>> model = duat.load()
        >>> ids = jnp.array(model.tokenizer.encode("for i in range(10").ids)
        >>> last = duat.collapse(lambda x: model.states(x)[-1], model.embed(ids)).linear
        >>> triplets = duat.operators.singular_triplets(last, 1, key=jax.random.key(0))
        >>> (decoded,) = decode_triplets(model, ids, triplets, top=3)
        >>> len(decoded.reads), [token for token, _ in decoded.writes[0].highest]
        (6, ...)
    """
    tokenizer = tokenizer_of(model, tokenizer)
    _require(model, ids, triplets, top)
    x0 = model.embed(jnp.asarray(ids))
    rows = model.logits_at(jnp.zeros(model.config.state_features, x0.dtype)).rows
    embeddings = model.embedding.token[...]  # type: ignore[union-attr]
    left, values, right, errors = triplets
    left = left.reshape(len(left), -1, left.shape[-1])
    drive = jnp.einsum("ctf,tf->c", right, x0.astype(right.dtype), precision=PRECISION)
    sign = jnp.where(drive < 0, -1, 1).astype(right.dtype)[:, None, None]
    reads = _scores(_unit(sign * right), _unit(embeddings.astype(right.dtype)), top)
    writes = _scores(sign * left, rows.astype(left.dtype), top)
    return tuple(
        DecodedTriplet(
            float(values[i]),
            float(errors[i]),
            float(values[i] * abs(drive[i])),
            _decoded(right[i], [part[i] for part in reads], tokenizer),
            _decoded(left[i], [part[i] for part in writes], tokenizer),
        )
        for i in range(len(values))
    )


def _require(model: Transformer, ids: Any, triplets: SingularTriplets, top: int) -> None:
    config, problems = model.config, list[str]()
    if config.head.kind not in ("next token", "masked token") or not isinstance(model.embedding, TokenEmbedding):
        raise DuatError(f"a {config.family} model reads or says no tokens: decode triplets of a language model")
    tokens = len(checked_ids(config, ids, "the text", problems))
    reads = (tokens, config.embedding_features or config.features)
    if tokens and triplets.right.shape[1:] != reads:
        problems.append(f"the triplets read {describe(triplets.right[0])} and the text's embeddings are {list(reads)}")
    if triplets.left.ndim not in (2, 3) or triplets.left.shape[-1] != config.state_features:
        problems.append(
            f"the triplets write {describe(triplets.left[0])} and the read-out takes [..., {config.state_features}]:"
            " take those of a map to model.states(x), or to one position of it"
        )
    if not 1 <= top <= config.vocab:
        problems.append(f"top = {top} must lie between 1 and {config.vocab}, the number of tokens")
    if problems:
        raise DuatError("; ".join(problems))


def _unit(vectors: Float[Array, "*shape features"]) -> Float[Array, "*shape features"]:
    """Normalise vectors to length one; zero stays zero."""
    length = jnp.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / jnp.where(length == 0, 1, length)


def _scores(
    vectors: Float[Array, "count places features"], table: Float[Array, "vocab features"], top: int
) -> tuple[np.ndarray, ...]:
    """Return the highest and the lowest scores, each with their tokens, `[count, places, top]`."""

    def best(vectors: Array) -> tuple[Array, ...]:
        scores = jnp.matmul(vectors, table.T, precision=PRECISION)
        return *jax.lax.top_k(scores, top), *jax.lax.top_k(-scores, top)

    high, highest, low, lowest = jax.lax.map(best, vectors)
    return on_host((high, highest, -low, lowest))


def _decoded(
    vector: Float[Array, "places features"], scores: list[np.ndarray], tokenizer: "Tokenizer | None"
) -> tuple[DecodedVector, ...]:
    def scored(values: np.ndarray, tokens: np.ndarray) -> tuple[TokenScore, ...]:
        return tuple(map(TokenScore, readable(tokenizer, tokens.tolist()), values.tolist()))

    squares = on_host(vector**2).sum(-1)
    return tuple(
        DecodedVector(float(share), scored(high, highest), scored(low, lowest))
        for share, high, highest, low, lowest in zip(squares / squares.sum(), *scores, strict=True)
    )
