"""Weights that an adapter's files hold whole, in the place of the model's."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from duat_jax.lora.adaptable_layers import entries_of
from duat_jax.models.families.tensor_map import parameter_at
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import alike


class Replacement(NamedTuple):
    """New weights of one module, such as a classifier: `W` becomes `(1 − s) W + s W'`.

    Args:
        values: `W'`, by the paths of the model's parameters.
        scale: `s`, in float32 at least.
    """

    values: dict[str, Array]
    scale: Float[Array, ""]

    @property
    def trained(self) -> dict[str, Array]:
        """The arrays that a training changes: `W'`."""
        return self.values

    def with_trained(self, trained: dict[str, Array]) -> "Replacement":
        """Return the same replacement by other weights.

        Args:
            trained: `W'`, by the paths of the model's parameters.
        """
        return self._replace(values=trained)

    @property
    def moved(self) -> dict[str, Array]:
        """The arrays that are moved from no change to the whole change: from `W` to `W'`."""
        return self.values

    def with_moved(self, moved: dict[str, Array]) -> "Replacement":
        """Return the same replacement by other weights.

        Args:
            moved: `W'`, by the paths of the model's parameters.
        """
        return self._replace(values=moved)

    def without_effect(self, model: Transformer) -> "Replacement":
        """Return the replacement of the model's weights by themselves.

        Args:
            model: the model.
        """
        return self._replace(values={path: parameter_at(model, path)[...] for path in self.values})

    def mixed(self, model: Transformer) -> dict[str, Array]:
        """Return `(1 − s) W + s W'` in the dtype of `W`, by the paths of the parameters.

        Args:
            model: the model with `W`.
        """
        old, scale = self.without_effect(model).values, self.scale
        mixed = {
            path: (1 - scale) * alike(old[path], scale) + scale * alike(new, scale) for path, new in self.values.items()
        }
        return {path: value.astype(old[path].dtype) for path, value in mixed.items()}


def stored_tensors(model: Transformer, replacement: Replacement) -> dict[str, np.ndarray]:
    """Return the new weights as a checkpoint stores them, by their names without the model's prefix."""
    values = {path: np.asarray(value) for path, value in replacement.values.items()}
    return {
        entry.names[0]: np.ascontiguousarray(entry.transform.pack([values[path] for path in entry.parameters])[0])
        for entry in entries_of(model.config)
        if values.keys() >= set(entry.parameters)
    }
