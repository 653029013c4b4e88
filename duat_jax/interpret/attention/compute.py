"""Explain attention: split one score of a head exactly over pairs of sources."""

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from duat_jax.deprecation import renamed_arguments
from duat_jax.errors import InvalidInput
from duat_jax.forms.score import KINDS, PRECISION, Score, ScoreSide, Vector, neurons_of, split_score
from duat_jax.inputs.batching import bucket, padded
from duat_jax.inputs.labels import labels_of
from duat_jax.inputs.model_inputs import Inputs, ManyInputs, OneInput, checked_input, is_many
from duat_jax.interpret.attention.result import BIASES, AttentionScore, AttentionSource
from duat_jax.interpret.many_inputs import answers_each_input
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.config import Config
from duat_jax.models.embedding import TokenEmbedding
from duat_jax.models.sites import HEADS, KEYS, QUERIES
from duat_jax.models.tokenizer import tokenizer_of
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import Places, checked_position, require_layers, require_loaded, whole_number
from duat_jax.nn.linear import alike
from duat_jax.nn.pattern import cap_ratio, sees
from duat_jax.nn.scanned_stack import ScannedStack
from duat_jax.processes import on_host
from duat_jax.transform import marks
from duat_jax.transform.keys import Key, Occurrence, Site
from duat_jax.transform.recording import Recording, record_kinds
from duat_jax.transform.stored_program import stored_program

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MOST = -1
"""In the place of a key that is compared with: the other token that is attended to most."""

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
    at = [request.key] if request.contrast is None else [request.key, request.contrast]
    signs = np.array([1, -1][: len(at)])
    text = padded(request.inputs, bucket(len(request.inputs.real), model.config.positions))

    def split(model: Transformer) -> Any:
        return _split(model, text, request.head, request.query, np.array(at), signs, request.layer, through_heads)

    score, query_side, key_side, attention, keys_at = on_host(split(model))
    sides = {QUERIES: query_side, KEYS: key_side}
    query_sources, queries = _named(score.queries)
    key_sources, keys = _named(score.keys)

    def recompute(model: Transformer) -> Array:
        return split(model)[0].completeness.value

    def neurons(side: str, source: AttentionSource) -> Array:
        name = f"attention.{side}"
        return _neurons(model, text, sides[name], source.token, request.layer, through_heads, name, source.term)

    return AttentionScore(
        family=model.config.family,
        tokens=labels_of(model.config, request.inputs, tokenizer).names,
        layer=request.layer,
        head=request.head,
        query=request.query,
        key=request.key,
        contrast=None if request.contrast is None else int(keys_at[1]),
        attention=attention[: len(request.inputs.real)],
        query_sources=query_sources,
        key_sources=key_sources,
        queries=queries,
        keys=keys,
        completeness=score.completeness.certified(model, recompute),
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


def _embeddings(model: Transformer, inputs: Inputs) -> dict[str, Array]:
    """Return the summands of the embeddings, by name: of the token, of its segment, of its position."""
    x, embedding = inputs.embedded(model), model.embedding
    if not isinstance(embedding, TokenEmbedding):
        return {"patch": x}
    parts = {"token": alike(embedding.token[...][inputs.given], x) * jnp.asarray(model.config.embedding_scale, x.dtype)}
    if embedding.segment is not None:
        parts["segment"] = alike(embedding.segment[...][inputs.segments], x)
    if embedding.position is not None:
        parts["position"] = x - sum(parts.values())
    return parts


def _recorded(
    model: Transformer, inputs: Inputs, layer: int, through_heads: bool
) -> tuple[Recording, dict[str, Occurrence], tuple[Site, ...]]:
    """Return the recording, the points of the layer by name, and what earlier heads mixed, where it is a source."""
    real: Any = jnp.asarray(inputs.real)

    def states(parts: dict[str, Any]) -> Array:
        # A loop over layers is one program; of layers one after another, only those up to this one are run.
        in_loop, x = isinstance(model.stack, ScannedStack), sum(parts.values())
        return model.hidden(x, real) if in_loop else model.stream(x, layer + 1, real)

    recording = record_kinds(states, _embeddings(model, inputs), KINDS)
    points = recording.program.steps(marks.POINT)
    earlier = [step.site for step in points if step.site.key.name == HEADS and _layer_of(step.site.key) < layer]
    here = {step.site.key.name: step for step in points if _layer_of(step.site.key) == layer}
    return recording, here, tuple(earlier) if through_heads else ()


def _layer_of(key: Key) -> int:
    return int(key.scope[0].removeprefix("layers."))


@partial(stored_program, static_argnames=("layer", "through_heads"))
def _split(
    model: Transformer,
    inputs: Inputs,
    head: Int[Array, ""],
    query: Int[Array, ""],
    keys: Int[Array, "keys"],
    signs: Int[Array, "keys"],
    layer: int,
    through_heads: bool,
) -> tuple[Score, ScoreSide, ScoreSide, Float[Array, "tokens"], Int[Array, "keys"]]:
    """Return the score, whose query and whose keys it is of, the row of the pattern, and the keys."""
    recording, here, through = _recorded(model, inputs, layer, through_heads)
    block: Any = model.stack.blocks[layer]
    attention = block.attention
    all_queries, all_keys = (recording.at(here[name]) for name in (QUERIES, KEYS))
    row = attention.pattern(all_queries, all_keys, jnp.asarray(inputs.real))[head, query]
    keys = jnp.where(keys == MOST, row.at[keys[0]].set(-1).argmax(), keys)
    key_head = head // (attention.heads // attention.key_value_heads)
    scores = attention.scale * jnp.matmul(all_keys[keys, key_head], all_queries[query, head], precision=PRECISION)
    ratios = jnp.ones_like(scores) if attention.cap is None else cap_ratio(scores, attention.cap)
    nothing = jnp.zeros(len(all_keys), scores.dtype)
    query_side = ScoreSide(head, nothing.at[query].set(1))
    key_side = ScoreSide(key_head, nothing.at[keys].set(attention.scale * ratios * signs.astype(scores.dtype)))
    score = split_score(recording, here[QUERIES], here[KEYS], query_side, key_side, through=through)
    return score, query_side, key_side, row, keys


@partial(stored_program, static_argnames=("layer", "through_heads", "name", "term"))
def _neurons(
    model: Transformer,
    inputs: Inputs,
    side: ScoreSide,
    token: Int[Array, ""],
    layer: int,
    through_heads: bool,
    name: str,
    term: Key,
) -> Float[Array, "head_features neurons"]:
    recording, here, through = _recorded(model, inputs, layer, through_heads)
    return neurons_of(recording, here[name], side, Site(marks.ACTIVATION, term), token, through=through)


def _named(vector: Vector) -> tuple[tuple[AttentionSource, ...], Float[np.ndarray, "head_features sources"]]:
    """Return the sources of a query or a key that add anything to it, and what they add."""
    sources: list[AttentionSource] = []
    for name, part in sorted(vector.input.items()):
        sources += [AttentionSource(name, name, token, None) for token in range(part.shape[1])]
    for key, part in vector.terms.items():
        name = f"layer {_layer_of(key)} " + ("MLP" if key.name == "mlp" else key.name)
        sources += [AttentionSource(name, name, token, key) for token in range(part.shape[1])]
    for key, part in vector.heads.items():
        layer = f"layer {_layer_of(key)}"
        places = np.ndindex(part.shape[1:])
        sources += [AttentionSource(f"{layer} head {head}", f"{layer} heads", token, None) for token, head in places]
    names = [*map(str, vector.offsets), "unmarked"]
    sources += [AttentionSource(name, BIASES, None, None) for name in names]
    # On the host, where every part is by now.
    columns = np.concatenate([part.reshape(len(part), -1) for part in jax.tree.leaves(vector)], 1)
    # Of a causal model, what stands behind a token adds nothing to it; and with heads as sources, no other token does.
    kept = np.flatnonzero(columns.any(0))
    return tuple(sources[i] for i in kept), columns[:, kept]
