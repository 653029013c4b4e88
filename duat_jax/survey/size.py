"""The size of a survey before it starts, from the model's shape and the corpus' length."""

from collections.abc import Sequence
from typing import NamedTuple

from duat_jax.models.config import Config
from duat_jax.survey.measure import DRAWN, TOP
from duat_jax.survey.state import BOUNDS

EXTREMES = 3
"""The number of sets of extreme values of a unit."""

ARRAYS = 5 + 2 * EXTREMES + 1
"""The number of arrays of a layer's units in a part."""


class Size(NamedTuple):
    """Numbers of tokens, windows, parts and bytes of a survey.

    Args:
        tokens: the number of tokens in all windows.
        windows: the number of windows.
        parts: the number of parts.
        shard: how many of them are this shard's.
        measured: how many of these are there already.
        part_bytes: the size of each part's file.
        table_bytes: the size of all tables.
    """

    tokens: int
    windows: int
    parts: int
    shard: int
    measured: int
    part_bytes: int
    table_bytes: int

    def __str__(self) -> str:
        shard = "" if self.shard == self.parts else f", {self.shard:,} in this shard"
        parts = "1 part" if self.parts == 1 else f"{self.parts:,} parts"
        return (
            f"{self.tokens:,} tokens in {self.windows:,} windows, {parts} of about {_megabytes(self.part_bytes)}"
            f"{shard}, {self.measured:,} measured already; tables of about {_megabytes(self.table_bytes)}"
        )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def bytes_of_part(config: Config) -> int:
    """Estimate the size of a part's file.

    Example:
        >>> from duat_jax.models.loader import load_config
        >>> f"{bytes_of_part(load_config()) / 1e6:.2f} MB"
        '3.76 MB'
    """
    unit = 8 * (4 + len(BOUNDS)) + EXTREMES * TOP * (4 + 8) + 4 * DRAWN
    header = 120  # what a file of safetensors says of each array
    return _units(config) * unit + 2 * config.layers * ARRAYS * header + 2 * 8 * DRAWN


def bytes_of_tables(config: Config, windows: Sequence[int]) -> int:
    """Estimate the size of the tables: most are the sampled activations, a column for each neuron, and the contexts."""
    # Bytes of Parquet are those of the embedded model's tables, in which numbers and texts are compressed: texts of
    # other tokens have other lengths.
    units, neurons = _units(config), sum(block.neurons for block in config.blocks)
    places = windows[0] * (windows[1] - 1)
    rows = EXTREMES * min(TOP, places) * units
    texts = 1 / (1 / places + 1.3 / rows)  # different places: strong ones are those of many units
    return round(neurons * (4 * DRAWN + 560) + 42 * units + 11 * rows + 45 * texts + 20_000)


def _units(config: Config) -> int:
    return sum(block.neurons + block.heads for block in config.blocks)
