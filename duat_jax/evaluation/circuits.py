"""Circuits: which units of a model carry a task, tried by corrupting all the others."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from duat_jax.attribution.units import Method, Scores
from duat_jax.errors import DuatError, NotFinite
from duat_jax.evaluation.circuit_curve import FRACTIONS, Curve
from duat_jax.inputs.prompts import Prompt, differences, logit_difference
from duat_jax.models.transformer import Transformer
from duat_jax.transform import marks
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.keys import Site
from duat_jax.transform.recording import record_kinds

AT_ONCE = 8
"""How many prompts are scored at once: short texts alone would wait for the weights to be read."""


class Units(NamedTuple):
    """What a circuit is made of.

    Args:
        kind: the kind of mark that they stand on.
        name: its name; every layer has one.
        of: what picks them from a method's scores: one score of each, in axes that broadcast to the mark's value.
    """

    kind: str
    name: str
    of: Callable[[Scores], Array | None]


def _over_positions(scores: Array | None) -> Array | None:
    return None if scores is None else scores.sum(1, keepdims=True)


def _of_vectors(scores: Array | None) -> Array | None:
    return None if scores is None else scores[..., None]


UNITS = {
    "neuron x position": Units(marks.POINT, "mlp.neurons", lambda scores: scores.neurons),
    "neuron": Units(marks.POINT, "mlp.neurons", lambda scores: _over_positions(scores.neurons)),
    "head x position": Units(marks.POINT, "attention.mixed", lambda scores: _of_vectors(scores.heads)),
    "layer x token": Units(marks.STREAM, "layer", lambda scores: _of_vectors(scores.streams)),
}
"""The kinds of units: a neuron at a token, a neuron at all tokens, what a head mixed at a token, the stream at one."""


def _sites(model: Transformer, ids: Array, units: Units) -> dict[Site, Array]:
    recording = record_kinds(model.states, model.embed(ids), (units.kind,))
    return {site: recording.seen[site] for site in recording.program.of_kind(units.kind) if site.key.name == units.name}


@partial(jax.jit, static_argnames="units")
def values(model: Transformer, ids: Int[Array, "tokens"], units: Units) -> Float[Array, "layers tokens *unit"]:
    """Return the values of units in all layers.

    Args:
        model: the model.
        ids: what it reads, `[tokens]`.
        units: the kind of units.
    """
    return jnp.stack(list(_sites(model, ids, units).values()))


@partial(jax.jit, static_argnames="units")
def run(
    model: Transformer,
    prompt: Prompt,
    units: Units,
    live: Bool[Array, "runs layers ..."],
    others: Float[Array, "layers tokens *unit"],
) -> Float[Array, "runs"]:
    """Return by how much a model prefers the right answer to the clean text while some of its units are set.

    Units that are live are computed from what came before them, as everything else is: embeddings are the clean text's,
    attention attends anew.

    Args:
        model: the model.
        prompt: one prompt.
        units: the kind of units.
        live: which ones are live in each of several runs: `[runs, layers, tokens, *unit]`, or what broadcasts to it.
        others: what those are set to that aren't, `[layers, tokens, *unit]`.
    """
    sites = list(_sites(model, prompt.clean, units))

    def one(live: Array) -> Array:
        edits = {site: Edit(live[i], jnp.where(live[i], 0, others[i])) for i, site in enumerate(sites)}
        return edit(lambda x: logit_difference(model, x, prompt.right, prompt.wrong), edits)(model.embed(prompt.clean))

    return jax.vmap(one)(live)


def top(scores: Float[np.ndarray, "layers ..."]) -> Bool[np.ndarray, "fractions layers ..."]:
    """Return for each of `FRACTIONS` which units are in the circuit: those whose scores are largest in absolute value.

    Signed scores would keep what speaks for the right answer and drop what speaks against it: a part that says more
    than the whole is no faithful one.

    Args:
        scores: one score of each unit.
    """
    sizes = np.maximum(1, np.rint(np.multiply(FRACTIONS, scores.size)))
    ranks = np.empty(scores.size, np.int32)
    ranks[np.argsort(-np.abs(scores), axis=None, kind="stable")] = np.arange(scores.size)
    return ranks.reshape(scores.shape) < sizes.reshape(-1, *[1] * scores.ndim)


@partial(jax.jit, static_argnames="method")
def _scores(method: Method, model: Transformer, prompts: Prompt) -> Scores:
    return jax.vmap(method, (None, 0, 0, 0, 0))(model, *prompts)


def _kept_and_removed(scores: np.ndarray, method: str) -> Array:
    if not np.isfinite(scores).all():
        raise NotFinite(f"{method!r} gives scores that aren't finite: leave it out")
    circuits = top(scores)
    return jnp.asarray(np.concatenate([circuits, ~circuits]))


def measure(
    model: Transformer,
    prompts: Prompt,
    methods: Mapping[str, Method],
    units: Iterable[str] = tuple(UNITS),
    *,
    mean: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, dict[str, Curve]]:
    """Try the circuits that methods find, of every size: kept while the rest is corrupted, and corrupted themselves.

    Args:
        model: a language model.
        prompts: prompts of one number of tokens.
        methods: what gives each unit a score, by name.
        units: names in `UNITS`.
        mean: whether a unit is corrupted by its mean over all corrupted texts, instead of its value in the prompt's.
        progress: called with the number of methods tried on a prompt so far and that of all.

    Returns:
        For each kind of units, a curve of each method that has scores for them.

    Raises:
        NotFinite: if a method's scores aren't.
        DuatError: if no method has scores for a kind of units.
    """
    kinds = {name: UNITS[name] for name in units}
    clean, corrupted = jax.device_get(differences(model, prompts))
    means = {
        name: jax.lax.map(lambda ids, kind=kind: values(model, ids, kind), prompts.corrupted).mean(0)
        for name, kind in kinds.items()
        if mean
    }
    count = len(clean)
    tried: dict[str, dict[str, list[Array]]] = {name: {} for name in kinds}
    for first in range(0, count, AT_ONCE):
        new = min(AT_ONCE, count - first)
        # After the last ones come some that are scored already, so that one program scores all.
        rows = np.arange(first, first + min(AT_ONCE, count)) % count
        some = jax.tree.map(lambda leaf, rows=rows: leaf[rows], prompts)
        others = [
            means or {name: values(model, ids, kind) for name, kind in kinds.items()} for ids in some.corrupted[:new]
        ]
        for j, (method, scorer) in enumerate(methods.items()):
            scores = _scores(scorer, model, some)
            for i in range(new):
                prompt, of_prompt = jax.tree.map(lambda leaf, i=i: leaf[i], (some, scores))
                for name, kind in kinds.items():
                    if (found := kind.of(of_prompt)) is not None:
                        live = _kept_and_removed(np.asarray(found), method)
                        tried[name].setdefault(method, []).append(run(model, prompt, kind, live, others[i][name]))
            progress(first * len(methods) + (j + 1) * new, count * len(methods))
    if lacking := [name for name, of_methods in tried.items() if not of_methods]:
        raise DuatError(f"no method of {', '.join(methods)} has scores for {', '.join(lacking)}: choose others")
    return {
        name: {
            method: Curve(*(np.asarray(m, np.float64) for m in (clean, corrupted, *np.split(np.array(runs), 2, 1))))
            for method, runs in of_methods.items()
        }
        for name, of_methods in tried.items()
    }
