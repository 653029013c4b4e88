"""Pairs of heads: how much the effects of both together differ from their sum, and what says so beforehand.

A head is corrupted if what it mixes of the values is, at every token, what it is on the corrupted text; everything
after it is computed anew.  `m(S)` is the difference of the logits of the right and the wrong answer on the clean text
with the heads `S` corrupted, and the effect of `S` is `m() − m(S)`.  The interaction of two heads is
`m(a, b) − m(a) − m(b) + m()`: the sum of their effects minus the effect of both.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from duat_jax.attribution.masks import parts_of_secant
from duat_jax.evaluation.circuits import UNITS, run, values
from duat_jax.inputs.prompts import Prompt, logit_difference
from duat_jax.models import layer_parts, sites
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import PRECISION
from duat_jax.transform import marks
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.recording import record_kinds

UNIT = UNITS["head x position"]
SHARES, GRADIENT = "shares of the secant", "gradient"
PRODUCT, COSINE, PATTERNS = "product of both effects", "cosine of changed outputs", "cosine of patterns"
RUNS = 64
"""The number of runs of the model in one program."""


class Heads(NamedTuple):
    """Heads of a model.

    Args:
        layers: the layer of each.
        numbers: its number in its layer.
    """

    layers: Int[np.ndarray, "heads"]
    numbers: Int[np.ndarray, "heads"]


def all_heads(model: Transformer) -> Heads:
    """Return all heads of a model, in the order of layers."""
    layers, count = model.config.layers, model.config.blocks[0].heads
    return Heads(*map(np.ravel, np.indices((layers, count))))


def corrupted(model: Transformer, prompt: Prompt, heads: Heads, sets: Bool[np.ndarray, "runs heads"]) -> np.ndarray:
    """Return the difference of logits with every set of heads corrupted."""
    of_corrupted = values(model, prompt.corrupted, UNIT)
    live = np.ones((len(sets), *of_corrupted.shape[:1], 1, of_corrupted.shape[2], 1), bool)
    live[:, heads.layers, 0, heads.numbers, 0] = ~sets
    found = []
    for first in range(0, len(live), RUNS):
        some = live[first : first + RUNS]
        # The last ones are filled up, so that one compiled program runs all.
        runs = run(
            model, prompt, UNIT, jnp.asarray(np.resize(some, (min(RUNS, len(live)), *live.shape[1:]))), of_corrupted
        )
        found.append(np.asarray(runs, np.float64)[: len(some)])
    return np.concatenate(found)


def singles(count: int) -> Bool[np.ndarray, "runs heads"]:
    """Return the sets of no head, and of each head alone."""
    return np.eye(count + 1, dtype=bool)[:, 1:]


def singles_and_pairs(count: int) -> Bool[np.ndarray, "runs heads"]:
    """Return the sets of no head, of each head, and of each pair, in the order of `numpy.triu_indices`."""
    none_and_one = singles(count)
    a, b = np.triu_indices(count, 1)
    return np.concatenate([none_and_one, none_and_one[1:][a] | none_and_one[1:][b]])


def interactions(runs: Float[np.ndarray, "runs"], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the effect of each head, and the interaction of each pair."""
    effects = runs[0] - runs[1 : count + 1]
    a, b = np.triu_indices(count, 1)
    return effects, effects[a] + effects[b] - (runs[0] - runs[count + 1 :])


@jax.jit
def predicted(
    model: Transformer, prompt: Prompt, layers: Int[Array, "heads"], numbers: Int[Array, "heads"]
) -> dict[str, Float[Array, "heads heads"]]:
    """Return what is predicted of the interaction of two heads without running a pair."""
    # By shares: the head's part of the secant between all heads live and all corrupted, with the second head live in
    # both, minus its part with the second corrupted in both. By the gradient: the same with the slope at the clean text
    # in place of the part.
    replaced = values(model, prompt.corrupted, UNIT)
    of_sites = [sites.heads(layer) for layer in range(len(replaced))]

    def number(mask: Array) -> Array:
        live = mask[:, None, :, None]
        edits = {
            site: Edit(of_layer, (1 - of_layer) * value)
            for site, of_layer, value in zip(of_sites, live, replaced, strict=True)
        }
        read = partial(logit_difference, model, right=prompt.right, wrong=prompt.wrong)
        return edit(read, edits)(model.embed(prompt.clean))

    ones = jnp.ones((len(replaced), replaced.shape[2]), replaced.dtype)

    def of_second(layer_and_number: tuple[Array, Array]) -> tuple[Array, Array]:
        without = ones.at[layer_and_number].set(0)

        def share(live: Array, base: Array) -> Array:
            return parts_of_secant(number, live, base)[layers, numbers]

        shares = share(ones, 1 - without) - share(without, jnp.zeros_like(ones))
        return shares, (slopes - jax.grad(number)(without))[layers, numbers]

    slopes = jax.grad(number)(ones)
    shares, changes = jax.lax.map(of_second, (layers, numbers))
    return {SHARES: (shares + shares.T) / 2, GRADIENT: (changes + changes.T) / 2}


@jax.jit
def similarities(
    model: Transformer, prompt: Prompt, layers: Int[Array, "heads"], numbers: Int[Array, "heads"]
) -> dict[str, Float[Array, "heads heads"]]:
    """Return two heads' cosines: of what corrupting each takes from the stream, and of their patterns."""
    change = (values(model, prompt.clean, UNIT) - values(model, prompt.corrupted, UNIT))[layers, :, numbers]
    kernels = jnp.stack([attention.output.kernel[...] for attention in layer_parts.attentions(model)])
    kernels = kernels.reshape(len(kernels), -1, change.shape[-1], kernels.shape[-1])[layers, numbers]
    outputs = jnp.einsum("htw,hwf->htf", change, kernels.astype(change.dtype), precision=PRECISION)
    held = record_kinds(model.states, model.embed(prompt.clean), (marks.HOLD,))
    patterns = jnp.stack(
        [held.seen[site] for site in held.program.of_kind(marks.HOLD) if site.key.name == sites.PATTERN]
    )
    return {COSINE: _cosines(outputs), PATTERNS: _cosines(patterns[layers, numbers])}


def _cosines(arrays: Array) -> Array:
    flat = arrays.reshape(len(arrays), -1)
    lengths = jnp.linalg.norm(flat, axis=-1, keepdims=True)
    # Early heads of tokens before the texts differ don't change at all.
    flat = flat / jnp.where(lengths > 0, lengths, 1)
    return jnp.matmul(flat, flat.T, precision=PRECISION)
