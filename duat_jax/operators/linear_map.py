"""Linear maps without their matrices: the base class, sums and compositions."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.errors import DuatError
from duat_jax.extras import requiring

if TYPE_CHECKING:
    import lineax

Map = TypeVar("Map", bound="LinearMap")


class LinearMap(ABC):
    """A linear map between arrays, given by its action: `y = A x`.

    Every map is a pytree: it passes `jax.jit` and `jax.vmap` as an argument and as a result.  Its matrix, from
    `dense`, acts on `vec(x)`, row by row.  A result of `jax.vmap` is a batch of maps: apply it under `jax.vmap`.

    Example:
        >>> import jax.numpy as jnp
        >>> from duat_jax.operators.kronecker import Kronecker
        >>> swap = Kronecker(jnp.array([[0.0, 1.0], [1.0, 0.0]]), jnp.eye(1))
        >>> (swap + swap @ swap.T).dense().tolist()
        [[1.0, 1.0], [1.0, 1.0]]
    """

    @property
    @abstractmethod
    def input(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the argument."""

    @property
    @abstractmethod
    def output(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the result."""

    @property
    @abstractmethod
    def T(self) -> "LinearMap":
        """The transposed map, without conjugation: `⟨u, A x⟩ = ⟨Aᵀ u, x⟩`."""

    @abstractmethod
    def _apply(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Apply the map to an array of the input's shape and dtype."""

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Apply the map.

        Args:
            x: an array of the input's shape and dtype.

        Raises:
            DuatError: if `x` has another shape or dtype.
        """
        argument = jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x))
        if not fits(argument, self.input):
            raise DuatError(
                f"the map takes {describe(self.input)} but was given {describe(argument)}: convert or reshape it"
            )
        return self._apply(x)

    def __add__(self, other: "LinearMap") -> "LinearMap":
        """Return `A + B`.

        Args:
            other: `B`, with the same input and output.

        Raises:
            DuatError: if inputs or outputs differ.
        """
        return Sum(self, other) if isinstance(other, LinearMap) else NotImplemented

    def __matmul__(self, other: "LinearMap") -> "LinearMap":
        """Return `A B`, which applies `B` first.

        Args:
            other: `B`, whose output is this map's input.

        Raises:
            DuatError: if it isn't.
        """
        return Composition(self, other) if isinstance(other, LinearMap) else NotImplemented

    def dense(self) -> Float[Array, "outputs inputs"]:
        """Return the matrix that acts on `vec(x)`, row-major: for small cases only."""
        size = math.prod(self.input.shape)
        basis = jnp.eye(size, dtype=self.input.dtype).reshape(size, *self.input.shape)
        return jax.vmap(lambda e: self(e).reshape(-1), out_axes=1)(basis)

    def as_lineax(self) -> "lineax.FunctionLinearOperator":
        """Convert the map to a lineax operator (`pip install lineax`)."""
        with requiring("lineax", "as_lineax"):
            import lineax
        return lineax.FunctionLinearOperator(self, self.input)


def fits(a: jax.ShapeDtypeStruct, b: jax.ShapeDtypeStruct) -> bool:
    """Return whether two arrays have the same shape and dtype."""
    return a.shape == b.shape and a.dtype == b.dtype


def describe(array: jax.ShapeDtypeStruct | Array) -> str:
    """Format shape and dtype for an error message.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> describe(jax.ShapeDtypeStruct((3, 6), jnp.float32))
        'float32[3,6]'
    """
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


def rebuilt(kind: type[Map], values: dict[str, Any]) -> Map:
    """Build a map from its fields, without validation."""
    # A pytree's leaves may be anything (an axis, a placeholder), which the constructor would refuse.
    instance = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(instance, name, value)
    return instance


def pytree(*children: str) -> Callable[[type[Map]], type[Map]]:
    """Register a frozen dataclass of maps as a pytree."""

    def register(kind: type[Map]) -> type[Map]:
        static = [field.name for field in fields(kind) if field.name not in children]  # type: ignore[arg-type]

        def flatten(instance: Map) -> tuple[list, tuple]:
            keyed = [(jax.tree_util.GetAttrKey(name), getattr(instance, name)) for name in children]
            return keyed, tuple(getattr(instance, name) for name in static)

        def unflatten(fixed: tuple, leaves: Any) -> Map:
            return rebuilt(kind, dict(zip((*children, *static), (*leaves, *fixed), strict=True)))

        jax.tree_util.register_pytree_with_keys(kind, flatten, unflatten)
        return kind

    return register


@pytree("left", "right")
@dataclass(frozen=True, eq=False)
class Sum(LinearMap):
    """The sum `A + B` of two maps, `x ↦ A x + B x`.

    Args:
        left: `A`.
        right: `B`.

    Raises:
        DuatError: if their inputs or outputs differ.

    Example:
        >>> import jax.numpy as jnp
        >>> from duat_jax.operators.kronecker import Kronecker
        >>> identity = Kronecker(jnp.eye(2), jnp.eye(1))
        >>> Sum(identity, identity)(jnp.ones((2, 1))).tolist()
        [[2.0], [2.0]]
    """

    left: LinearMap
    right: LinearMap

    def __post_init__(self) -> None:
        left, right = self.left, self.right
        if not (fits(left.input, right.input) and fits(left.output, right.output)):
            raise DuatError(
                f"a map from {describe(left.input)} to {describe(left.output)} and one from {describe(right.input)} to"
                f" {describe(right.output)} can't be added: both need the same input and the same output"
            )

    @property
    def input(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the argument."""
        return self.left.input

    @property
    def output(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the result."""
        return self.left.output

    @property
    def T(self) -> "Sum":
        """The transposed map, `Aᵀ + Bᵀ`."""
        return Sum(self.left.T, self.right.T)

    def _apply(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.left(x) + self.right(x)


@pytree("outer", "inner")
@dataclass(frozen=True, eq=False)
class Composition(LinearMap):
    """The composition `A B` of two maps, `x ↦ A (B x)`.

    Args:
        outer: `A`.
        inner: `B`, which is applied first.

    Raises:
        DuatError: if the output of `B` isn't the input of `A`.

    Example:
        >>> import jax.numpy as jnp
        >>> from duat_jax.operators.kronecker import Kronecker
        >>> double = Kronecker(2 * jnp.eye(2), jnp.eye(1))
        >>> Composition(double, double)(jnp.ones((2, 1))).tolist()
        [[4.0], [4.0]]
    """

    outer: LinearMap
    inner: LinearMap

    def __post_init__(self) -> None:
        if not fits(self.outer.input, self.inner.output):
            raise DuatError(
                f"the outer map takes {describe(self.outer.input)} and the inner map returns"
                f" {describe(self.inner.output)}: compose maps where the outer input is like the inner output"
            )

    @property
    def input(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the argument."""
        return self.inner.input

    @property
    def output(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the result."""
        return self.outer.output

    @property
    def T(self) -> "Composition":
        """The transposed map, `Bᵀ Aᵀ`."""
        return Composition(self.inner.T, self.outer.T)

    def _apply(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.outer(self.inner(x))
