"""Take relations between a layer's parameters as hypotheses: for every layer, and at both of two inputs."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sympy import MatrixExpr, Symbol

from symbolic.blocks.layer import of_layer
from symbolic.equality.definition import Definition
from symbolic.errors import SymbolicError
from symbolic.expressions.parameter import Ones, Parameter
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import Step, equality, equations
from symbolic.theorems.difference import at_other_input
from symbolic.theorems.residual_stack import ResidualStack, i


def relations_of_layer(
    relations: Any, expression: MatrixExpr, x: Parameter, shared: tuple[str, ...]
) -> tuple[Definition, ...]:
    """Return relations between a layer's letters as relations between the parameters of every layer `i + 1`."""
    letters = expression.atoms(Parameter) - {x}
    of_every_layer = []
    for relation in relations:
        if not isinstance(relation, Definition) or not relation.is_relation:
            raise SymbolicError(f"{relation!r} is no relation: give Definition(Q.T * Q, identity(M)), say")
        left, right = relation.left, relation.right
        if unknown := sorted(map(str, (left + right).atoms(Parameter) - letters - (left + right).atoms(Ones))):
            raise SymbolicError(f"{left} = {right} relates {', '.join(unknown)}, no parameter of the layer")
        left, right = (of_layer(side, shared, ()) for side in (left, right))
        of_every_layer.append(Definition(left, right, (i, *relation.variables), relation.where))
    return tuple(of_every_layer)


def at_sizes(relations: Iterable[Definition], numbers: Mapping[Symbol, Any]) -> tuple[Definition, ...]:
    """Return relations with numbers for symbols among their sizes."""
    return tuple(replace(r, left=r.left.xreplace(numbers), right=r.right.xreplace(numbers)) for r in relations)


def with_relations(derivation: Derivation, relations: Iterable[Definition]) -> Derivation:
    """Return a derivation with those relations among its premises that its steps used, at one input or at the other."""
    used = {equation for step in derivation.steps for equation in step.using}
    at_both = dict.fromkeys(each for relation in relations for each in (relation, at_other_input(relation)))
    assumed = (Step(*each, "Assumed of every layer", None) for each in equations(at_both) if each in used)
    return replace(derivation, premises=(*derivation.premises, *assumed))


def at_both_inputs(
    checked: Step, stack: ResidualStack, known: Iterable[Definition], relations: tuple[Definition, ...]
) -> tuple[Step, ...]:
    """Return the check that a layer is Eq. 20 and, where it may rest on relations, the same at the other input."""
    if not relations:
        return (checked,)
    there, using = at_other_input(stack.equation_20), map(at_other_input, (*known, *relations))
    return checked, equality(there.left, there.right, "and at the other input", using)
