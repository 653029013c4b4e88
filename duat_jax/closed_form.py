"""The closed form of a function at one input: `x_i = P_i x_0 + q_i + UAT^R_i`, every parameter known."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax import marks
from duat_jax.errors import DuatError
from duat_jax.evaluate import Seen, evaluate
from duat_jax.linear_map import LinearMap, derivative_of
from duat_jax.models.transformer import Transformer
from duat_jax.program import Question, Site, Step
from duat_jax.record_replay import KINDS, Dynamics, dynamics_of
from duat_jax.recording import Recording, record_program


class ResidualMaps(NamedTuple):
    """One layer's residual term: `x_i = path x_{i−1} + path_bias + outer σ(inner x_{i−1} + inner_bias)` (Eq. 20).

    Args:
        path: `W_{i,1}`.
        path_bias: `b_{i,3}`.
        inner: `W_{i,2}`.
        inner_bias: `b_{i,2}`.
        outer: `W_{i,3}`.
    """

    path: LinearMap
    path_bias: Float[Array, "..."]
    inner: LinearMap
    inner_bias: Float[Array, "..."]
    outer: LinearMap


@dataclass(frozen=True, eq=False)
class ClosedForm:
    """A function's exact closed form at one input (Wang & Li, Eq. 11 and 34, in two-index notation).

    With `i` counting the marked streams from 0 and `j` the terms from 0, and everything held at this input's value:

        stream_i = input_map(i) x_0 + bias(i) + Σ_{j born before i} outer_map(j, i) σ(inner_map(j) x_0 + inner_bias(j))

    Where `i` is absent, the function's own result is meant.

    Args:
        recording: the function's forward pass, with all its marks.
    """

    recording: Recording

    def __post_init__(self) -> None:
        if len(self.recording.arguments) != 1:
            raise DuatError("a closed form is a function of one array: bring the rest in by closing over it")

    @property
    def x0(self) -> Float[Array, "..."]:
        """The input `x_0`."""
        return self.recording.arguments[0]

    @property
    def value(self) -> Any:
        """The function's result, from the plain forward pass."""
        return self.recording.value

    @property
    def dynamics(self) -> Dynamics:
        """Everything marked, as it is on this input."""
        return dynamics_of(self.recording.seen)

    @property
    def streams(self) -> tuple[Step, ...]:
        """The marked streams, in the order in which they are computed."""
        return self.recording.program.steps(marks.STREAM)

    @property
    def terms(self) -> tuple[Step, ...]:
        """The terms, in the order in which they are computed."""
        return self.recording.program.steps(marks.PRE_ACTIVATION)

    def _ask(self, x: Array, given: Seen, read: Step | None, begin: Step | None = None) -> Array:
        """Return one mark, or the result, with `x` for `x_0` or for a stream, and terms and offsets given."""
        program = self.recording.program
        affine = self.recording.affine(
            linear=[*program.of_kind(marks.ACTIVATION, marks.OFFSET), *([] if begin is None else [begin[0]])],
            held=program.of_kind(marks.HOLD),
            wanted=() if read is None else (read[0],),
            value=read is None,
        )
        given = self.recording.seen | given
        if begin is not None:
            given[begin[0]] = given[begin[0]].at[begin[1]].set(x)
        value, seen = affine([x if begin is None else self.x0], given)
        return value if read is None else seen[read[0]][read[1]]

    def _zeros(self, *kinds: str) -> Seen:
        return {site: jnp.zeros_like(self.recording.seen[site]) for site in self.recording.program.of_kind(*kinds)}

    def _stream(self, i: int | None) -> Step | None:
        return None if i is None else self.streams[i]

    def _map_of_input(self, read: Step | None) -> LinearMap:
        return derivative_of(lambda x: self._ask(x, {}, read), jax.ShapeDtypeStruct(self.x0.shape, self.x0.dtype))

    def input_map(self, i: int | None = None) -> LinearMap:
        """Return `W'_{i,1}` (`P_i`), which carries the input to stream `i`.

        Args:
            i: index of a stream; the function's result if absent.
        """
        return self._map_of_input(self._stream(i))

    def inner_map(self, j: int) -> LinearMap:
        """Return `W'_{j,2}` (`B_j`), which carries the input to the pre-activation of term `j`.

        Args:
            j: index of a term.
        """
        return self._map_of_input(self.terms[j])

    def outer_map(self, j: int, i: int | None = None) -> LinearMap:
        """Return `W'_{j,3}` (`C_j^{(i)}`), which carries the activation of term `j` to stream `i`.

        Args:
            j: index of a term.
            i: index of a stream; the function's result if absent.
        """
        return self._carry(self.terms[j], self._stream(i))

    def _carry(self, term: Step, read: Step | None, begin: Step | None = None) -> LinearMap:
        """Return the map from one term's activation to a mark, with everything else at zero."""
        site, index = term
        activation = Site(marks.ACTIVATION, site.key)
        zeros = self._zeros(marks.ACTIVATION, marks.OFFSET)
        start = self.x0 if begin is None else self.recording.seen[begin[0]][begin[1]]

        def carry(a: Array) -> Array:
            only = zeros | {activation: zeros[activation].at[index].set(a)}
            return self._ask(jnp.zeros_like(start), only, read, begin)

        here = zeros[activation][index]
        return derivative_of(carry, jax.ShapeDtypeStruct(here.shape, here.dtype))

    def inner_bias(self, j: int) -> Float[Array, "..."]:
        """Return `b'_{j,2}` (`c_j`), the pre-activation of term `j` at `x_0 = 0`: with the earlier terms in it.

        Args:
            j: index of a term.
        """
        return self._ask(jnp.zeros_like(self.x0), {}, self.terms[j])

    def bias(self, i: int | None = None) -> Float[Array, "..."]:
        """Return `b'_{i,3}` (`q_i`), stream `i` without input and terms.

        Args:
            i: index of a stream; the function's result if absent.
        """
        return self._ask(jnp.zeros_like(self.x0), self._zeros(marks.ACTIVATION), self._stream(i))

    def term_sum(self, i: int | None = None) -> Float[Array, "..."]:
        """Return `UAT^R_i`, the sum of all terms carried to stream `i`.

        Args:
            i: index of a stream; the function's result if absent.
        """
        zero = jnp.zeros_like(self.x0)
        return self._ask(zero, {}, self._stream(i)) - self.bias(i)

    def term_shares(self, i: int | None = None) -> Float[Array, "terms ..."]:
        """Return every term carried forwards to stream `i`: its share of the whole output.

        Args:
            i: index of a stream; the function's result if absent.
        """
        activations = self.dynamics.activations
        shares = [self.outer_map(j, i)(activations[site.key][index]) for j, (site, index) in enumerate(self.terms)]
        shape = (0, *jnp.shape(self.bias(i)))
        return jnp.stack(shares) if shares else jnp.zeros(shape, self.x0.dtype)

    def residual_term(self, i: int) -> ResidualMaps:
        """Return layer `i`'s own residual term, from stream `i − 1` to stream `i`.

        Args:
            i: index of a stream, from 1 on.

        Raises:
            DuatError: if there isn't one term between the two streams.
        """
        order = self.recording.program.steps(marks.STREAM, marks.PRE_ACTIVATION)
        at = order.index(self.streams[i]) if 1 <= i < len(self.streams) else 0
        if [step[0].kind for step in order[max(0, at - 2) : at]] != [marks.STREAM, marks.PRE_ACTIVATION]:
            raise DuatError(
                f"layer {i} has no residual term: it lies between two neighbouring streams with one term between, and"
                f" here are {len(self.streams)} streams and {len(self.terms)} terms"
            )
        before, term, after = order[at - 2 : at + 1]
        x = self.recording.seen[before[0]][before[1]]
        no_terms = self._zeros(marks.ACTIVATION)
        nothing = self._zeros(marks.ACTIVATION, marks.OFFSET)
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return ResidualMaps(
            path=derivative_of(lambda v: self._ask(v, nothing, after, before), shape),
            path_bias=self._ask(jnp.zeros_like(x), no_terms, after, before),
            inner=derivative_of(lambda v: self._ask(v, nothing, term, before), shape),
            inner_bias=self._ask(jnp.zeros_like(x), no_terms, term, before),
            outer=self._carry(term, after, before),
        )

    def activate(self, j: int, z: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return `σ(z)` of term `j`.

        Args:
            j: index of a term.
            z: its pre-activation.
        """
        site, index = self.terms[j]
        activation = Site(marks.ACTIVATION, site.key)
        question = Question(given=frozenset({site}), wanted=frozenset({activation}), value=False)
        given = {site: self.recording.seen[site].at[index].set(z)}
        seen = evaluate(self.recording.program, self.recording.constants, [self.x0], question, given)[1]
        return seen[activation][index]

    def evaluate(self) -> Any:
        """Return the function's result from the closed form alone.

        The terms are computed from `x_0` in order, `σ(B_j x_0 + c_j)` with `c_j` from the terms before, and summed.
        """
        activations = self._zeros(marks.ACTIVATION)
        zero = jnp.zeros_like(self.x0)
        for j, (site, index) in enumerate(self.terms):
            z = self.inner_map(j)(self.x0) + self._ask(zero, activations, (site, index))
            key = Site(marks.ACTIVATION, site.key)
            activations[key] = activations[key].at[index].set(self.activate(j, z))
        return self.input_map()(self.x0) + self._ask(zero, activations, None)


def unroll(fn: Callable[[Array], Any] | Transformer, x: Any) -> ClosedForm:
    """Return the exact closed form of a marked function at one input.

    `x_L = P_L x_0 + q_L + UAT^R_L`, exact as a value: everything marked with `hold` is held at its value on this input.

    Args:
        fn: a pure function of one array with marks, or a model; a model is unrolled from its embeddings `x_0` to what
            `model(ids)` returns, logits or hidden states.
        x: the function's input, usually `[tokens, features]`; for a model, token ids `[tokens]`.

    Returns:
        The closed form.

    Raises:
        DuatError: if `x` isn't one array.
        NotAffine: when a parameter is asked for and a mark is missing.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from duat_jax import term
        >>> form = unroll(lambda x: x + term(jax.nn.relu, 2 * x, "relu"), jnp.array([1.0, -1.0]))
        >>> form.evaluate().tolist(), form.inner_map(0).dense().tolist()
        ([3.0, -1.0], [[2.0, 0.0], [0.0, 2.0]])

    Source: Wang & Li, Eq. 20–34.
    """
    if isinstance(fn, Transformer):
        return unroll(fn.output, fn.embed(jnp.asarray(x)))
    return ClosedForm(record_program(fn, x, KINDS))
