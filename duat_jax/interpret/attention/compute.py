"""Explain attention: split one score of a head exactly over pairs of sources."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from duat_jax.deprecation import renamed_arguments
from duat_jax.errors import InvalidInput
from duat_jax.forms.score import Vector
from duat_jax.inputs.batching import bucket, padded, row
from duat_jax.inputs.labels import labels_of
from duat_jax.inputs.model_inputs import Inputs, ManyInputs, OneInput, checked_input, is_many
from duat_jax.interpret.attention.result import BIASES, AttentionScore, AttentionSource
from duat_jax.interpret.attention.scores import (
    MOST,
    ScorePlaces,
    SplitScore,
    layer_of,
    neurons_of_side,
    scoring,
    split_scores_at,
)
from duat_jax.interpret.many_inputs import answers_each_input
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.config import Config
from duat_jax.models.sites import KEYS, QUERIES
from duat_jax.models.tokenizer import tokenizer_of
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import Places, checked_position, require_layers, require_loaded, whole_number
from duat_jax.nn.pattern import sees
from duat_jax.processes import on_host

if TYPE_CHECKING:
    from tokenizers import Tokenizer

THE = {"key": "key", "contrast": "key that it is compared with"}


class _Asked(NamedTuple):
    """A validated request, as whole numbers within the model's range."""

    inputs: Inputs
    layer: int
    head: int
    query: int
    key: int
    contrast: int | None  # MOST of the other token that is attended to most


@renamed_arguments(given="inputs", versus="contrast")
@answers_each_input
def explain_attention(
    model: Transformer,
    inputs: "OneInput | ManyInputs",
    *,
    layer: int,
    head: int,
    key: int,
    query: int = -1,
    contrast: int | str | None = None,
    through_heads: bool = False,
    tokenizer: "Tokenizer | None" = None,
) -> AttentionScore:
    """Explain why a head attends from one token to another, or to this one rather than to a third.

    The score before the softmax is split exactly over pairs of sources of the query and of the key: the tokens'
    embeddings, every earlier layer's MLP at every token, and the biases by name, each carried there by earlier held
    attention. A difference of two scores is the logarithm of the ratio of the attention that the two keys get; where a
    model caps its scores, they are explained as capped, the cap's ratio held.

    Args:
        model: a loaded model.
        inputs: a text; its token ids, `[tokens]`; or a `duat.TokenizedText` of several segments.
            For a vision model an image's pixels. Or a list of many.
        layer: the layer, from 0.
        head: the head, from 0.
        key: the token that is attended to; negative counts from the end.
        query: the token that attends; the last one if absent.
        contrast: the token whose score is subtracted; or `"other"`, the one that is attended to most of all
            others.
        through_heads: whether what earlier heads brought to a token is a source by the head, instead of by the token
            and the layer where it comes from.
        tokenizer: reads texts and names tokens, in the place of the model's own.

    Returns:
        The score with all its pairs and their completeness; it shows itself in a notebook, and `print` shows it in a
        terminal. Of many inputs, a list with one for each.

    Raises:
        InvalidInput: naming everything that is wrong with what is asked at once.

    Example:
        >>> import duat_jax as duat
        >>> model = duat.load()
        >>> ids = model.tokenizer.encode("for i in range(10").ids
        >>> score = duat.explain_attention(model, ids, layer=2, head=0, key=1, contrast=0)
        >>> score.completeness.verdict
        'holds'
        >>> abs(float(score.value - np.log(score.attention[1] / score.attention[0]))) < 1e-4
        True

    Source: Wang & Li, Eq. 35, for the score; its split follows from the closed form of each stream, Eq. 34.
    """
    require_loaded(model)
    require_layers(model.config)
    tokenizer = tokenizer_of(model, tokenizer, inputs)
    request = check(model.config, inputs, layer, head, query, key, contrast, tokenizer)
    return explain_scores(model, [request], tokenizer, through_heads)[0]


def explain_scores(
    model: Transformer, requests: Sequence[_Asked], tokenizer: "Tokenizer | None", through_heads: bool = False
) -> list[AttentionScore]:
    """Explain the scores of validated requests about one input, those of layers that are alike by one program."""
    inputs, groups = requests[0].inputs, dict[Any, list[int]]()
    for i, request in enumerate(requests):
        groups.setdefault(scoring(model, request.layer), []).append(i)
    text = padded(inputs, bucket(len(inputs.real), model.config.positions))
    names, scores = labels_of(model.config, inputs, tokenizer).names, dict[int, AttentionScore]()
    for numbers, members in groups.items():
        chosen = [requests[i] for i in members]
        # Of several scores any layer up to the deepest one, so that not every choice of layers is compiled.
        deepest = max(request.layer for request in chosen)
        layers = tuple(k for k in range(deepest + 1) if scoring(model, k) == numbers) if chosen[1:] else (deepest,)
        keys = [[each.key, *([] if each.contrast is None else [each.contrast])] for each in chosen]
        of_scores: Any = [
            {k: np.array([float(each.layer == k) for each in chosen]) for k in layers},
            *map(np.array, ([each.head for each in chosen], [each.query for each in chosen], keys)),
        ]
        places = ScorePlaces(*of_scores)
        split = partial(split_scores_at, inputs=text, places=places, through_heads=through_heads)
        found = on_host(split(model))
        for place, i in enumerate(members):
            scores[i] = _explained(model, text, names, requests[i], row(found, place), split, place, through_heads)
    return [scores[i] for i in range(len(requests))]


def _explained(
    model: Transformer,
    text: Inputs,
    names: tuple[str, ...],
    request: _Asked,
    found: Any,
    split: Callable[[Transformer], SplitScore],
    place: int,
    through_heads: bool,
) -> AttentionScore:
    """Return the result for one request, from what was computed for it."""
    sides = {QUERIES: found.query, KEYS: found.key}
    query_sources, queries = _named(found.score.queries)
    key_sources, keys = _named(found.score.keys)

    def recompute(model: Transformer) -> Array:
        return split(model).score.completeness.value[place]

    def neurons(side: str, source: AttentionSource) -> Array:
        name = f"attention.{side}"
        return neurons_of_side(model, text, sides[name], source.token, request.layer, through_heads, name, source.term)

    return AttentionScore(
        family=model.config.family,
        tokens=names,
        layer=request.layer,
        head=request.head,
        query=request.query,
        key=request.key,
        contrast=None if request.contrast is None else int(found.keys[1]),
        attention=found.attention[: len(request.inputs.real)],
        query_sources=query_sources,
        key_sources=key_sources,
        queries=queries,
        keys=keys,
        completeness=found.score.completeness.certified(model, recompute),
        split=neurons,
    )


def check(
    config: Config,
    inputs: Any,
    layer: Any,
    head: Any,
    query: Any,
    key: Any,
    contrast: Any,
    tokenizer: "Tokenizer | None" = None,
) -> _Asked:
    """Validate a request about attention."""
    if is_many(config, inputs):
        raise InvalidInput("one input is taken: call it once for each")
    problems: list[str] = []
    inputs = checked_input(config, inputs, "the text" if config.image is None else "the image", problems, tokenizer)
    block = config.blocks[_checked_number(layer, len(config.blocks), "layer", problems)]
    number = _checked_number(head, block.heads, "head", problems)
    places = Places(len(inputs.real), "say which token is attended to")
    at: dict[str, int] = {}
    for name, place in (("query", query), ("key", key), ("contrast", contrast)):
        if name != "contrast" or place not in (None, "other"):
            mistakes: list[str] = []
            at[name] = checked_position(place, places, mistakes)
            problems += [f"{name}: {problem}" for problem in mistakes]
    if block.attention == "sliced":
        problems.append("the papers' sliced attention doesn't mark its queries and keys: choose a standard one")
    if not problems:
        problems += _unseen(block, len(inputs.real), at, other=contrast == "other")
    if problems:
        raise InvalidInput("; ".join(problems))
    return _Asked(inputs, layer, number, at["query"], at["key"], MOST if contrast == "other" else at.get("contrast"))


def _checked_number(value: Any, count: int, what: str, problems: list[str]) -> int:
    number = whole_number(value)
    if number is None or not 0 <= number < count:
        problems.append(f"there is no {what} {quoted(value)}: give a number from 0 to {count - 1}")
        return 0
    return number


def _unseen(block: Any, tokens: int, at: dict[str, int], *, other: bool) -> list[str]:
    query, keys = at["query"], {name: place for name, place in at.items() if name != "query"}
    visible = {place for place in range(tokens) if sees(query, place, causal=block.causal, window=block.window)}
    problems = [
        f"the query at token {query} doesn't see token {place}, the {THE[name]}: choose one that it sees"
        for name, place in keys.items()
        if place not in visible
    ]
    if other and len(visible) < 2:
        problems.append(f"the query at token {query} sees no other token: leave contrast out")
    if len(keys) > len(set(keys.values())):
        problems.append(
            "key and contrast are the same token, and the difference of their scores is zero: choose another"
        )
    return problems


def _named(vector: Vector) -> tuple[tuple[AttentionSource, ...], Float[np.ndarray, "head_features sources"]]:
    """Return the sources of a query or a key that add anything to it, and what they add."""
    sources: list[AttentionSource] = []
    for name, part in sorted(vector.input.items()):
        sources += [AttentionSource(name, name, token, None) for token in range(part.shape[1])]
    for key, part in vector.terms.items():
        name = f"layer {layer_of(key)} " + ("MLP" if key.name == "mlp" else key.name)
        sources += [AttentionSource(name, name, token, key) for token in range(part.shape[1])]
    for key, part in vector.heads.items():
        layer = f"layer {layer_of(key)}"
        places = np.ndindex(part.shape[1:])
        sources += [AttentionSource(f"{layer} head {head}", f"{layer} heads", token, None) for token, head in places]
    names = [*map(str, vector.offsets), "unmarked"]
    sources += [AttentionSource(name, BIASES, None, None) for name in names]
    # On the host, where every part is by now.
    columns = np.concatenate([part.reshape(len(part), -1) for part in jax.tree.leaves(vector)], 1)
    # Of a causal model, what stands behind a token adds nothing to it; and with heads as sources, no other token does.
    kept = np.flatnonzero(columns.any(0))
    return tuple(sources[i] for i in kept), columns[:, kept]
