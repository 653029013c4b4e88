"""The result of explaining attention: one score, as a sum over pairs of sources."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float

from duat_jax.deprecation import renamed_fields
from duat_jax.display.named_arrays import Axes, NamedArray, of_tokens, whole
from duat_jax.display.page.graph_view import ScoreView
from duat_jax.display.result import Displayed
from duat_jax.display.shown_tokens import tokens_of_picture
from duat_jax.display.view import DIFFERENCE, RANKED, Map, Table, View, largest, sides
from duat_jax.errors import DuatError
from duat_jax.forms.completeness import Completeness
from duat_jax.interpret.attention.record import AttentionScoreRecord
from duat_jax.json_record import as_record
from duat_jax.kinds import kept_as
from duat_jax.models.vocabulary.token import quoted_label, quoted_token, token_label
from duat_jax.processes import on_host
from duat_jax.transform.keys import Key

BIASES = "biases"
"""The common label of sources without a token."""

ATTENDED, TOKENS, SOURCES = 5, 8, 8
"""The numbers of attended tokens and of tokens with the largest sums in a table, and of sources on a page."""


@kept_as("attention source", "duat_jax.interpret.attention.result:Source")
class AttentionSource(NamedTuple):
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

    query: AttentionSource
    key: AttentionSource
    contribution: float


def pair_fields(pairs: list[Pair]) -> list[dict[str, Any]]:
    """Return pairs of sources as plain data, with the fields of `PairRecord`."""

    def source(labelled: AttentionSource) -> dict[str, Any]:
        return {"part": labelled.part, "token": labelled.token}

    return [pair._asdict() | {"query": source(pair.query), "key": source(pair.key)} for pair in pairs]


@kept_as("attention score")
@renamed_fields(versus="contrast")
@dataclass(frozen=True, eq=False)
class AttentionScore(Displayed):
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
    query_sources: tuple[AttentionSource, ...]
    key_sources: tuple[AttentionSource, ...]
    queries: Float[np.ndarray, "head_features query_sources"]
    keys: Float[np.ndarray, "head_features key_sources"]
    completeness: Completeness
    split: Callable[[str, AttentionSource], Array]

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

        def summed(columns: np.ndarray, sources: tuple[AttentionSource, ...]) -> np.ndarray:
            sums = np.zeros((len(labels), len(columns)), columns.dtype)
            np.add.at(sums, [numbers[label_of(source)] for source in sources], columns.T)
            return sums

        return summed(self.queries, self.query_sources) @ summed(self.keys, self.key_sources).T

    def neurons(self, query: AttentionSource, key: AttentionSource) -> Float[np.ndarray, "query_neurons key_neurons"]:
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

    def _neurons(
        self, side: str, source: AttentionSource, sources: tuple[AttentionSource, ...], columns: np.ndarray
    ) -> np.ndarray:
        if source not in sources:
            raise DuatError(f"{source} is no source of the {side}: choose one of query_sources or key_sources")
        if source.term is None:
            return columns[:, [sources.index(source)]]
        return on_host(self.split(side, source))

    def part_sums(self) -> Mapping[str, Any]:
        """Return the sums of the parts that each completeness is about."""
        return {"completeness": self.pairs.sum(dtype=np.float64)}

    @property
    def meaning(self) -> str:
        """The meaning of the score for the attention, in one sentence."""
        if self.contrast is None:
            return (
                "One score alone says little: what every key's score has in common changes no attention. Name another"
                " key, and the difference of the two is explained."
            )
        key, contrast = self.attention[self.key], self.attention[self.contrast]
        return (
            f"{sides(f'token {self.key}', f'token {self.contrast}')}."
            f" Attention is {100 * key:.3g}% against {100 * contrast:.3g}%, a ratio of {math.exp(self.value):.4g};"
            f" {DIFFERENCE} is its logarithm, {self.value:.4g}."
        )

    def place(self, token: int | None) -> str:
        """Return a token in words, with its share of the attention.

        Args:
            token: its index; nothing of no token.
        """
        return "" if token is None else f"{token} {token_label(self.tokens[token])} {self.attention[token]:.1%}"

    def view(self) -> View:
        """Return the score as it is shown: its sums over either side, and the pairs of tokens and of parts."""
        order = np.argsort(-self.attention, kind="stable")[:ATTENDED].tolist()
        attended = [f"{token} {quoted_token(self.tokens[token])} {self.attention[token]:.1%}" for token in order]
        return View(
            kind="attention score",
            target=self.label,
            value=self.value,
            value_name="score",
            completeness=self.completeness,
            exact="Exact for this text, with norms and earlier attention patterns held at what they are here.",
            tables=(self._largest_pairs(), self._of_parts(), self._of_tokens()),
            maps=(
                self._pairs_of_tokens(),
                Map("pairs of parts", self.by_part()[1], *2 * (self.by_part()[0],), ("query", "key")),
            ),
            notes=(f"The head attends to: {'   '.join(attended)}", self.meaning),
        )

    def _name(self, source: AttentionSource) -> str:
        """Return a source in words."""
        place = "" if source.token is None else f", token {source.token} {quoted_token(self.tokens[source.token])}"
        return source.part + place

    def _largest_pairs(self) -> Table:
        rows = tuple((self._name(query), self._name(key), part) for query, key, part in self.top(RANKED))
        title = f"The largest of {self.pairs.size} pairs of sources"
        return Table(title, ("of the query", "of the key", "contribution"), rows, labels=2, ranked=True)

    def _of_parts(self) -> Table:
        parts, by_part = self.by_part()
        rows = tuple(zip(parts, by_part.sum(1).tolist(), by_part.sum(0).tolist(), strict=True))
        total = "sum", float(by_part.sum()), float(by_part.sum())
        return Table(
            "Each part, with everything on the other side", ("part", "of the query", "of the key"), rows, total
        )

    def _of_tokens(self) -> Table:
        """Return the sums of the largest tokens on either side, of all others, and of the biases."""
        by_token = self.by_token()[1]
        query, key = by_token.sum(1), by_token.sum(0)
        sizes = np.abs(query[:-1]) + np.abs(key[:-1])
        order = [place for place in np.argsort(-sizes, kind="stable").tolist() if sizes[place]]
        groups = [(f"{place} {quoted_token(self.tokens[place])}", [place]) for place in sorted(order[:TOKENS])]
        groups += [(f"{len(order) - TOKENS} others", order[TOKENS:])] if order[TOKENS:] else []
        groups.append((BIASES, [-1]))
        rows = tuple((label, float(query[places].sum()), float(key[places].sum())) for label, places in groups)
        total = "sum", float(by_token.sum()), float(by_token.sum())
        columns = "token", "of the query", "of the key"
        return Table("Each token, with everything on the other side", columns, rows, total)

    def _pairs_of_tokens(self) -> Map:
        """Return the contributions of pairs of tokens, and of biases; of a long text of the largest tokens."""
        tokens, by_token = self.by_token()
        labels = [f"{place} {token_label(token)}" for place, token in enumerate(tokens[:-1])]
        # Of a causal model, nothing comes from what stands behind the two tokens.
        last = max(self.query, self.key, self.contrast or 0) + 1
        if not by_token[last:-1].any():
            labels, by_token = labels[:last], np.delete(np.delete(by_token, slice(last, -1), 0), slice(last, -1), 1)
        shown = tokens_of_picture(np.vstack([by_token[:, :-1], by_token.T[:, :-1]]))

        def gathered(rows: np.ndarray) -> np.ndarray:
            return np.concatenate([shown.gathered(rows[:, :-1]), rows[:, -1:]], -1)

        names = (*shown.labels(labels), BIASES)
        return Map("pairs of tokens", gathered(gathered(by_token).T).T, names, names, ("query", "key"))

    def score_view(self) -> ScoreView:
        """Return the score as the page of a graph shows it."""

        def side(sources: tuple[AttentionSource, ...], parts: list[float]) -> list[tuple[str, float]]:
            return largest([(self._name(source), part) for source, part in zip(sources, parts, strict=True)], SOURCES)

        pairs = [
            (f"{self._name(pair.query)} × {self._name(pair.key)}", pair.contribution) for pair in self.top(SOURCES)
        ]
        remainder = float(self.completeness.sum) - sum(part for _, part in pairs)
        return ScoreView(
            title=self.label,
            layer=self.layer,
            head=self.head,
            query=self.query,
            key=self.key,
            versus=self.contrast,
            value=self.value,
            note=self.meaning,
            verdict=self.completeness.verdict,
            pairs=[*pairs, *([("all other pairs", remainder)] if self.pairs.size > SOURCES else [])],
            queries=side(self.query_sources, self.pairs.sum(1).tolist()),
            keys=side(self.key_sources, self.pairs.sum(0).tolist()),
        )

    def arrays(self) -> Iterator[NamedArray]:
        """Yield the pairs of sources, which sum to the score, and the attention with named axes."""

        def axis(side: str, sources: tuple[AttentionSource, ...]) -> Axes:
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
