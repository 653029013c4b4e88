"""An optimiser's update as a linear map of the gradients, its state and the weights.

    u = U_g g + U_s s + U_θ θ,    s' = S_g g + S_s s + S_θ θ,

with every factor that isn't linear in them held: clip scales, second moments, Gram matrices.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array

from duat_jax.errors import DuatError
from duat_jax.models.transformer import Transformer
from duat_jax.processes import on_host
from duat_jax.transform.calls import SubProgram
from duat_jax.transform.held_factors import LINEAR, STILL, Kind, dependences, with_held_factors
from duat_jax.weights.units import name_of

Weights = Any
"""A pytree of arrays of floats."""

SHOWN = 4
"""The largest number of parameters that a message names."""


def names_of(weights: Weights) -> list[str]:
    """Return the name of every array of a pytree: the steps of its path, and of a model those of `duat.diff`.

    Example:
        >>> names_of({"layers": [{"kernel": 1.0}, {"kernel": 2.0}]})
        ['layers.0.kernel', 'layers.1.kernel']
        >>> names_of({"key": 1.0, "value": 2.0})
        ['key', 'value']
    """
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(weights)]
    if isinstance(weights, Transformer):
        return list(map(name_of, paths))
    of_variable = jax.tree_util.GetAttrKey("value")  # the last step into a Flax variable
    steps = [path[:-1] if path[-1:] == (of_variable,) else path for path in paths]
    return [jax.tree_util.keystr(path, simple=True, separator=".") or "weights" for path in steps]


def wide(tree: Any) -> Any:
    """Return a pytree with all floats in float32 at least, which doesn't change them."""

    def of_leaf(leaf: Any) -> Any:
        leaf = jnp.asarray(leaf) if not hasattr(leaf, "dtype") else leaf
        narrow = jnp.issubdtype(leaf.dtype, jnp.floating) and jnp.finfo(leaf.dtype).bits < 32
        return leaf.astype(jnp.float32) if narrow else leaf

    return jax.tree.map(of_leaf, tree)


def named_arrays(weights: Weights) -> dict[str, np.ndarray]:
    """Return the arrays of a pytree of weights on the host, by their names."""
    names, leaves = names_of(weights), jax.tree.leaves(weights)
    floats = [jnp.issubdtype(jnp.result_type(leaf), jnp.floating) for leaf in leaves]
    wrong = [name for name, is_float in zip(names, floats, strict=True) if not is_float]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if isinstance(weights, nnx.Module) and len(jax.tree.leaves(nnx.state(weights))) < len(leaves):
        raise DuatError(
            "the module has one array in several places, which a step would make different ones: give"
            " nnx.state(module, nnx.Param), and merge it within the functions of the weights"
        )
    if wrong or twice or not leaves:
        problem = (
            f"{', '.join(wrong[:SHOWN])} aren't arrays of floats"
            if wrong
            else f"several arrays are named {', '.join(twice[:SHOWN])}"
            if twice
            else "there are no weights"
        )
        raise DuatError(
            f"{problem}: give a pytree of the arrays that are trained, such as nnx.state(module, nnx.Param)"
        )
    return dict(zip(names, map(np.asarray, on_host(leaves)), strict=True))


class Multipliers(NamedTuple):
    """The multipliers of what an update is linear in.

    Args:
        gradients: those of the gradients.
        state: those of the running means in the optimiser's state, in their order.
        weights: those of the weights.
    """

    gradients: Weights
    state: list[Array]
    weights: Weights


class Update:
    """The update of an optimiser, and the linear map that it is once its nonlinear factors are held.

    Which parts of the optimiser's state are running means, in which the update is linear, and which are held, such as
    second moments, follows from its program.

    Args:
        optimiser: any optimiser of optax.
        weights: the weights, or their shapes.

    Raises:
        DuatError: naming the parameters whose update isn't linear, and the operation that is to blame.
    """

    def __init__(self, optimiser: optax.GradientTransformation, weights: Weights) -> None:
        self._update = optimiser.update
        shapes = jax.eval_shape(wide, weights)
        given = shapes, jax.eval_shape(lambda tree: wide(optimiser.init(tree)), weights), shapes
        try:
            closed, results = jax.make_jaxpr(lambda given: self._update(*given), return_shape=True)(given)
        except TypeError as error:
            raise DuatError(
                f"the optimiser's update can't be computed of gradients, state and weights alone ({error}): use one"
                " that takes nothing else"
            ) from None
        self._program, self._results = SubProgram(closed.jaxpr, closed.consts), jax.tree.structure(results)
        count, in_state = len(jax.tree.leaves(shapes)), len(jax.tree.leaves(given[1]))
        state = [STILL] * in_state
        while True:  # what the state depends on after any number of steps
            self._flows = [LINEAR] * count + state + [LINEAR] * count
            results_depend = dependences(self._program, self._flows)
            after = [a | b for a, b in zip(state, results_depend[count:], strict=True)]
            if after == state:
                break
            state = after
        _require_linear(shapes, [flow.origin if flow.kind is Kind.HELD else "" for flow in results_depend[:count]])
        self._means = [flow.kind is Kind.LINEAR for flow in state]

    def means_of(self, state: Any) -> list[Array]:
        """Return the running means in an optimiser's state: what the update is linear in."""
        return [leaf for leaf, is_mean in zip(jax.tree.leaves(state), self._means, strict=True) if is_mean]

    def transposed(
        self, gradients: Weights, state: Any, weights: Weights
    ) -> tuple[tuple[Weights, Any], Callable[[Weights, list[Array]], Multipliers]]:
        """Return the updates and the next state, and the transposed map with held factors."""
        leaves, structure = jax.tree.flatten(state)

        def results_of(gradients: Weights, means: list[Array], weights: Weights) -> Any:
            given = iter(means)
            moved = [next(given) if is_mean else leaf for leaf, is_mean in zip(leaves, self._means, strict=True)]
            arguments = jax.tree.leaves((gradients, jax.tree.unflatten(structure, moved), weights))
            results = with_held_factors(self._program, self._flows)(arguments)
            updates, after = jax.tree.unflatten(self._results, results)
            return updates, self.means_of(after)

        shapes, transpose = jax.vjp(results_of, gradients, self.means_of(state), weights)

        def transposed(*multipliers: Any) -> Multipliers:
            return Multipliers(*transpose(jax.tree.map(lambda x, like: x.astype(like.dtype), multipliers, shapes)))

        return self._update(gradients, state, weights), transposed


def _require_linear(weights: Weights, origins: list[str]) -> None:
    """Raise if an update isn't linear: `origins` names the operation to blame for each of the weights, or is empty."""
    wrong = [f"that of {name} by {by}" for name, by in zip(names_of(weights), origins, strict=True) if by]
    if wrong:
        more = f"; and {len(wrong) - SHOWN} more" * (len(wrong) > SHOWN)
        raise DuatError(
            f"updates aren't linear in gradients, running means and weights: {'; '.join(wrong[:SHOWN])}{more}. So a"
            " step isn't a sum over examples: use an optimiser whose update is the gradient or its running mean times"
            " factors that can be held, such as SGD, Adam or Muon"
        )
