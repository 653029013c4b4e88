"""Equality of expressions: definitions, the normal form, and expressions sorted by a vector."""
