"""The provenance of a value: the sources it depends on, and the operations on the way that aren't linear."""

from dataclasses import dataclass, field
from typing import NamedTuple

from duat_jax.transform.mark_places import Path


class Provenance(NamedTuple):
    """The sources that a value depends on, and the operations on the way that aren't linear.

    Args:
        sources: the input, terms, offsets and streams that it depends on, as a set of bits.
        since: those that it depends on without passing through a later stream.
        constant: whether it may be nonzero where all sources are zero.
        offences: the operations on the way that aren't linear in what flows, as a set of bits.
    """

    sources: int = 0
    since: int = 0
    constant: bool = False
    offences: int = 0

    def __or__(self, other: "Provenance") -> "Provenance":
        """Return the flow of a value that is computed from two others."""
        return Provenance(
            self.sources | other.sources,
            self.since | other.since,
            self.constant or other.constant,
            self.offences | other.offences,
        )


ZERO, CONSTANT = Provenance(), Provenance(constant=True)


@dataclass
class Flows:
    """The operands and results of each scan that flow.

    Args:
        operands: flags by the path of the scan.
        results: flags by the path of the scan.
    """

    operands: dict[Path, tuple[bool, ...]] = field(default_factory=dict)
    results: dict[Path, tuple[bool, ...]] = field(default_factory=dict)
