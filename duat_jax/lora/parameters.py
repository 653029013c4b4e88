"""Relative changes of the closed form's parameters by adapters."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.deprecation import renamed_arguments
from duat_jax.errors import InvalidInput
from duat_jax.forms import decomposition
from duat_jax.inputs.model_inputs import Inputs, OneInput, checked_input
from duat_jax.lora.adapter import Adapters, adapt, scaled
from duat_jax.models.transformer import Transformer
from duat_jax.operators.estimate import Estimate
from duat_jax.processes import on_host
from duat_jax.transform import marks
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.keys import Marked
from duat_jax.transform.recording import record_kinds


class Moved(NamedTuple):
    """Relative change of every parameter of the closed form: `‖ΔX‖ / ‖X‖`, Frobenius norms.

    Args:
        input_maps: of `P_i`, which carries the input to stream `i`, by stream.
        biases: of `q_i`, by stream; exact.
        inner_maps: of `B_j`, which carries the input to the pre-activation of term `j`, by term.
        inner_biases: of `c_j`, which contains the earlier terms, by term; exact.
        outer_maps: of `C_j`, which carries the activation of term `j` to the read-out, by term.
    """

    input_maps: Marked[Estimate]
    biases: Marked[Float[Any, ""]]
    inner_maps: Marked[Estimate]
    inner_biases: Marked[Float[Any, ""]]
    outer_maps: Marked[Estimate]


@renamed_arguments(given="inputs")
def moved_parameters(
    model: Transformer, adapters: Adapters, inputs: "OneInput", *, samples: int = 16, seed: int = 0
) -> Moved:
    """Return the relative change of every parameter of a text's closed form by adapters.

    The norms of maps are estimated: `‖ΔX‖² / ‖X‖²` is the mean of `‖ΔX z‖²` over that of `‖X z‖²`, for random signs
    `z`.  All maps from the input are applied in one pass, and all maps to the output in one pull-back.

    Args:
        model: the base model.
        adapters: the adapters.
        inputs: token ids, `[tokens]`, or a `duat.TokenizedText`.
        samples: the number of random `z`.
        seed: the seed of the random signs.

    Raises:
        InvalidInput: if the text isn't valid for the model.

    Source: Wang & Li, Eq. 18, with the update carried into every later parameter.
    """
    base, adapted = (adapt(model, scaled(adapters, by)) for by in (0, 1))
    return moved_between(base, adapted, inputs, samples=samples, seed=seed)


def moved_between(
    base: Transformer, changed: Transformer, inputs: "OneInput", *, samples: int = 16, seed: int = 0
) -> Moved:
    """Return the relative change of every parameter of a text's closed form from one model to another."""
    problems: list[str] = []
    text = checked_input(base.config, inputs, "the text", problems)
    if problems:
        raise InvalidInput("; ".join(problems))
    shape = jax.eval_shape(lambda inputs: inputs.embedded(base), text)
    keys = jax.random.split(jax.random.key(seed), 2)
    z = jax.random.rademacher(keys[0], (samples, *shape.shape), shape.dtype)
    width = (shape.shape[0], base.config.state_features)
    u = jax.random.rademacher(keys[1], (samples, *width), shape.dtype)
    return on_host(_moved(*(_applied(model, text, z, u) for model in (base, changed))))


class _AppliedMaps(NamedTuple):
    maps: tuple[Marked[Array], Marked[Array], Marked[Array]]
    vectors: tuple[Marked[Array], Marked[Array]]


@jax.jit
def _applied(model: Transformer, inputs: Inputs, z: Array, u: Array) -> _AppliedMaps:
    """Apply every map of a run's closed form to random signs, and return the results and the biases."""
    real = jnp.asarray(inputs.real)
    x = inputs.embedded(model)

    def states(x: Array) -> Array:
        return model.states(x, real)

    recording = record_kinds(states, x, (*decomposition.KINDS, marks.STREAM))
    program, seen = recording.program, recording.seen
    held = {site: Edit(jnp.zeros_like(seen[site]), seen[site]) for site in program.of_kind(marks.HOLD)}

    def linearly(x: Array, *, biases: bool, terms: bool) -> tuple[Marked[Array], Marked[Array]]:
        """Return streams and pre-activations with dynamic parameters held, with or without biases and terms."""
        edits = dict(held)
        edits |= {site: Edit(jnp.full_like(seen[site], biases)) for site in program.of_kind(marks.OFFSET)}
        for site in program.of_kind(marks.ACTIVATION):
            none = jnp.zeros_like(seen[site])
            edits[site] = Edit(none, seen[site] if terms else none)
        dynamics = record_kinds(edit(states, edits), x, (marks.STREAM, marks.PRE_ACTIVATION)).dynamics
        return dynamics.streams, dynamics.pre_activations

    input_maps, inner_maps = jax.vmap(partial(linearly, biases=False, terms=False))(z)
    outer_maps = jax.vmap(lambda u: decomposition.contributions(recording, u).coefficients)(u)
    zero = jnp.zeros_like(x)
    biases, _ = linearly(zero, biases=True, terms=False)
    _, inner_biases = linearly(zero, biases=True, terms=True)
    return _AppliedMaps((input_maps, inner_maps, outer_maps), (biases, inner_biases))


@jax.jit
def _moved(base: _AppliedMaps, adapted: _AppliedMaps) -> Moved:
    def squares(x: Array) -> Array:
        return (x**2).reshape(len(x), -1).sum(-1)

    def of_map(x: Array, y: Array) -> Estimate:
        changed, size = squares(y - x), squares(x)
        # If the head is a term of its own, the layers' maps to the read-out are zero.
        mean = jnp.where(size.mean() > 0, size.mean(), 1)
        ratio = changed.mean() / mean
        deviation = (changed - ratio * size).std(ddof=1) / (mean * len(size) ** 0.5)
        root = jnp.sqrt(ratio)
        return Estimate(root, jnp.where(ratio > 0, deviation / (2 * jnp.where(ratio > 0, root, 1)), 0))

    def of_vector(x: Array, y: Array) -> Array:
        size = jnp.linalg.norm(x)
        return jnp.where(size > 0, jnp.linalg.norm(y - x) / jnp.where(size > 0, size, 1), 0)

    def by_site(norm: Any, x: Marked[Array], y: Marked[Array]) -> Marked[Any]:
        return Marked({key: norm(x[key], y[key]) for key in x})

    maps = [by_site(of_map, *pair) for pair in zip(base.maps, adapted.maps, strict=True)]
    biases, inner_biases = (by_site(of_vector, *pair) for pair in zip(base.vectors, adapted.vectors, strict=True))
    return Moved(maps[0], biases, maps[1], inner_biases, maps[2])
