"""Products of two factors that move: which of them flows, and by which rule; the other one is held."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from duat_jax.marking.axes import Axes
from duat_jax.marking.bounds import SAME, bounds
from duat_jax.marking.graph import MOVES_NOTHING, Node, ProgramGraph, Ref
from duat_jax.marking.regions import FAR, region
from duat_jax.transform.primitives import ELEMENTWISE

SUMS = frozenset(("dot_general", "conv_general_dilated", "ragged_dot_general"))
"""Products that also sum."""
COMBINED = frozenset(("mul", "concatenate", "select_n", "min", "max"))
"""Operations on gates that make a gate."""
TIE = "a tie: the first factor"


class FactorKind(NamedTuple):
    """The kind of a factor, seen through operations that only move or scale it.

    Args:
        kind: `"gate"`: between 0 and a constant, or divided by its own sum; another `"activation"`; or neither, `""`.
        root: the pre-activation, or -1.
        least: a lower bound.
    """

    kind: str
    root: int = -1
    least: float = -math.inf


NEITHER = FactorKind("")


@dataclass(eq=False)
class Products:
    """The choice of the factor that flows, in one graph whose earlier operations have their actions.

    Args:
        graph: the graph.
        axes: the labels of its axes.
        cost: how far values are from being affine in the argument.
        anchor: of every value the one of which it is a linear image, up to scales.
    """

    graph: ProgramGraph
    axes: Axes
    cost: dict[int, float]
    anchor: dict[int, int]

    def features(self, ref: Ref) -> frozenset[int]:
        """Return the features of a value that live on."""
        return self.axes.features(self.graph.labels.get(ref, ()) if isinstance(ref, int) else ())

    def choose(self, node: Node, options: Sequence[int]) -> tuple[int, str]:
        """Return the operand that flows, and the rule by which it was chosen."""
        values = {k: ref for k, ref in enumerate(node.operands) if isinstance(ref, int)}
        if len(options) == 2:
            rules: dict[str, Callable[[Node, int, int], bool]] = {
                "the other factor can't flow": self._alone_can_flow,
                "its features live on": self._features_live_on,
                "the other factor is computed from it": self._makes_the_other,
                "an activation with a sign, the other one has none": self._is_the_signed_one,
                "the other factor is a gate": self._has_a_gate,
                "an activation and its factor come from one value": self._shares_its_input,
                "the other factor is an activation of something else": self._has_another_activation,
            }
            for rule, holds in rules.items():
                for flows, other in (options, options[::-1]):
                    if holds(node, values[flows], values[other]):
                        return flows, rule
        costs = [self.cost[values[k]] for k in options]
        tie = len(options) > 1 and costs.count(min(costs)) > 1
        return options[costs.index(min(costs))], TIE if tie else "fewest marks"

    def _alone_can_flow(self, node: Node, flows: int, other: int) -> bool:
        return self.cost[flows] < FAR <= self.cost[other]

    def _features_live_on(self, node: Node, flows: int, other: int) -> bool:
        return self.features(flows) > self.features(other)

    def _makes_the_other(self, node: Node, flows: int, other: int) -> bool:
        while (made := self.graph.producer.get(flows)) is not None and made.name in SAME and len(made.moving) == 1:
            (flows,) = made.moving_operands()
        return flows != other and any(flows in n.operands for n in self.graph.ancestors(other, after=flows))

    def _is_the_signed_one(self, node: Node, flows: int, other: int) -> bool:
        factors = self.factor(flows), self.factor(other)
        return all(factor.kind == "activation" for factor in factors) and factors[0].least < 0 <= factors[1].least

    def _has_a_gate(self, node: Node, flows: int, other: int) -> bool:
        return self.factor(other).kind == "gate" != self.factor(flows).kind

    def _shares_its_input(self, node: Node, flows: int, other: int) -> bool:
        """SwiGLU: gate and factor are linear images of one value, so the neuron flows."""
        activation = self.factor(flows)
        together = activation.kind == "activation" and self.factor(other) is NEITHER
        return together and node.name not in SUMS and self.anchor[activation.root] == self.anchor[other]

    def _has_another_activation(self, node: Node, flows: int, other: int) -> bool:
        return self.factor(other).kind == "activation" and self.factor(flows) is NEITHER

    def factor(self, ref: Ref) -> FactorKind:
        """Return the kind of a factor."""
        graph = self.graph
        while isinstance(ref, int) and (node := graph.producer.get(ref)) is not None and graph.moves(ref):
            action = node.action
            if action.kind == "term":
                least, most = bounds(graph, ref, action.root, region(graph, ref, action.root))
                return FactorKind("gate" if least >= 0 and most < math.inf else "activation", action.root, least)
            flowing = [node.operands[k] for k in node.moving if graph.is_float(node.operands[k])]
            if node.name in COMBINED and len(flowing) > 1 and action.kind == "linear":
                factors = [self.factor(part) for part in flowing]
                return factors[0] if all(factor.kind == "gate" for factor in factors) else NEITHER
            if action.kind != "linear" or len(action.flowing) != 1:
                break
            ref = node.operands[action.flowing[0]]
            if node.name == "div" and 1 in node.moving and _is_sum_of(graph, node.operands[1], ref):
                return FactorKind("gate")
            if len(flowing) > 1 or node.name not in ELEMENTWISE | MOVES_NOTHING:
                break
        return NEITHER


def _is_sum_of(graph: ProgramGraph, ref: Ref, summand: Ref) -> bool:
    """Return whether a divisor is the sum of what it divides, up to shape and a constant that guards against zero."""
    while isinstance(ref, int) and (node := graph.producer.get(ref)) is not None and len(node.moving) == 1:
        if node.name == "reduce_sum":
            return node.operands[0] == summand
        if node.name not in MOVES_NOTHING | {"stop_gradient", "add", "max"}:
            break
        (ref,) = node.moving_operands()
    return False
