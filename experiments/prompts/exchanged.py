"""Parameters of the closed form under one prompt, at the input or in the run of another."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from duat_jax.forms.closed_form import ClosedForm, unroll
from duat_jax.models.transformer import Transformer
from duat_jax.transform import marks
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.interpret import Seen
from duat_jax.transform.query import pre_activations_of
from experiments.frozen_parameters import Network

PATTERNS, SCALES, FACTORS, BIASES = "patterns", "scales", "factors", "biases"
HELD = {PATTERNS: "attention.pattern", SCALES: "scale", FACTORS: "mlp.factor"}
"""The ends of the names of what is held."""
OWN, OTHER, FUNCTION, INPUT = "own", "other", "the other's function", "the other's input"
"""The plain runs of both prompts; all parameters of the other at the own input; and the own ones at the other's."""
WORDS, TEXT, EVERYWHERE = "instruction", "text", "all tokens"
"""The places at which parameters are exchanged, the model run again."""
ALL, WEIGHTS = "everything", "patterns, scales and factors"
"""All that is held, with the pre-activations; and all that is held alone, which moves the closed form's weights."""
EXCHANGED = (
    *((place, group) for place in (WORDS, TEXT) for group in (ALL, WEIGHTS, PATTERNS, FACTORS, BIASES)),
    *((EVERYWHERE, group) for group in (WEIGHTS, PATTERNS, FACTORS)),
)
"""The places, and what is exchanged there; exchanging biases or everything at all tokens leaves little to run."""


class Parameters(NamedTuple):
    """The parameters that move in the closed form of a model with gated MLPs.

    Args:
        held: patterns, scales and factors, by their marks.
        pre_activations: of every term.
        biases: `b'_{j,2}` of every term (`c_j`).
    """

    held: Seen
    pre_activations: Seen
    biases: Seen


def parameters_of(form: ClosedForm) -> Parameters:
    """Return the parameters of a closed form, the biases of all terms in one pass."""
    recording = form.recording
    held, inner = (recording.program.of_kind(kind) for kind in (marks.HOLD, marks.PRE_ACTIVATION))
    biases = pre_activations_of(recording, [jnp.zeros_like(form.x0)], {})
    return Parameters(
        {site: recording.seen[site] for site in held},
        {site: recording.seen[site] for site in inner},
        {site: biases[site] for site in inner},
    )


def group_of(held: Seen, name: str) -> Seen:
    """Return what is held of one group."""
    return {site: of for site, of in held.items() if site.key.name.endswith(HELD[name])}


def exchange(network: Network, x: Float[Array, "tokens features"], values: Seen, at: Bool[Array, "tokens"]) -> Array:
    """Return a network's output with marked values replaced at some tokens, and everything else made anew."""
    taken = at[:, None]
    edits = {
        site: Edit(kept=jnp.where(taken, 0.0, 1.0), added=jnp.where(taken, value, 0)) for site, value in values.items()
    }
    return edit(network, edits)(x)


def _score(logits: Float[Array, "tokens vocab"], ids: Int[Array, "tokens"], count: int) -> Float[Array, ""]:
    """Return the mean log-probability of the last tokens."""
    logs = jax.nn.log_softmax(logits[-count - 1 : -1])
    return jnp.take_along_axis(logs, ids[-count:, None], -1).mean()


def _runs(model: Transformer, places: dict[str, Array], own: Array, other: Array, count: int) -> dict[str, Array]:
    """Return the score of an answer's tokens, which end both texts, in every kind of run."""
    x, y = model.embed(own), model.embed(other)
    forms = unroll(model.output, x), unroll(model.output, y)
    mine, others = map(parameters_of, forms)
    logits = {OWN: forms[0].value, OTHER: forms[1].value, FUNCTION: forms[1].apply(x), INPUT: forms[0].apply(y)}
    exchanged = {name: group_of(others.held, name) for name in (PATTERNS, FACTORS)}
    exchanged[BIASES] = jax.tree.map(lambda z, c, of: z - c + of, mine.pre_activations, mine.biases, others.biases)
    exchanged |= {WEIGHTS: others.held, ALL: others.held | others.pre_activations}
    for place, group in EXCHANGED:
        logits[f"{place}, {group}"] = exchange(model.output, x, exchanged[group], places[place])
    return {name: _score(of, own, count) for name, of in logits.items()}


@partial(jax.jit, static_argnames="count")
def scores(
    model: Transformer,
    own: Int[Array, "2 tokens"],
    other: Int[Array, "2 tokens"],
    places: dict[str, Bool[Array, "tokens"]],
    *,
    count: int,
) -> dict[str, Float[Array, ""]]:
    """Return by how much the own answer is more probable than the other one, in every kind of run."""
    runs = jax.lax.map(lambda pair: _runs(model, places, pair[0], pair[1], count), (own, other))
    return {name: of[0] - of[1] for name, of in runs.items()}


def _apart(first: list[Array], second: list[Array]) -> Float[Array, ""]:
    """Return the mean over arrays of `‖A − B‖ / √((‖A‖² + ‖B‖²) / 2)`."""
    each = []
    for a, b in zip(first, second, strict=True):
        size = jnp.sqrt(((a**2).sum() + (b**2).sum()) / 2)
        each.append(jnp.sqrt(((a - b) ** 2).sum()) / jnp.where(size == 0, 1, size))  # the first bias is zero
    return jnp.stack(each).mean()


@partial(jax.jit, static_argnames=("first", "last"))
def distances(
    model: Transformer, ids: Int[Array, "texts tokens"], others: Int[Array, "texts tokens"], *, first: int, last: int
) -> dict[str, Float[Array, "texts"]]:
    """Return how far apart parameters are at a stretch of tokens, by group."""

    def group_parameters(ids: Array) -> dict[str, list[Array]]:
        found = parameters_of(unroll(model.output, model.embed(ids)))
        groups = {name: list(group_of(found.held, name).values()) for name in HELD}
        groups[BIASES] = list(found.biases.values())
        return {name: [value[..., first:last, :] for value in values] for name, values in groups.items()}

    def of_pair(pair: tuple[Array, Array]) -> dict[str, Array]:
        mine, others = map(group_parameters, pair)
        return {name: _apart(values, others[name]) for name, values in mine.items()}

    return jax.lax.map(of_pair, (ids, others))
