"""JAX primitives of this package, both the identity: the mark, and a fence against fusion."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.extend import core
from jax.interpreters import ad, batching, mlir

from duat_jax.transform.calls import programs_in

mark_p = core.Primitive("duat_mark")
"""The identity with a role: `kind`, `name`, and the number of the value's leading axes from `vmap`."""


def _batch_of_marks(operands: Sequence[Any], axes: Sequence[int], *, batch_axes: int, **role: str) -> tuple[Any, int]:
    # The batch axis is put first, so that the marked value's own axes stay the last ones.
    return mark_p.bind(jnp.moveaxis(operands[0], axes[0], 0), batch_axes=batch_axes + 1, **role), 0


mark_p.def_impl(lambda x, **_: x)
mark_p.def_abstract_eval(lambda x, **_: x)
ad.primitive_jvps[mark_p] = lambda primals, tangents, **role: (mark_p.bind(primals[0], **role), tangents[0])
batching.primitive_batchers[mark_p] = _batch_of_marks
mlir.register_lowering(mark_p, lambda _, x, **__: [x])


def bind_mark(x: Any, kind: str, name: str) -> Any:
    """Return an array with a mark."""
    return mark_p.bind(jnp.asarray(x), kind=kind, name=name, batch_axes=0)


def is_marked(equation: core.JaxprEqn) -> bool:
    """Return whether an equation is a mark, or runs a program with one."""
    inside = (inner for program in programs_in(equation) for inner in program.jaxpr.eqns)
    return equation.primitive is mark_p or any(map(is_marked, inside))


fence_p = core.Primitive("duat_fence")
"""The identity, across which the compiler for CPUs doesn't fuse.

Without it the running sum of a residual stream is fused, ever longer, into every later layer: compile time grows like
the square of depth.
"""


def _not_fused(x: Any) -> Any:
    never = lax.optimization_barrier(jnp.zeros((), bool))
    return lax.while_loop(lambda state: state[0], lambda state: (state[0], -state[1]), (never, x))[1]


fence_p.def_impl(lambda x: x)
fence_p.def_abstract_eval(lambda x: x)
ad.deflinear2(fence_p, lambda cotangent, _: [fence_p.bind(cotangent)])
batching.defvectorized(fence_p)
mlir.register_lowering(fence_p, lambda _, x: [x])
mlir.register_lowering(fence_p, mlir.lower_fun(_not_fused, multiple_results=False), platform="cpu")
