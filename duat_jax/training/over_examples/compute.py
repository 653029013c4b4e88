"""The change of a number along a training run, traced back to the examples of every step."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from duat_jax.errors import DuatError, NotFinite
from duat_jax.processes import on_host
from duat_jax.training.kept import Kept, is_skipped
from duat_jax.training.over_examples.result import Influence
from duat_jax.training.over_weights.compute import Number, begin, require_finite, segment
from duat_jax.training.over_weights.result import WeightLedger
from duat_jax.training.run import TrainingStep
from duat_jax.training.update import Multipliers, Weights, wide


class _OfStep(NamedTuple):
    """The parts of one step, as in `Influence`, each with a leading axis of numbers."""

    examples: Float[Array, "numbers ..."]
    weights: Float[Array, "numbers"]
    rounding_of_weights: Float[Array, "numbers"]
    rounding_of_gradients: Float[Array, "numbers"]
    optimiser: Float[Array, "numbers"]
    outside: Float[Array, "numbers"]


@overload
def influence(kept: Kept, numbers: "Number", *, progress: Callable[[int, int], None] | None = None) -> Influence: ...


@overload
def influence(
    kept: Kept, numbers: "Mapping[str, Number]", *, progress: Callable[[int, int], None] | None = None
) -> dict[str, Influence]: ...


def influence(
    kept: Kept,
    numbers: "Number | Mapping[str, Number]",
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Influence | dict[str, Influence]:
    """Trace the change of a number along a training run back to the examples of every step, as an exact sum.

    With `D_t` the secant's multiplier of the segment in which step `t` is, the number changes by the sum over steps of
    `⟨D_t, θ_{t+1} − θ_t⟩`. An update is linear in the gradient, in the running means of those before it and in the
    weights, once its other factors (clip scale, second moments) are held. Going back through the steps, the transposed
    update gives every gradient a multiplier `Γ_t`, the means `M_t` and the weights `Ω_t`:

        (Γ_t, M_t, Ω_t) = (U_t, S_t)ᵀ (D_t, M_{t+1})

    Term `i` of step `t` has the part `⟨Γ_t, ∇ℓ_i(θ_t)⟩`, all terms of a step in one forward-mode pass. The weights in
    the update (decay), rounding, what the optimiser adds, what changes weights outside of it and the means that were
    there at the beginning have parts of their own.

    This accounts for the run as it was. What another training would have learned without an example is another
    question: its later steps would have been others.

    Args:
        kept: the run and its kept states, from `train`; each segment is run again.
        numbers: the number as a function of the weights, such as the loss of a text; or several, by name.
        progress: called with the number of steps done and of all.

    Returns:
        The `Influence` on the number, or on each of several.

    Raises:
        DuatError: if the run isn't finished or doesn't repeat.
        NotFinite: if a number or a part isn't finite.

    Example:
        >>> import jax.numpy as jnp, optax, tempfile
        >>> from duat_jax.training import Run, train
        >>> batches = [jnp.array([1.0, 2.0]), jnp.array([1.0, 3.0])]
        >>> run = Run(lambda w, batch: (w - batch) ** 2 / 2, optax.sgd(0.25), batches, steps=2)
        >>> found = influence(train(run, jnp.array(0.0), tempfile.mkdtemp()), lambda w: w)
        >>> found.examples.tolist(), found.difference
        ([[0.25, 0.5], [0.0625, 0.5625]], 1.375)

    Source: with the gradient in the place of the multipliers, Pruthi et al., "Estimating Training Data Influence by
    Tracing Gradient Descent", 2020.
    """
    named = numbers if isinstance(numbers, Mapping) else {"": numbers}
    if not named:
        raise DuatError("there are no numbers: give at least one function of the weights")
    run, update = kept.run, kept.update
    beginnings = [begin(number, wide(kept.weights)) for number in named.values()]
    values = jax.jit(lambda weights: [number(weights) for number in named.values()])
    for end in kept.numbers[1:]:
        for value in on_host(values(wide(kept.read(end)[0].weights))):
            require_finite(value, f"after step {end - 1}")

    @jax.jit
    def back(step: TrainingStep, batch: Any, of_segment: Weights, means: list[Array]) -> tuple[_OfStep, list[Array]]:
        step = wide(step)
        (updates, _), transposed = update.transposed(step.gradients, step.before.state, step.before.weights)
        _, terms = jax.linearize(lambda weights: run.terms(weights, batch), step.before.weights)
        moved = _minus(step.after.weights, step.before.weights)
        outside = _minus(step.following.weights, step.after.weights)

        def of_number(of_segment: Weights, means: list[Array]) -> tuple[_OfStep, list[Array]]:
            multipliers: Multipliers = transposed(of_segment, means)
            examples = terms(multipliers.gradients)
            by_gradient = _dot(multipliers.gradients, step.gradients)
            by_weights = _dot(multipliers.weights, step.before.weights)
            by_means = _dot(multipliers.state, update.means_of(step.before.state))
            by_update = _dot(of_segment, updates)
            to_state = _dot(means, update.means_of(step.after.state))
            parts = _OfStep(
                examples,
                by_weights,
                _dot(of_segment, moved) - by_update,
                by_gradient - examples.sum(),
                by_update + to_state - by_gradient - by_weights - by_means,
                _dot(of_segment, outside),
            )
            return parts, multipliers.state

        return jax.vmap(of_number)(of_segment, means)

    def skipped(step: TrainingStep, of_segment: Weights) -> _OfStep:
        """Return the parts of a step that the optimiser left out: what changed the weights after it, and zeros."""
        before, after = update.means_of(step.before.state), update.means_of(step.after.state)
        if not all(jnp.array_equal(mean, same) for mean, same in zip(before, after, strict=True)):
            raise NotFinite(
                f"the gradients of step {step.number} aren't finite, and they moved the optimiser's state: use"
                " optax.apply_if_finite around the whole optimiser"
            )
        outside = _minus(step.following.weights, step.after.weights)
        zero = jnp.zeros(len(named))
        examples = jnp.zeros((len(named), *kept.shape))
        return _OfStep(examples, zero, zero, zero, zero, jax.vmap(lambda each: _dot(each, outside))(of_segment))

    first_moment, _ = kept.read(0)
    beginning = update.means_of(wide(first_moment.state))
    means = [jnp.zeros((len(named), *mean.shape), mean.dtype) for mean in beginning]
    steps: list[_OfStep] = []
    ledgers: list[WeightLedger] = []
    losses: list[np.ndarray] = []
    for first, last in reversed(list(kept.segments())):
        of_steps = kept.again(first, last)
        ends = wide(of_steps[0].before.weights), wide(of_steps[-1].following.weights)
        splits = [segment(number, *ends, f"after step {last - 1}") for number in named.values()]
        here = [ledger for ledger, _ in splits]
        ledgers = list(map(WeightLedger.then, here, ledgers)) if ledgers else here
        losses.append(np.array([float(step.loss) for step in of_steps]))
        multipliers = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(multiplier for _, multiplier in splits))
        for step in reversed(of_steps):
            if is_skipped(step):
                parts = skipped(step, multipliers)
            else:
                parts, means = back(step, run.batch(step.number), multipliers, means)
            steps.append(on_host(parts))
            if not all(np.isfinite(part).all() for part in steps[-1]):
                raise NotFinite(
                    f"parts of step {step.number} aren't finite, though the training is: a factor of the update or of a"
                    " term's derivative is infinite or NaN there"
                )
            if progress is not None:
                progress(len(steps), run.steps)
    stacked = {field: np.stack([getattr(parts, field) for parts in reversed(steps)]) for field in _OfStep._fields}
    ledgers = list(map(WeightLedger.then, beginnings, ledgers))
    influences = {
        name: Influence(
            ledger=ledger,
            kept=tuple(kept.numbers),
            losses=np.concatenate(losses[::-1]),
            discontinuities=_at_ends(ledger.discontinuities, kept.numbers),
            beginning=float(_dot([mean[i] for mean in means], beginning)),
            **{field: array[:, i] for field, array in stacked.items()},
        )
        for i, (name, ledger) in enumerate(zip(named, ledgers, strict=True))
    }
    return influences if isinstance(numbers, Mapping) else influences[""]


def _at_ends(of_segments: Float[np.ndarray, "segments"], numbers: list[int]) -> Float[np.ndarray, "steps"]:
    """Return numbers of segments at their last steps."""
    of_steps = np.zeros(numbers[-1])
    of_steps[np.array(numbers[1:]) - 1] = of_segments
    return of_steps


def _minus(a: Weights, b: Weights) -> Weights:
    return jax.tree.map(jnp.subtract, a, b)


def _dot(a: Any, b: Any) -> Float[Array, ""]:
    """Return the sum of the products of all entries of two pytrees."""
    products = [(x * y).sum() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)]
    return jnp.stack(products).sum() if products else jnp.zeros(())
