"""The audit of the papers' equations, which takes some seconds."""

from functools import cache

from symbolic.audit.audit import audit


@cache
def findings():
    """Return what the audit finds."""
    return audit()
