"""A model run again with the rank-one updates that demonstrations amount to, at one query and at others."""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from duat_jax.in_context.controls import answers_of
from duat_jax.in_context.prompts import EXCHANGED, FewShotQuestion, after_start, draw_question, question_of
from duat_jax.inputs.few_shot_tasks import PAIRS
from duat_jax.models.transformer import Transformer
from experiments.in_context.rank_one import (
    Chosen,
    States,
    Update,
    moved_pre_activations,
    run_plainly,
    run_to_target,
    run_updated,
    update_between,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SHORT, LONG = 8, 64
"""The lengths to which texts without and with demonstrations are padded, so that few programs are compiled."""

DEMONSTRATIONS, OTHER_QUERIES, OTHER_SINGLE = 4, 4, 2
"""The numbers of demonstrations, of other queries, and of those of them that updates of single layers are tried on."""

RIGHT, OTHER_TASK, SHUFFLED = "right", "another task's", "shuffled"
KINDS = (RIGHT, EXCHANGED, OTHER_TASK, SHUFFLED)
"""The demonstrations from which updates are computed."""

MLPS, BOTH, ATTENTIONS = "MLPs", "MLPs and attention", "attention"
MASKS = {MLPS: (1.0, 0.0), BOTH: (1.0, 1.0), ATTENTIONS: (0.0, 1.0)}
"""The updated parameters: weights of the MLPs, the bias that takes the difference of attention's output, or both."""

AT_ONCE = " at once"
VARIANTS = (*MASKS, MLPS + AT_ONCE, BOTH + AT_ONCE)
"""Layer after layer, each update computed in the run that the earlier ones leave; or all from the two plain runs."""

PLACES = ("last token", "all tokens")
NAMES = tuple(f"{variant}, {place}" for variant in VARIANTS for place in PLACES)
IN_VIEW, WHOLE = "in view", "layer"
OWN, OTHER = "same query", "other queries"


class Text(NamedTuple):
    """A padded text.

    Args:
        ids: its token ids, `[tokens]`.
        last: the place of its last token.
    """

    ids: Int[Array, "tokens"]
    last: Int[Array, ""]


def padded(ids: Sequence[int] | np.ndarray, length: int) -> Text:
    """Return a text, padded."""
    return Text(jnp.asarray(np.pad(ids, (0, length - len(ids))), jnp.int32), jnp.asarray(len(ids) - 1))


def shuffled(question: FewShotQuestion, seed: int) -> np.ndarray:
    """Return a question's token ids with those of its demonstrations in a random order."""
    ids = question.ids.copy()
    ids[question.hidden] = np.random.default_rng(seed).permutation(ids[question.hidden])
    return ids


class Query(NamedTuple):
    """A question without demonstrations and after each kind of them.

    Args:
        alone: the text without demonstrations.
        after: the text after the demonstrations, by their kind.
        answer: the first token of the right answer.
    """

    alone: Text
    after: dict[str, Text]
    answer: int


def queries(tokenizer: "Tokenizer", task: str, seed: int) -> list[Query]:
    """Return a drawn question, and others that stand after the same demonstrations."""
    # Their right first tokens all differ from the drawn one's.
    names = list(PAIRS)
    controls = {RIGHT: None, EXCHANGED: EXCHANGED, OTHER_TASK: names[(names.index(task) + 1) % len(names)]}
    drawn = {
        kind: draw_question(tokenizer, task, DEMONSTRATIONS, seed=seed, control=control)
        for kind, control in controls.items()
    }
    lines = {kind: question.text.strip().split("\n")[:-1] for kind, question in drawn.items()}
    word = drawn[RIGHT].text.rpartition("\n")[2].removesuffix(" ->")
    shown = {word, *(line.partition(" -> ")[0] for line in lines[RIGHT])}
    rest = [
        pair
        for pair in PAIRS[task]
        if pair[0] not in shown and after_start(tokenizer, f" {pair[1]}")[0] != drawn[RIGHT].answer
    ]
    pairs = [(word, dict(PAIRS[task])[word]), *Random(f"{seed} {task} others").sample(rest, OTHER_QUERIES)]
    result = []
    for question, answer in pairs:
        kinds = {kind: question_of(tokenizer, before, f"{question} ->", f" {answer}") for kind, before in lines.items()}
        right = kinds[RIGHT]
        ids = {kind: each.ids for kind, each in kinds.items()} | {SHUFFLED: shuffled(right, seed)}
        texts = {kind: padded(each, LONG) for kind, each in ids.items()}
        result.append(Query(padded(right.ids[~right.hidden], SHORT), texts, right.answer))
    return result


class Asked(NamedTuple):
    """A query, and what the model says without demonstrations and after each kind of them.

    Args:
        alone: the text without demonstrations.
        answer: the first token of the right answer.
        logs: the log-probabilities without demonstrations, `[vocab]`.
        states: the states at the last token without demonstrations.
        after: log-probabilities and states after the demonstrations, by their kind.
    """

    alone: Text
    answer: int
    logs: Float[Array, "vocab"]
    states: States
    after: dict[str, tuple[Float[Array, "vocab"], States]]


def _ask(model: Transformer, query: Query) -> Asked:
    after = {kind: run_plainly(model, *text) for kind, text in query.after.items()}
    logs, states = run_plainly(model, *query.alone)
    return Asked(query.alone, query.answer, logs, states, after)


def _stacked(parts: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *rows: jnp.stack(rows), *parts)


def _places(text: Text) -> list[Array]:
    """Return the tokens at which an update is applied, in the order of `PLACES`."""
    everywhere = jnp.ones(len(text.ids))
    return [jnp.where(jnp.arange(len(text.ids)) == text.last, everywhere, 0), everywhere]


def _to_target(model: Transformer, asked: Asked, kind: str, chosen: Sequence[Chosen]) -> Update:
    """Return the updates that are computed layer after layer, `[chosen, layers, features]`."""
    target = asked.after[kind][1]
    return jax.vmap(run_to_target, (None, None, None, None, 0))(model, *asked.alone, target, _stacked(chosen))[1]


def _updates(model: Transformer, asked: Asked, kind: str) -> Update:
    """Return the updates of all layers, in the order of `NAMES`."""
    ones = jnp.ones(len(model.stack.blocks))
    chosen = [
        Chosen(tokens, mlps * ones, attentions * ones, 0 * ones)
        for mlps, attentions in MASKS.values()
        for tokens in _places(asked.alone)
    ]
    at_once = at_once_of(asked, kind)
    mlps = at_once._replace(residual=jnp.zeros_like(at_once.residual))
    pairs = _to_target(model, asked, kind, chosen), _stacked([mlps, mlps, at_once, at_once])
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *pairs)


def at_once_of(asked: Asked, kind: str) -> Update:
    """Return the updates of all layers from the run without demonstrations and the one with them."""
    target = asked.after[kind][1]
    return update_between(asked.states, target, target.attention - asked.states.attention)


def _run_again(model: Transformer, asked: Asked, updates: Update, tokens: Sequence[Array]) -> np.ndarray:
    """Return the log-probabilities with each of several updates, `[updates, vocab]`."""
    run = jax.vmap(run_updated, (None, None, None, 0, 0))
    return np.asarray(run(model, *asked.alone, updates, jnp.stack(tokens)), np.float64)


def _gains(logs: np.ndarray, asked: Asked, own: Asked, answers: list[int]) -> dict[str, float]:
    """Return how much more probable some tokens are than without demonstrations, and whether the right one is first."""
    alone = np.asarray(asked.logs, np.float64)

    def gain(tokens: list[int]) -> float:
        return float(np.logaddexp.reduce(logs[tokens]) - np.logaddexp.reduce(alone[tokens]))

    parts = {"answer": [asked.answer], "any answer": answers, "own answer": [own.answer]}
    return {name: gain(tokens) for name, tokens in parts.items()} | {"right": float(logs.argmax() == asked.answer)}


def _averaged(results: Sequence[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    return {
        name: {field: float(np.mean([result[name][field] for result in results])) for field in numbers}
        for name, numbers in results[0].items()
    }


def measure_updates(model: Transformer, tokenizer: "Tokenizer", task: str, seed: int) -> dict[str, Any]:
    """Run a model without demonstrations and with the updates that they amount to, at one query and at others."""
    own, *others = (_ask(model, query) for query in queries(tokenizer, task, seed))
    answers = answers_of(tokenizer, task)

    def read(asked: Asked, kind: str, updates: Update) -> dict[str, dict[str, float]]:
        logs = _run_again(model, asked, updates, _places(asked.alone) * len(VARIANTS))
        in_view = np.asarray(asked.after[kind][0], np.float64)
        runs = zip((IN_VIEW, *NAMES), (in_view, *logs), strict=True)
        return {name: _gains(each, asked, own, answers) for name, each in runs}

    gains = []
    for kind in KINDS:
        updates = _updates(model, own, kind)
        at = {OWN: read(own, kind, updates), OTHER: _averaged([read(asked, kind, updates) for asked in others])}
        for query, by_name in at.items():
            keys = {"query": query, "demonstrations": kind}
            gains += [{**keys, "updated": name, **of} for name, of in by_name.items()]
    right, another = at_once_of(own, RIGHT), at_once_of(others[0], RIGHT)
    cosines = {f"cosine, {kind}": _cosine(model, right, at_once_of(own, kind)) for kind in KINDS[1:]}
    cosines["cosine, another query"] = _cosine(model, right, another)
    return {
        "gains": gains,
        "single": _single_layers(model, own, others),
        "updates": {"size": _size(model, right), **cosines},
    }


def _single_layers(model: Transformer, own: Asked, others: Sequence[Asked]) -> list[dict[str, Any]]:
    """Return the answer's gains with each layer's update alone at the last token: of its MLP, and of all its output."""
    # The whole output takes the difference of the stream after attention, which the earlier layers have no part in.
    layers, rows = len(model.stack.blocks), []
    nothing, tokens = jnp.zeros(layers), _places(own.alone)[0]
    for name, kind, with_stream in ((MLPS, RIGHT, 0.0), (WHOLE, RIGHT, 1.0), (WHOLE, EXCHANGED, 1.0)):
        chosen = [Chosen(tokens, layer, nothing, with_stream * layer) for layer in jnp.eye(layers)]
        updates = _to_target(model, own, kind, chosen)
        for query, group in ((OWN, [own]), (OTHER, others[:OTHER_SINGLE])):
            logs = [_run_again(model, asked, updates, [_places(asked.alone)[0]] * layers) for asked in group]
            gains = [
                each[:, asked.answer] - float(asked.logs[asked.answer]) for each, asked in zip(logs, group, strict=True)
            ]
            keys = {"updated": name, "demonstrations": kind, "query": query}
            rows.append({**keys, "gain": np.mean(gains, 0).tolist()})
    return rows


def _size(model: Transformer, update: Update) -> float:
    """Return `‖ΔW‖ / ‖W‖` in Frobenius norms, the mean over layers."""
    norms = [jnp.linalg.norm(block.mlp.input.kernel[...]) for block in model.stack.blocks]
    outer = [jnp.linalg.norm(rows, axis=-1) for rows in (update.direction, moved_pre_activations(model, update.change))]
    return float((outer[0] * outer[1] / jnp.stack(norms)).mean())


def _cosine(model: Transformer, first: Update, second: Update) -> float:
    """Return the cosine between two rank-one updates as matrices, the mean over layers."""

    def cosines(a: Array, b: Array) -> Array:
        return (a * b).sum(-1) / (jnp.linalg.norm(a, axis=-1) * jnp.linalg.norm(b, axis=-1))

    changes = (moved_pre_activations(model, update.change) for update in (first, second))
    return float((cosines(first.direction, second.direction) * cosines(*changes)).mean())
