"""The check that a replayed function is affine, on its program, before anything is computed.

Every value gets two flags: does it *flow*, that is, depend on the input, a term or an offset; and can it be nonzero
when everything that flows is zero.  An equation that isn't linear in what flows through it is reported with its source
line.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from duat_jax import marks
from duat_jax.errors import NotAffine
from duat_jax.program import Live, Path, Program, Question, pre_activation, sub_program


class Flow(NamedTuple):
    """Whether a value flows, and whether it may be nonzero when everything that flows is zero."""

    flows: bool
    constant: bool


ZERO, CONSTANT, LINEAR = Flow(False, False), Flow(False, True), Flow(True, False)

LINEAR_IN_ALL = frozenset(
    (
        *("add", "add_any", "sub", "neg", "reduce_sum", "cumsum", "reduce_window_sum", "psum", "convert_element_type"),
        *(
            "broadcast_in_dim",
            "reshape",
            "transpose",
            "squeeze",
            "expand_dims",
            "concatenate",
            "slice",
            "split",
            "rev",
            "tile",
        ),
        *("pad", "fft", "copy", "copy_p", "name", "reduce_precision", "real", "imag", "optimization_barrier"),
        *("sharding_constraint", "device_put", "pvary", "all_gather", "ppermute"),
    )
)
LINEAR_IN_FIRST = frozenset(("gather", "dynamic_slice", "div"))
LINEAR_IN_ONE = frozenset(("mul", "dot_general", "conv_general_dilated"))
LINEAR_IN = {
    "dynamic_update_slice": (0, 1),
    "scatter-add": (0, 2),
    "scatter": (0, 2),
    "scatter-mul": (0,),
    "triangular_solve": (1,),
}
"""Primitives that are linear in some of their operands together, and which."""

MISSING_MARK = {
    **dict.fromkeys(
        ("exp", "exp2", "reduce_max", "max", "argmax"),
        "mark the attention pattern with hold(pattern, name), or an activation with term(activation, z, name)",
    ),
    **dict.fromkeys(
        ("rsqrt", "sqrt", "integer_pow", "square", "pow"),
        "mark a normalisation's scale with hold(scale, name), or an activation with term(activation, z, name)",
    ),
    **dict.fromkeys(
        ("tanh", "logistic", "erf", "erfc", "log1p", "sin", "cos"),
        "mark the activation with term(activation, z, name)",
    ),
    **dict.fromkeys(
        ("mul", "dot_general", "div"),
        "mark the factor that is a dynamic parameter (a pattern, gate or scale) with hold(factor, name)",
    ),
    **dict.fromkeys(("while", "cond"), "use lax.scan, or a Python loop or branch, on what flows"),
    "stop_gradient": "leave it out, or mark what it stops as a dynamic parameter with hold(x, name)",
}


@dataclass
class Flows:
    """What the check found out.

    Args:
        operands: of every needed scan, which of its body's inputs flow.
        results: of every needed scan, which of its results flow.
        constant: whether the answer may be nonzero where everything that flows is zero: something has no mark.
    """

    operands: dict[Path, tuple[bool, ...]] = field(default_factory=dict)
    results: dict[Path, tuple[bool, ...]] = field(default_factory=dict)
    constant: bool = False


def is_float(variable: core.Var) -> bool:
    """Return whether a variable holds floating-point numbers.

    Args:
        variable: any variable.
    """
    return jnp.issubdtype(cast(Any, variable.aval).dtype, jnp.inexact)


def source_line(equation: core.JaxprEqn) -> str | None:
    """Return `file:line (function)` of the user's code that an equation comes from, if it is known.

    Args:
        equation: any equation.
    """
    own = (os.path.dirname(jax.__file__), os.path.dirname(os.path.abspath(marks.__file__)) + os.sep + "marks.py")
    traceback = equation.source_info.traceback
    frames: Any = traceback.frames if traceback else ()
    for frame in frames:
        if not frame.file_name.startswith(own):
            return f"{frame.file_name}:{frame.line_num} ({frame.function_name.rpartition('.')[2]})"
    return None


def check(program: Program, question: Question, live: Live) -> Flows:
    """Prove that a program is affine in its input and in the linear marks, or say where it isn't.

    Args:
        program: the traced function.
        question: what is given; its `linear` marks and the function's argument are what flows.
        live: the equations it needs, from `liveness`.

    Returns:
        Which scans carry what flows, and whether something has no mark.

    Raises:
        NotAffine: naming every offending operation, its source line and the mark that is missing.
    """
    return _Check(program, question, live).run()


class _Check:
    def __init__(self, program: Program, question: Question, live: Live) -> None:
        self.program, self.question, self.live = program, question, live
        self.found = Flows()
        self.offences: dict[tuple[str, str], str] = {}

    def run(self) -> Flows:
        jaxpr = self.program.jaxpr
        results = self.visit(jaxpr, (), [LINEAR if is_float(v) else CONSTANT for v in jaxpr.invars], "an unknown line")
        self.found.constant = self.question.value and any(result.constant for result in results)
        if self.offences:
            lines = [
                f"{line}: {name} isn't linear in what flows through it; {fix}"
                for (line, name), fix in self.offences.items()
            ]
            raise NotAffine("the replayed function isn't affine:\n  " + "\n  ".join(lines))
        return self.found

    def visit(self, jaxpr: core.Jaxpr, path: Path, arguments: list[Flow], line: str) -> list[Flow]:
        flow: dict[Any, Flow] = dict.fromkeys(jaxpr.constvars, CONSTANT)
        flow |= dict(zip(jaxpr.invars, arguments, strict=True))

        def read(atom: Any) -> Flow:
            if isinstance(atom, core.Literal):
                return CONSTANT if np.any(np.asarray(atom.val)) else ZERO
            return flow.get(atom, CONSTANT)

        for i, equation in enumerate(jaxpr.eqns):
            here = (*path, i)
            if here not in self.live:
                continue
            operands = [read(v) for v in equation.invars]
            site, inner = self.program.sites.get(here), sub_program(equation)
            # Inside a function that the library has jitted, the user's line is that of the call.
            own_line = source_line(equation) or line
            if site is not None and self.question.linearises(site):
                slope_of = flow[pre_activation(self.program, jaxpr, path, site.key)]
                results = [Flow(True, slope_of.constant)]
            elif site is not None and site in self.question.given:
                results = [LINEAR if site in self.question.linear else CONSTANT]
            elif inner is None:
                results = [self.apply(equation, operands, own_line)] * len(equation.outvars)
            elif equation.primitive.name == "scan":
                results = self.scan(equation, inner.jaxpr, here, operands, own_line)
            else:
                results = self.visit(inner.jaxpr, here, operands, own_line)
            flow |= dict(zip(equation.outvars, results, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def scan(
        self, equation: core.JaxprEqn, body: core.Jaxpr, here: Path, operands: list[Flow], line: str
    ) -> list[Flow]:
        first, carries = equation.params["num_consts"], equation.params["num_carry"]
        while True:
            results = self.visit(body, here, operands, line)
            joined = [Flow(*map(max, zip(operands[first + c], results[c], strict=True))) for c in range(carries)]
            if joined == operands[first : first + carries]:
                break
            operands = [*operands[:first], *joined, *operands[first + carries :]]
        self.found.operands[here] = tuple(o.flows for o in operands)
        self.found.results[here] = tuple(r.flows for r in results)
        return results

    def apply(self, equation: core.JaxprEqn, operands: list[Flow], line: str) -> Flow:
        name = equation.primitive.name
        flowing = [k for k, operand in enumerate(operands) if operand.flows]
        constant = any(operand.constant for operand in operands)
        if not flowing:
            return Flow(False, constant or not self.keeps_zero(name))
        together: Sequence[int]
        if name in LINEAR_IN_ALL:
            together = range(len(operands))
        elif name in LINEAR_IN_FIRST:
            together = (0,)
        elif name in LINEAR_IN_ONE:
            together = (flowing[0],)
        elif name == "select_n":
            together = range(1, len(operands))
        else:
            together = LINEAR_IN.get(name, ())
        if not set(flowing) <= set(together) or not all(map(is_float, equation.outvars)):
            fix = MISSING_MARK.get(name, "hold what is a dynamic parameter, or make it a term")
            self.offences[line, name] = fix
            # As if it were held, so that what follows from it isn't reported too.
            return CONSTANT
        return Flow(True, any(operands[k].constant for k in together))

    @staticmethod
    def keeps_zero(name: str) -> bool:
        return name in LINEAR_IN_ALL | LINEAR_IN_FIRST | LINEAR_IN_ONE | {"select_n"}
