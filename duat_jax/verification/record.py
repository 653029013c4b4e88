"""The records of verifications and of the audit of the papers."""

from typing import ClassVar

import msgspec

from duat_jax.json_record import Record


class RouteRecord(msgspec.Struct, forbid_unknown_fields=True):
    """The difference between the symbolic form and another route to the same numbers.

    Args:
        route: the other route.
        largest: the difference that is largest relative to its tolerance.
        tolerance: the bound of rounding there.
        holds: whether every difference is within its tolerance.
    """

    route: str
    largest: float
    tolerance: float
    holds: bool


class NetworkRecord(msgspec.Struct, forbid_unknown_fields=True):
    """The differences of one network.

    Args:
        name: the kind of block, or the model.
        depth: the number of layers.
        holds: whether all routes agree.
        differences: of each other route.
    """

    name: str
    depth: int
    holds: bool
    differences: list[RouteRecord]


class VerificationRecord(Record, tag="verification"):
    """The JSON of `duat verify`.

    Args:
        networks: every network.
    """

    VERSION: ClassVar[int] = 2

    networks: list[NetworkRecord]


class FindingRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A decided equation or claim of the papers.

    Args:
        equation: its number or name.
        source: the version of the paper.
        printed: what is printed, as LaTeX.
        verdict: the verdict.
        reason: why.
        corrected: what holds instead, if something does.
        check: how it was decided.
    """

    equation: str
    source: str
    printed: str
    verdict: str
    reason: str
    corrected: str
    check: str


class AuditRecord(Record, tag="audit"):
    """The JSON of `duat audit`.

    Args:
        findings: every equation and claim.
    """

    findings: list[FindingRecord]
