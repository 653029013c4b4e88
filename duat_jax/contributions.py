"""Who contributed what to one read-out: a scalar, split exactly over input, terms and biases."""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax import marks
from duat_jax.errors import DuatError
from duat_jax.program import Program
from duat_jax.recording import Recording, pull_back, record_program, shares, unmarked

KINDS = (marks.HOLD, marks.ACTIVATION, marks.IMAGE, marks.OFFSET)
"""The marks that contributions need."""


class Closure(NamedTuple):
    """How exactly parts sum to the value: `|sum − value| ≤ 8 · eps(dtype) · (layers + 2) · Σ|parts|`.

    Args:
        value: what the plain forward pass computed.
        sum: the sum of all parts.
        error: `sum − value`.
        tolerance: the right-hand side.
    """

    value: Float[Array, ""]
    sum: Float[Array, ""]
    error: Float[Array, ""]
    tolerance: Float[Array, ""]

    @property
    def dtype(self) -> jnp.dtype:
        """The dtype that everything was computed in."""
        return self.value.dtype

    @property
    def holds(self) -> bool:
        """Whether the error is within the tolerance."""
        return bool(abs(self.error) <= self.tolerance)


def closure_of(value: Array, parts: Iterable[Array], layers: int) -> Closure:
    """Return how exactly parts sum to a value.

    Args:
        value: the scalar from the plain forward pass.
        parts: arrays of parts, at the finest level computed.
        layers: number of terms that the value is deep.
    """
    parts = list(parts)
    # Where some parts are of a lower precision than the value, theirs counts.
    eps = max(float(jnp.finfo(part.dtype).eps) for part in [*parts, value])
    parts = [part.astype(value.dtype) for part in parts]
    total = sum((part.sum() for part in parts), jnp.zeros((), value.dtype))
    size = sum((jnp.abs(part).sum() for part in parts), jnp.zeros((), value.dtype))
    return Closure(value, total, total - value, 8 * eps * (layers + 2) * size)


class Decomposition(NamedTuple):
    """One scalar read-out, split exactly: `value = Σ input + Σ terms + Σ offsets + unmarked`.

    Args:
        input: share of every entry of the argument, in the argument's structure and shapes.
        terms: share of every neuron of every term, in the shape of its activation; without neurons, of every token.
        offsets: share of every bias and norm offset by name; those in a scan have one per step.  A bias inside a
            pre-activation or a held parameter has no share of its own: its share is zero.
        unmarked: what constants without a mark contributed; zero where there are none.
        closure: value, sum, error and tolerance.
    """

    input: Any
    terms: dict[str, Array]
    offsets: dict[str, Array]
    unmarked: Array
    closure: Closure


def number_of_terms(program: Program) -> int:
    """Return how many terms a program has, each step of a scan counted.

    Args:
        program: the traced function.
    """
    return sum(math.prod(program.lengths(site)) for site in program.of_kind(marks.PRE_ACTIVATION))


def contributions(recording: Recording, *, neurons: bool = True) -> Decomposition:
    """Split a recorded scalar read-out over its input, terms and biases.

    With the read-out pulled back through the linear path, `u_{j−1} = W_{j,1}ᵀ u_j`, the share of neuron `n` is
    `(W_{j,3}ᵀ u_j)_n σ(z_j)_n`, that of an input entry `(u_0)_m (x_0)_m`, that of a bias `⟨u, b⟩`.

    Args:
        recording: a scalar function's forward pass, with the marks in `KINDS`.
        neurons: whether to split down to neurons; otherwise terms with an outer map are split over tokens only, for
            about half of the extra cost.

    Returns:
        The exact parts and their closure.
    """
    program, seen, value = recording.program, recording.seen, recording.value
    images = [] if neurons else program.of_kind(marks.IMAGE)
    with_image = {site.key for site in images}
    terms = [*images, *(site for site in program.of_kind(marks.ACTIVATION) if site.key not in with_image)]
    offsets = program.of_kind(marks.OFFSET)
    affine = recording.affine(linear=[*terms, *offsets], held=program.of_kind(marks.HOLD))
    given = {site: seen[site] for site in affine.question.given}
    on_input, on_marks = pull_back(affine, recording.arguments, given, value)

    input_parts = shares(on_input, recording.arguments)
    term_parts = {site.key: on_marks[site] * seen[site] for site in terms}
    # A term's last axis is its neurons, or after its outer map the features; a scalar term has neither.
    term_parts |= {
        site.key: term_parts[site.key].sum(-1) for site in images if seen[site].ndim > len(program.lengths(site))
    }
    offset_parts = {
        site.key: (on_marks[site] * seen[site]).sum(range(len(program.lengths(site)), seen[site].ndim))
        for site in offsets
    }
    remainder = unmarked(affine, recording.arguments, given, value)
    parts = [*input_parts, *term_parts.values(), *offset_parts.values(), remainder]
    return Decomposition(
        jax.tree.unflatten(recording.in_tree, input_parts),
        term_parts,
        offset_parts,
        remainder,
        closure_of(value, parts, number_of_terms(program)),
    )


def require_scalar(value: Any) -> None:
    """Raise unless a read-out is one floating-point scalar.

    Args:
        value: a function's result.

    Raises:
        DuatError: if it isn't.
    """
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(value)]
    if shapes != [()]:
        raise DuatError(
            f"the function returns shapes {shapes}, but one scalar read-out is decomposed: return one logit, or a sum"
            " of outputs"
        )


def decompose(fn: Callable[[Any], Float[Array, ""]], x: Any, *, neurons: bool = True) -> Decomposition:
    """Split a marked function's scalar value exactly over its input, terms and biases.

    `fn(x) = Σ input + Σ terms + Σ offsets`, with every held dynamic parameter at its value on this input.

    Args:
        fn: a pure function of one pytree of arrays, with marks, returning a scalar.
        x: its argument.
        neurons: whether to split down to neurons; otherwise terms with an outer map are split over tokens only.

    Returns:
        The exact parts and their closure.

    Raises:
        DuatError: if `fn` doesn't return one scalar.
        NotAffine: naming each operation that isn't linear, its source line and the missing mark.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from duat_jax import offset, term
        >>> fn = lambda x: (x + term(jax.nn.relu, 2 * x, "relu") + offset(jnp.ones(2), "bias")).sum()
        >>> parts = decompose(fn, jnp.array([1.0, -1.0]))
        >>> parts.input.tolist(), parts.terms["relu"].tolist(), float(parts.offsets["bias"])
        ([1.0, -1.0], [2.0, 0.0], 2.0)
        >>> parts.closure.holds
        True

    Source: Wang & Li, Eq. 11; the split of one read-out follows from its linearity in the terms.
    """
    recording = record_program(fn, x, KINDS)
    require_scalar(recording.value)
    return contributions(recording, neurons=neurons)
