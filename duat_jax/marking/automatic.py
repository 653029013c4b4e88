"""Marks that nobody has written: `auto(fn)` is `fn` with the marks of a plan."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from duat_jax.errors import warn_caller
from duat_jax.marking.graph import Node
from duat_jax.marking.plan import Decision, MarkingPlan, Planner
from duat_jax.marking.program import run
from duat_jax.marking.readout import advice_on_readout
from duat_jax.marking.writer import written_out
from duat_jax.transform.calls import SubProgram
from duat_jax.transform.diagnosis import source_line
from duat_jax.transform.program import trace


class Choices(NamedTuple):
    """The choices that were made where marks were placed.

    Args:
        holds: how many operands are held, by name: a `"pattern"` of a sum over products, a `"scale"`, a `"choice"` of
            entries, the ratio of a `"soft_cap"`, a `"factor"`.
        terms: how many activations are terms.
        biases: how many constants are biases.
        streams: how many sums are residual streams.
        products: of every product of two factors that move, the one that flows, and the rule by which it does.
        not_attributed: the operations whose results are held whole, with the lines in which they stand.
        lines: of every term, bias and stream the kind, and the line in which it stands.
    """

    holds: dict[str, int]
    terms: int
    biases: int
    streams: int
    products: tuple[Decision, ...]
    not_attributed: tuple[str, ...]
    lines: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        holds = ", ".join(f"{count} {name}" for name, count in self.holds.items()) or "none"
        marks = f"terms: {self.terms}; held: {holds}; biases: {self.biases}; streams: {self.streams}"
        products = [f"{p.line}: {p.product}: factor {p.flows} flows: {p.rule}" for p in self.products]
        whole = [f"not attributed: {operation}" for operation in self.not_attributed]
        lines = [f"{line}: {kind}" for kind, line in self.lines]
        return "\n".join((marks, *dict.fromkeys(lines), *dict.fromkeys(products), *dict.fromkeys(whole)))


class Automatic:
    """A function with marks, which are placed anew wherever it is traced.

    Args:
        fn: the function.
        prefer: the factor that flows, 0 or 1, by the line of a product.
    """

    def __init__(self, fn: Callable[[Any], Any], prefer: Mapping[str, int]) -> None:
        self.fn, self.prefer = fn, prefer

    def _plan(self, x: Any) -> tuple[Planner, MarkingPlan, SubProgram, Any]:
        traced, arrays = trace(self.fn, x)
        planner, program = Planner(self.prefer), SubProgram(traced.jaxpr, arrays)
        return planner, planner.plan(written_out(program)), program, traced.out_tree

    def __call__(self, x: Any) -> Any:
        """Return the function's value.

        Args:
            x: its argument.
        """
        _, plan, program, structure = self._plan(x)
        if advice := advice_on_readout(plan):
            warn_caller(advice)
        leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(x)]
        return jax.tree.unflatten(structure, _differentiable(plan, program)(*program.consts, *leaves))

    def choices(self, x: Any) -> Choices:
        """Return which marks are placed, and why.

        Args:
            x: an argument, or the shapes of one.
        """
        planner, plan, *_ = self._plan(x)
        plans = list(_all_plans(plan))
        products = [
            planner.decisions[n] for p in plans for n in p.graph.nodes if n in planner.decisions and _flows(p, n)
        ]
        whole = [p.graph.producer[v] for p in plans for v in sorted(p.whole)]
        return Choices(
            holds=dict(Counter(name for p in plans for name in [*p.held.values(), *["soft_cap"] * len(p.caps)])),
            terms=sum(len(p.terms) for p in plans),
            biases=sum(len(p.offsets) for p in plans),
            streams=sum(len(p.streams) + len(p.layers) for p in plans),
            products=tuple(products),
            not_attributed=tuple(f"{n.name}, {n.equation and source_line(n.equation)}" for n in whole),
            lines=tuple((kind, _line_of(node)) for p in plans for kind, node in _marked_nodes(p)),
        )


def _marked_nodes(plan: MarkingPlan) -> Iterator[tuple[str, Node | None]]:
    """Yield the operation of every term, bias and stream with its kind; none is that of an argument."""
    produced = plan.graph.producer
    yield from (("term", produced[v]) for v in sorted(plan.terms))
    yield from (
        ("bias", node) for node in plan.graph.nodes for k in range(len(node.operands)) if (node, k) in plan.offsets
    )
    yield from (("stream", produced.get(v)) for v in sorted(plan.streams))
    yield from (("stream", node) for node in plan.layers)


def _line_of(node: Node | None) -> str:
    if node is None:
        return "the argument"
    return (node.equation and source_line(node.equation)) or "an unknown line"


def _differentiable(plan: MarkingPlan, program: SubProgram) -> Callable[..., list[Any]]:
    """Return the marked program, of closed-over arrays and arguments, with the derivatives that it has unmarked."""
    first = len(program.consts)

    @jax.custom_jvp
    def marked(*values: Any) -> list[Any]:
        return run(plan, values[:first], values[first:])

    def derivative(values: Sequence[Any], tangents: Sequence[Any]) -> Any:
        # A value without a tangent is closed over: rules of `custom_vjp` have none for what they close over.
        moving = [k for k, tangent in enumerate(tangents) if not isinstance(tangent, SymbolicZero)]

        def unmarked(*given: Any) -> list[Any]:
            full = list(values)
            for k, value in zip(moving, given, strict=True):
                full[k] = value
            return list(jax.core.eval_jaxpr(program.jaxpr, full[:first], *full[first:]))

        return jax.jvp(unmarked, [values[k] for k in moving], [tangents[k] for k in moving])

    marked.defjvp(derivative, symbolic_zeros=True)
    return marked


def _all_plans(plan: MarkingPlan) -> Iterator[MarkingPlan]:
    yield plan
    for inner in plan.bodies.values():
        yield from _all_plans(inner)


def _flows(plan: MarkingPlan, node: Any) -> bool:
    return bool(plan.flowing.intersection(node.results))


def auto(fn: Callable[[Any], Any], *, prefer: Mapping[str, int] | None = None) -> Automatic:
    """Return a function with marks, so that its closed form exists without a change to its code.

    `auto(fn)(x) = fn(x)`, but for rounding where a product such as `z (σ(z) u)` is taken in the order `(z σ(z)) u`, and
    a soft cap `f(z) = c tanh(z / c)` as `(f(z) / z) z`.  A planner looks at the traced function and decides which
    operands are held, which elementwise functions are terms, which constants biases and which sums residual
    streams.  These are choices, and others are possible: every form of the result is checked as that of a function
    marked by hand is, so that a bad choice costs attribution and never a sum.  Marks that `fn` has are kept.

    Args:
        fn: a pure function of one pytree of arrays, with or without marks.
        prefer: for products of two factors that move, the factor that flows, 0 or 1, by the line of the product as
            `choices` names it.

    Returns:
        The function; its `choices(x)` are the marks, and the reasons for them.  What can't be followed is held whole,
        and is the part `not_attributed` of a decomposition.

    Raises:
        UnsupportedProgram: where a mark is inside a `while`, a `cond` or another place that can't be followed.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import duat_jax as duat
        >>> w = jnp.arange(6.0).reshape(2, 3) - 2
        >>> network = duat.auto(lambda x: (jax.nn.relu(x @ w) @ w.T).sum() + x.sum())
        >>> parts = duat.decompose(network, jnp.ones(2))
        >>> {str(key): part.tolist() for key, part in parts.terms.items()}
        {'relu': [-0.0, 1.0, 9.0]}
        >>> network.choices(jnp.ones(2)).terms
        1

    Source: Wang & Li, Section 3.2; the rules are on the page "Your own code" of the documentation.
    """
    return Automatic(fn, dict(prefer or {}))
