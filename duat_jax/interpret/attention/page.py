"""The part of a page that shows an attention score."""

from duat_jax.display.page.graph_view import ScoreView
from duat_jax.display.page.view import largest
from duat_jax.display.tables import quoted_token
from duat_jax.interpret.attention.result import AttentionScore, Source
from duat_jax.interpret.attention.table import meaning

SOURCES = 8
"""The number of pairs and of sources that a page has of a score; the others stand in it as their sum."""


def score_view(score: AttentionScore) -> ScoreView:
    """Return what a page shows of an attention score.

    Args:
        score: the result.
    """

    def name(source: Source) -> str:
        place = "" if source.token is None else f", token {source.token} {quoted_token(score.tokens[source.token])}"
        return source.part + place

    def side(sources: tuple[Source, ...], parts: list[float]) -> list[tuple[str, float]]:
        return largest([(name(source), part) for source, part in zip(sources, parts, strict=True)], SOURCES)

    pairs = [(f"{name(pair.query)} × {name(pair.key)}", pair.contribution) for pair in score.top(SOURCES)]
    others = float(score.completeness.sum) - sum(part for _, part in pairs)
    return ScoreView(
        title=score.label,
        layer=score.layer,
        head=score.head,
        query=score.query,
        key=score.key,
        versus=score.contrast,
        value=score.value,
        note=meaning(score),
        verdict=score.completeness.verdict,
        pairs=[*pairs, *([("all other pairs", others)] if score.pairs.size > SOURCES else [])],
        queries=side(score.query_sources, score.pairs.sum(1).tolist()),
        keys=side(score.key_sources, score.pairs.sum(0).tolist()),
    )
