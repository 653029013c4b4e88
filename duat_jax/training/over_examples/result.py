"""Result of `duat.training.influence`: the part of every term of every step, and all else that moved a number."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from duat_jax.display.named_arrays import NamedArray, by_name, numbered, whole
from duat_jax.display.result import Displayed
from duat_jax.display.view import Curves, Map, ModelRun, Table, View
from duat_jax.errors import DuatError
from duat_jax.forms.completeness import Completeness, completeness_of
from duat_jax.json_record import as_record
from duat_jax.kinds import kept_as
from duat_jax.training.over_examples.record import InfluenceRecord
from duat_jax.training.over_weights.result import WeightLedger

KINDS = {
    "examples": "examples",
    "weights": "weights in the update, such as by decay",
    "rounding_of_weights": "rounding of weights",
    "rounding_of_gradients": "rounding of gradients",
    "optimiser": "what the optimiser adds, and its rounding",
    "outside": "changes outside of the optimiser",
    "discontinuities": "discontinuities of the number",
    "beginning": "running means at the beginning",
}
"""The kinds of parts, and what a table calls them."""

EXACT = (
    "These parts account for the training as it was. What the number would have been without an example is another"
    " question, which they forecast in order at times, and not in size."
)

LARGEST = 5
"""The number of rows of batches that are shown on either side."""


@kept_as("influence")
@dataclass(frozen=True, eq=False)
class Influence(Displayed):
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
        discontinuities: what has no slope in the number, such as a router's choice; that of a segment stands at its
            last step.
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
    discontinuities: Float[np.ndarray, "steps"]
    beginning: float

    @property
    def difference(self) -> float:
        """The number after the training minus that before it."""
        return self.ledger.difference

    @property
    def rows(self) -> Float[np.ndarray, "steps rows"]:
        """The part of each row of every step's batch: the sum of its terms; of a loss without an axis it is one."""
        steps, *shape = self.examples.shape
        return self.examples.reshape(steps, shape[0] if shape else 1, -1).sum(-1, dtype=np.float64)

    @property
    def of_steps(self) -> Float[np.ndarray, "steps"]:
        """The sum of all parts of every step; that of the beginning is in the first one."""
        sums = self.rows.sum(1)
        for kind in KINDS:
            if kind not in ("examples", "beginning"):
                sums = sums + getattr(self, kind)
        sums[0] += self.beginning
        return sums

    @property
    def parts(self) -> dict[str, float]:
        """The sums of all parts over the run, by kind; they sum to the difference."""
        return {kind: float(np.sum(getattr(self, kind), dtype=np.float64)) for kind in KINDS}

    @property
    def completeness(self) -> Completeness:
        """The difference and the sum of all parts."""
        dtype = self.examples.dtype
        parts = [jnp.asarray(getattr(self, kind), dtype) for kind in KINDS]
        ends = [jnp.asarray(value, dtype) for value in self.ledger.values[[0, -1]]]
        return completeness_of(jnp.asarray(self.difference, dtype), parts, [*parts, *ends]).on_host()

    def view(self) -> View:
        """Return the influence as it is shown: the change by kind of part, and the rows of batches with most."""
        first, last = self.ledger.values[[0, -1]]
        kinds = tuple((KINDS[kind], part) for kind, part in self.parts.items() if part or kind == "examples")
        steps = np.arange(1, len(self.losses) + 1) - 0.5
        so_far = self.ledger.values[0] + np.cumsum(self.of_steps)
        numbers = {
            "with the parts of the steps so far (gradients act in later steps, too)": (steps, so_far),
            "the number": (np.array(self.kept) - 0.5, self.ledger.values),
        }
        return View(
            kind="influence",
            target=f"the change of the number over {len(self.losses)} steps",
            value=self.difference,
            value_name="difference",
            completeness=self.completeness,
            exact=EXACT,
            runs=(ModelRun("after the training", float(last)), ModelRun("before it", float(first))),
            tables=(Table("", ("by", "part"), kinds), self._largest_rows()),
            maps=(Map("parts of the rows of every step's batch", self.rows.T, axes=("row of the batch", "step")),),
            curves=(
                Curves("step", "number", numbers),
                Curves("step", "loss of the step", {"loss": (steps - 0.5, self.losses)}),
            ),
        )

    def _largest_rows(self) -> Table:
        """Return the rows of batches that raised the number most, and that lowered it most."""
        rows = self.rows
        raised, lowered = rows[rows > 0].sum(), rows[rows < 0].sum()
        order = np.argsort(rows, axis=None)
        places = list(dict.fromkeys([*order[:LARGEST].tolist(), *order[-LARGEST:].tolist()]))
        cells = [(*map(int, np.unravel_index(place, rows.shape)), float(rows.flat[place])) for place in places]
        remainder = [("all", "others", float(rows.sum() - rows.flat[places].sum()))] if len(places) < rows.size else []
        title = f"Rows of batches raised the number by {raised:z.4f} and lowered it by {-lowered:z.4f}. The largest:"
        return Table(title, ("step", "row", "part"), (*cells, *remainder), labels=2)

    def by_example(self, which: Int[np.ndarray, "steps rows"], count: int) -> Float[np.ndarray, "count"]:
        """Return the part of every example of a training set, summed over the steps that read it.

        Args:
            which: the number of the example in each row of each step's batch.
            count: how many examples there are.

        Raises:
            DuatError: if `which` isn't of the shape of `rows`, or a number isn't below `count`.
        """
        which = np.asarray(which)
        if which.shape != self.rows.shape or which.min() < 0 or which.max() >= count:
            raise DuatError(
                f"which is {which.shape} with numbers from {which.min()} to {which.max()}: give numbers from 0 to"
                f" {count - 1} of the shape {self.rows.shape}, one for each row of each step"
            )
        return np.bincount(which.ravel(), self.rows.ravel(), minlength=count)

    def arrays(self) -> Iterator[NamedArray]:
        """Yield the parts with named axes; the sum of all is the difference."""
        further = [f"axis_{k}" for k in range(2, self.examples.ndim)]
        names = ["step", "row", *further][: self.examples.ndim]
        axes = {name: {name: range(size)} for name, size in zip(names, self.examples.shape, strict=True)}
        yield whole("examples", self.examples, axes)
        for kind in KINDS:
            if kind not in ("examples", "beginning"):
                yield whole(kind, getattr(self, kind), numbered("step", len(self.losses)))
        yield from by_name("beginning", {"beginning": self.beginning})

    def as_dict(self, **fields: Any) -> dict[str, Any]:
        """Return the result as plain data for JSON, with the fields of `InfluenceRecord`.

        Args:
            fields: fields of the record that aren't in the result.
        """
        return as_record(InfluenceRecord, self, **fields)

    def __repr__(self) -> str:
        parts = ", ".join(f"{kind} {part:+.4g}" for kind, part in self.parts.items() if part)
        return f"Influence({self.difference:+.6g} over {len(self.losses)} steps: {parts})"
