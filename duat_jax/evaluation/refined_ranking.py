"""A ranking of units that is optimised on the metric: circuits are run, and the ranking follows their gradient."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from duat_jax.errors import NotFinite
from duat_jax.evaluation.circuit_curve import FRACTIONS
from duat_jax.evaluation.circuits import AT_ONCE, UnitKind, ranks, run_masked
from duat_jax.inputs.batching import row
from duat_jax.inputs.prompts import Prompt, differences
from duat_jax.models.transformer import Transformer
from duat_jax.processes import on_host

RATE = 3.0
"""By how much the logarithm of the rank of the unit with the largest gradient changes in a step."""


def by_rank(scores: Float[np.ndarray, "layers positions *units"]) -> Float[np.ndarray, "layers positions *units"]:
    """Return the number `−log rank_u` of each unit, where the unit with the largest absolute score has rank 1."""
    return -np.log1p(ranks(scores))


def refine(
    model: Transformer,
    prompts: Prompt,
    units: UnitKind,
    scores: Float[np.ndarray, "layers positions *units"],
    replaced: Float[Array, "prompts layers tokens *unit"],
    steps: int,
    *,
    seed: int = 0,
) -> Float[np.ndarray, "layers positions *units"]:
    """Return a ranking of units whose circuits come closer to the model, step by step, than those of the scores."""
    # Unit `u` begins with `a_u = −log rank_u`, and the circuit of size `k` has the units with `a_u ≥ a(k)`, the `k`-th
    # largest. Each step moves `a` against the gradient of `draw_gradient`: the unit with the largest one by `RATE`, all
    # others in proportion.
    random, (clean, _) = np.random.default_rng(seed), differences(model, prompts)
    # Of bfloat16 the nearest ranks would be alike.
    ranking = jnp.asarray(by_rank(scores), np.promote_types(replaced.dtype, np.float32))
    for step in range(steps):
        gradient = draw_gradient(model, prompts, units, ranking, replaced, clean, random)
        largest = jnp.abs(gradient).max()
        if not jnp.isfinite(largest):
            raise NotFinite(f"the circuits of step {step + 1} have a gradient that isn't finite: refine in fewer steps")
        ranking = ranking - RATE * gradient / jnp.where(largest == 0, 1, largest)
    return on_host(ranking - ranking.min() + 1)


def draw_gradient(
    model: Transformer,
    prompts: Prompt,
    units: UnitKind,
    ranking: Float[Array, "layers positions *units"],
    replaced: Float[Array, "prompts layers tokens *unit"],
    clean: Float[Array, "prompts"],
    random: np.random.Generator,
) -> Float[Array, "layers positions *units"]:
    """Draw circuits, and return the gradient of `mean (m_clean − m(M))²` over them in the ranking `a`."""
    # `AT_ONCE` prompts are drawn, and for each a size, evenly in its logarithm. Of the circuit `M_u = [a_u ≥ a(k)]` the
    # gradient is taken as if it were `sigmoid(a_u − a(k))`, with `a(k)` held.
    chosen = random.integers(len(prompts.clean), size=AT_ONCE)
    sizes = np.exp(random.uniform(np.log(FRACTIONS[0]), np.log(FRACTIONS[-1]), size=AT_ONCE))
    counts = np.maximum(1, np.rint(sizes * ranking.size)).astype(np.int32)
    return _gradient(model, *row((prompts, replaced, clean), chosen), units, ranking, counts)


@partial(jax.jit, static_argnames="units")
def _gradient(
    model: Transformer,
    prompts: Prompt,
    replaced: Float[Array, "prompts layers tokens *unit"],
    clean: Float[Array, "prompts"],
    units: UnitKind,
    ranking: Float[Array, "layers positions *units"],
    counts: Int[Array, "prompts"],
) -> Float[Array, "layers positions *units"]:
    smallest = jnp.sort(ranking, axis=None)[-counts]

    def distance(ranking: Array) -> Array:
        def measured(prompt: Prompt, replaced: Array, smallest: Array) -> Array:
            soft = jax.nn.sigmoid(ranking - smallest)
            mask = soft + jax.lax.stop_gradient((ranking >= smallest).astype(soft.dtype) - soft)
            return run_masked(model, prompt, units, mask, replaced)

        return ((clean - jax.vmap(measured)(prompts, replaced, smallest)) ** 2).mean()

    return jax.grad(distance)(ranking)
