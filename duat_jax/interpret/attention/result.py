"""The result of explaining attention: one score, as a sum over pairs of sources."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float

from duat_jax.deprecation import renamed_fields
from duat_jax.display.named_arrays import Axes, NamedArray, of_tokens, whole
from duat_jax.display.result import Plotted
from duat_jax.errors import DuatError
from duat_jax.forms.completeness import Completeness
from duat_jax.interpret.attention.record import AttentionScoreRecord
from duat_jax.json_record import as_record
from duat_jax.models.vocabulary.token import quoted_label
from duat_jax.processes import on_host
from duat_jax.transform.keys import Key

BIASES = "biases"
"""The common label of sources without a token."""


class Source(NamedTuple):
    """One summand of a query or of a key.

    Args:
        part: what it is: an embedding, a layer's MLP, a head, or a bias by name.
        group: under what it is summed up: all heads of a layer, all biases, everything else by its part.
        token: index of the token where it entered the stream; none of a bias.
        term: the mark of a layer's MLP.
    """

    part: str
    group: str
    token: int | None
    term: Key | None


class Pair(NamedTuple):
    """The contribution of a pair of sources, one of the query and one of the key.

    Args:
        query: the source on the query side.
        key: the source on the key side.
        contribution: `⟨q^a, k^b⟩`.
    """

    query: Source
    key: Source
    contribution: float


def pair_fields(pairs: list[Pair]) -> list[dict[str, Any]]:
    """Return pairs of sources as plain data, with the fields of `PairRecord`.

    Args:
        pairs: the pairs.
    """

    def source(of: Source) -> dict[str, Any]:
        return {"part": of.part, "token": of.token}

    return [pair._asdict() | {"query": source(pair.query), "key": source(pair.key)} for pair in pairs]


@renamed_fields(versus="contrast")
@dataclass(frozen=True, eq=False)
class AttentionScore(Plotted):
    """One attention score before the softmax, or the difference of two, and all pairs of sources that sum to it.

    `score = Σ_{a,b} ⟨q^a, k^b⟩`, with norms and earlier attention patterns held at what they are on this text. The
    softmax turns differences of scores into ratios: `log(attention to key / attention to contrast)` is the difference
    of their two scores. One score alone says less: what is added to the scores of all keys changes no attention.

    Args:
        family: the checkpoint family.
        tokens: the text's tokens, readable.
        layer: the layer, from 0.
        head: the head, from 0.
        query: index of the token that attends.
        key: index of the token that it attends to.
        contrast: index of the token whose score is subtracted, if there is one.
        attention: how much of its attention the query gives to every token, `[tokens]`.
        query_sources: what the query is the sum of; what adds nothing is left out.
        key_sources: what the key, or the difference of keys, is the sum of; the same.
        queries: those summands, `[head_features, query_sources]`.
        keys: those summands, with the factor of the scores in them, `[head_features, key_sources]`.
        completeness: the score (from the forward pass), the sum of all pairs, error and tolerance.
        split: splits an MLP's part of the `"queries"` or the `"keys"` over its neurons, `[head_features, neurons]`.
    """

    family: str
    tokens: tuple[str, ...]
    layer: int
    head: int
    query: int
    key: int
    contrast: int | None
    attention: Float[np.ndarray, "tokens"]
    query_sources: tuple[Source, ...]
    key_sources: tuple[Source, ...]
    queries: Float[np.ndarray, "head_features query_sources"]
    keys: Float[np.ndarray, "head_features key_sources"]
    completeness: Completeness
    split: Callable[[str, Source], Array]

    @property
    def value(self) -> float:
        """The score, from the forward pass."""
        return float(self.completeness.value)

    @property
    def label(self) -> str:
        """The explained score, in words."""

        def named(place: int) -> str:
            return f"{place} {quoted_label(self.tokens[place])}"

        rather = "" if self.contrast is None else f" rather than to {named(self.contrast)}"
        words = f"token {named(self.query)} attends to {named(self.key)}{rather}"
        return f"layer {self.layer}, head {self.head}: {words}"

    @cached_property
    def pairs(self) -> Float[np.ndarray, "query_sources key_sources"]:
        """The contributions of all pairs of sources."""
        return self.queries.T @ self.keys

    def top(self, count: int) -> list[Pair]:
        """Return the pairs with the largest contributions by size.

        Args:
            count: how many.
        """
        order = np.argsort(-np.abs(self.pairs), axis=None, kind="stable")[:count]
        places = (divmod(i, len(self.key_sources)) for i in order.tolist())
        return [Pair(self.query_sources[a], self.key_sources[b], float(self.pairs[a, b])) for a, b in places]

    def by_part(self) -> tuple[tuple[str, ...], Float[np.ndarray, "parts parts"]]:
        """Return the groups of sources, and the pairs summed over each: query side by key side."""
        labels = tuple(dict.fromkeys(source.group for source in (*self.query_sources, *self.key_sources)))
        return labels, self._summed(labels, lambda source: source.group)

    def by_token(self) -> tuple[tuple[str, ...], Float[np.ndarray, "places places"]]:
        """Return the tokens and the biases, and the pairs summed over each: query side by key side."""
        places = (*range(len(self.tokens)), None)
        return (*self.tokens, BIASES), self._summed(places, lambda source: source.token)

    def _summed(self, labels: tuple, label_of: Any) -> np.ndarray:
        numbers = {label: i for i, label in enumerate(labels)}

        def summed(columns: np.ndarray, sources: tuple[Source, ...]) -> np.ndarray:
            found = np.zeros((len(labels), len(columns)), columns.dtype)
            np.add.at(found, [numbers[label_of(source)] for source in sources], columns.T)
            return found

        return summed(self.queries, self.query_sources) @ summed(self.keys, self.key_sources).T

    def neurons(self, query: Source, key: Source) -> Float[np.ndarray, "query_neurons key_neurons"]:
        """Split the contribution of one pair of sources over the neurons of those that are MLPs.

        Args:
            query: a source on the query side, for example of `top(1)`.
            key: a source on the key side.

        Returns:
            `⟨q^a, k^b⟩` of every neuron `a` and every neuron `b`; one row or column for what is no MLP.

        Raises:
            DuatError: if one of them is no source of this score.
        """
        left = self._neurons("queries", query, self.query_sources, self.queries)
        return left.T @ self._neurons("keys", key, self.key_sources, self.keys)

    def _neurons(self, side: str, source: Source, sources: tuple[Source, ...], columns: np.ndarray) -> np.ndarray:
        if source not in sources:
            raise DuatError(f"{source} is no source of the {side}: choose one of query_sources or key_sources")
        if source.term is None:
            return columns[:, [sources.index(source)]]
        return on_host(self.split(side, source))

    def part_sums(self) -> Mapping[str, Any]:
        """Return the sums of the parts that each completeness is about."""
        return {"completeness": self.pairs.sum(dtype=np.float64)}

    def arrays(self) -> Iterator[NamedArray]:
        """Yield the pairs of sources, which sum to the score, and the attention with named axes."""

        def axis(side: str, sources: tuple[Source, ...]) -> Axes:
            parts, tokens = [source.part for source in sources], [source.token for source in sources]
            number = range(len(sources))
            return {f"{side}_source": {f"{side}_source": number, f"{side}_part": parts, f"{side}_token_index": tokens}}

        yield whole("pairs", self.pairs, {**axis("query", self.query_sources), **axis("key", self.key_sources)})
        yield whole("attention", self.attention, of_tokens(self.tokens))

    def as_dict(self, model: str = "", count: int = 10) -> dict[str, Any]:
        """Return the score, the largest pairs and the sums as plain data, with the fields of `AttentionScoreRecord`.

        Args:
            model: name of the model.
            count: how many of the largest pairs to list.
        """
        parts, by_part = self.by_part()
        return as_record(
            AttentionScoreRecord,
            self,
            model=model,
            dtype=self.completeness.dtype,
            parts=parts,
            by_part=by_part,
            by_token=self.by_token()[1],
            top=pair_fields(self.top(count)),
        )

    def __repr__(self) -> str:
        return f"AttentionScore({self.label} = {self.value:.6g}, error {float(self.completeness.error):+.1e})"
