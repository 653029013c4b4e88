"""A stack whose blocks are the steps of one loop."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final, overload

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float

from duat_jax.errors import DuatError
from duat_jax.nn.block import Part
from duat_jax.transform.marks import stream


def turn_of(layers: Sequence[Mapping[str, Any]]) -> int:
    """Return after how many layers they come again in turns; 1 if all are equal.

    Example:
        >>> turn_of([{"window": 4}, {"window": None}] * 3)
        2
    """
    count = len(layers)
    for turn in range(1, count // 2 + 1):
        if all(layers[i] == layers[i % turn] for i in range(count - count % turn)):
            return turn
    why = f"there is {count} layer"
    if other := next((i for i in range(count) if layers[i] != layers[0]), None):
        *names, last = (name for name, value in layers[0].items() if layers[other][name] != value)
        named = f"{', '.join(names)} and {last}" if names else last
        why = f"layers 0 and {other} differ in {named}, and layers don't come in turns"
    raise DuatError(f"no loop runs the layers, since {why}: load the model without scanned=True")


@final
class ScannedStack(nnx.Module):
    """Run the blocks of a stack in a loop, which is compiled once, however many layers there are.

    Every parameter is stacked along a first axis, `[steps, …]`. The marks are those of the stack, in every layer.
    Blocks that come in turns, such as some with a window and one without, are one step together; what is left at the
    end follows the loop.

    Args:
        blocks: the blocks, each `block(x, mask)`.

    Raises:
        DuatError: if the blocks don't come in turns.

    Example:
        >>> from flax import nnx
        >>> from duat_jax.nn import BLOCKS, make_stack
        >>> stack = make_stack(BLOCKS["pre-norm"](features=8, heads=2, neurons=16), layers=3, rngs=nnx.Rngs(0))
        >>> scanned = ScannedStack(stack.blocks)
        >>> scanned.repeated[0].mlp.input.kernel.shape, len(scanned.blocks)
        ((3, 8, 16), 3)
    """

    def __init__(self, blocks: Iterable[Part]) -> None:
        structures, layers = list[dict[str, Any]](), list[list[Any]]()
        for block in blocks:
            structure, state = nnx.split(block)
            leaves, tree = jax.tree.flatten(state)
            structures.append(
                {"parts": (structure, tree), "shapes": [x.shape for x in leaves], "dtypes": [x.dtype for x in leaves]}
            )
            layers.append(leaves)
        turn = turn_of(structures)
        self.steps = len(layers) // turn

        def block_of(k: int, leaves: list[Any]) -> Part:
            structure, tree = structures[k]["parts"]
            block: Part = nnx.merge(structure, jax.tree.unflatten(tree, leaves))
            return block

        # One parameter after the other is given up for its stack, so that they aren't in memory twice.
        in_loop = [layers[k : turn * self.steps : turn] for k in range(turn)]
        stacks = [[_stacked(*(leaves.pop(0) for leaves in same)) for _ in range(len(same[0]))] for same in in_loop]
        self.repeated = nnx.List(block_of(k, leaves) for k, leaves in enumerate(stacks))
        rest = enumerate(layers[turn * self.steps :], turn * self.steps)
        self.rest = nnx.List(block_of(k, leaves) for k, leaves in rest)

    @property
    def blocks(self) -> Sequence[Part]:
        """The blocks; those of the loop are copies, whose parameters can't be written."""
        return _Blocks(self)

    def written_out(self) -> list[Part]:
        """Return the blocks, each with parameters of its own, which can be written."""
        return [_taken_out(block, nnx.Param) for block in self.blocks]

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: Bool[Array, "... tokens"] | None = None
    ) -> Float[Array, "... tokens features"]:
        """Run the blocks.

        Args:
            x: the residual stream, `[..., tokens, features]`.
            mask: true for real tokens, `[..., tokens]`.
        """
        structure: Any
        structure, state = nnx.split(self.repeated)
        turn = len(self.repeated)
        in_loop = turn * self.steps

        def step(x: Array, state: Any) -> tuple[Array, None]:
            for k, block in enumerate(nnx.merge(structure, state)):
                with jax.named_scope(f"layers.{k}:{in_loop}" + (f":{turn}" if turn > 1 else "")):
                    x = block(x, mask)
                x = stream(x, "layer")
            return x, None

        x, _ = lax.scan(step, stream(x, "layer"), state)
        for i, block in enumerate(self.rest, in_loop):
            with jax.named_scope(f"layers.{i}"):
                x = block(x, mask)
            x = stream(x, "layer")
        return x


@final
class _Blocks(Sequence[Part]):
    """The blocks of a scanned stack, each taken out of the stacked parameters when it is asked for.

    Args:
        stack: the stack.
    """

    def __init__(self, stack: ScannedStack) -> None:
        self._stack = stack

    def __len__(self) -> int:
        return self._stack.steps * len(self._stack.repeated) + len(self._stack.rest)

    @overload
    def __getitem__(self, layer: int) -> Part: ...
    @overload
    def __getitem__(self, layer: slice) -> list[Part]: ...
    def __getitem__(self, layer: int | slice) -> Part | list[Part]:
        number = range(len(self))[layer]
        return self._block(number) if isinstance(number, int) else [self._block(each) for each in number]

    def _block(self, layer: int) -> Part:
        step, k = divmod(layer, len(self._stack.repeated))
        if step >= self._stack.steps:
            rest: Part = self._stack.rest[layer - self._stack.steps * len(self._stack.repeated)]
            return rest
        return _taken_out(self._stack.repeated[k], _Copy, step)


@final
class _Copy(nnx.Param):
    """A parameter of one step, which isn't the one that the loop reads."""

    def set_value(self, value: Any, *, index: Any = None) -> None:
        raise DuatError(
            "a layer of a loop is a copy, and writing it would change nothing: load the model without scanned=True"
        )


def _taken_out(block: Part, kind: type[nnx.Param], step: Any = ...) -> Part:
    """Return a block whose parameters are of a kind, each one step of a stacked one, or all of it."""

    def is_parameter(value: Any) -> bool:
        return isinstance(value, nnx.Param)

    taken: Part = jax.tree.map(lambda parameter: kind(parameter[...][step]), block, is_leaf=is_parameter)
    return taken


def _stacked(*layers: Any) -> Any:
    """Stack a parameter of several layers; of those that are divided among devices, each device stacks its own."""
    first = layers[0]
    sharding = getattr(first, "sharding", None)
    if isinstance(sharding, NamedSharding):
        sharding = NamedSharding(sharding.mesh, P(None, *sharding.spec))
    if isinstance(first, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct((len(layers), *first.shape), first.dtype, sharding=sharding)
    if isinstance(sharding, NamedSharding):
        return jax.jit(lambda *layers: jnp.stack(layers), out_shardings=sharding)(*layers)
    return jnp.stack(layers)
