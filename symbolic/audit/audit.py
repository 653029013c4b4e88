"""Decide every numbered equation of the papers and every claim that their argument uses."""

from dataclasses import asdict

from symbolic.audit import (
    attention,
    closed_form,
    diamond,
    earlier,
    linear,
    pruning,
    residual,
    theory,
    transformer,
)
from symbolic.audit.claim import Claim, Finding
from symbolic.errors import SymbolicError


def _in_printed_order(*parts: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """Sort claims by number; one without a number stays behind the numbered one before it."""
    placed: list[tuple[int, Claim]] = []
    for claims in parts:
        number = 0
        for claim in claims:
            number = int(claim.equation) if claim.equation.isdigit() else number
            placed.append((number, claim))
    return tuple(claim for _, claim in sorted(placed, key=lambda pair: pair[0]))


def _by_version(*parts: tuple[Claim, ...]) -> list[Claim]:
    return sorted((claim for claims in parts for claim in claims), key=lambda claim: claim.source)


CLAIMS = (
    *_in_printed_order(
        theory.CLAIMS,
        pruning.CLAIMS,
        linear.CLAIMS,
        attention.CLAIMS,
        residual.CLAIMS,
        closed_form.CLAIMS,
        transformer.CLAIMS,
    ),
    *_by_version(diamond.CLAIMS, earlier.CLAIMS),
)


def audit(equation: str | int | None = None) -> tuple[Finding, ...]:
    """Decide the claims of the papers.

    Args:
        equation: only the claims of this number or name, from every version; all if absent.

    Returns:
        A finding for every claim; its verdict is computed now.

    Raises:
        SymbolicError: if there is no such equation.

    Example:
        >>> for finding in audit(31):
        ...     print(finding.source, finding.verdict)
        000 does not hold
    """
    wanted = None if equation is None else str(equation).strip()
    claims = [claim for claim in CLAIMS if wanted in (None, claim.equation)]
    if not claims:
        numbers = sorted({int(claim.equation) for claim in CLAIMS if claim.equation.isdigit()})
        names = ", ".join(f"'{c}'" for c in dict.fromkeys(c.equation for c in CLAIMS) if not c.isdigit())
        raise SymbolicError(
            f"there is no equation {wanted!r}: give a number from {numbers[0]} to {numbers[-1]}, or one of {names}"
        )
    return tuple(claim.decide() for claim in claims)


def as_dicts(findings: tuple[Finding, ...]) -> list[dict[str, str]]:
    """Return findings as objects with `equation`, `source`, `printed`, `verdict`, `reason`, `corrected` and `check`.

    Args:
        findings: the findings.
    """
    return [asdict(finding) for finding in findings]
