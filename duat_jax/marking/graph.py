"""The graph of a traced program: its values, and the operations that make them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from duat_jax.transform.calls import scan_of
from duat_jax.transform.identities import mark_p
from duat_jax.transform.parameters import bind, role_of

Ref = int | core.Literal
"""An operand: the number of a value, or a constant that is written in the program."""

Labels = list[int | None]
"""The label of every axis of a value; none where the axis has one entry."""

MOVES_NOTHING = frozenset(
    (
        *("broadcast_in_dim", "reshape", "transpose", "squeeze", "expand_dims", "convert_element_type"),
        *("copy", "copy_p", "slice", "split", "rev", "gather", "dynamic_slice", "concatenate", "stack", "unstack"),
    )
)
"""Primitives that compute nothing: their result holds entries of their operands."""


class Action(NamedTuple):
    """The role of an operation through which something flows to the result.

    Args:
        kind: `"linear"` in `flowing`, everything else held; a `"term"` of the value `root`, or one that the user has
            `"marked"`; a soft `"cap"` of the value `root`; a `"choice"`, of which the derivative is held; a `"body"`
            with actions of its own; or held as a `"whole"`.
        flowing: the operands that flow.
        root: the pre-activation of a term, the value under a cap.
    """

    kind: str
    flowing: tuple[int, ...] = ()
    root: int = -1


WHOLE = Action("whole")


def values_of(refs: Iterable[Ref]) -> set[int]:
    """Return the numbers of the values among some operands."""
    return {ref for ref in refs if isinstance(ref, int)}


@dataclass(eq=False)
class Node:
    """One operation of the graph.

    Args:
        equation: the equation; none where a held index chooses among the results of a `cond`'s branches.
        operands: what it reads.
        results: the numbers of its results.
        scopes: the `jax.named_scope`s around it.
        calls: the names of the functions around it, outermost first.
        body: the graph that a scan or a rematerialised region runs.
        branches: the branches of `cond`s that it stands in: the index, of which branch, of how many.
        moving: the operands that depend on the argument.
        action: what is done with it.
    """

    equation: core.JaxprEqn | None
    operands: list[Ref]
    results: list[int]
    scopes: tuple[str, ...]
    calls: tuple[str, ...]
    body: "ProgramGraph | None" = None
    branches: tuple[tuple[Ref, int, int], ...] = ()
    moving: tuple[int, ...] = ()
    action: Action = WHOLE

    @property
    def name(self) -> str:
        """The name of the primitive."""
        return "select_n" if self.equation is None else self.equation.primitive.name

    @property
    def mark(self) -> dict[str, Any] | None:
        """The role of a mark; `None` of any other operation."""
        return role_of(self.equation) if self.equation is not None and self.equation.primitive is mark_p else None

    @property
    def carries(self) -> tuple[int, int]:
        """The number of operands of a node with a body before its carries, and the number of carries."""
        assert self.equation is not None
        return scan_of(self.equation)[:2] if self.name == "scan" else (len(self.operands), 0)

    def moving_operands(self) -> list[int]:
        """Return the values of the operands that depend on the argument."""
        return [ref for ref in (self.operands[k] for k in self.moving) if isinstance(ref, int)]

    def compute(self, operands: Sequence[Any]) -> list[Any]:
        """Compute its results."""
        if self.equation is not None:
            return bind(self.equation, operands)
        which = jnp.clip(operands[0], 0, len(operands) - 2).astype(jnp.int32)
        return [lax.select_n(which, *operands[1:])]


@dataclass(eq=False)
class ProgramGraph:
    """The values of a program and the operations that make them, in the order of the program.

    Args:
        avals: the type of every value.
        nodes: the operations.
        arguments: the numbers of the arguments.
        results: the results.
        known: the arrays that the program closes over.
        producer: the operation that makes a value.
        moving: the values that depend on the argument.
        chosen: the values that depend on it by a held choice alone, such as the weights of a chosen expert.
        zeros: the values that are zero because a factor is.
        labels: the labels of the axes of every value that moves.
    """

    avals: list[Any] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    arguments: list[int] = field(default_factory=list)
    results: list[Ref] = field(default_factory=list)
    known: dict[int, Any] = field(default_factory=dict)
    producer: dict[int, Node] = field(default_factory=dict)
    moving: set[int] = field(default_factory=set)
    chosen: set[int] = field(default_factory=set)
    zeros: set[int] = field(default_factory=set)
    labels: dict[int, Labels] = field(default_factory=dict)

    def moves(self, ref: Ref) -> bool:
        """Return whether an operand depends on the argument."""
        return isinstance(ref, int) and ref in self.moving

    def shape(self, ref: Ref) -> tuple[int, ...]:
        """Return the shape of an operand."""
        return tuple(self.avals[ref].shape) if isinstance(ref, int) else np.shape(ref.val)

    def is_float(self, ref: Ref) -> bool:
        """Return whether an operand has floating-point numbers, so that it can flow."""
        return jnp.issubdtype(self.avals[ref].dtype if isinstance(ref, int) else jnp.result_type(ref.val), jnp.inexact)

    def constant(self, ref: Ref) -> np.ndarray | None:
        """Return the entries of a constant, in any shape; `None` where they aren't known."""
        while isinstance(ref, int):
            if ref in self.known:
                return None if isinstance(self.known[ref], jax.core.Tracer) else np.asarray(self.known[ref])
            node = self.producer.get(ref)
            if node is None or node.name not in MOVES_NOTHING or node.moving or len(node.operands) > 1:
                return None
            ref = node.operands[0]
        return np.asarray(ref.val)

    def is_zero(self, ref: Ref) -> bool:
        """Return whether all entries of an operand are known to be zero."""
        if isinstance(ref, int):
            if ref in self.zeros:
                return True
            node = self.producer.get(ref)
            if node is not None and node.name in MOVES_NOTHING and isinstance(node.operands[0], int):
                return len(node.operands) == 1 and self.is_zero(node.operands[0])
        entries = self.constant(ref)
        # The first entry of weights is hardly ever zero, and then the others need not be read.
        return entries is not None and not np.any(entries.flat[:1]) and not np.any(entries)

    def ancestors(self, ref: Ref, after: int = -1) -> Iterator[Node]:
        """Yield the operations that an operand depends on."""
        seen: set[int] = set()
        waiting = [ref]
        while waiting:
            value = waiting.pop()
            if isinstance(value, int) and value > after and value not in seen and value in self.producer:
                node = self.producer[value]
                seen |= set(node.results)
                yield node
                waiting += node.operands
