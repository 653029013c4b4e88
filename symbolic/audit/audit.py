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
from symbolic.audit.claim import VERDICTS, Claim, Finding
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


def audit(
    equation: str | int | None = None, *, verdict: str | None = None, version: str | None = None
) -> tuple[Finding, ...]:
    """Decide the claims of the papers.

    Args:
        equation: only the claims of this number or name; all if absent.
        verdict: only the claims that are found to be so, such as `does not hold`.
        version: only the claims of this version of the paper: `000`, `001` or `003`.

    Returns:
        A finding for every claim; its verdict is computed now.

    Raises:
        SymbolicError: if there is no such equation, verdict or version.

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
    versions = sorted({claim.source for claim in CLAIMS})
    for name, value, known in (("verdict", verdict, VERDICTS), ("version", version, versions)):
        if value is not None and value not in known:
            raise SymbolicError(f"there is no {name} {value!r}: give one of {', '.join(map(repr, known))}")
    findings = (claim.decide() for claim in claims if version in (None, claim.source))
    return tuple(finding for finding in findings if verdict in (None, finding.verdict))


def as_dicts(findings: tuple[Finding, ...]) -> list[dict[str, str]]:
    """Return findings as objects with `equation`, `source`, `printed`, `verdict`, `reason`, `corrected` and `check`.

    Args:
        findings: the findings.
    """
    return [asdict(finding) for finding in findings]
