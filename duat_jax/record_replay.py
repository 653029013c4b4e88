"""The two transformations: `record` a function's dynamics, and `replay` it with them given."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
from jaxtyping import Array

from duat_jax import marks
from duat_jax.affine import check
from duat_jax.evaluate import Seen, evaluate
from duat_jax.program import Program, Question, Site, liveness, trace


class Dynamics(NamedTuple):
    """Everything marked in a function, as it is on one input: its dynamic parameters, its terms and its biases.

    Each field maps a mark's name to its value.  A name that occurs more than once is numbered in program order
    (`"mlp/0"`, `"mlp/1"`, …); a mark inside a scan has its values stacked along a new leading axis.

    Args:
        held: attention patterns, normalisation scales, gates: the dynamic parameters.
        pre_activations: `z = W2 x + b2` of every term.
        activations: `σ(z)` of every term.
        images: `W3 σ(z)` of every term that was marked with its outer map.
        offsets: every bias and norm offset.
        streams: the residual stream at every layer boundary.
        at_zero: `σ(0)` of every term.
        slopes_at_zero: `σ'(0)` of every term.
    """

    held: dict[str, Array]
    pre_activations: dict[str, Array]
    activations: dict[str, Array]
    images: dict[str, Array]
    offsets: dict[str, Array]
    streams: dict[str, Array]
    at_zero: dict[str, Array]
    slopes_at_zero: dict[str, Array]


KINDS = (
    marks.HOLD,
    marks.PRE_ACTIVATION,
    marks.ACTIVATION,
    marks.IMAGE,
    marks.OFFSET,
    marks.STREAM,
    marks.AT_ZERO,
    marks.SLOPE_AT_ZERO,
)
"""The kind of mark in each field of `Dynamics`, in order."""


def seen_of(dynamics: Dynamics) -> Seen:
    """Return recorded values by mark.

    Args:
        dynamics: what `record` returned.
    """
    return {Site(kind, key): v for kind, values in zip(KINDS, dynamics, strict=True) for key, v in values.items()}


def dynamics_of(seen: Seen) -> Dynamics:
    """Return recorded values by name.

    Args:
        seen: values by mark.
    """
    return Dynamics(*({site.key: v for site, v in seen.items() if site.kind == kind} for kind in KINDS))


def record(fn: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, Dynamics]]:
    """Transform a function with marks into one that also returns everything marked, in one forward pass.

    `record(fn)(x) = (fn(x), dynamics)`.  It composes with `jit`, `vmap` and `scan` as `jax.grad` does; where the
    result isn't used, XLA doesn't compute it.

    Args:
        fn: a pure function of one pytree of arrays, with marks.

    Returns:
        A function of the same argument, returning the value and the `Dynamics`.

    Raises:
        UnsupportedProgram: where a mark is inside a `while` or `cond`.

    Example:
        >>> import jax.numpy as jnp
        >>> from duat_jax import hold
        >>> value, dynamics = record(lambda x: hold(jnp.exp(x), "gate") * x)(jnp.array([0.0, 1.0]))
        >>> dynamics.held["gate"].tolist()[0]
        1.0

    Source: Wang & Li, Eq. 4 (parameters that are functions of the input).
    """

    def recorded(x: Any) -> tuple[Any, Dynamics]:
        program, constants = trace(fn, x)
        question = Question(wanted=frozenset(program.loops))
        value, seen = evaluate(program, constants, jax.tree.leaves(x), question, {})
        return value, dynamics_of(seen)

    return recorded


def replay(fn: Callable[[Any], Any], dynamics: Dynamics) -> Callable[..., Any]:
    """Return the function in which held things and terms are given, not computed: the closed form as a function.

    `replay(fn, dynamics)(x, activations, offsets)` is affine in its three arguments together; that is the theorem, and
    it is proved on the function's program before anything is computed.  At the recorded input it equals `fn`.

    Args:
        fn: the function that was recorded.
        dynamics: what `record(fn)` returned, on this input or on another.

    Returns:
        A function of `x`, of the terms' `activations` and of the `offsets` (dictionaries as in `Dynamics`, the
        recorded ones where absent).

    Raises:
        NotAffine: when called, naming each operation that is not linear in what flows through it, its source line and
            the missing mark.

    Example:
        >>> import jax.numpy as jnp
        >>> from duat_jax import hold
        >>> fn = lambda x: hold(jnp.exp(x), "gate") * x
        >>> value, dynamics = record(fn)(jnp.array([0.0, 1.0]))
        >>> replay(fn, dynamics)(jnp.array([5.0, 0.0])).tolist()
        [5.0, 0.0]

    Source: Wang & Li, Eq. 11 and 34.
    """

    def replayed(x: Any, activations: dict | None = None, offsets: dict | None = None) -> Any:
        program, constants = trace(fn, x)
        chosen = dynamics._replace(
            activations=dynamics.activations if activations is None else activations,
            offsets=dynamics.offsets if offsets is None else offsets,
        )
        linear = program.of_kind(marks.ACTIVATION, marks.OFFSET)
        affine = Affine(program, constants, linear=linear, held=program.of_kind(marks.HOLD))
        return affine(jax.tree.leaves(x), seen_of(chosen))[0]

    return replayed


class Affine:
    """A program in which some marks are given, proved affine in its argument and in the linear ones among them.

    Args:
        program: the traced function.
        constants: the arrays it closes over.
        linear: the given marks that the result is linear in.
        held: the other given marks.
        wanted: marks to read.
        value: whether to compute the function's own result.

    Raises:
        NotAffine: if it isn't affine.
    """

    def __init__(
        self,
        program: Program,
        constants: list[Any],
        *,
        linear: Iterable[Site],
        held: Iterable[Site],
        wanted: Iterable[Site] = (),
        value: bool = True,
    ) -> None:
        linear = frozenset(linear)
        self.program, self.constants = program, constants
        self.question = Question(linear | frozenset(held), linear, frozenset(wanted), value)
        self.live = liveness(program, self.question)
        self.flows = check(program, self.question, self.live)

    def __call__(self, arguments: list[Array], given: Seen) -> tuple[Any, Seen]:
        """Return the result and the wanted marks.

        Args:
            arguments: the leaves of the function's argument.
            given: values of the given marks; others are passed over.
        """
        chosen = {site: value for site, value in given.items() if site in self.question.given}
        return evaluate(self.program, self.constants, arguments, self.question, chosen, self.live, self.flows)
