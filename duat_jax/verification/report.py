"""Verifications of several networks: a table for a terminal, and plain data for JSON."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from duat_jax.json_record import as_record, fields_of
from duat_jax.verification.compare import Verification
from duat_jax.verification.record import NetworkRecord, RouteRecord, VerificationRecord


def as_dict(results: Sequence[Verification]) -> dict[str, Any]:
    """Return verifications as plain data, with the fields of `VerificationRecord`."""
    networks = [
        fields_of(NetworkRecord, result, differences=[fields_of(RouteRecord, each) for each in result.differences])
        for result in results
    ]
    return as_record(VerificationRecord, None, networks=networks)


def render(results: Sequence[Verification]) -> Table:
    """Return the table of all differences with their tolerances."""
    columns = "network", "depth", "symbolic form and", "largest difference", "tolerance", "verdict"
    table = Table(*columns, box=None, pad_edge=False)
    for result in results:
        for each in result.differences:
            verdict = "holds" if each.holds else "FAILS"
            numbers = f"{each.largest:.1e}", f"{each.tolerance:.1e}"
            table.add_row(result.name, str(result.depth), each.route, *numbers, verdict)
    return table
