"""The plan of a graph's marks: what is held, what is a term, what a bias; decided forwards, demanded backwards.

Forwards every operation gets an action, and every value a cost: how many holds and terms make it affine in the
argument.  Backwards from the result only what has to flow there is followed, and only its operations are marked.  A
hold stands on an operand of an operation, not on a value: in a softmax or in a norm's scale nothing flows to the
result, so that nothing in it has to be recognised.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from duat_jax.marking.axes import Axes, label
from duat_jax.marking.dependence import depend
from duat_jax.marking.graph import MOVES_NOTHING, Action, Node, ProgramGraph, Ref
from duat_jax.marking.products import SUMS, Products
from duat_jax.marking.ratios import multiplied_by_ratio, soft_capped
from duat_jax.marking.regions import FAR, root_of
from duat_jax.marking.streams import layered_carry, residual_sums
from duat_jax.transform import marks
from duat_jax.transform.diagnosis import source_line
from duat_jax.transform.primitives import LINEAR, ONE, linear_operands

SUMS_OF_TWO = frozenset(("add", "add_any", "sub"))
JOINS = frozenset(("concatenate", "select_n", "stack"))
CHOOSES = frozenset(
    (
        *("reduce_max", "reduce_min", "max", "min", "sort", "top_k", "cummax", "cummin"),
        *("reduce_window_max", "reduce_window_min", "clamp"),
    )
)
"""Operations that choose among entries: `f(x) = f'(x) x` with the choice held."""

SLIGHT, FULL = 0.001, 1.0
"""The costs of a held scale or of a sum over products, and of any other hold or term."""


class Decision(NamedTuple):
    """The choice of the factor of a product that flows.

    Args:
        line: `file:line (function)` of the product.
        product: the name of the operation.
        flows: the number of the factor that flows.
        rule: why it does.
    """

    line: str
    product: str
    flows: int
    rule: str


@dataclass(eq=False)
class MarkingPlan:
    """The marks of one graph.

    Args:
        graph: the graph.
        held: the names under which operands of operations are held.
        offsets: the operands of operations that are biases.
        terms: the pre-activation of every activation.
        caps: the value under every soft cap.
        whole: the values that are held whole.
        flowing: the values that flow to the result.
        streams: the values that are residual streams.
        carried: of a sum that is one of several streams, the others.
        bodies: the plan of the body of every scan and rematerialised region.
        layers: the carry that is the stream of a scan over layers.
    """

    graph: ProgramGraph
    held: dict[tuple[Node, int], str] = field(default_factory=dict)
    offsets: set[tuple[Node, int]] = field(default_factory=set)
    terms: dict[int, int] = field(default_factory=dict)
    caps: dict[int, int] = field(default_factory=dict)
    whole: set[int] = field(default_factory=set)
    flowing: set[int] = field(default_factory=set)
    streams: set[int] = field(default_factory=set)
    carried: dict[int, tuple[int, ...]] = field(default_factory=dict)
    bodies: dict[Node, "MarkingPlan"] = field(default_factory=dict)
    layers: dict[Node, int] = field(default_factory=dict)


class Planner:
    """Decides on the marks of a graph and of all graphs inside of it.

    Args:
        prefer: the factor that flows, by the line of a product.
    """

    def __init__(self, prefer: Mapping[str, int]) -> None:
        self.prefer = prefer
        self.axes = Axes()
        self.decisions: dict[Node, Decision] = {}

    def plan(self, graph: ProgramGraph) -> MarkingPlan:
        """Return the marks of a graph."""
        moving = [graph.is_float(v) for v in graph.arguments]
        depend(graph, moving)
        named = [
            [self.axes.new() if size > 1 else None for size in graph.shape(v)] if moves else None
            for v, moves in zip(graph.arguments, moving, strict=True)
        ]
        label(graph, named, self.axes)
        self._decide(graph, [0.0] * len(moving))
        plan = MarkingPlan(graph)
        _demand(plan, graph.results)
        plan.streams, plan.carried = residual_sums(graph, plan.flowing, plan.terms, plan.bodies)
        return plan

    def _decide(self, graph: ProgramGraph, costs: Sequence[float]) -> dict[int, float]:
        """Give every operation its action, and return the cost of every value that moves."""
        cost = dict(zip(graph.arguments, costs, strict=True))
        products = Products(graph, self.axes, cost, dict(zip(graph.arguments, graph.arguments, strict=True)))
        for node in graph.nodes:
            if not graph.moving.intersection(node.results):
                continue
            if node.body is not None:
                self._decide_body(node, cost)
            else:
                node.action, most = self._action(node, products)
                cost |= {v: most if graph.is_float(v) else most + FAR for v in node.results}
            products.anchor |= dict.fromkeys(node.results, _anchor(node, products))
        return cost

    def _decide_body(self, node: Node, cost: dict[int, float]) -> None:
        body, (first, carries) = node.body, node.carries
        assert body is not None
        given = [cost.get(ref, 0.0) if isinstance(ref, int) else 0.0 for ref in node.operands]
        inside = self._decide(body, given)
        node.action = Action("body")
        for k, (v, ref) in enumerate(zip(node.results, body.results, strict=True)):
            before = given[first + k] if k < carries else 0.0
            cost[v] = max(before, inside.get(ref, 0.0) if isinstance(ref, int) else 0.0)

    def _action(self, node: Node, products: Products) -> tuple[Action, float]:
        """Return the action of an operation, and the cost of its results."""
        graph, cost = products.graph, products.cost
        costs = {k: cost[ref] for k in node.moving if isinstance(ref := node.operands[k], int)}
        most, sums = max(costs.values()), SLIGHT * (node.name in SUMS)
        if node.mark is not None and node.mark["kind"] == marks.ACTIVATION:
            root = _marked_pre_activation(graph, node)
            return Action("marked", root=root), _of_term(cost[root])
        flows = [k for k in node.moving if graph.is_float(node.operands[k])]
        if flows and all(map(graph.is_float, node.results)):
            if (capped := soft_capped(graph, node)) is not None:
                return Action("cap", root=capped), cost[capped] + FULL
            together = linear_operands(node.equation, node.moving) if node.equation else range(1, len(node.operands))
            if set(node.moving) <= set(together or ()):
                return Action("linear", node.moving), most + sums
            if (root_found := root_of(graph, node.results[0], cost)) is not None:
                if (k := multiplied_by_ratio(graph, node, root_found)) is not None:
                    return Action("linear", (k,)), cost[root_found] + FULL
                return Action("term", root=root_found), _of_term(cost[root_found])
            if LINEAR.get(node.name) == ONE:
                flowing: tuple[int, ...] = (self._factor(node, products, flows),)
            else:
                flowing = tuple(k for k in flows if k in (together or ()))
            if flowing:
                held = [node.operands[k] for k in node.moving if k not in flowing]
                scaled = node.name not in SUMS and not any(map(products.features, held))
                return Action("linear", flowing), max(costs[k] for k in flowing) + (SLIGHT if scaled else FULL) + sums
        if node.name in CHOOSES and tuple(flows) == node.moving:
            return Action("choice", node.moving), most + FULL
        return Action("whole"), most + FAR

    def _factor(self, node: Node, products: Products, flows: list[int]) -> int:
        """Return the factor of a product that flows."""
        assert node.equation is not None
        line = source_line(node.equation) or "an unknown line"
        chosen, rule = products.choose(node, flows)
        if line in self.prefer and self.prefer[line] in flows:
            chosen, rule = self.prefer[line], "preferred by the caller"
        if len(flows) > 1:
            self.decisions[node] = Decision(line, node.name, chosen, rule)
        return chosen


def _of_term(pre_activation: float) -> float:
    """Return the cost of a term, without the slight costs inside of it."""
    return math.floor(pre_activation) + FULL + pre_activation % 1


def _anchor(node: Node, products: Products) -> int:
    """Return the value of which the results are linear images, up to scales; else the first result itself."""
    held = [node.operands[k] for k in node.moving if k not in node.action.flowing]
    if node.action.kind == "linear" and not any(map(products.features, held)) and not (held and node.name in SUMS):
        anchors = {products.anchor[ref] for k in node.action.flowing if isinstance(ref := node.operands[k], int)}
        if len(anchors) == 1:
            return anchors.pop()
    return node.results[0]


def _marked_pre_activation(graph: ProgramGraph, activation: Node) -> int:
    """Return the value that the user marked as the pre-activation of an activation."""
    for node in reversed(graph.nodes[: graph.nodes.index(activation)]):
        if node.mark is not None and node.mark == {**(activation.mark or {}), "kind": marks.PRE_ACTIVATION}:
            return node.results[0]
    raise AssertionError("an activation is marked together with its pre-activation")


def _demand(plan: MarkingPlan, results: Iterable[Ref]) -> None:
    """Follow what has to flow to some results, and mark the operations on its way."""
    graph, waiting = plan.graph, list(results)
    while waiting:
        v = waiting.pop()
        if not isinstance(v, int) or not graph.moves(v) or not graph.is_float(v) or v in plan.flowing:
            continue
        plan.flowing.add(v)
        node = graph.producer.get(v)
        if node is None:
            continue
        match node.action.kind:
            case "linear":
                for k in set(node.moving).difference(node.action.flowing):
                    plan.held[node, k] = _name_of_held(graph, node, k)
                plan.offsets |= {(node, k) for k in _biases(graph, node)}
                waiting += [node.operands[k] for k in node.action.flowing]
            case "term":
                plan.terms[v] = node.action.root
                waiting.append(node.action.root)
            case "cap":
                plan.caps[v] = node.action.root
                waiting.append(node.action.root)
            case "marked":
                waiting.append(node.action.root)
            case "choice":
                plan.offsets |= {(node, k) for k in _biases(graph, node)}
                waiting += node.moving_operands()
            case "body":
                waiting += _demand_in_body(plan, node, v)
            case _:
                plan.whole.add(v)


def _demand_in_body(plan: MarkingPlan, node: Node, v: int) -> list[Ref]:
    """Follow one result of a loop or a region into its body, and return the operands that have to flow."""
    assert node.body is not None
    (first, carries), k, body = node.carries, node.results.index(v), node.body
    inner = plan.bodies.setdefault(node, MarkingPlan(body))
    _demand(inner, [body.results[k]])
    before = -1
    while before != len(inner.flowing):
        before = len(inner.flowing)
        flowing = [j for j in range(carries) if body.arguments[first + j] in inner.flowing]
        _demand(inner, [body.results[j] for j in flowing])
    if (carry := layered_carry(plan.graph, node, inner.flowing, inner.terms)) is not None:
        plan.layers[node] = carry
    carried = [node.operands[first + k]] if k < carries else []
    return [ref for ref, inside in zip(node.operands, body.arguments, strict=True) if inside in inner.flowing] + carried


def _biases(graph: ProgramGraph, node: Node) -> list[int]:
    """Return the operands of an operation that are biases: constants that are added to, or stand beside, what flows."""
    if node.name in SUMS_OF_TWO:
        return [k for k, ref in enumerate(node.operands) if k not in node.moving and _is_bias(graph, ref)]
    if node.name in JOINS | CHOOSES:
        constants = [k for k in range(node.name == "select_n", len(node.operands)) if k not in node.moving]
        return [k for k in constants if _is_bias(graph, node.operands[k]) and _is_finite(graph, node.operands[k])]
    return []


def _is_bias(graph: ProgramGraph, ref: Ref) -> bool:
    """Return whether a constant may be nonzero, and isn't marked by the user."""
    if not graph.is_float(ref) or graph.is_zero(ref):
        return False
    return not any(node.mark is not None and node.mark["kind"] == marks.OFFSET for node in graph.ancestors(ref))


def _is_finite(graph: ProgramGraph, ref: Ref) -> bool:
    """Return whether a constant may be finite; one that isn't is never chosen by `where`."""
    entries = graph.constant(ref)
    return entries is None or bool(np.isfinite(entries).all())


def _name_of_held(graph: ProgramGraph, node: Node, k: int) -> str:
    """Return a name for an operand that is held."""
    ref = node.operands[k]
    if not graph.is_float(ref):
        return "choice"
    if node.name in SUMS:
        return "pattern"
    while isinstance(ref, int) and (made := graph.producer.get(ref)) is not None:
        if made.name in ("rsqrt", "sqrt"):
            return "scale"
        if made.name not in MOVES_NOTHING | {"add", "max", "mul", "div", "stop_gradient"} or len(made.moving) != 1:
            break
        (ref,) = made.moving_operands()
    return "scale" if node.name == "div" else "factor"
