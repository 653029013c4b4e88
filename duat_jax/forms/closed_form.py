"""The closed form of a function at one input: `x_i = P_i x_0 + q_i + UAT^R_i`, with all parameters."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.errors import DuatError
from duat_jax.forms import stream_layers
from duat_jax.forms.analysed_function import Model, from_embeddings, with_marks
from duat_jax.forms.completeness import Completeness, entrywise_completeness
from duat_jax.forms.residual_term import ResidualTerm, Term
from duat_jax.forms.stream_layers import activation_of, dependencies
from duat_jax.operators.linear_map import LinearMap
from duat_jax.operators.shapes import require_fits, require_floats, shapes_of
from duat_jax.transform import marks
from duat_jax.transform.activations import activations_of
from duat_jax.transform.compiled import compiled
from duat_jax.transform.interpret import Seen
from duat_jax.transform.keys import Occurrence
from duat_jax.transform.query import Target, ask, linear_map, pre_activations_of, question_of, require_affine
from duat_jax.transform.recording import Dynamics, Recording, record
from duat_jax.transform.rounding import CoarsestEpsilons


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class ClosedForm:
    """A function's exact closed form at one input (Wang & Li, Eq. 11 and 34, in two-index notation).

    With `i` counting the marked streams from 0 (stream `i` follows layer `i`), `j` the terms from 1, and everything
    held at this input's value:

        stream_i = input_map(i) x_0 + bias(i) + Σ_{j born before i} outer_map(j, i) σ(inner_map(j) x_0 + inner_bias(j))

    Where `i` is absent, the stream is the function's own result.  A closed form is a pytree over its recording.

    Args:
        recording: the function's forward pass, with all its marks.
    """

    recording: Recording

    @property
    def x0(self) -> Any:
        """The input `x_0`, one array or named streams."""
        return self.recording.argument

    @property
    def value(self) -> Any:
        """The function's result, from the plain forward pass."""
        return self.recording.value

    @property
    def dynamics(self) -> Dynamics:
        """All marked values on this input."""
        return self.recording.dynamics

    @property
    def streams(self) -> tuple[Occurrence, ...]:
        """The marked streams, in the order of computation."""
        return self.recording.streams

    @property
    def terms(self) -> tuple[Occurrence, ...]:
        """The terms, each by its pre-activation, in the order of computation; the first is term 1."""
        return self.recording.terms

    def _stream(self, i: int | None) -> Target:
        if i is not None and not -len(self.streams) <= i < len(self.streams):
            raise DuatError(f"there is no stream {i}: {len(self.streams)} are marked, counted from 0")
        return None if i is None else self.streams[i]

    def _term(self, j: int) -> Occurrence:
        if not 1 <= j <= len(self.terms):
            raise DuatError(f"there is no term {j}: {len(self.terms)} are marked, counted from 1")
        return self.terms[j - 1]

    def input_map(self, i: int | None = None) -> LinearMap:
        """Return `W'_{i,1}` (`P_i`), which carries the input to stream `i`.

        Args:
            i: number of a stream; the function's result if absent.
        """
        return linear_map(self.recording, None, self._stream(i))

    def inner_map(self, j: int) -> LinearMap:
        """Return `W'_{j,2}` (`B_j`), which carries the input to the pre-activation of term `j`.

        Args:
            j: number of a term.
        """
        return linear_map(self.recording, None, self._term(j))

    def outer_map(self, j: int, i: int | None = None) -> LinearMap:
        """Return `W'_{j,3}` (`C_j^{(i)}`), which carries the activation of term `j` to stream `i`.

        Args:
            j: number of a term.
            i: number of a stream; the function's result if absent.
        """
        return linear_map(self.recording, activation_of(self._term(j)), self._stream(i))

    def inner_bias(self, j: int) -> Float[Array, "..."]:
        """Return `b'_{j,2}` (`c_j`), the pre-activation of term `j` at `x_0 = 0`, earlier terms included.

        Args:
            j: number of a term.
        """
        return _without_input(self.recording, self._term(j), True)

    def bias(self, i: int | None = None) -> Any:
        """Return `b'_{i,3}` (`q_i`), stream `i` without input and terms.

        Args:
            i: number of a stream; the function's result if absent.
        """
        return _without_input(self.recording, self._stream(i), False)

    def term_sum(self, i: int | None = None) -> Any:
        """Return `UAT^R_i`, the sum of all terms carried to stream `i`.

        Args:
            i: number of a stream; the function's result if absent.
        """
        return jax.tree.map(jnp.subtract, _without_input(self.recording, self._stream(i), True), self.bias(i))

    def term_contributions(self, i: int | None = None) -> list[Any]:
        """Return every term carried forwards to stream `i`: its contribution to the whole output.

        Args:
            i: number of a stream; the function's result if absent.
        """
        at = self.recording.at
        return [self.outer_map(j, i)(at(activation_of(term))) for j, term in enumerate(self.terms, 1)]

    def completeness(self, i: int | None = None) -> Completeness:
        """Compare `P_i x_0 + q_i + Σ_j C_j σ(·)` with stream `i` of the plain forward pass, entry by entry.

        Args:
            i: number of a stream; the function's result if absent.
        """
        target = self._stream(i)
        value = self.value if target is None else self.recording.at(target)
        parts = [self.input_map(i)(self.x0), self.bias(i), *self.term_contributions(i)]
        rounding = self.recording.traced.rounding(question_of(self.recording, target))
        eps = [
            max(rounding.arguments),
            rounding.coarsest,
            *(self._eps(rounding, activation_of(step)) for step in self.terms),
        ]
        return entrywise_completeness(value, parts, eps)

    def _eps(self, rounding: CoarsestEpsilons, step: Occurrence) -> float:
        return rounding.at(self.recording.program.place(step.site).path)

    def residual_term(self, i: int) -> ResidualTerm:
        """Return layer `i`'s own residual term, from stream `i − 1` to stream `i`.

        Of several named streams it leads from mark `i − 1` of each name to mark `i` of each: its maps take and give
        them by the names of their marks, `path.between(r, s)`; `inner_bias` has what the layer's earlier terms give.

        Args:
            i: number of a stream, or of the mark of every stream, from 1 on.

        Raises:
            DuatError: if there is no such layer, or the part between the streams depends on more than the first.
        """
        if stream_layers.has_several_streams(self.recording):
            return stream_layers.residual_term_of(self.recording, stream_layers.stream_layer(self.recording, i))
        before, between, after = self._layer(i)
        recording = self.recording
        return ResidualTerm(
            path=linear_map(recording, before, after),
            path_bias=_without_stream(recording, after, before),
            terms=tuple(
                Term(
                    inner=linear_map(recording, before, term),
                    inner_bias=_without_stream(recording, term, before),
                    outer=linear_map(recording, activation_of(term), after),
                )
                for term in between
            ),
        )

    def layer_completeness(self, i: int) -> Completeness:
        """Compare layer `i`'s residual term, applied to stream `i − 1`, with stream `i`, entry by entry.

        Args:
            i: number of a stream, from 1 on.
        """
        if stream_layers.has_several_streams(self.recording):
            return stream_layers.completeness_of_layer(
                self.recording, stream_layers.stream_layer(self.recording, i), self.activate
            )
        before, between, after = self._layer(i)
        x, layer = self.recording.at(before), self.residual_term(i)
        outputs = [
            term.outer(self.activate(self.terms.index(step) + 1, term.inner(x) + term.inner_bias))
            for step, term in zip(between, layer.terms, strict=True)
        ]
        rounding = self.recording.traced.rounding(question_of(self.recording, after, linear=[before.site]))
        eps = [
            self._eps(rounding, before),
            rounding.coarsest,
            *(self._eps(rounding, activation_of(z)) for z in between),
        ]
        return entrywise_completeness(self.recording.at(after), [layer.path(x), layer.path_bias, *outputs], eps)

    def _layer(self, i: int) -> tuple[Occurrence, tuple[Occurrence, ...], Occurrence]:
        """Return the two streams of a layer and the terms between them, proved to depend on the first stream alone."""
        if not 1 <= i < len(self.streams):
            raise DuatError(
                f"there is no layer {i}: {len(self.streams)} streams are marked, and layer i lies between streams i − 1"
                " and i; mark each layer's result with stream(x, name)"
            )
        before, after = self.streams[i - 1 : i + 1]
        order = self.recording.program.steps(marks.STREAM, marks.PRE_ACTIVATION)
        between = order[order.index(before) + 1 : order.index(after)]
        for target in (*between, after):
            require_affine(self.recording, target)
        activations = [activation_of(term) for term in between]
        self._require_only(before, between, [before])
        self._require_only(before, [after], [before, *activations])
        return before, between, after

    def _require_only(self, before: Occurrence, targets: Iterable[Occurrence], allowed: list[Occurrence]) -> None:
        for target in targets:
            if foreign := dependencies(self.recording, target, allowed):
                raise DuatError(
                    f"the part between stream {before} and {target.site.kind} {target} is no residual term, since it"
                    f" depends on {', '.join(foreign)} too: mark a layer's input and output as streams"
                )

    def activate(self, j: int, z: Float[Array, "..."]) -> Float[Array, "..."]:
        """Compute `σ(z)` of term `j`.

        Args:
            j: number of a term.
            z: its pre-activation.
        """
        require_affine(self.recording, self._term(j))
        return _activate(self.recording, z, self._term(j))

    def evaluate(self) -> Any:
        """Compute the function's result from the closed form alone.

        The pre-activations `B_j x_0 + c_j` and the terms `σ(·)` are a triangular system, solved from `x_0` by as many
        sweeps as there are terms; then input, biases and terms are summed.
        """
        return _evaluate(self.recording)

    def apply(self, x: Any) -> Any:
        """Return what the closed form gives for another input, with its parameters as they are: no run of the function.

        `P x + q + Σ_j C_j σ(B_j x + c_j)`, the function that `x_0` has chosen.

        Args:
            x: the other input, of the structure, shapes and dtypes of `x_0`.

        Raises:
            DuatError: if `x` has another structure, shape or dtype.

        Example:
            >>> import duat_jax as duat, jax, jax.numpy as jnp
            >>> fn = lambda x: duat.hold(x.sum(), "scale") * x + duat.term(jax.nn.relu, x, "relu")
            >>> form = unroll(fn, jnp.array([1.0, 2.0]))
            >>> form.apply(jnp.array([1.0, -1.0])).tolist(), fn(jnp.array([1.0, -1.0])).tolist()
            ([4.0, -3.0], [1.0, 0.0])
        """
        require_fits(x, shapes_of(self.x0), "the form")
        return _apply(self.recording, jax.tree.leaves(x))


def _zeros(recording: Recording, *kinds: str) -> Seen:
    return {site: jnp.zeros_like(recording.seen[site]) for site in recording.program.of_kind(*kinds)}


@partial(compiled, static_argnames=("target", "terms"))
def _without_input(recording: Recording, target: Target, terms: bool) -> Any:
    provided = {} if terms else _zeros(recording, marks.ACTIVATION)
    zeros = list(map(jnp.zeros_like, recording.arguments))
    return ask(recording, question_of(recording, target), target, zeros, provided)


@partial(compiled, static_argnames=("target", "before"))
def _without_stream(recording: Recording, target: Occurrence, before: Occurrence) -> Array:
    question = question_of(recording, target, linear=[before.site])
    provided = _zeros(recording, marks.ACTIVATION)
    provided[before.site] = recording.seen[before.site].at[before.iteration].set(0)
    return ask(recording, question, target, recording.arguments, provided)


@partial(compiled, static_argnames=("term",))
def _activate(recording: Recording, z: Array, term: Occurrence) -> Array:
    provided = {term.site: recording.seen[term.site].at[term.iteration].set(z)}
    activation = activation_of(term)
    return activations_of(recording, provided)[activation.site][activation.iteration]


@compiled
def _apply(recording: Recording, leaves: list[Array]) -> Any:
    pre_activations = pre_activations_of(recording, leaves, {})
    return ask(recording, question_of(recording, None), None, leaves, activations_of(recording, pre_activations))


@compiled
def _evaluate(recording: Recording) -> Any:
    def sweep(_: Any, activations: Seen) -> Seen:
        return activations_of(recording, pre_activations_of(recording, recording.arguments, activations))

    activations = jax.lax.fori_loop(0, len(recording.terms), sweep, _zeros(recording, marks.ACTIVATION))
    return ask(recording, question_of(recording, None), None, recording.arguments, activations)


def unroll(fn: Callable[[Any], Any] | Model, x: Any, *, marks: str | None = None) -> ClosedForm:
    """Return the exact closed form of a function at one input.

    `x_L = P_L x_0 + q_L + UAT^R_L`, exact as a value: everything marked with `hold` is held at its value on this input.

    Args:
        fn: a pure function of one array, or of a pytree of named streams, with marks, or a model; a model is unrolled
            from its embeddings `x_0` to the result of `model(ids)`, logits or hidden states.
        x: the function's input, usually `[tokens, features]`; for a model, token ids `[tokens]`.
        marks: `"auto"` places those that `fn` lacks, as `duat.auto` does; its own alone if absent.

    Returns:
        The closed form.

    Raises:
        DuatError: if `x` has whole numbers; for marks of an unknown kind.
        NotAffine: when a parameter is evaluated and a mark is missing.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from duat_jax import term
        >>> form = unroll(lambda x: x + term(jax.nn.relu, 2 * x, "relu"), jnp.array([1.0, -1.0]))
        >>> form.evaluate().tolist(), form.inner_map(1).dense().tolist()
        ([3.0, -1.0], [[2.0, 0.0], [0.0, 2.0]])

    Source: Wang & Li, Eq. 20–34.
    """
    fn, x = from_embeddings(fn, x)
    recording = record(with_marks(fn, marks))(x)
    require_floats(recording.argument, recording.value)
    return ClosedForm(recording)
