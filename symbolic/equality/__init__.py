"""When two expressions are equal: definitions, the normal form, and an expression sorted by a vector."""
