"""Secants: the difference of a function's values at two inputs, split exactly."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from duat_jax.deprecation import renamed_fields
from duat_jax.errors import DuatError, UnsupportedProgram, warn_caller
from duat_jax.forms.cancellation import explains, rounding_of_difference
from duat_jax.forms.completeness import FAILS, Completeness, completeness_of, in_one_line
from duat_jax.forms.decomposition import require_flowing
from duat_jax.forms.two_inputs import alike
from duat_jax.transform import marks
from duat_jax.transform.compiled import compiled
from duat_jax.transform.double_precision import DoublePrecision, double
from duat_jax.transform.interpret import Seen
from duat_jax.transform.keys import Marked, Site
from duat_jax.transform.program import Program, trace
from duat_jax.transform.query import is_float
from duat_jax.transform.recording import KINDS, Dynamics
from duat_jax.transform.rounding import rounding_of
from duat_jax.transform.secant.changed_value import movement, part, unchanged
from duat_jax.transform.secant.difference import Movement, Sources, carry, distance_at
from duat_jax.transform.secant.plan import make_plan


@renamed_fields(jumps="discontinuities")
class Secant(NamedTuple):
    """The difference of a scalar function at two inputs: `f(x) − f(y) = ⟨D, x − y⟩ + Σ moved + Σ discontinuities`.

    Args:
        values: `f(x)` and `f(y)`.
        multiplier: `D`, in the argument's structure and shapes; zero for whole numbers.
        parts: `D (x − y)`, entry by entry.
        multipliers: `D` at every mark in `at`: a change there, times this, is the change of the result.
        changes: the value of each of these marks at `x` minus that at `y`.
        middles: the mean of both values.
        moved: the part of every dynamic parameter that was held at its midpoint, entry by entry.
        discontinuities: the part of every value that moved without a change of its own, by primitive and source line:
            a router's choice, an index, a mask.
        completeness: the sum of all parts against the difference.
        unrecognised: how far exponents moved between both inputs where something is divided by the sum of their
            exponentials, or its logarithm is taken, and isn't recognised as a softmax or its like, by primitive and
            source line; infinite where it isn't known.
    """

    values: tuple[Float[Array, "..."], Float[Array, "..."]]
    multiplier: Any
    parts: Any
    multipliers: Dynamics
    changes: Dynamics
    middles: Dynamics
    moved: Marked[Array]
    discontinuities: dict[str, Array]
    completeness: Completeness
    unrecognised: dict[str, Array]

    def __repr__(self) -> str:
        return in_one_line(self)

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings about the parts: a sentence for each `unrecognised` softmax."""
        return notes_of(self.unrecognised)

    @property
    def difference(self) -> Float[Array, "..."]:
        """`f(x) − f(y)`."""
        return self.completeness.value

    @property
    def contributions(self) -> Dynamics:
        """The part of every mark in `at`, entry by entry: its multiplier times its change."""
        return jax.tree.map(part, self.multipliers, self.changes)


NEAR = 1.0
"""A movement of exponents up to which all rules split nearly as that of softmax does."""


def notes_of(unrecognised: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sentence for each softmax that isn't recognised and whose exponents moved far."""
    return tuple(
        f"{place}: a sum of exponentials is inverted in a way that isn't recognised as softmax, and exponents moved by"
        f" up to {float(np.max(far)):.3g}: parts sum to the difference, but single ones may be far from those of"
        " jax.nn.softmax; write it with jax.nn.softmax, jax.nn.log_softmax or jax.nn.logsumexp"
        for place, far in unrecognised.items()
        if not np.max(far) <= NEAR
    )


def secant(
    fn: Callable[[Any], Float[Array, ""]], *, at: str | Iterable[str] = (), held: bool | str | Iterable[str] = ()
) -> Callable[[Any, Any], Secant]:
    """Transform a scalar function into one that splits the difference of its values at two inputs exactly.

    Every product is replaced by its values at the midpoint, `Δ(a b) = ā Δb + b̄ Δa`, every elementwise function by its
    slope between the two inputs, softmax by the logarithmic means of its probabilities. Then the difference of the
    results is one linear map of that of the inputs, `f(x) − f(y) = ⟨D, x − y⟩`, through attention, norms and gates.
    Discontinuities, such as a router's choice, are held, and where one differs it has a part of its own.  `D` depends
    on the program: two ways to write one function may split its difference differently.

    It needs no marks; where there are some, the difference can be read at each, and `secant(auto(fn), at="activation")`
    reads it at the neurons of a function that has none.  It composes with `jit` and `vmap`;
    a function that is asked more than once is compiled once for each shape, and under `jax.jit(secant(fn))` also traced
    once.  `f(x)` and `f(y)` are computed together, without a forward pass more, but operations of which a batch may
    compute something else than its members, such as random bits, are evaluated at each input by itself.

    Args:
        fn: a pure function of one pytree of arrays, returning a scalar.
        at: the kinds of mark at which multipliers and changes are wanted, such as `"stream"` or `"activation"`.
        held: the names of the dynamic parameters, marked with `hold`, that don't flow on but are held at their
            midpoint, such as `"attention.pattern"`; all of them if true.  Their contribution is `moved`.

    Returns:
        A function of two arguments of the same structure and shapes, returning the `Secant`.

    Raises:
        DuatError: if `fn` doesn't return one real scalar, if the arguments differ in structure, shape or dtype or are
            all whole numbers, or if there is no kind of mark or no held parameter of that name.
        UnsupportedProgram: naming every operation that isn't followed, and its source line.

    Example:
        >>> import jax.numpy as jnp
        >>> split = secant(lambda x: x[0] * jnp.exp(x[1]))(jnp.array([2.0, 1.0]), jnp.array([1.0, 0.0]))
        >>> [round(float(part), 4) for part in split.parts], round(float(split.difference), 4)
        ([1.8591, 2.5774], 4.4366)
        >>> split.completeness.verdict
        'holds'

    Source: the closed form of Wang & Li, Eq. 11, between two inputs; for elementwise functions it is the rescale rule
    of Shrikumar et al., "Learning Important Features Through Propagating Activation Differences", 2017, for products
    Shapley's value.
    """
    kinds = (at,) if isinstance(at, str) else tuple(at)
    valid = tuple(kind for kind in KINDS if kind != marks.OFFSET)
    if unknown := [kind for kind in kinds if kind not in valid]:
        raise DuatError(
            f"there are no marks of the kind {', '.join(map(repr, unknown))} that move: choose among {valid}"
        )
    names = names_of(held)

    def split(x: Any, y: Any) -> Secant:
        x, y = alike(x, y)
        require_flowing(jax.tree.leaves(x))
        return _secant(fn, kinds, names, x, y)

    return split


def names_of(held: Any) -> bool | tuple[str, ...]:
    """Return the names of the parameters held at their midpoint, or a truth value for all or none."""
    if isinstance(held, bool):
        return held
    names = (held,) if isinstance(held, str) else tuple(held) if isinstance(held, Iterable) else (held,)
    if not all(isinstance(name, str) for name in names):
        raise DuatError(f"held is {held!r}: give names of holds, such as 'attention.pattern', or True for all")
    return names


def _secant(fn: Callable, kinds: tuple[str, ...], names: bool | tuple[str, ...], x: Any, y: Any) -> Secant:
    if axes := jax.sharding.get_abstract_mesh().manual_axes:
        raise UnsupportedProgram(
            f"a secant inside of jax.shard_map (over {', '.join(map(str, axes))}) would be that of one shard: take it"
            " outside, of arrays that are sharded over the mesh"
        )
    program, constants = trace(fn, x)
    _require_scalar(program.jaxpr.outvars)
    holds = program.of_kind(marks.HOLD)
    if names is not True and names is not False and (unknown := set(names) - {site.key.name for site in holds}):
        existing = ", ".join(dict.fromkeys(site.key.name for site in holds)) or "none"
        raise DuatError(f"no held parameter is named {', '.join(sorted(unknown))}; existing names: {existing}")
    held = frozenset(s for s in holds if names is True or (names is not False and s.key.name in names))
    plan = make_plan(program, held)
    held = frozenset(site for site in held if site in plan.marks)
    wanted = frozenset(s for s in program.of_kind(*kinds) if s in plan.marks) | held
    if kinds and not program.of_kind(*kinds):
        warn_caller(
            f"the function has no mark of the kind {' or '.join(kinds)}, so that the difference has no parts there:"
            f" duat.secant(duat.auto(fn), at={kinds if len(kinds) > 1 else kinds[0]!r}) places marks"
        )

    xs, ys = (list(map(jnp.asarray, jax.tree.leaves(tree))) for tree in (x, y))
    split = _split(program, held, wanted, constants, xs, ys)
    marked = {s: split.multipliers[s] for s in program.of_kind(*kinds) if s in wanted}
    in_tree = jax.tree.structure(x)
    return Secant(
        (split.values[0], split.values[1]),
        jax.tree.unflatten(in_tree, split.on_argument),
        jax.tree.unflatten(in_tree, split.parts),
        _by_kind(marked),
        _by_kind({s: split.movements[s].change for s in marked}),
        _by_kind({s: split.movements[s].middle for s in marked}),
        Marked({s.key: part for s, part in sorted(split.moved.items())}),
        split.discontinuities,
        _judged(program, held, constants, xs, ys, split.completeness),
        split.unrecognised,
    )


def _judged(
    program: Program,
    held: frozenset[Site],
    constants: list[Any],
    xs: list[Array],
    ys: list[Array],
    completeness: Completeness,
) -> Completeness:
    """Return completeness, with the line at which the function cancels where this is why the sum is off."""
    if (
        any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((completeness, constants, xs, ys)))
        or completeness.verdict != FAILS
    ):
        return completeness
    if not np.isfinite(completeness.error):
        return completeness
    with jax.enable_x64(True):
        rounding = rounding_of_difference(program, constants, xs, ys)
        if not abs(float(completeness.error)) <= rounding.bound:
            return completeness
        arguments = [list(map(double, leaves)) for leaves in (xs, ys)]
        evaluation = DoublePrecision(program.jaxpr, constants)
        doubled, constants = trace(lambda leaves: evaluation(leaves, {})[0], arguments[0])
        kept = frozenset(site for site in doubled.of_kind(marks.HOLD) if site in held)
        in_double = _split(doubled, kept, frozenset(), constants, *arguments).completeness
        return (
            completeness._replace(cancels=rounding.line)
            if explains(rounding, completeness, in_double)
            else completeness
        )


class _SecantSplit(NamedTuple):
    values: Array
    on_argument: list[Array]
    parts: list[Array]
    multipliers: Seen
    movements: dict[Site, Movement]
    moved: Seen
    discontinuities: dict[str, Array]
    completeness: Completeness
    unrecognised: dict[str, Array]


@partial(compiled, static_argnames=("program", "held", "wanted"))
def _split(
    program: Program,
    held: frozenset[Site],
    wanted: frozenset[Site],
    constants: list[Any],
    xs: list[Array],
    ys: list[Array],
) -> _SecantSplit:
    plan = make_plan(program, held)
    (output,) = program.jaxpr.outvars
    dtype = jnp.result_type(output.aval)
    sources = Sources(
        {i: unchanged(leaf) for i, leaf in enumerate(xs) if is_float(leaf)},
        {s: jnp.zeros(plan.marks[s].shape, plan.marks[s].dtype) for s in wanted},
        {name: jnp.zeros((), dtype) for name in dict.fromkeys(chain(*plan.discontinuities.values()))},
    )
    change = partial(carry, program, plan, constants, xs, ys, held, wanted)
    _, transposed, (values, seen) = jax.vjp(change, sources, has_aux=True)
    (multipliers,) = transposed(jnp.ones((), dtype))
    nothing = [jnp.zeros(jnp.shape(leaf), dtype) for leaf in xs]
    on_argument = [multipliers.argument.get(i, zeros) for i, zeros in enumerate(nothing)]
    parts = [_part_of_leaf(*leaf) if is_float(leaf[1]) else leaf[0] for leaf in zip(on_argument, xs, ys, strict=True)]
    on_argument = [u.astype(leaf.dtype) if is_float(leaf) else u for u, leaf in zip(on_argument, xs, strict=True)]
    # In one order in every process, so that the compiled program is found in the cache on disk.
    contributions = {s: part(multipliers.marks[s], seen[s].change) for s in sorted(wanted)}
    moved = {s: contributions[s] for s in sorted(held)}
    summands = [*parts, *moved.values(), *multipliers.discontinuities.values()]
    rounding = rounding_of(program, provided=held, wanted=(), value=True)
    eps = [
        *rounding.arguments,
        *(rounding.at(program.place(site).path) for site in moved),
        *(
            max(rounding.at(path) for path, names in plan.discontinuities.items() if jump in names)
            for jump in multipliers.discontinuities
        ),
    ]
    completeness = completeness_of(
        values[0] - values[1],
        summands,
        [*summands, *values],
        [*eps, *[max(eps, default=0.0)] * 2],
        finite=list(contributions.values()),  # a multiplier that isn't finite makes its part or contribution NaN
    )
    unknown = jnp.array(jnp.inf)
    unrecognised = {
        name: jnp.stack([seen.get(distance_at(place), unknown).max() for place in sorted(places)]).max()
        for name, places in plan.unrecognised.items()
    }
    return _SecantSplit(
        values,
        on_argument,
        parts,
        multipliers.marks,
        {s: seen[s] for s in wanted},
        moved,
        multipliers.discontinuities,
        completeness,
        unrecognised,
    )


def _part_of_leaf(multiplier: Array, x: Array, y: Array) -> Array:
    """Return a multiplier times `x − y`, computed in the multiplier's dtype, in the argument's."""
    x, y, dtype = x.astype(multiplier.dtype), y.astype(multiplier.dtype), x.dtype
    moved = movement(x, y)
    beyond = jnp.isinf(moved) & jnp.isfinite(x) & jnp.isfinite(y)  # the difference leaves the dtype's range
    return jnp.where(beyond, 2 * (multiplier * (x / 2 - y / 2)), part(multiplier, moved)).astype(dtype)


def _require_scalar(outputs: list[Any]) -> None:
    shapes = [(v.aval.shape, str(v.aval.dtype)) for v in outputs]
    if len(shapes) != 1 or shapes[0][0] != () or not jnp.issubdtype(outputs[0].aval.dtype, jnp.floating):
        raise DuatError(
            f"the function returns {shapes}, but the difference of one real scalar is split: return one number, and map"
            " over several with jax.lax.map"
        )


def _by_kind(values: dict[Site, Array]) -> Dynamics:
    return Dynamics(*(Marked({s.key: value for s, value in values.items() if s.kind == kind}) for kind in KINDS))
