"""Circuits: measure which units of a model carry a task by corrupting the other units."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from duat_jax.attribution import registry
from duat_jax.attribution.unit_values import Scores
from duat_jax.attribution.units import Rule
from duat_jax.errors import DuatError, NotFinite
from duat_jax.evaluation.circuit_curve import FRACTIONS, Curve
from duat_jax.evaluation.journal import Journal, fingerprint
from duat_jax.inputs.batching import row
from duat_jax.inputs.prompts import Prompt, differences, logit_difference
from duat_jax.models.ids import require_ids
from duat_jax.models.sites import HEADS, NEURONS, STREAM
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import require_layers
from duat_jax.processes import on_host
from duat_jax.transform import marks
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.keys import Site
from duat_jax.transform.recording import record_kinds

Method = Callable[[Transformer, Array, Array, Array, Array], Scores]
"""From a model, the clean and the corrupted text, `[tokens]`, the right and the wrong token to every unit's score."""


def on_prompts(rule: Rule) -> Method:
    """Return the method that scores units by a rule, on the difference between the logits of the two answers."""

    def scores(model: Transformer, clean: Array, corrupted: Array, right: Array, wrong: Array) -> Scores:
        read = partial(logit_difference, model, right=right, wrong=wrong)
        return rule(model, read, model.embed(clean), model.embed(corrupted), jnp.ones(clean.shape, bool))

    return scores


def _random(model: Transformer, clean: Array, corrupted: Array, right: Array, wrong: Array) -> Scores:
    """Return random scores, with a seed from the texts."""
    like = jax.eval_shape(METHODS["contributions"], model, clean, corrupted, right, wrong)
    key = jax.random.fold_in(jax.random.key(0), jnp.polyval(jnp.concatenate([clean, corrupted]), 31))
    keys = jax.random.split(key, len(like))
    return Scores(*(jax.random.normal(k, scores.shape, scores.dtype) for k, scores in zip(keys, like, strict=True)))


METHODS: dict[str, Method] = {
    **{name: on_prompts(method.rule) for name, method in registry.METHODS["neuron"].items()},
    "random": _random,
}
"""The attribution methods of neurons and heads on prompts, and a control: random scores."""

AT_ONCE = 8
"""Number of prompts that are scored in one batch: single short texts are limited by reading the weights."""


class UnitKind(NamedTuple):
    """A kind of units of circuits.

    Args:
        kind: the kind of mark of the units.
        name: the name of the mark, which every layer has.
        select: selects the units' scores from a method's scores, with axes that broadcast to the mark's value.
        unit: the name of one unit of a layer, such as `"head"`; absent if a layer has no units.
        positions: whether a unit is at one token, and not at all of them.
    """

    kind: str
    name: str
    select: Callable[[Scores], Array | None]
    unit: str | None = "neuron"
    positions: bool = True


def _over_positions(scores: Array | None) -> Array | None:
    return None if scores is None else scores.sum(1, keepdims=True)


def _of_vectors(scores: Array | None) -> Array | None:
    return None if scores is None else scores[..., None]


UNITS = {
    "neuron x position": UnitKind(marks.POINT, NEURONS, lambda scores: scores.neurons),
    "neuron": UnitKind(marks.POINT, NEURONS, lambda scores: _over_positions(scores.neurons), positions=False),
    "head x position": UnitKind(marks.POINT, HEADS, lambda scores: _of_vectors(scores.heads), "head"),
    "layer x token": UnitKind(marks.STREAM, STREAM, lambda scores: _of_vectors(scores.streams), None),
}
"""The kinds of units: a neuron at a token, a neuron at all tokens, a head at a token, the stream at a token."""


def _sites(model: Transformer, ids: Array, units: UnitKind) -> dict[Site, Array]:
    require_layers(model.config)
    recording = record_kinds(model.states, model.embed(ids), (units.kind,))
    return {site: recording.seen[site] for site in recording.program.of_kind(units.kind) if site.key.name == units.name}


@partial(jax.jit, static_argnames="units")
def values(model: Transformer, ids: Int[Array, "tokens"], units: UnitKind) -> Float[Array, "layers tokens *unit"]:
    """Return the values of units in all layers."""
    return jnp.stack(list(_sites(model, ids, units).values()))


@partial(jax.jit, static_argnames="units")
def run(
    model: Transformer,
    prompt: Prompt,
    units: UnitKind,
    live: Bool[Array, "runs layers ..."],
    corrupted: Float[Array, "layers tokens *unit"],
) -> Float[Array, "runs"]:
    """Return the logit difference between right and wrong answer on the clean text with some units replaced."""
    return jax.vmap(lambda live: run_masked(model, prompt, units, live, corrupted))(live)


def run_masked(
    model: Transformer,
    prompt: Prompt,
    units: UnitKind,
    mask: Float[Array, "layers ..."] | Bool[Array, "layers ..."],
    corrupted: Float[Array, "layers tokens *unit"],
) -> Float[Array, ""]:
    """Return the logit difference between right and wrong answer on the clean text, units set to `c + M (h − c)`."""
    # `h` is computed from the preceding values, like everything else: embeddings are the clean text's, and attention
    # patterns are computed anew.
    sites, mask = list(_sites(model, prompt.clean, units)), mask.astype(corrupted.dtype)
    edits = {site: Edit(mask[i], (1 - mask[i]) * corrupted[i]) for i, site in enumerate(sites)}
    return edit(lambda x: logit_difference(model, x, prompt.right, prompt.wrong), edits)(model.embed(prompt.clean))


def top(scores: Float[np.ndarray, "layers ..."]) -> Bool[np.ndarray, "fractions layers ..."]:
    """Return the units of the circuit for each of `FRACTIONS`: those with the largest absolute scores."""
    # Signed scores would keep units in favour of the right answer and drop those against it: a circuit with a larger
    # logit difference than the whole model isn't faithful.
    return ranks(scores) < np.maximum(1, np.rint(np.multiply(FRACTIONS, scores.size))).reshape(-1, *[1] * scores.ndim)


def ranks(scores: Float[np.ndarray, "layers ..."]) -> Int[np.ndarray, "layers ..."]:
    """Return the rank of each unit, 0 for the largest absolute score."""
    ranking = np.empty(scores.size, np.int32)
    ranking[np.argsort(-np.abs(scores), axis=None, kind="stable")] = np.arange(scores.size)
    return ranking.reshape(scores.shape)


@partial(jax.jit, static_argnames=("method", "kinds"))
def scores_of(method: Method, model: Transformer, prompts: Prompt, kinds: tuple[UnitKind, ...]) -> list[Array | None]:
    """Return the scores of each kind of units; what the other kinds would cost is not computed."""

    def of_prompt(prompt: Prompt) -> list[Array | None]:
        scores = method(model, *prompt)
        return [kind.select(scores) for kind in kinds]

    return jax.vmap(of_prompt)(prompts)


def kept_and_removed(scores: np.ndarray, method: str) -> Bool[Array, "runs layers ..."]:
    """Return which units are live with the circuit of each of `FRACTIONS` kept, and then with it removed."""
    if not np.isfinite(scores).all():
        raise NotFinite(f"{method!r} gives scores that aren't finite: leave this method out")
    circuits = top(scores)
    return jnp.asarray(np.concatenate([circuits, ~circuits]))


def corrupted_values(
    model: Transformer, prompts: Prompt, kinds: Mapping[str, UnitKind], mean: bool
) -> Callable[[Array], dict[str, Array]]:
    """Return the function from a corrupted text to the values of units that aren't live, for each kind."""

    @cache
    def means() -> dict[str, Array]:
        return {
            name: jax.lax.map(lambda ids, kind=kind: values(model, ids, kind), prompts.corrupted).mean(0)
            for name, kind in kinds.items()
        }

    return lambda ids: means() if mean else {name: values(model, ids, kind) for name, kind in kinds.items()}


class PromptBatch(NamedTuple):
    """Prompts that are scored together.

    Args:
        prompts: the prompts, as many in each batch.
        new: how many of them weren't in earlier batches; these come first.
        name: the name in a journal, with a hash of what the batch's results depend on.
    """

    prompts: Prompt
    new: int
    name: str


def batches(prompts: Prompt, mean: bool) -> list[PromptBatch]:
    """Return prompts in batches of the same size, the last one filled up, so that one compiled program scores all."""
    count = len(prompts.clean)
    batched = []
    for first in range(0, count, AT_ONCE):
        new = min(AT_ONCE, count - first)
        some = row(prompts, np.arange(first, first + min(AT_ONCE, count)) % count)
        name = f"prompts {first} to {first + new - 1}, {fingerprint(prompts if mean else some)[:16]}"
        batched.append(PromptBatch(some, new, name))
    return batched


Replacements = Callable[[], list[dict[str, Array]]]
"""Returns for each new prompt of a batch the values of units that aren't live, by kind; computed when first needed."""


def _runs(
    model: Transformer,
    batch: PromptBatch,
    kinds: Mapping[str, UnitKind],
    method: str,
    scorer: Method,
    replacements: Replacements,
) -> dict[str, list[list[float]]]:
    """Return for each kind of units that a method scores the logit differences of every new prompt of a batch."""
    scores = scores_of(scorer, model, batch.prompts, tuple(kinds.values()))
    by_name: dict[str, list[list[float]]] = {}
    for i, replaced in enumerate(replacements()):
        prompt, of_prompt = row((batch.prompts, scores), i)
        for (name, kind), selected in zip(kinds.items(), of_prompt, strict=True):
            if selected is not None:
                live = kept_and_removed(on_host(selected), method)
                logit_differences = run(model, prompt, kind, live, replaced[name])
                by_name.setdefault(name, []).append(np.asarray(on_host(logit_differences), np.float64).tolist())
    return by_name


def measure(
    model: Transformer,
    prompts: Prompt,
    methods: "Mapping[str, Method]",
    units: Iterable[str] = tuple(UNITS),
    *,
    mean: bool = False,
    journal: Journal | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, dict[str, Curve]]:
    """Evaluate the circuits of several methods at every size, with the circuit kept and with it corrupted.

    Each prompt has its own circuit, of its own scores.

    Args:
        model: a language model.
        prompts: prompts with the same number of tokens.
        methods: the scoring methods, by name.
        units: names in `UNITS`.
        mean: whether a unit is replaced by its mean over all corrupted texts, instead of its value on the prompt's.
        journal: stores finished results, of this model and these kinds of units.
        progress: called with the number of evaluated pairs of method and prompt, and their total number.

    Returns:
        For each kind of units, the curve of each method that scores them.

    Raises:
        InvalidInput: if an id is outside the model's vocabulary.
        NotFinite: if a method's scores aren't finite.
        DuatError: if no method has scores for a kind of units.
    """
    require_ids(model.config, {f"the prompts' {name}": ids for name, ids in prompts._asdict().items()})
    kinds, journal = {name: UNITS[name] for name in units}, journal or Journal(None, {})
    clean, corrupted = on_host(differences(model, prompts))
    values_of, done, total = corrupted_values(model, prompts, kinds, mean), 0, len(clean) * len(methods)
    runs_of: dict[str, dict[str, list[list[float]]]] = {name: {} for name in kinds}

    for batch in batches(prompts, mean):
        corrupted_texts = batch.prompts.corrupted[: batch.new]
        replacements: Replacements = cache(partial(lambda texts: list(map(values_of, texts)), corrupted_texts))
        for method, scorer in methods.items():
            compute = partial(_runs, model, batch, kinds, method, scorer, replacements)
            for name, of_kind in journal.once(f"{method} on {batch.name}", compute).items():
                runs_of[name].setdefault(method, []).extend(of_kind)
            done += batch.new
            if progress is not None:
                progress(done, total)
    if lacking := [name for name, of_methods in runs_of.items() if not of_methods]:
        raise DuatError(f"no method of {', '.join(methods)} has scores for {', '.join(lacking)}: choose other methods")
    return {
        name: {
            method: Curve(*(np.asarray(m, np.float64) for m in (clean, corrupted, *np.split(np.array(runs), 2, 1))))
            for method, runs in of_methods.items()
        }
        for name, of_methods in runs_of.items()
    }
