"""One forward pass of a function, kept with its program: what every question about this input is asked of."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from duat_jax.evaluate import Seen, evaluate
from duat_jax.program import Program, Question, Site, trace
from duat_jax.record_replay import Affine


@dataclass(frozen=True, eq=False, repr=False)
class Recording:
    """A function's program, its argument, its value, and the values of its marks.

    Args:
        program: the traced function.
        constants: the arrays it closes over.
        arguments: the leaves of its argument.
        in_tree: the structure of its argument.
        value: its result, from the plain forward pass.
        seen: the values of its marks.
    """

    program: Program
    constants: list[Any]
    arguments: list[Array]
    in_tree: Any
    value: Any
    seen: Seen

    def affine(
        self, *, linear: Iterable[Site], held: Iterable[Site], wanted: Iterable[Site] = (), value: bool = True
    ) -> Affine:
        """Return the program with some marks given, proved affine.

        Args:
            linear: given marks that the result is linear in.
            held: the other given marks.
            wanted: marks to read.
            value: whether the function's own result is computed.
        """
        return Affine(self.program, self.constants, linear=linear, held=held, wanted=wanted, value=value)


def record_program(fn: Callable[[Any], Any], x: Any, kinds: Iterable[str]) -> Recording:
    """Run a function once and keep its program with the marks of some kinds.

    Args:
        fn: a pure function of one pytree of arrays, with marks.
        x: its argument.
        kinds: kinds of mark to keep.
    """
    program, constants = trace(fn, x)
    arguments, in_tree = jax.tree.flatten(x)
    question = Question(wanted=frozenset(program.of_kind(*kinds)))
    value, seen = evaluate(program, constants, arguments, question, {})
    return Recording(program, constants, arguments, in_tree, value, seen)


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(x), jnp.inexact)


def pull_back(affine: Affine, arguments: list[Array], given: Seen, value: Array) -> tuple[list[Array], Seen]:
    """Return the derivative of a scalar affine program in its argument and in its linear marks: one transposed pass.

    Args:
        affine: a program whose result is one scalar.
        arguments: the leaves of its argument; whole numbers among them count as constants, their derivative is zero.
        given: values of all given marks.
        value: a scalar of the result's dtype.
    """
    question = affine.question
    linear = {site: v for site, v in given.items() if site in question.linear}
    held = {site: v for site, v in given.items() if site in question.given - question.linear}
    floats = {i: argument for i, argument in enumerate(arguments) if _is_float(argument)}

    def readout(floats: dict[int, Array], linear: Seen) -> Array:
        return affine([floats.get(i, argument) for i, argument in enumerate(arguments)], held | linear)[0]

    on_floats, on_marks = jax.linear_transpose(readout, floats, linear)(jnp.ones_like(value))
    zero = jnp.zeros((), value.dtype)
    return [on_floats.get(i, zero) for i in range(len(arguments))], on_marks


def shares(on_arguments: list[Array], arguments: list[Array]) -> list[Array]:
    """Return every argument's share of a read-out: its derivative times its value; zero for whole numbers.

    Args:
        on_arguments: the derivatives, from `pull_back`.
        arguments: the leaves of the argument.
    """
    return [
        u * x if _is_float(x) else jnp.zeros(jnp.shape(x), u.dtype)
        for u, x in zip(on_arguments, arguments, strict=True)
    ]


def unmarked(affine: Affine, arguments: list[Array], given: Seen, value: Array) -> Array:
    """Return what has no mark: an affine program's value where its argument and all linear marks are zero.

    Args:
        affine: any affine program.
        arguments: the leaves of its argument.
        given: values of all given marks.
        value: a scalar of the result's dtype.
    """
    if not affine.flows.constant:
        return jnp.zeros_like(value)
    given = {site: jnp.zeros_like(v) if site in affine.question.linear else v for site, v in given.items()}
    return affine([jnp.zeros_like(a) if _is_float(a) else a for a in arguments], given)[0]
