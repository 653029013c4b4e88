"""Completeness: the agreement of a sum of parts with the value that was split.

The rule, for a value with `n` parts `p_i` that are not zero, each with the coarsest eps of any value that it passes on
its own way to the result (`transform/rounding.py`):

    |Σ p_i − value| ≤ 4 · log₂(n + 4) · √(Σ (eps_i p_i)² + (eps value)²)

The root is at least the smallest normal number: what is below becomes zero, whatever its eps.

The parts `p_i` are all numbers that are rounded on the way to the sum: the parts at their finest, such as those of
single neurons, and the summands `u_k x_k` of a read-out `⟨u, x⟩`, which are rounded where the value is read.

It assumes that rounding errors are independent and of mean zero, so that they add like a root of a sum of squares, and
that each part is rounded as often as in a sum of `n` numbers taken in a tree.  On random stacks of 1 to 48 layers and
on two real models, 64 to 512 inputs each, the largest error was between a tenth and six tenths of the bound.  Where a
network cancels large numbers that no part shows, the rule is too strict, and completeness fails; the note of a model's
table then says that the value in double precision is nearer to the sum.  A secant's sum is then judged again in double
precision (`forms/cancellation.py`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from duat_jax.deprecation import renamed_fields
from duat_jax.errors import DuatError
from duat_jax.kinds import kept_as
from duat_jax.transform.parameters import is_sharded

HOLDS, FAILS, INCONCLUSIVE = "holds", "fails", "inconclusive"
FACTOR = 4
NOTHING = 1 / 8
"""A tolerance above this fraction of the largest part would let a wrong part pass."""
FEW = 2**14
"""The largest size of arrays that are copied into one."""


Truth = Bool[Array, "..."] | Bool[np.ndarray, "..."] | bool
"""Truth values of arrays, or the one of a number on the host, which needs no JAX."""

ALL_ZERO = "Every part is zero, and so is their sum: that it is the value doesn't test the parts."
ALL_LOST = (
    "The parts cancel: each is right to its own rounding, and the value is smaller than what rounding does to their"
    " sum, which says nothing of it."
)
REMEDY = (
    'Compute it in float64 (--dtype float64), in Python with duat.load(..., dtype="float64"), where rounding is'
    " smaller; a sum that fails there too has a wrong part."
)
"""Advice where rounding in a coarser dtype may be the cause; a command leaves out an option that it lacks."""


def in_one_line(result: Any, **more: Any) -> str:
    """Return a result in one line: its numbers, the shapes of its arrays, how many entries others have, the verdict."""

    def shown(value: Any) -> str:
        if isinstance(value, Completeness):
            known = not any(isinstance(part, Tracer) for part in jax.tree.leaves(value))
            return value.verdict if known else "not known in a trace"
        if isinstance(value, Mapping):
            return f"{len(value)} entries"
        if hasattr(value, "shape"):
            return str(list(value.shape)) if value.shape or isinstance(value, Tracer) else f"{float(value):.6g}"
        if type(value) is tuple:
            return f"({', '.join(map(shown, value))})"
        return type(value).__name__

    fields = ", ".join(f"{name}: {shown(value)}" for name, value in (result._asdict() | more).items())
    return f"{type(result).__name__}({fields})"


@kept_as("completeness")
@renamed_fields(says_something="conclusive")
class Completeness(NamedTuple):
    """The agreement of a sum of parts with the value that was split, entry by entry.

    Args:
        value: the result of the plain forward pass.
        sum: the sum of all parts.
        error: `sum − value`.
        tolerance: the bound on the error by rounding.
        largest: the size of the largest part.
        in_float64: the value in double precision, where it was computed because the sum is off.
        cancels: the operation and the line at which the function cancels by itself, where the sum is off by no more
            than the function's own rounding, and the parts sum in double precision.

    Of a model's result all of them are NumPy's numbers, of the dtype in which the value was computed, and truth values
    are Python's; inside a JAX program all are JAX's arrays.
    """

    value: Float[Array, "..."]
    sum: Float[Array, "..."]
    error: Float[Array, "..."]
    tolerance: Float[Array, "..."]
    largest: Float[Array, "..."]
    in_float64: float | None = None
    cancels: str | None = None

    @property
    def dtype(self) -> jnp.dtype:
        """The dtype of the value."""
        return self.value.dtype

    @property
    def within(self) -> Truth:
        """Truth values: the error is within the tolerance; false where either is infinite or NaN."""
        error = abs(self.error).astype(self.tolerance.dtype)
        return _truth((error <= self.tolerance) & (self.tolerance < np.inf))

    @property
    def conclusive(self) -> Truth:
        """Truth values: the tolerance is small relative to the largest part, so that a wrong part would show."""
        return _truth(self.tolerance <= NOTHING * self.largest)

    @property
    def holds(self) -> Truth:
        """Truth values: the parts sum to the value, within a tolerance that is small enough to be conclusive."""
        return self.within & self.conclusive

    @property
    def verdict(self) -> str:
        """`"fails"` if the error is anywhere beyond the tolerance, else `"inconclusive"` or `"holds"`.

        It is inconclusive too where the function cancels by itself and the parts sum in double precision.
        """
        try:
            within, conclusive = bool(np.all(self.within)), bool(np.all(self.conclusive))
        except jax.errors.TracerBoolConversionError:
            raise DuatError(
                "the verdict isn't known while the function is traced: return the completeness from jax.jit and read"
                " its verdict outside; inside, holds is an array of truth values"
            ) from None
        if not within:
            return FAILS if self.cancels is None else INCONCLUSIVE
        return HOLDS if conclusive else INCONCLUSIVE

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers, the verdict and the note, for JSON."""
        numbers = {name: float(getattr(self, name)) for name in ("sum", "error", "tolerance", "largest")}
        return numbers | {"verdict": self.verdict} | ({} if self.note is None else {"note": self.note})

    def against(self, value: Any) -> "Completeness":
        """Return the completeness of the same parts on the host, its error recomputed against another value.

        An error that is NaN stays NaN: a part without a place in the sum isn't finite.

        Args:
            value: that of the plain forward pass.
        """
        here = self.on_host()
        error: Any = np.where(np.isnan(here.error), here.error, here.sum - np.asarray(value))
        return here._replace(value=value, error=error).on_host()

    def of_parts(self, total: Any) -> "Completeness":
        """Return the same on the host if a sum of the parts agrees with it, and else the completeness of that sum.

        Args:
            total: the sum of the parts, such as of those that were read from a file.
        """
        number = self.value.dtype.type
        again = self._replace(sum=number(total), error=number(total - self.value))
        same_sum = abs(again.sum - self.sum) <= self.tolerance
        same_error = not abs(self.sum - self.value - self.error) > self.tolerance  # which may be NaN
        return self if same_sum and same_error and again.verdict in (self.verdict, HOLDS) else again

    def certified(self, model: Any, recompute: Callable[[Any], Float[Array, ""]]) -> "Completeness":
        """Return the same on the host, with the value in double precision if it fails.

        Args:
            model: the model that computed the value.
            recompute: computes the value by a model; called with the model in double precision, if at all.
        """
        here = self.on_host()
        if here.verdict != FAILS or here.dtype == jnp.float64:
            return here
        with jax.enable_x64(True):
            return here._replace(in_float64=float(recompute(in_double_precision(model))))

    def on_host(self) -> "Completeness":
        """Return the same with NumPy's numbers in place of JAX's arrays."""
        numbers: dict[str, Any] = {name: np.asarray(getattr(self, name))[()] for name in self._fields[:5]}
        return self._replace(**numbers)

    @property
    def note(self) -> str | None:
        """A note on the verdict: that all parts are zero or cancel, or why the sum doesn't hold, and a remedy."""
        if self.verdict == HOLDS:
            if not np.any(self.largest):
                return ALL_ZERO
            lost = np.any(self.value) and np.all(abs(self.value) < self.tolerance)
            return ALL_LOST if lost else None
        exact, reasons = self.in_float64, []
        if self.cancels is not None:
            reasons.append(
                f"The function cancels by itself: {self.cancels} leaves less than the rounding of its operands in"
                f" {self.dtype}; in double precision the parts sum to the difference."
            )
        elif exact is not None and abs(float(self.sum) - exact) < abs(float(self.value) - exact):
            reasons.append(
                f"The forward pass itself is ill-conditioned in {self.dtype}: in float64 its value is {exact:.7g},"
                " nearer to the sum of all parts than to the value."
            )
        if jnp.finfo(self.dtype).bits < 64:
            reasons.append(REMEDY)
        return " ".join(reasons) or None


def in_double_precision(model: Any) -> Any:
    """Return a model with its parameters in double precision."""
    return jax.tree.map(
        lambda leaf: leaf.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, model
    )


def _truth(values: Any) -> Truth:
    return bool(values) if isinstance(values, np.bool_) else values


def _eps(array: Array) -> float:
    return float(jnp.finfo(array.dtype).eps)


def _real_of(value: Array) -> jnp.dtype:
    # The range of float16 is too small for counts and squares.
    return jnp.dtype(jnp.float64 if jnp.finfo(value.dtype).bits > 32 else jnp.float32)


def _real(array: Array, value: Array) -> Array:
    # Signed numbers: compilers optimise them better than absolute values.
    return (jnp.abs(array) if jnp.iscomplexobj(array) else array).astype(_real_of(value))


def _largest(array: Array, value: Array) -> Array:
    return jnp.abs(_real(array, value)).max(initial=0)


def concatenated(arrays: Iterable[Array]) -> list[Array]:
    """Concatenate arrays of equal dtypes, so that fewer kernels are compiled."""
    few: dict[Any, list[Array]] = {}
    many: list[Array] = []
    for array in arrays:
        if array.size > FEW or is_sharded(array):
            many.append(array)
        else:
            few.setdefault(array.dtype, []).append(array.ravel())
    return [*many, *(jnp.concatenate(group) for group in few.values())]


def _gathered(scalars: Iterable[Array], dtype: Any) -> Array:
    # One array, reduced once: a chain of scalars is compiled again into everything that uses it.
    return jnp.stack([jnp.zeros((), dtype), *scalars])


class _Rounded(NamedTuple):
    """The rounded arrays: eps, largest absolute number, and `Σ (p / largest)²` of each."""

    eps: Array
    largest: Array
    squares: Array

    @classmethod
    def from_arrays(cls, arrays: Sequence[Array], eps: Sequence[float], value: Array) -> "_Rounded":
        dtype = _real_of(value)
        largest = [_largest(array, value) for array in arrays]
        # Squares of numbers scaled by the largest one neither overflow nor vanish.
        units = [1 / jnp.where(top < jnp.finfo(dtype).tiny, 1, top) for top in largest]
        scaled = [_real(array, value) * unit for array, unit in zip(arrays, units, strict=True)]
        squares = [(numbers * numbers).sum() for numbers in scaled]
        return cls(jnp.array([0.0, *eps], dtype), _gathered(largest, dtype), _gathered(squares, dtype))


def _completeness(value: Array, total: Array, largest: Array, rounded: _Rounded, count: Array) -> Completeness:
    """Compute completeness from the rounded arrays, or from estimates of them."""
    size, unit = jnp.abs(_real(value, value)), rounded.largest.max()
    scale = jnp.maximum(size, unit)
    scale = jnp.where(scale == 0, 1, scale)
    of_parts = (rounded.eps * rounded.largest / jnp.where(unit == 0, 1, unit)) ** 2 * rounded.squares
    squares = (_eps(value) * size / scale) ** 2 + of_parts.sum() * (unit / scale) ** 2
    smallest = jnp.where(unit > 0, jnp.finfo(size.dtype).tiny, 0)
    tolerance = FACTOR * jnp.log2(count.astype(size.dtype) + 4) * jnp.maximum(jnp.sqrt(squares) * scale, smallest)
    return Completeness(value, total, total - value, tolerance, jnp.broadcast_to(largest, size.shape))


def _on_the_way(arrays: Sequence[Array], eps: Sequence[float] | None) -> list[float]:
    """Return the epsilon of every array: the coarser one of its path and of its own dtype."""
    return [max(pair) for pair in zip(map(_eps, arrays), eps or [0.0] * len(arrays), strict=True)]


def worst_of(several: Iterable[Completeness]) -> Completeness:
    """Return the worst of several scalar sums: one that fails before one that is inconclusive, and by its error."""
    order = HOLDS, INCONCLUSIVE, FAILS
    return max(
        several, key=lambda each: (order.index(each.verdict), abs(float(each.error)) / (float(each.tolerance) or 1))
    )


def completeness_of(
    value: Float[Array, ""],
    parts: Sequence[Array],
    rounded: Sequence[Array] | None = None,
    eps: Sequence[float] | None = None,
    finite: Sequence[Array] = (),
) -> Completeness:
    """Compare the sum of parts with a scalar."""
    rounded = parts if rounded is None else rounded
    by_eps: dict[float, list[Array]] = {}
    for array, coarsest in zip(rounded, _on_the_way(rounded, eps), strict=True):
        by_eps.setdefault(coarsest, []).append(array)
    alike = [(array, coarsest) for coarsest, arrays in by_eps.items() for array in concatenated(arrays)]
    parts, rounded, eps = concatenated(parts), [array for array, _ in alike], [coarsest for _, coarsest in alike]
    # XLA takes the sum of a concatenation apart, in a time like the square of its parts or worse; but not of a choice.
    total = _gathered((jnp.where(part == 0, 0, part).astype(value.dtype).sum() for part in parts), value.dtype).sum()
    largest = _gathered((_largest(part, value) for part in parts), _real_of(value)).max()
    # The number of nonzero entries, by their signs: comparing and counting takes several times as long.
    count = _gathered((jnp.abs(jnp.sign(_real(part, value))).sum() for part in rounded), _real_of(value)).sum()
    completeness = _completeness(value, total, largest, _Rounded.from_arrays(rounded, eps, value), count)
    # Zero times what isn't finite is NaN; to ask each entry for its truth value would take twice as long.
    nothing = _gathered((_real((0 * array).sum(), value) for array in finite), _real_of(value)).sum()
    return completeness._replace(error=completeness.error + nothing.astype(completeness.error.dtype))


def entrywise_completeness(
    value: Any, parts: Sequence[Any], eps: Sequence[float] | None = None, sizes: Sequence[Any] | None = None
) -> Completeness:
    """Compare the sum of parts with an array, or with streams one after another, entry by entry.

    Args:
        value: the array, or the streams.
        parts: the parts.
        eps: of each part the coarsest epsilon on its way.
        sizes: of each part the size of what is summed to it, where that is known: it is larger where a part cancels.
    """
    if not isinstance(value, jax.Array):
        # Every stream has a scale of its own.
        leaves = zip(*(jax.tree.leaves(tree) for tree in (value, *parts)), strict=True)
        streams = [entrywise_completeness(of_value, of_parts, eps)[:5] for of_value, *of_parts in leaves]
        numbers, total, error, tolerance, largest = (ravel_pytree(field)[0] for field in zip(*streams, strict=True))
        return Completeness(numbers, total, error, tolerance, largest)
    # The finer parts of each entry aren't known here: they are taken to be as many as the array's entries, and their
    # root of squares to be the largest entry, or the largest size.
    total = sum((part.astype(value.dtype) for part in parts), jnp.zeros_like(value))
    rounded = _Rounded.from_arrays(parts if sizes is None else sizes, _on_the_way(parts, eps), value)
    rounded = rounded._replace(squares=jnp.ones_like(rounded.squares))
    return _completeness(value, total, rounded.largest.max(), rounded, jnp.array(value.size * len(parts)))
