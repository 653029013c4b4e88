"""Pre-activations: what single neurons read, split exactly over the input, earlier terms and biases."""

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from duat_jax.forms.decomposition import inputs_times, require_flowing, times
from duat_jax.transform import marks
from duat_jax.transform.keys import Key, Marked, Site
from duat_jax.transform.liveness import ProgramQuestion
from duat_jax.transform.query import answer, ask, is_float, question_of, require_affine
from duat_jax.transform.recording import Recording

AT_ONCE = 4
"""The number of neurons whose parts are computed together."""


class NeuronsAtTokens(NamedTuple):
    """Several neurons, each at one token.

    Args:
        terms: of each term, in the order of computation, which of the neurons are its own.
        tokens: the token of each.
        units: the index of each in its term.
    """

    terms: tuple[Bool[Array, "neurons"], ...]
    tokens: Int[Array, "neurons"]
    units: Int[Array, "neurons"]


class Reads(NamedTuple):
    """The pre-activation of each neuron, split exactly: `z = Σ input + Σ terms + Σ offsets + unmarked`.

    Args:
        pre_activations: of each, from the forward pass, `[neurons]`.
        input: the part of every token of the argument, `[neurons, tokens]`, in the argument's structure.
        terms: the part of every earlier term at every token, `[neurons, tokens]`.
        offsets: the part of every bias and norm offset, and of every term without units of tokens, `[neurons]`.
        unmarked: that of constants without a mark, `[neurons]`.
        edges: of the parts of terms that of each of the same neurons, `[neurons, sources]`.
    """

    pre_activations: Float[Array, "neurons"]
    input: Any
    terms: Marked[Float[Array, "neurons tokens"]]
    offsets: Marked[Float[Array, "neurons"]]
    unmarked: Float[Array, "neurons"]
    edges: Float[Array, "neurons sources"]


class UnitsOfTokens(NamedTuple):
    """The terms with units of every token, and what brings their arrays to `[tokens, units]` and back.

    Args:
        terms: their keys, in the order in which neurons count them; all if absent.
        by_token: brings a term's array to tokens.
        as_they_lie: brings it back.
    """

    terms: tuple[Key, ...] | None = None
    by_token: Callable[[Key, Array], Array] = lambda _, array: array
    as_they_lie: Callable[[Key, Array], Array] = lambda _, array: array

    def keys(self, recording: Recording) -> tuple[Key, ...]:
        """Return the keys of the terms.

        Args:
            recording: of the function.
        """
        return tuple(step.site.key for step in recording.terms) if self.terms is None else self.terms


AS_THEY_LIE = UnitsOfTokens()


def read_by(recording: Recording, neurons: NeuronsAtTokens, units: UnitsOfTokens = AS_THEY_LIE) -> Reads:
    """Split what neurons read, their pre-activations, over the input, earlier terms and biases.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from duat_jax import record, term
        >>> from duat_jax.forms.pre_activation import NeuronsAtTokens, read_by
        >>> def fn(x):
        ...     x = x + term(jax.nn.relu, 2 * x, "first")
        ...     return term(jax.nn.relu, x, "second")
        >>> of_first, of_second = jnp.array([False]), jnp.array([True])
        >>> chosen = NeuronsAtTokens((of_first, of_second), jnp.array([0]), jnp.array([1]))
        >>> reads = read_by(record(fn)(jnp.array([[1.0, 3.0]])), chosen)
        >>> float(reads.pre_activations[0]), reads.input.tolist(), reads.terms["first"].tolist()
        (9.0, [[3.0]], [[6.0]])
    """
    # `z_n = Σ_t (B x_0)_t + Σ_j W_j σ_j + c`, with every dynamic parameter held and every earlier term as it is.
    require_flowing(recording.arguments)
    recording.traced.affinity.require(*recording.terms, value=False)
    program, seen, keys = recording.program, recording.seen, units.keys(recording)
    activations, offsets = program.of_kind(marks.ACTIVATION), program.of_kind(marks.OFFSET)
    before = [Site(marks.PRE_ACTIVATION, key) for key in keys]
    question = ProgramQuestion(
        provided=frozenset((*activations, *offsets, *program.of_kind(marks.HOLD))),
        linear=frozenset((*activations, *offsets)),
        wanted=frozenset(before),
        value=False,
        affine=True,
    )
    floats = {i: argument for i, argument in enumerate(recording.arguments) if is_float(argument)}
    linear = {site: seen[site] for site in sorted(question.linear)}
    dtype = seen[before[0]].dtype

    def read(floats: dict[int, Array], linear: dict[Site, Array]) -> list[Array]:
        arguments = [floats.get(i, argument) for i, argument in enumerate(recording.arguments)]
        values = answer(recording, question, recording.terms, arguments, linear)[1]
        return [values[site] for site in before]

    pull_back, constants = (
        jax.linear_transpose(read, floats, linear),
        read(*jax.tree.map(jnp.zeros_like, (floats, linear))),
    )
    z, at_zero = ([*map(units.by_token, keys, arrays)] for arrays in ([seen[site] for site in before], constants))

    def read_one(neuron: NeuronsAtTokens) -> Reads:
        at = (neuron.tokens, neuron.units)

        def chosen(arrays: list[Array]) -> Array:
            return _of_own_term(neuron, [array[at] for array in arrays])

        covectors = [
            units.as_they_lie(key, jnp.zeros_like(rows).at[at].set(own.astype(dtype)))
            for key, rows, own in zip(keys, z, neuron.terms, strict=False)
        ]
        on_floats, on_marks = pull_back(covectors)
        on_arguments = [on_floats.get(i) for i in range(len(recording.arguments))]
        parts = {site: times(on_marks[site], seen[site], dtype) for site in linear}
        of_terms = {key: units.by_token(key, parts[Site(marks.ACTIVATION, key)]) for key in keys}
        edges = _of_own_term(neurons, [part[neurons.tokens, neurons.units] for part in of_terms.values()])
        elsewhere = [site for site in activations if site.key not in of_terms]
        return Reads(
            chosen(z),
            jax.tree.unflatten(
                recording.in_tree,
                [_over_features(part) for part in inputs_times(on_arguments, recording.arguments, dtype)],
            ),
            Marked({key: _over_features(part) for key, part in of_terms.items()}),
            Marked({site.key: parts[site].sum() for site in (*offsets, *elsewhere)}),
            chosen(at_zero),
            edges,
        )

    return jax.lax.map(read_one, neurons, batch_size=AT_ONCE)


def _of_own_term(neurons: NeuronsAtTokens, values: list[Array]) -> Array:
    """Return of several neurons, or of one, the value of its own term."""
    own = zip(neurons.terms, values, strict=False)  # the function may end before the last term
    return reduce(jnp.add, [jnp.where(chosen, value, 0) for chosen, value in own])


def _over_features(part: Array) -> Array:
    return part.sum(range(1, part.ndim))


def written_by(
    recording: Recording, neurons: NeuronsAtTokens, units: UnitsOfTokens = AS_THEY_LIE
) -> Float[Array, "neurons ..."]:
    """Return what each neuron's activation adds to the function's result, every dynamic parameter held.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from duat_jax import record, term
        >>> recording = record(lambda x: 3 * term(jax.nn.relu, 2 * x, "relu"))(jnp.array([[1.0, 5.0]]))
        >>> chosen = NeuronsAtTokens((jnp.array([True]),), jnp.array([0]), jnp.array([1]))
        >>> written_by(recording, chosen).tolist()
        [[[0.0, 30.0]]]
    """
    require_affine(recording, None)
    keys = units.keys(recording)
    sites = [Site(marks.ACTIVATION, key) for key in keys]
    question = question_of(recording, None, linear=sites)
    activations = [units.by_token(key, recording.seen[site]) for key, site in zip(keys, sites, strict=True)]
    zeros = {site: jnp.zeros_like(recording.seen[site]) for site in sites}

    def write_one(neuron: NeuronsAtTokens) -> Array:
        at = (neuron.tokens, neuron.units)
        alone = {
            site: units.as_they_lie(key, jnp.zeros_like(rows).at[at].set(jnp.where(own, rows[at], 0)))
            for key, site, rows, own in zip(keys, sites, activations, neuron.terms, strict=False)
        }
        return jax.jvp(lambda given: ask(recording, question, None, recording.arguments, given), (zeros,), (alone,))[1]

    return jax.lax.map(write_one, neurons, batch_size=AT_ONCE)
