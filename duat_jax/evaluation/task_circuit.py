"""The circuit of a task: the units with the largest mean scores over its prompts, measured on all of them."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from duat_jax.errors import InvalidInput
from duat_jax.evaluation.circuit_curve import FRACTIONS, Curve, faithfulness
from duat_jax.evaluation.circuits import (
    UNITS,
    Method,
    PromptBatch,
    UnitKind,
    batches,
    corrupted_values,
    kept_and_removed,
    run,
    scores_of,
    top,
)
from duat_jax.evaluation.journal import Journal, fingerprint
from duat_jax.evaluation.refined_ranking import refine
from duat_jax.inputs.batching import row
from duat_jax.inputs.prompts import Prompt, differences
from duat_jax.json_record import plain
from duat_jax.models.transformer import Transformer
from duat_jax.processes import on_host

ENOUGH = 0.5
"""The share of the effect that a circuit has to keep for its size to be chosen."""

RULE = f"the smallest size at which the circuit keeps at least {ENOUGH:.0%} of the effect, or else the largest one"


class Unit(NamedTuple):
    """A unit with its score.

    Args:
        layer: its layer; of a stream the number of layers before it.
        position: its token; absent if it is at all tokens.
        unit: the neuron or head; absent of a stream.
        score: the mean of its scores over prompts.
        inside: whether it is in the circuit.
    """

    layer: int
    position: int | None
    unit: int | None
    score: float
    inside: bool


class Refinement(NamedTuple):
    """A ranking that was optimised on the metric, beginning with that by scores.

    Args:
        ranking: a number of each unit, above zero, the largest for what belongs to the smallest circuits.
        steps: the number of steps.
        prompts: how many prompts the units were scored and the ranking optimised on; all others measure the circuits.
        before: the curve of the ranking by scores.
    """

    ranking: Float[np.ndarray, "layers positions *units"]
    steps: int
    prompts: int
    before: Curve

    def as_dict(self) -> dict[str, Any]:
        """Return the fields of `RefinementRecord`."""
        shares = {name: faithfulness(self.before, getattr(self.before, name)) for name in ("kept", "removed")}
        return plain({"steps": self.steps, "prompts": self.prompts, **shares})


class TaskCircuit(NamedTuple):
    """One circuit for all prompts of a task: the units with the largest absolute mean scores, or a refined ranking.

    Args:
        kind: the kind of units, a name in `UNITS`.
        method: the scoring method.
        scores: the mean score of each unit over prompts, with axes of size 1 where a kind has none.
        curve: logit differences of each prompt with this circuit kept and removed, for each of `FRACTIONS`.
        size: the chosen size, one of `FRACTIONS`.
        refinement: what ranks units in the place of the scores, if the ranking was optimised on the metric.
    """

    kind: str
    method: str
    scores: Float[np.ndarray, "layers positions *units"]
    curve: Curve
    size: float
    refinement: Refinement | None = None

    @property
    def ranking(self) -> Float[np.ndarray, "layers positions *units"]:
        """The number of each unit whose absolute value ranks it."""
        return self.scores if self.refinement is None else self.refinement.ranking

    @property
    def circuit(self) -> Bool[np.ndarray, "layers positions *units"]:
        """Which units are in the circuit of the chosen size."""
        return top(self.ranking)[FRACTIONS.index(self.size)]

    @property
    def kept(self) -> Float[np.ndarray, "fractions"]:
        """The faithfulness with the circuit of each size kept."""
        return faithfulness(self.curve, self.curve.kept)

    @property
    def removed(self) -> Float[np.ndarray, "fractions"]:
        """The faithfulness with the circuit of each size removed."""
        return faithfulness(self.curve, self.curve.removed)

    def units(self, *, every: bool = False) -> Iterator[Unit]:
        """Yield the units of the circuit, those that rank highest first.

        Args:
            every: whether to go on with the units that aren't in the circuit.
        """
        kind, circuit = UNITS[self.kind], self.circuit
        for place in np.argsort(-np.abs(self.ranking), axis=None, kind="stable")[: None if every else circuit.sum()]:
            index = np.unravel_index(place, self.scores.shape)
            layer, position, unit = map(int, index[:3])
            inside = bool(circuit[index])
            yield Unit(
                layer,
                position if kind.positions else None,
                None if kind.unit is None else unit,
                float(self.scores[index]),
                inside,
            )


def chosen_size(kept: Float[np.ndarray, "fractions"]) -> float:
    """Return the smallest size at which enough of the effect is kept; the largest size if there is none."""
    return next((size for size, share in zip(FRACTIONS, kept, strict=True) if share >= ENOUGH), FRACTIONS[-1])


def check_size(size: float | None) -> list[str]:
    """Return what is wrong with the size of a circuit."""
    if size is None or size in FRACTIONS:
        return []
    return [f"there is no size {size!r}: choose one of {', '.join(map(str, FRACTIONS))}"]


def check_steps(steps: int, prompts: int) -> list[str]:
    """Return what is wrong with the number of steps that refine a circuit."""
    if not isinstance(steps, int) or steps < 0:
        return [f"{steps!r} steps: give a whole number, 0 for none"]
    if steps and prompts < 2:
        return [f"{prompts} prompt can't be halved: give at least 2 prompts to refine a circuit"]
    return []


def task_circuits(
    model: Transformer,
    prompts: Prompt,
    method: str,
    scorer: Method,
    units: tuple[str, ...],
    *,
    mean: bool = False,
    size: float | None = None,
    steps: int = 0,
    journal: Journal | None = None,
) -> dict[str, TaskCircuit]:
    """Find one circuit for all prompts, for each kind of units, and evaluate it at every size."""
    # `c_u = mean_p s_u(p)`; the circuit of size `k` has the units with the largest `|c_u|`. With `steps`, the first
    # half of the prompts scores the units and refines the ranking (`refined_ranking.refine`), and the other half is
    # measured.
    if problems := check_size(size) + check_steps(steps, len(prompts.clean)):
        raise InvalidInput("; ".join(problems))
    kinds, journal = {name: UNITS[name] for name in units}, journal or Journal(None, {})
    half = len(prompts.clean) // 2
    scored, measured = (row(prompts, slice(half)), row(prompts, slice(half, None))) if steps else (prompts, prompts)
    values_of = corrupted_values(model, scored, kinds, mean)
    name = f"{method}, one circuit of {', '.join(units)} for all prompts, {fingerprint(prompts)[:16]}"
    name += ", the first half" * bool(steps)
    means = partial(_mean_scores, model, batches(scored, mean), scorer, tuple(kinds.values()))
    scores = dict(zip(units, map(_unpacked, journal.once(f"{name}, scores", means)), strict=True))
    curves_of = partial(_curves, model, measured, batches(measured, mean), values_of, journal)
    curves = curves_of({kind: kept_and_removed(of_kind, method) for kind, of_kind in scores.items()}, name)
    refinements: dict[str, Refinement] = {}
    if steps:

        def refined(kind: str) -> dict[str, Any]:
            replaced = jnp.stack([values_of(ids)[kind] for ids in scored.corrupted])
            return _packed(refine(model, scored, kinds[kind], scores[kind], replaced, steps))

        name += f", refined in {steps} steps"
        rankings = {kind: _unpacked(journal.once(f"{name}, {kind}", partial(refined, kind))) for kind in units}
        refinements = {kind: Refinement(rankings[kind], steps, half, curves[kind]) for kind in units}
        curves = curves_of({kind: kept_and_removed(ranking, method) for kind, ranking in rankings.items()}, name)
    circuits = {}
    for kind, curve in curves.items():
        chosen = chosen_size(faithfulness(curve, curve.kept)) if size is None else size
        circuits[kind] = TaskCircuit(kind, method, scores[kind], curve, chosen, refinements.get(kind))
    return circuits


def _curves(
    model: Transformer,
    prompts: Prompt,
    parts: list[PromptBatch],
    values_of: Callable[[Array], dict[str, Array]],
    journal: Journal,
    live: dict[str, Bool[Array, "runs layers ..."]],
    name: str,
) -> dict[str, Curve]:
    """Return for each kind of units the curve of circuits that are the same for all prompts."""

    def runs(batch: PromptBatch) -> dict[str, list[list[float]]]:
        by_kind: dict[str, list[list[float]]] = {kind: [] for kind in live}
        for i in range(batch.new):
            prompt = row(batch.prompts, i)
            replaced = values_of(prompt.corrupted)
            for kind, of_kind in live.items():
                by_kind[kind].append(on_host(run(model, prompt, UNITS[kind], of_kind, replaced[kind])).tolist())
        return by_kind

    measured: dict[str, list[list[float]]] = {kind: [] for kind in live}
    for batch in parts:
        for kind, of_kind in journal.once(f"{name}, {batch.name}", partial(runs, batch)).items():
            measured[kind] += of_kind
    clean, corrupted = (np.asarray(each, np.float64) for each in on_host(differences(model, prompts)))
    return {
        kind: Curve(clean, corrupted, *np.split(np.array(prompts_of_kind, np.float64), 2, 1))
        for kind, prompts_of_kind in measured.items()
    }


def _mean_scores(
    model: Transformer, parts: list[PromptBatch], scorer: Method, kinds: tuple[UnitKind, ...]
) -> list[dict[str, Any]]:
    """Return for each kind the mean score of each unit over the prompts of all batches, as plain data."""
    batch_scores = [scores_of(scorer, model, batch.prompts, kinds) for batch in parts]
    means = []
    for of_kind in zip(*batch_scores, strict=True):
        new = [on_host(scores)[: batch.new] for scores, batch in zip(of_kind, parts, strict=True)]
        total = sum(scores.sum(0, dtype=np.float64) for scores in new)
        means.append(_packed((total / sum(map(len, new))).astype(new[0].dtype)))
    return means


def _packed(array: np.ndarray) -> dict[str, Any]:
    """Return an array as plain data."""
    return {"dtype": array.dtype.name, "shape": array.shape, "bytes": b64encode(array.tobytes()).decode()}


def _unpacked(packed: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(b64decode(packed["bytes"]), packed["dtype"]).reshape(packed["shape"])
