"""Linear maps without their matrices: the base class, sums and compositions."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from duat_jax.errors import DuatError
from duat_jax.extras import requiring
from duat_jax.operators.shapes import describe, fits, names_of, require_fits, zeros_of

if TYPE_CHECKING:
    import lineax

Map = TypeVar("Map", bound="LinearMap")


class LinearMap(ABC):
    """A linear map between arrays, or between pytrees of named streams, given by its action: `y = A x`.

    Every map is a pytree: it passes `jax.jit` and `jax.vmap` as an argument and as a result.  Its matrix, from
    `dense`, acts on `vec(x)`, row by row and stream after stream.  A result of `jax.vmap` is a batch of maps: apply it
    under `jax.vmap`.

    Example:
        >>> import jax.numpy as jnp
        >>> from duat_jax.operators.kronecker import Kronecker
        >>> swap = Kronecker(jnp.array([[0.0, 1.0], [1.0, 0.0]]), jnp.eye(1))
        >>> (swap + swap @ swap.T).dense().tolist()
        [[1.0, 1.0], [1.0, 1.0]]
    """

    @property
    @abstractmethod
    def input(self) -> Any:
        """Shape and dtype of the argument, or of each of its streams."""

    @property
    @abstractmethod
    def output(self) -> Any:
        """Shape and dtype of the result, or of each of its streams."""

    @property
    @abstractmethod
    def T(self) -> "LinearMap":
        """The transposed map, without conjugation: `⟨u, A x⟩ = ⟨Aᵀ u, x⟩`."""

    @abstractmethod
    def _apply(self, x: Any) -> Any:
        """Apply the map to what has the input's structure, shapes and dtypes."""

    def __call__(self, x: Any) -> Any:
        """Apply the map.

        Args:
            x: an array, or streams, of the input's shape and dtype.

        Raises:
            DuatError: if `x` has another structure, shape or dtype.
        """
        require_fits(x, self.input, "the map")
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

    def between(self, source: str | None = None, target: str | None = None) -> "BetweenStreams":
        """Return the map from one stream to one other, `P_{target, source}`.

        Args:
            source: name of a stream of the argument; all of them if absent.
            target: name of a stream of the result; all of them if absent.

        Raises:
            DuatError: if there is no such stream.
        """
        return BetweenStreams(self, source, target)

    def dense(self) -> Float[Array, "outputs inputs"]:
        """Return the matrix that acts on `vec(x)`, row-major and stream after stream: for small cases only."""
        zeros, to_streams = ravel_pytree(zeros_of(self.input))
        basis = jnp.eye(zeros.size, dtype=zeros.dtype)
        return jax.vmap(lambda e: ravel_pytree(self(to_streams(e)))[0], out_axes=1)(basis)

    def as_lineax(self) -> "lineax.FunctionLinearOperator":
        """Convert the map to a lineax operator (`pip install lineax`)."""
        with requiring("lineax", "as_lineax"):
            import lineax
        return lineax.FunctionLinearOperator(self, self.input)


def require_array(linear: LinearMap) -> None:
    """Raise unless a map is one between two arrays."""
    if not jax.tree_util.all_leaves((linear.input, linear.output)):
        raise DuatError(
            f"a map from {describe(linear.input)} to {describe(linear.output)} is one between several streams: choose"
            " two of them by linear.between(source, target)"
        )


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
    def input(self) -> Any:
        """Shape and dtype of the argument, or of each of its streams."""
        return self.left.input

    @property
    def output(self) -> Any:
        """Shape and dtype of the result, or of each of its streams."""
        return self.left.output

    @property
    def T(self) -> "Sum":
        """The transposed map, `Aᵀ + Bᵀ`."""
        return Sum(self.left.T, self.right.T)

    def _apply(self, x: Any) -> Any:
        return jax.tree.map(jnp.add, self.left(x), self.right(x))


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
    def input(self) -> Any:
        """Shape and dtype of the argument, or of each of its streams."""
        return self.inner.input

    @property
    def output(self) -> Any:
        """Shape and dtype of the result, or of each of its streams."""
        return self.outer.output

    @property
    def T(self) -> "Composition":
        """The transposed map, `Bᵀ Aᵀ`."""
        return Composition(self.inner.T, self.outer.T)

    def _apply(self, x: Any) -> Any:
        return self.outer(self.inner(x))


@pytree("whole")
@dataclass(frozen=True, eq=False)
class BetweenStreams(LinearMap):
    """The part `P_{s,r}` of a map that leads from stream `r` to stream `s`.

    Args:
        whole: the map between all streams.
        source: name of the stream `r` of the argument; all of them if `None`.
        target: name of the stream `s` of the result; all of them if `None`.

    Raises:
        DuatError: if there is no such stream, or several of its name.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from duat_jax import linear_map, record
        >>> streams = {"image": jnp.ones(1), "text": jnp.ones(2)}
        >>> recording = record(lambda x: {"text": x["text"] + 3 * x["image"], "image": x["image"]})(streams)
        >>> linear_map(recording).between("image", "text").dense().tolist()
        [[3.0], [3.0]]
    """

    whole: LinearMap
    source: str | None
    target: str | None

    def __post_init__(self) -> None:
        for name, shapes, words in (
            (self.source, self.whole.input, "takes"),
            (self.target, self.whole.output, "gives"),
        ):
            if name is not None and (count := names_of(shapes).count(name)) != 1:
                there = f"there are {count} streams called" if count else "there is no stream"
                raise DuatError(f"{there} {name!r}: the map {words} {describe(shapes)}")

    @property
    def input(self) -> Any:
        """Shape and dtype of the source."""
        return _named(self.whole.input, self.source)

    @property
    def output(self) -> Any:
        """Shape and dtype of the target."""
        return _named(self.whole.output, self.target)

    @property
    def T(self) -> "BetweenStreams":
        """The transposed map, that of the transposed whole from target to source."""
        return BetweenStreams(self.whole.T, self.target, self.source)

    def _apply(self, x: Any) -> Any:
        if self.source is not None:
            zeros, structure = jax.tree.flatten(zeros_of(self.whole.input))
            zeros[names_of(self.whole.input).index(self.source)] = x
            x = jax.tree.unflatten(structure, zeros)
        return _named(self.whole(x), self.target)


def _named(streams: Any, name: str | None) -> Any:
    """Return one stream of a pytree by its name; all of them without one."""
    return streams if name is None else jax.tree.leaves(streams)[names_of(streams).index(name)]
