"""Source lines of the user's code, and advice on operations that aren't linear."""

import os
import sysconfig
from collections.abc import Sequence
from typing import Any

import jax
from jax.extend import core

from duat_jax.transform.primitives import FOLLOWED, LINEAR, NONLINEAR, REFUSED

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LIBRARIES = tuple({*sysconfig.get_paths().values(), os.path.dirname(jax.__file__), _PACKAGE})
_FUNCTIONS_OF_NETWORKS = ("jax/_src/nn", "flax", "torchax/ops")


def source_line(equation: core.JaxprEqn) -> str | None:
    """Return `file:line (function)` of the user's code that an equation comes from, if it is known."""
    # The operation may sit in a library; then the line is the one that calls it.
    traceback = equation.source_info.traceback
    frames: Any = traceback.frames if traceback else ()
    for frame in frames:
        if not frame.file_name.startswith((*_LIBRARIES, "<frozen")):
            return f"{frame.file_name}:{frame.line_num} ({frame.function_name.rpartition('.')[2]})"
    return None


def library_function(equations: Sequence[core.JaxprEqn]) -> str | None:
    """Return the name of the innermost library's function in which all of some equations are written, if any."""
    stacks = []
    for equation in equations:
        traceback = equation.source_info.traceback
        frames: Any = traceback.frames if traceback else ()
        stacks.append([(frame.file_name, frame.function_name) for frame in reversed(frames)])
    common = [frames[0] for frames in zip(*stacks, strict=False) if len(set(frames)) == 1]
    names = [function for file, function in common if any(f"/{part}/" in file for part in _FUNCTIONS_OF_NETWORKS)]
    return names[-1].rpartition(".")[2].strip("_<>") if names else None


def is_of_a_library(jaxpr: core.Jaxpr) -> bool:
    """Return whether a program is a library's function."""
    # It is traced once for all its calls, so its source line is that of the first one.
    return str(getattr(jaxpr.debug_info, "func_filename", "")).startswith(_LIBRARIES)


def advice(equation: core.JaxprEqn) -> str:
    """Explain why an equation isn't linear in what flows through it, and how to mend it."""
    name = equation.primitive.name
    if name in REFUSED:
        return f"{name} isn't supported yet where something flows through it: {REFUSED[name]}"
    if name in NONLINEAR or name in LINEAR or name in FOLLOWED:
        fix = NONLINEAR.get(name, "hold the operand that is a dynamic parameter, or make it a term")
        return f"{name} isn't linear in what flows through it; {fix}"
    return (
        f"{name} isn't known to be linear in what flows through it; if it isn't, mark its result with hold(x, name) or"
        " the activation that it belongs to with term(activation, z, name); if it is, it isn't supported yet"
    )
