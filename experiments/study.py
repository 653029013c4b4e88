"""A study: its question, its measurements, what decides, and how it is shown."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments.estimate import Estimate, estimate
from experiments.table import Frames, Table
from experiments.verdict import Verdict

Row = dict[str, Any]
"""Measurements as plain data, by the column of their frame."""


class Piece(NamedTuple):
    """Rows of a frame that are computed together, and once.

    Args:
        frame: the name of the frame.
        keys: what tells this piece from the others; they are columns of each of its rows.
        compute: returns the row, or the rows.
    """

    frame: str
    keys: Mapping[str, Any]
    compute: Callable[[], Row | list[Row]]


Measurements = Generator[Piece | Sequence[Piece], Any, None]
"""Pieces, one after another, or several that may run at the same time; each `yield` returns its rows."""


def in_frames(
    frames: Iterable[str], keys: Mapping[str, Any], compute: Callable[[], Mapping[str, Any]]
) -> Iterator[Piece]:
    """Yield the pieces of one computation, which is done once and returns the row or rows of several frames.

    Example:
        >>> [piece.compute() for piece in in_frames(("a", "b"), {"seed": 0}, lambda: {"a": {"loss": 1}, "b": []})]
        [{'loss': 1}, []]
    """
    once = cache(compute)

    def of(frame: str) -> Row | list[Row]:
        rows: Row | list[Row] = once()[frame]
        return rows

    for frame in frames:
        yield Piece(frame, keys, partial(of, frame))


class Measure(NamedTuple):
    """A number that a study measures over its units.

    Args:
        name: what it is, with its unit: `"added loss, nats a token"`.
        values: one number of every unit, or an estimate, of the study's frames.
        digits: the number of digits after the decimal point.
        sign: `"+"` for a difference.
    """

    name: str
    values: Callable[[Frames], Sequence[float] | np.ndarray | Estimate]
    digits: int = 3
    sign: str = ""

    def estimate(self, frames: Frames) -> Estimate:
        """Return the mean over units with its interval."""
        values = self.values(frames)
        return values if isinstance(values, Estimate) else estimate(values)

    def written(self, frames: Frames) -> str:
        """Format the estimate."""
        return self.estimate(frames).written(self.digits, self.sign)


class Prediction(NamedTuple):
    """A prediction, what decides it, and the measures that this needs.

    Args:
        name: the prediction in one clause.
        rule: when it is confirmed and when refuted, in one sentence.
        measures: the measures; the first one is the outcome.
        decide: returns the verdict on their estimates.
    """

    name: str
    rule: str
    measures: tuple[Measure, ...]
    decide: Callable[..., Verdict]

    def verdict(self, frames: Frames) -> Verdict:
        """Return the verdict."""
        return self.decide(*(measure.estimate(frames) for measure in self.measures))


class Picture(NamedTuple):
    """A picture of a study's page.

    Args:
        numbers: returns the numbers that it shows.
        draw: draws them.
        caption: what one sees and what follows from it, with fields of the study in braces.
    """

    numbers: Callable[[], dict[str, Any]]
    draw: Callable[[dict[str, Any]], Figure]
    caption: str = ""


@dataclass(frozen=True, kw_only=True)
class Study:
    """A question with its measurements and what decides.

    Args:
        protocol: the docstring of the study's module: the question in its first line, then how it is measured.
        page: the page of findings that it belongs to.
        claim: the papers' claim with its place, or `"none: "` and where the question is from.
        unit: of what n are: `"draws of calibration text"`.
        stated: when what decides was stated.
        predictions: what is decided; the first one's outcome is the study's primary outcome.
        control: what the outcome is compared with.
        headline: one sentence with `{outcome}`, `{control}`, `{n}`, and fields of tables in braces.
        against: the strongest result against the headline, likewise.
        limits: what doesn't follow.
        tables: tables by heading, or functions that return the lines of one.
        measure: yields what is measured.
        pictures: pictures by the name of their file in `docs/findings`, without its ending.
        short: the headline with one number at most, for the README.
        settings: everything that the results depend on, as plain data.
        parallel: whether pieces that are yielded together run in processes of their own.
    """

    protocol: str
    page: str
    claim: str
    unit: str
    stated: str
    predictions: tuple[Prediction, ...]
    control: Measure
    headline: str
    against: str
    limits: str
    tables: Mapping[str, Table | Callable[[Frames], list[str]]]
    measure: Callable[[], Measurements]
    short: str = ""
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    parallel: bool = False

    @property
    def question(self) -> str:
        """The question, in one sentence."""
        return self.protocol.partition("\n")[0]

    @property
    def outcome(self) -> Measure:
        """The primary outcome."""
        return self.predictions[0].measures[0]
