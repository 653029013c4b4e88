"""The papers of Wang & Li, equation by equation, and what decides each one."""

from symbolic.audit.audit import audit as audit
from symbolic.audit.claim import Finding as Finding
