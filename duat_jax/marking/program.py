"""The program of a graph, with the marks of a plan."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from duat_jax.marking.dependence import LOOKED_UP
from duat_jax.marking.graph import Node, ProgramGraph, Ref
from duat_jax.marking.plan import MarkingPlan
from duat_jax.marking.products import SUMS
from duat_jax.marking.regions import region
from duat_jax.marking.streams import CARRIED, STREAM
from duat_jax.transform import marks
from duat_jax.transform.calls import scan_of
from duat_jax.transform.diagnosis import library_function
from duat_jax.transform.identities import bind_mark
from duat_jax.transform.keys import has_slice
from duat_jax.transform.parameters import checkpointed, mixed_axes_of, window_of

MIXED, NEURONS = "mixed", "neurons"
"""The points of sums over held factors, such as outputs of heads, and of activations, times their gates."""
NOT_ATTRIBUTED = "not_attributed"
"""The name of what is held whole, and stands in a decomposition as a bias."""
SCALES = frozenset(
    ("mul", "div", "convert_element_type", "copy", "reshape", "squeeze", "transpose", "broadcast_in_dim")
)
MOVES_A_BIAS = frozenset(("broadcast_in_dim", "reshape", "convert_element_type"))


def run(plan: MarkingPlan, arrays: Sequence[Any], arguments: Sequence[Any], taken: Sequence[Any] = ()) -> list[Any]:
    """Compute the results of a graph, with its marks."""
    graph = plan.graph
    values: dict[int, Any] = dict(zip(graph.arguments, arguments, strict=True))
    values |= {v: marks.stream(values[v], "stream") for v in plan.streams.intersection(graph.arguments)}
    # The arrays that a program closes over are the first of those that are known.
    values |= graph.known | dict(zip(graph.known, arrays, strict=False))

    def read(ref: Ref) -> Any:
        return values[ref] if isinstance(ref, int) else ref.val

    def taken_at(node: Node) -> list[Any]:
        return [*taken, *(jnp.clip(read(index), 0, count - 1) == k for index, k, count in node.branches)]

    held: dict[Any, Any] = {}
    summed = (ref for node in graph.nodes if node.name in SUMS for ref in node.operands)
    neurons = {ref for ref in summed if _is_neurons(plan, ref)}

    def operand(node: Node, k: int) -> Any:
        ref = node.operands[k]
        name = plan.held.get((node, k))
        if name is None and k in node.moving and _is_lookup(plan, node):
            name = "choice"
        if name is not None:
            key = ref, name, tuple(map(str, node.branches))
            if key not in held:
                x = read(ref)
                for is_taken in taken_at(node) if graph.is_float(ref) else ():
                    # In a branch that isn't taken a factor may be anything: zero times NaN would be NaN.
                    x = jnp.where(is_taken, x, 1)
                held[key] = marks.hold(x, name)
            return held[key]
        return _bias(graph, ref, read) if (node, k) in plan.offsets else read(ref)

    for node in graph.nodes:
        with _scopes(node.scopes):
            operands = [operand(node, k) for k in range(len(node.operands))]
            values |= zip(
                node.results, _results(plan, node, operands, taken_at(node) if node.body else []), strict=True
            )
            for v in node.results:
                values[v] = _marked(plan, node, v, values)
                if v in neurons:
                    values[v] = marks.point(values[v], NEURONS)
                if v in plan.carried:
                    values[v] = marks.point(values[v], STREAM)
                    values |= {other: marks.point(values[other], CARRIED) for other in plan.carried[v]}
    return [read(ref) for ref in graph.results]


def _is_lookup(plan: MarkingPlan, node: Node) -> bool:
    """Return whether an operation, or a loop through which nothing flows, looks constants up by what moves."""
    if node.body is not None:
        return plan.flowing.isdisjoint(node.results) and not plan.graph.moving.issuperset(node.results)
    return node.name in LOOKED_UP and not plan.graph.moves(node.operands[0])


def _is_neurons(plan: MarkingPlan, ref: Ref) -> bool:
    """Return whether a value is an activation, or one times a gate."""
    if not isinstance(ref, int) or ref not in plan.flowing:
        return False
    node = plan.graph.producer.get(ref)
    if node is None or ref in plan.terms:
        return ref in plan.terms
    graph = plan.graph
    return node.name in SCALES and any(
        _is_neurons(plan, operand)
        and (node.name != "broadcast_in_dim" or math.prod(graph.shape(operand)) == math.prod(graph.shape(ref)))
        for operand in (node.operands[k] for k in node.action.flowing)
    )


def _scopes(names: Iterable[str]) -> AbstractContextManager[Any]:
    stack = ExitStack()
    for name in names:
        stack.enter_context(jax.named_scope(name))
    return stack


def _results(plan: MarkingPlan, node: Node, operands: list[Any], taken: list[Any]) -> list[Any]:
    """Compute the results of an operation; in a form that is linear where it chooses among entries."""
    graph = plan.graph
    if graph.zeros.issuperset(node.results):
        return [jnp.zeros(graph.avals[v].shape, graph.avals[v].dtype) for v in node.results]
    flows = bool(plan.flowing.intersection(node.results))
    if node.body is not None and flows:
        return (_scan if node.name == "scan" else _region)(plan, node, operands, taken)
    if node.action.kind == "choice" and flows:
        return _choice(plan, node, operands)
    return node.compute(operands)


def _marked(plan: MarkingPlan, node: Node, v: int, values: dict[int, Any]) -> Any:
    """Return a result of an operation with the mark that it has, if it has one."""
    x = values[v]
    if v in plan.terms:
        return _term(plan, v, values)
    if v in plan.caps:
        return _capped(values[plan.caps[v]], x)
    if v in plan.whole:
        return marks.offset(marks.hold(x, NOT_ATTRIBUTED), NOT_ATTRIBUTED)
    if v in plan.streams:
        return marks.stream(x, "stream")
    if v in plan.flowing and any((node, k) in plan.held for k in range(len(node.operands))) and node.name in SUMS:
        return marks.point(x, MIXED)
    return x


def _term(plan: MarkingPlan, v: int, values: dict[int, Any]) -> Any:
    """Compute an activation from its marked pre-activation, and mark it."""
    root = plan.terms[v]
    nodes = region(plan.graph, v, root)
    name = _name_of_term(nodes)
    inside = {root: bind_mark(values[root], marks.PRE_ACTIVATION, name)}

    def read(ref: Ref) -> Any:
        return ref.val if isinstance(ref, core.Literal) else inside.get(ref, values.get(ref))

    for node in nodes:
        inside |= zip(node.results, node.compute([read(ref) for ref in node.operands]), strict=True)
    return bind_mark(inside[v], marks.ACTIVATION, name)


def _capped(z: Any, capped: Any) -> Any:
    """Return a soft cap's result as a held ratio of its operand, or held where that is infinite."""
    at, capped = marks.hold(z, "soft_cap.at"), marks.hold(capped, "soft_cap")
    ratio = jnp.where(at == 0, 1, capped / jnp.where(at == 0, 1, at).astype(capped.dtype))
    finite = jnp.isfinite(at)
    return jnp.where(finite, jnp.where(finite, z, 0).astype(capped.dtype) * ratio, capped)


def _name_of_term(nodes: Sequence[Node]) -> str:
    """Return the name of the innermost function, called or of a library, that computes all of an activation."""
    common = [names for names in zip(*(node.calls for node in nodes), strict=False) if len(set(names)) == 1]
    if common:
        return common[-1][0]
    return library_function([node.equation for node in nodes if node.equation]) or (
        nodes[0].name if len(nodes) == 1 else "activation"
    )


def _bias(graph: ProgramGraph, ref: Ref, read: Callable[[Ref], Any]) -> Any:
    """Return a bias marked before it is broadcast."""
    moved = []
    while isinstance(ref, int) and (node := graph.producer.get(ref)) is not None and node.name in MOVES_A_BIAS:
        if not all(graph.is_float(operand) and isinstance(operand, int) for operand in node.operands):
            break
        moved.append(node)
        (ref,) = node.operands
    value = marks.offset(jnp.asarray(read(ref)), "chosen" if isinstance(ref, int) and ref in graph.chosen else "bias")
    for node in reversed(moved):
        (value,) = node.compute([value])
    return value


def _choice(plan: MarkingPlan, node: Node, operands: list[Any]) -> list[Any]:
    """Compute a maximum, a sort or their like as `f(x) = f'(x) x`, with the choice held."""
    if node.name in ("reduce_window_max", "reduce_window_min"):
        return [_pooled(node, operands[0])]
    if node.name in ("reduce_max", "reduce_min") and operands[0].size:
        return [_largest(node, operands[0])]

    graph = plan.graph
    flows = [k for k, ref in enumerate(node.operands) if graph.is_float(ref)]
    if node.name == "clamp":  # JAX has no derivative where bounds are numbers and entries an array
        operands = jnp.broadcast_arrays(*operands)

    def f(*flowing: Any) -> list[Any]:
        full = list(operands)
        for k, x in zip(flows, flowing, strict=True):
            full[k] = x
        return node.compute(full)

    entries = [jnp.asarray(operands[k]) for k in flows]
    at = [marks.hold(x, "choice") for x in entries]
    # The derivative multiplies entries that aren't chosen by zero, and some of them may be infinite.
    finite = [jnp.where(jnp.isfinite(value), x, 0) for value, x in zip(at, entries, strict=True)]
    results, linear = jax.jvp(f, at, finite)
    return [
        jnp.where(jnp.isfinite(x), linear_value, x) if v in plan.flowing else x
        for v, x, linear_value in zip(node.results, results, linear, strict=True)
    ]


def _pooled(node: Node, x: Any) -> Any:
    """Return the largest or smallest entry of every window, as a lookup at held places."""
    assert node.equation is not None
    places = jnp.arange(x.size, dtype=jnp.int32).reshape(x.shape)
    is_better = jnp.greater_equal if node.name == "reduce_window_max" else jnp.less_equal
    worst = -np.inf if node.name == "reduce_window_max" else np.inf

    def better(a: Any, b: Any) -> Any:
        return tuple(jnp.where(is_better(a[0], b[0]), u, v) for u, v in zip(a, b, strict=True))

    initial = np.array(worst, x.dtype), np.int32(0)
    _, at = lax.reduce_window((x, places), initial, better, *window_of(node.equation))
    return x.reshape(-1)[marks.hold(at, "choice")]


def _largest(node: Node, x: Any) -> Any:
    """Return the largest or smallest entry along some axes, as a lookup at held places."""
    # JAX's derivative divides by the number of entries that equal the maximum, which the compiler may compute twice and
    # round in two ways: then none does.
    assert node.equation is not None
    axes = mixed_axes_of(node.equation)
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    rows = x.transpose(*kept, *axes).reshape(*(x.shape[axis] for axis in kept), -1)
    at = (jnp.argmax if node.name == "reduce_max" else jnp.argmin)(rows, -1)
    firsts = jnp.arange(at.size, dtype=at.dtype).reshape(at.shape) * rows.shape[-1]
    return rows.reshape(-1)[marks.hold(firsts + at, "choice")]


def _region(plan: MarkingPlan, node: Node, operands: list[Any], taken: list[Any]) -> list[Any]:
    """Run a rematerialised region as one."""
    assert node.equation is not None
    return list(checkpointed(node.equation, lambda *given: run(plan.bodies[node], (), given, taken))(*operands))


def _layers_named_in(graph: ProgramGraph) -> list[str]:
    """Return the outermost scopes in a graph that name a layer of every step of a scan."""
    return [node.scopes[0] for node in graph.nodes if node.scopes and has_slice(node.scopes[0])]


def _scan(plan: MarkingPlan, node: Node, operands: list[Any], taken: list[Any]) -> list[Any]:
    """Run a scan; one over layers names the layer of every step."""
    assert node.equation is not None and node.body is not None
    first, carries, length, reverse, unroll = scan_of(node.equation)
    body, stream = plan.bodies[node], plan.layers.get(node)
    named = _layers_named_in(node.body)
    named_deeper = any(_layers_named_in(inner.body) for inner in node.body.nodes if inner.body)

    def step(carry: list[Any], stacked: list[Any]) -> tuple[list[Any], list[Any]]:
        with _scopes([] if stream is None or named or named_deeper else [f"layers.0:{length}"]):
            results = run(body, (), [*operands[:first], *carry, *stacked], taken)
            if stream is not None:
                with _scopes(named[:1]):
                    results[stream] = marks.stream(results[stream], "stream")
        return results[:carries], results[carries:]

    begin, stacked = operands[first : first + carries], operands[first + carries :]
    carry, results = lax.scan(step, list(begin), list(stacked), length=length, reverse=reverse, unroll=unroll)
    return [*carry, *results]
