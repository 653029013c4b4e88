"""Result of `duat.training.begin` and `follow`: the part of every weight, segment by segment."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from duat_jax.display.named_arrays import NamedArray, numbered, numeric_order, whole
from duat_jax.display.result import Displayed
from duat_jax.display.view import Curves, ModelRun, Table, View
from duat_jax.forms.completeness import HOLDS, Completeness, worst_of
from duat_jax.json_record import as_record
from duat_jax.kinds import kept_as
from duat_jax.training.over_weights.record import WeightLedgerRecord
from duat_jax.training.over_weights.seam import require_alike, require_same_number, require_same_weights

SEGMENTS = 6
"""The largest number of columns; of more segments neighbours are summed."""

ROWS = 40
"""The largest number of groups of weights that a table or a picture shows."""


@kept_as("weight ledger")
@dataclass(frozen=True, eq=False)
class WeightLedger(Displayed):
    """The change of a number from the first weights to the last, as a sum over weights and segments.

        f(θ_T) − f(θ_0) = Σ_segments Σ_w D_w (θ_end,w − θ_start,w)

    Where a number has no slope, such as at a router's choice, a segment has a part of that beside those of its weights.

    Args:
        weights: the last weights, by the name of the array.
        values: the number before each segment, and after all.
        parts: the part of every weight, summed over segments, by the name of the array.
        sums: of every array of weights, the sum of its parts in each segment.
        discontinuities: in each segment, the sum of the parts that have no slope, such as a router's choice.
        completeness: of each segment, the difference and the sum of its parts; conclusive if a wrong sum of an array's
            parts would show.
        first: the first weights, by the name of the array; absent in files of older versions.
    """

    weights: Mapping[str, np.ndarray | np.floating]
    values: Float[np.ndarray, "ends"]
    parts: Mapping[str, np.ndarray | np.floating]
    sums: dict[str, Float[np.ndarray, "segments"]]
    discontinuities: Float[np.ndarray, "segments"]
    completeness: tuple[Completeness, ...] = ()
    first: Mapping[str, np.ndarray | np.floating] | None = None

    @property
    def difference(self) -> float:
        """The number of the last weights minus that of the first ones."""
        return float(self.values[-1] - self.values[0])

    @property
    def overall(self) -> Completeness:
        """The difference from the first weights to the last, and the sum of all parts."""
        return self.between(0, len(self.values) - 1)

    def between(self, start: int, stop: int) -> Completeness:
        """Return the difference over several segments in a row, and the sum of their parts.

        Segments round independently, so that their tolerances add like a root of a sum of squares. It is conclusive if
        a wrong sum of a group's parts would show.

        Args:
            start: the first segment.
            stop: the one after the last.
        """
        segments, number = self.completeness[start:stop], self.values.dtype.type
        value = float(self.values[stop]) - float(self.values[start])
        parts = [float(each[start:stop].sum()) for each in (*self.groups.values(), self.discontinuities)]
        finite = all(np.isfinite(each.error) for each in segments)
        error = sum(parts) - value if finite else np.nan
        tolerance = float(np.sqrt(sum(float(each.tolerance) ** 2 for each in segments)))
        return Completeness(*map(number, (value, sum(parts), error, tolerance, max(map(abs, parts)))))

    def then(self, other: "WeightLedger") -> "WeightLedger":
        """Return the ledger of these segments and of those that follow them.

        Args:
            other: the ledger of the segments that follow, of the same number; it begins with the last weights of this
                one.

        Raises:
            DuatError: with both values, if it begins with other weights, or with another value of the number.

        Example:
            >>> from duat_jax.training import begin, follow
            >>> import jax.numpy as jnp
            >>> square = lambda w: w**2
            >>> first = follow(square, begin(square, jnp.array(0.0)), jnp.array(1.0))
            >>> second = follow(square, begin(square, jnp.array(1.0)), jnp.array(3.0))
            >>> first.then(second).values.tolist()
            [0.0, 1.0, 9.0]
        """
        if other.first is None:  # as in files of older versions
            require_alike(self.weights, other.weights)
        else:
            require_same_weights(self.weights, other.first)
        around = *self.completeness[-1:], *other.completeness[:1]
        require_same_number(self.values[-1], other.values[0], around)
        return WeightLedger(
            other.weights,
            np.concatenate([self.values, other.values[1:]]),
            {name: part + other.parts[name] for name, part in self.parts.items()},
            {name: np.concatenate([sums, other.sums[name]]) for name, sums in self.sums.items()},
            np.concatenate([self.discontinuities, other.discontinuities]),
            (*self.completeness, *other.completeness),
            self.first,
        )

    @property
    def groups(self) -> dict[str, Float[np.ndarray, "segments"]]:
        """The parts of groups of arrays whose names begin alike, as fine as 40 rows allow."""
        depths = range(1, 1 + max(len(name.split(".")) for name in self.sums))
        few = [depth for depth in depths if len({_beginning(name, depth) for name in self.sums}) <= ROWS]
        depth = max(few, default=1)
        groups: dict[str, Any] = {}
        for name, sums in self.sums.items():
            groups[_beginning(name, depth)] = groups.get(_beginning(name, depth), 0) + sums
        return {name: groups[name] for name in sorted(groups, key=numeric_order)}

    def view(self) -> View:
        """Return the ledger as it is shown: the parts of groups of weights by segments."""
        spans = self._spans()
        judged = [self.between(first, last) for first, last in spans]
        held = sum(each.verdict == HOLDS for each in judged)
        worst = f"In {held} of {len(spans)} columns the parts sum to the difference; the worst one"
        segments = np.arange(len(self.values)) - 0.5
        return View(
            kind="weight ledger",
            target=f"the change of the number over {len(self.values) - 1} segments",
            value=self.difference,
            value_name="difference",
            completeness=self.overall,
            exact="Exact for this training: every part is a weight's, in one segment of it.",
            runs=(
                ModelRun("at the last weights", float(self.values[-1])),
                ModelRun("at the first", float(self.values[0])),
            ),
            tables=(self._by_segments(spans),) if spans else (),
            curves=(Curves("segment", "number", {"the number": (segments, self.values)}),),
            sums={worst: worst_of(judged)} if held < len(spans) else {},
        )

    def _spans(self) -> list[tuple[int, int]]:
        """Return the first segment of each column of a table, and the one after its last."""
        count = len(self.values) - 1
        columns = min(SEGMENTS, count)
        return list(itertools.pairwise(round(count * k / columns) for k in range(columns + 1))) if count else []

    def _by_segments(self, spans: list[tuple[int, int]]) -> Table:
        """Return the parts of groups of weights by segments."""
        rows = dict(self.groups)
        rows |= {"discontinuities": self.discontinuities} if self.discontinuities.any() else {}
        parts = {name: [float(sums[first:last].sum()) for first, last in spans] for name, sums in rows.items()}
        ends = [float(self.values[last] - self.values[first]) for first, last in spans]
        labels = [f"segment {i}" if j == i + 1 else f"segments {i}–{j - 1}" for i, j in spans]
        return Table(
            "",
            ("weights", *labels, "together"),
            tuple((name, *row, sum(row)) for name, row in parts.items()),
            ("together", *ends, self.difference),
            drawn=tuple(labels),
        )

    def part_sums(self) -> Mapping[str, Any]:
        """Return the sums of the parts that each completeness is about."""
        return {"completeness": sum(self.sums.values(), self.discontinuities)}

    def arrays(self) -> Iterator[NamedArray]:
        """Yield the parts with named axes; the sum of `sums` and `discontinuities` is the difference.

        `parts` are the same parts weight by weight.
        """
        for name, sums in self.sums.items():
            yield NamedArray("sums", sums, numbered("segment", len(sums)), {"weights": name})
        for name, parts in self.parts.items():
            axes = {f"axis_{k}": {f"axis_{k}": range(size)} for k, size in enumerate(np.shape(parts))}
            yield NamedArray("parts", np.asarray(parts), axes, {"weights": name})
        yield whole("discontinuities", self.discontinuities, numbered("segment", len(self.discontinuities)))
        yield whole("values", self.values, numbered("end", len(self.values)))

    def as_dict(self, **fields: Any) -> dict[str, Any]:
        """Return the result as plain data for JSON, with the fields of `WeightLedgerRecord`.

        Args:
            fields: fields of the record that aren't in the result.
        """
        return as_record(WeightLedgerRecord, self, **{"overall": self.overall} | fields)

    def __repr__(self) -> str:
        return f"WeightLedger({self.difference:+.6g} over {len(self.values) - 1} segments)"


def _beginning(name: str, depth: int) -> str:
    return ".".join(name.split(".")[:depth])
