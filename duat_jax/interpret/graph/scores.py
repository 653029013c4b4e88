"""Attention scores of a graph: why the heads that move most attend where they do."""

from duat_jax.inputs.model_inputs import TokenizedText
from duat_jax.inputs.question import Question
from duat_jax.interpret.attention.compute import check, explain_scores
from duat_jax.interpret.attention.result import AttentionScore
from duat_jax.interpret.graph.result import Graph
from duat_jax.interpret.moves import Move
from duat_jax.models.config import Config
from duat_jax.models.transformer import Transformer
from duat_jax.nn.pattern import sees

MOVES = 32
"""For each score that is wanted, the number of moves of which the largest is chosen."""


def scores_of(model: Transformer, question: Question, graph: Graph, count: int) -> tuple[AttentionScore, ...]:
    """Explain the attention of the heads with the largest moves, against the other token that each attends to most."""
    # Of each head at each token the largest move counts; one to a token that sees no other one has no such score.
    tokens = len(graph.explanation.tokens)
    largest: dict[tuple[int, int, int], Move] = {}
    for move in graph.top_moves(MOVES * count):
        largest.setdefault((move.key.layer or 0, move.head, move.token), move)
    read = question.input
    given = read.given if read.segments is None else TokenizedText(read.given, read.segments)
    chosen = [at for at in largest if _sees_others(model.config, at[0], at[2], tokens)][:count]
    requests = [
        check(model.config, given, layer, head, token, largest[layer, head, token].source, "other", question.tokenizer)
        for layer, head, token in chosen
    ]
    return tuple(explain_scores(model, requests, question.tokenizer)) if requests else ()


def _sees_others(config: Config, layer: int, token: int, tokens: int) -> bool:
    block = config.blocks[layer]
    if block.attention == "sliced":  # without marks on its queries and keys
        return False
    nearest = [other for other in (token - 1, token + 1) if 0 <= other < tokens]
    return any(sees(token, other, causal=block.causal, window=block.window) for other in nearest)
