"""A program written out as a graph: calls are entered, and an operation on the same values stands once."""

from collections.abc import Sequence
from typing import Any

from jax.extend import core

from duat_jax.marking.factors import Factor, Product, regrouped
from duat_jax.marking.graph import Node, ProgramGraph, Ref
from duat_jax.transform.calls import RECOMPUTED, SubProgram, called_name_of, programs_in, sub_program
from duat_jax.transform.identities import mark_p
from duat_jax.transform.parameters import scopes_of, settings_of


class _Writer:
    """Writes a program and all that it calls into a graph."""

    def __init__(self, graph: ProgramGraph) -> None:
        self.graph = graph
        self.written: dict[Any, Sequence[Ref]] = {}
        self.branches: tuple[tuple[Ref, int, int], ...] = ()

    def new(self, variables: Sequence[Any]) -> list[int]:
        first = len(self.graph.avals)
        self.graph.avals += [v.aval for v in variables]
        return list(range(first, len(self.graph.avals)))

    def closed_over(self, program: SubProgram) -> list[int]:
        values = self.new(program.jaxpr.constvars)
        self.graph.known |= dict(zip(values, program.consts, strict=True))
        return values

    def add(self, node: Node) -> list[int]:
        node.branches = self.branches
        self.graph.nodes.append(node)
        self.graph.producer |= dict.fromkeys(node.results, node)
        return node.results

    def program(
        self, program: SubProgram, arguments: Sequence[Ref], scopes: tuple[str, ...], calls: tuple[str, ...]
    ) -> list[Ref]:
        jaxpr = program.jaxpr
        values: dict[Any, Ref] = dict(zip(jaxpr.constvars, self.closed_over(program), strict=True))
        values |= zip(jaxpr.invars, arguments, strict=True)

        def read(atom: Any) -> Ref:
            return atom if isinstance(atom, core.Literal) else values[atom]

        for equation in jaxpr.eqns:
            operands = [read(atom) for atom in equation.invars]
            values |= zip(equation.outvars, self.equation(equation, operands, scopes, calls), strict=True)
        return [read(atom) for atom in jaxpr.outvars]

    def equation(
        self, equation: core.JaxprEqn, operands: list[Ref], scopes: tuple[str, ...], calls: tuple[str, ...]
    ) -> Sequence[Ref]:
        # `jnp.einsum` opens a scope that is its specification, torchax one for every operation of PyTorch.
        name, around = (
            equation.primitive.name,
            (*scopes, *(s for s in scopes_of(equation) if "->" not in s and "::" not in s)),
        )
        inner = sub_program(equation)
        if inner is not None and (name == "scan" or name in RECOMPUTED):
            body = written_out(inner)
            return self.add(Node(equation, operands, self.new(equation.outvars), around, calls, body))
        if inner is not None:
            called = called_name_of(equation)
            return self.program(inner, operands, around, (*calls, called) if called else calls)
        if name == "cond" and not _repeats_or_acts(equation):
            programs, outside, branches = programs_in(equation), self.branches, []
            for k, branch in enumerate(programs):
                self.branches = (*outside, (operands[0], k, len(programs)))
                branches.append(self.program(branch, operands[1:], around, calls))
            self.branches = outside
            return [
                self.add(Node(None, [operands[0], *results], self.new([v]), around, calls))[0]
                for v, *results in zip(equation.outvars, *branches, strict=True)
            ]
        if (product := regrouped(self.graph, equation, operands)) is not None:
            return [self.product(product, around, calls)]
        return self.once(equation, operands, around, calls)

    def product(self, product: Product, scopes: tuple[str, ...], calls: tuple[str, ...]) -> Ref:
        def multiply(factors: list[Factor]) -> Ref:
            result = factors[0].ref
            for factor in factors[1:]:
                equation = product.equations["div" if factor.divides else "mul"]
                (result,) = self.once(equation, [result, factor.ref], scopes, calls)
            return result

        return multiply([group[0]._replace(ref=multiply(group)) for group in product.groups])

    def once(
        self, equation: core.JaxprEqn, operands: list[Ref], scopes: tuple[str, ...], calls: tuple[str, ...]
    ) -> Sequence[Ref]:
        key = self.key(equation, operands)
        if key is None or key not in self.written:
            results = self.add(Node(equation, operands, self.new(equation.outvars), scopes, calls))
            if key is None:
                return results
            self.written[key] = results
        return self.written[key]

    def key(self, equation: core.JaxprEqn, operands: list[Ref]) -> Any:
        """Return what equal operations share, so that `where(x @ w > 0, x @ w, 0)` reads one value twice."""
        if equation.primitive is mark_p or equation.effects or equation.primitive.multiple_results:
            return None
        read = [(str(ref),) if isinstance(ref, int) else (str(ref.val), str(ref.aval)) for ref in operands]
        if equation.primitive.name in ("mul", "add"):
            read.sort()
        return equation.primitive.name, settings_of(equation), tuple(read), tuple(map(str, self.branches))


def _repeats_or_acts(equation: core.JaxprEqn) -> bool:
    """Return whether an operation has effects, or runs a `while`, which has an end only where it is meant to run."""
    inside = (inner for program in programs_in(equation) for inner in program.jaxpr.eqns)
    return bool(equation.effects) or equation.primitive.name == "while" or any(map(_repeats_or_acts, inside))


def written_out(program: SubProgram) -> ProgramGraph:
    """Return a program as a graph; scans and rematerialised regions keep a graph of their own."""
    graph = ProgramGraph()
    writer = _Writer(graph)
    graph.arguments = writer.new(program.jaxpr.invars)
    graph.results = writer.program(program, graph.arguments, (), ())
    return graph
