"""Recordings: one forward pass of a function, with the values of its marks and its program."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from duat_jax.errors import DuatError
from duat_jax.transform import marks
from duat_jax.transform.affinity import Affinity
from duat_jax.transform.compiled import compiled
from duat_jax.transform.interpret import Seen, evaluate
from duat_jax.transform.keys import Marked, Occurrence, Site
from duat_jax.transform.liveness import Live, ProgramQuestion, liveness
from duat_jax.transform.program import Program, trace
from duat_jax.transform.rounding import CoarsestEpsilons, rounding_of


class Dynamics(NamedTuple):
    """All marked values of a function on one input: its dynamic parameters, terms and biases.

    Each field has the values by the key of their mark; a mark inside a scan has its values stacked along a new leading
    axis.

    Args:
        held: attention patterns, normalisation scales, gates: the dynamic parameters.
        pre_activations: `z = W2 x + b2` of every term.
        activations: `σ(z)` of every term.
        term_outputs: `W3 σ(z)` of every term that was marked with its outer map.
        offsets: every bias and norm offset.
        streams: the residual stream at every layer boundary.
        points: values marked only to be read or edited, such as the heads' outputs.
    """

    held: Marked[Array]
    pre_activations: Marked[Array]
    activations: Marked[Array]
    term_outputs: Marked[Array]
    offsets: Marked[Array]
    streams: Marked[Array]
    points: Marked[Array]


KINDS = marks.KINDS
"""The kind of mark in each field of `Dynamics`, in order."""


class Traced:
    """A program, with results of its analysis, each computed once.

    Args:
        program: the traced function.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._live: dict[ProgramQuestion, Live] = {}
        self._rounding: dict[ProgramQuestion, CoarsestEpsilons] = {}

    def __hash__(self) -> int:
        return hash(self.program)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Traced) and self.program == other.program

    @cached_property
    def affinity(self) -> Affinity:
        """The flow of every value, and whether it is linear."""
        return Affinity(self.program)

    def live(self, question: ProgramQuestion) -> Live:
        """Return the equations that answering a question needs.

        Args:
            question: the question.
        """
        if question not in self._live:
            self._live[question] = liveness(self.program, question)
        return self._live[question]

    def rounding(self, question: ProgramQuestion) -> CoarsestEpsilons:
        """Return the coarsest rounding of every value on its way to a question's answer.

        Args:
            question: the question.
        """
        if question not in self._rounding:
            factors = {self.affinity.factors[site] for site in question.shared}
            self._rounding[question] = rounding_of(
                self.program, provided=question.provided - factors, wanted=question.wanted, value=question.value
            )
        return self._rounding[question]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class Recording:
    """A function's forward pass at one input: its value, and the values of its marks.

    It is a pytree: it can be returned from `jax.jit`, mapped by `jax.vmap`, and asked any number of questions without
    another forward pass, trace or check.

    Args:
        constants: the arrays that the function closes over.
        arguments: the leaves of its argument.
        value: its result, from the plain forward pass.
        seen: the values of its marks.
        traced: its program.
        in_tree: the structure of its argument.
    """

    constants: list[Any]
    arguments: list[Array]
    value: Any
    seen: Seen
    traced: Traced = field(metadata={"static": True})
    in_tree: Any = field(metadata={"static": True})

    @property
    def program(self) -> Program:
        """The traced function."""
        return self.traced.program

    @property
    def argument(self) -> Any:
        """The function's argument, in its own structure."""
        return jax.tree.unflatten(self.in_tree, self.arguments)

    @property
    def dynamics(self) -> Dynamics:
        """All marked values, by kind and key."""
        return Dynamics(
            *(Marked({s.key: self.seen[s] for s in self.program.of_kind(kind) if s in self.seen}) for kind in KINDS)
        )

    @property
    def streams(self) -> tuple[Occurrence, ...]:
        """The marked streams, in the order of computation."""
        return self.program.steps(marks.STREAM)

    @property
    def terms(self) -> tuple[Occurrence, ...]:
        """The terms, each by its pre-activation, in the order of computation."""
        return self.program.steps(marks.PRE_ACTIVATION)

    @property
    def activations(self) -> tuple[Occurrence, ...]:
        """The activations of the terms, in the same order."""
        return self.program.steps(marks.ACTIVATION)

    @property
    def offsets(self) -> tuple[Occurrence, ...]:
        """The biases and norm offsets, in the order of computation."""
        return self.program.steps(marks.OFFSET)

    def at(self, step: Occurrence) -> Array:
        """Return the value of one occurrence of a mark.

        Args:
            step: the mark.

        Raises:
            DuatError: if it is none of this recording's.
        """
        if not isinstance(step, Occurrence) or step.site not in self.seen:
            raise DuatError(
                f"{step!r} is no occurrence of a mark that was recorded: give one of streams, terms, activations or"
                " offsets, such as streams[0]; dynamics.streams, dynamics.held and dynamics.points find values by name"
            )
        return self.seen[step.site][step.iteration]

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(self.program.of_kind(kind))} {kind}" for kind in KINDS)
        return f"Recording(marks: {counts})"


def record_kinds(fn: Callable[[Any], Any], x: Any, kinds: Iterable[str]) -> Recording:
    """Run a function once and keep the marks of some kinds."""
    program, constants = trace(fn, x)
    leaves, in_tree = jax.tree.flatten(x)
    # A Python number isn't an array yet.
    arguments = [leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf) for leaf in leaves]
    traced, wanted = Traced(program), frozenset(program.of_kind(*kinds))
    recording = _forward_pass(traced, wanted, constants, arguments)
    return replace(recording, constants=constants, arguments=arguments, in_tree=in_tree)


def record_again(recording: Recording, x: Any) -> Recording:
    """Run a recorded function at another argument of its shapes, without tracing it again, and keep the same marks."""
    arguments = jax.tree.leaves(x)
    again = _forward_pass(recording.traced, frozenset(recording.seen), recording.constants, arguments)
    return replace(again, constants=recording.constants, arguments=arguments, in_tree=recording.in_tree)


@partial(compiled, static_argnames=("traced", "wanted"))
def _forward_pass(traced: Traced, wanted: frozenset[Site], constants: list[Any], arguments: list[Array]) -> Recording:
    question = ProgramQuestion(wanted=wanted)
    value, seen = evaluate(traced.program, constants, arguments, question, {}, traced.live(question))
    return Recording([], [], value, seen, traced, None)


def record(fn: Callable[[Any], Any]) -> Callable[[Any], Recording]:
    """Transform a function with marks into one that returns its value and all marked values, in one pass.

    It composes with `jit`, `vmap` and `scan` as `jax.grad` does; XLA doesn't compute parts of the
    recording that aren't used.

    Args:
        fn: a pure function of one pytree of arrays, with marks.

    Returns:
        A function of the same argument, returning the `Recording`.

    Raises:
        UnsupportedProgram: where a mark is inside a `while` or `cond`.

    Example:
        >>> import jax.numpy as jnp
        >>> from duat_jax import hold
        >>> recording = record(lambda x: hold(jnp.exp(x), "gate") * x)(jnp.array([0.0, 1.0]))
        >>> recording.value.tolist()[0], recording.dynamics.held["gate"].tolist()[0]
        (0.0, 1.0)

    Source: Wang & Li, Eq. 4 (parameters that are functions of the input).
    """
    return lambda x: record_kinds(fn, x, KINDS)
