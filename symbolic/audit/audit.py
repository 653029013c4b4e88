"""Decide every numbered equation of the papers and every claim that their argument uses."""

from dataclasses import asdict

from symbolic.audit import attention, closed_form, density, diamond, earlier, linear, pruning, residual, theory
from symbolic.audit.claim import VERDICTS, Finding, joined
from symbolic.audit.table import rows
from symbolic.errors import SymbolicError

_CHECKS = {
    "000": {
        **theory.CHECKS,
        **linear.CHECKS,
        **attention.CHECKS,
        **density.CHECKS,
        **pruning.CHECKS,
        **residual.CHECKS,
        **closed_form.CHECKS,
    },
    "001": {**diamond.CHECKS_001, **earlier.CHECKS_001},
    "003": {**diamond.CHECKS_003, **earlier.CHECKS_003},
}

CLAIMS = tuple(joined(fields, _CHECKS[source][equation]) for (source, equation), fields in rows().items())


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
    """Return findings as objects with `equation`, `source`, `printed`, `verdict`, `reason`, `corrected` and `check`."""
    return [asdict(finding) for finding in findings]
