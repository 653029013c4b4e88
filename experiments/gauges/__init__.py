"""The ways to carry gated terms in the collapse."""
