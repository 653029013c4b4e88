"""The patterns by which heads mix: the held factor of a product that sums."""

from typing import Any, NamedTuple

from duat_jax.transform import marks
from duat_jax.transform.calls import sub_program
from duat_jax.transform.keys import Site
from duat_jax.transform.parameters import contraction_of
from duat_jax.transform.program import Program


class HeldFactor(NamedTuple):
    """The held factor of a product that sums.

    Args:
        site: the mark that holds it.
        summed: its axes over which is summed.
        kept: of every axis of the product, the factor's axis that it is; none where it is the other factor's.
    """

    site: Site
    summed: tuple[int, ...]
    kept: tuple[int | None, ...]


def held_factor(program: Program, product: Site) -> HeldFactor | None:
    """Return the held factor of a marked product, if it is one of two arrays."""
    *outside, last = program.place(product).path
    jaxpr: Any = program.jaxpr
    for equation in outside:
        jaxpr = sub_program(jaxpr.eqns[equation]).jaxpr  # type: ignore[union-attr]
    made = {v: i for i, equation in enumerate(jaxpr.eqns) for v in equation.outvars}
    before = made.get(jaxpr.eqns[last].invars[0])
    if before is None or jaxpr.eqns[before].primitive.name != "dot_general":
        return None
    multiply = jaxpr.eqns[before]
    summed, mapped = contraction_of(multiply)
    free = [
        [axis for axis in range(v.aval.ndim) if axis not in (*summed[side], *mapped[side])]
        for side, v in enumerate(multiply.invars)
    ]
    for side, v in enumerate(multiply.invars):
        site = program.sites.get((*outside, made.get(v, -1)))
        if site is not None and site.kind == marks.HOLD:
            own = [[*axes] if other == side else [None] * len(axes) for other, axes in enumerate(free)]
            return HeldFactor(site, tuple(summed[side]), (*mapped[side], *own[0], *own[1]))
    return None
