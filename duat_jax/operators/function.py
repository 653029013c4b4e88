"""A linear map from a linear function."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from duat_jax.errors import DuatError
from duat_jax.operators.linear_map import LinearMap, pytree, rebuilt
from duat_jax.operators.shapes import describe, shapes_of


@pytree("data")
@dataclass(frozen=True, eq=False)
class LinearFunction(LinearMap):
    """A linear map `x ↦ f(data, x)`; its transpose is that of the function's program.

    Args:
        function: `f`, pure and linear in `x`.  It is static: two maps with one function are one compiled program, and
            arrays belong into `data`, not into a closure.
        data: a pytree of arrays.
        argument: shape and dtype of `x`, or of each stream of a pytree.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> scale = LinearFunction(jnp.multiply, jnp.array([2.0, 3.0]), jax.ShapeDtypeStruct((2,), jnp.float32))
        >>> scale(jnp.ones(2)).tolist(), scale.T.dense().tolist()
        ([2.0, 3.0], [[2.0, 0.0], [0.0, 3.0]])
    """

    function: Callable[[Any, Any], Any]
    data: Any
    argument: Any
    result: Any = field(init=False)
    transposed: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        result = jax.eval_shape(self.function, self.data, self.argument)
        object.__setattr__(self, "result", shapes_of(result))

    @property
    def input(self) -> Any:
        """Shape and dtype of the argument, or of each of its streams."""
        return self.result if self.transposed else self.argument

    @property
    def output(self) -> Any:
        """Shape and dtype of the result, or of each of its streams."""
        return self.argument if self.transposed else self.result

    @property
    def T(self) -> "LinearFunction":
        """The transposed map; its own transpose is the map itself."""
        kinds = {jnp.iscomplexobj(leaf) for leaf in jax.tree.leaves((self.argument, self.result))}
        if len(kinds) > 1:
            raise DuatError(
                f"a map from {describe(self.argument)} to {describe(self.result)} has no transpose: take real and"
                " imaginary parts for streams of their own"
            )
        return rebuilt(LinearFunction, {**vars(self), "transposed": not self.transposed})

    def _apply(self, x: Any) -> Any:
        function = partial(self.function, self.data)
        return jax.linear_transpose(function, self.argument)(x)[0] if self.transposed else function(x)
