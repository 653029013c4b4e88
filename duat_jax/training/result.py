"""Result of `duat.training.influence`: the part of every term of every step, and all else that moved a number."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from duat_jax.errors import DuatError
from duat_jax.forms.completeness import Completeness, completeness_of
from duat_jax.training.weight_ledger import WeightLedger


@dataclass(frozen=True, eq=False)
class Influence:
    """The change of a number along a training run, as an exact sum over the examples of every step and what else moved.

    Args:
        ledger: the same change as a sum over weights and segments.
        kept: the numbers of steps after which states were kept: the ends of the segments.
        losses: the loss of every step.
        examples: the part of every term of every step's loss, `[steps, ...]`.
        weights: the part of the weights themselves in each update, such as by decay.
        rounding_of_weights: that of what the weights moved beside each update, by their dtype.
        rounding_of_gradients: that of each gradient beside the sum of its terms' gradients.
        optimiser: that of what each update is beside the linear map: what the optimiser adds, such as noise, and
            rounding.
        outside: that of what changed the weights after each update.
        beginning: that of the running means that the optimiser began with.
    """

    ledger: WeightLedger
    kept: tuple[int, ...]
    losses: Float[np.ndarray, "steps"]
    examples: Float[np.ndarray, "steps ..."]
    weights: Float[np.ndarray, "steps"]
    rounding_of_weights: Float[np.ndarray, "steps"]
    rounding_of_gradients: Float[np.ndarray, "steps"]
    optimiser: Float[np.ndarray, "steps"]
    outside: Float[np.ndarray, "steps"]
    beginning: float

    @property
    def difference(self) -> float:
        """The number after the training minus that before it."""
        return self.ledger.difference

    @property
    def parts(self) -> dict[str, float]:
        """The sums of all parts over the run, by kind; they sum to the difference."""
        kinds = "examples", "weights", "rounding_of_weights", "rounding_of_gradients", "optimiser", "outside"
        return {kind: float(getattr(self, kind).sum(dtype=np.float64)) for kind in kinds} | {
            "beginning": self.beginning
        }

    @property
    def completeness(self) -> Completeness:
        """The difference and the sum of all parts."""
        steps = [self.weights, self.rounding_of_weights, self.rounding_of_gradients, self.optimiser, self.outside]
        parts = [jnp.asarray(part) for part in (self.examples, *steps, np.asarray(self.beginning, self.examples.dtype))]
        return completeness_of(jnp.asarray(self.difference, self.examples.dtype), parts).on_host()

    def by_example(self, which: Int[np.ndarray, "steps examples"], count: int) -> Float[np.ndarray, "count"]:
        """Return the part of every example of a training set, summed over the steps that read it.

        Args:
            which: the number of the example in each row of each step's batch.
            count: how many examples there are.

        Raises:
            DuatError: if `which` isn't of the first two axes of `examples`, or a number isn't below `count`.
        """
        which = np.asarray(which)
        if which.shape != self.examples.shape[:2] or which.min() < 0 or which.max() >= count:
            raise DuatError(
                f"which is {which.shape} with numbers from {which.min()} to {which.max()}: give numbers from 0 to"
                f" {count - 1} of the shape {self.examples.shape[:2]}, one for each row of each step"
            )
        rows = self.examples.reshape(*which.shape, -1).sum(-1, dtype=np.float64)
        return np.bincount(which.ravel(), rows.ravel(), minlength=count)

    def __repr__(self) -> str:
        parts = ", ".join(f"{kind} {part:+.4g}" for kind, part in self.parts.items() if part)
        return f"Influence({self.difference:+.6g} over {len(self.losses)} steps: {parts})"
