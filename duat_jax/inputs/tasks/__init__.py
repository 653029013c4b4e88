"""Tasks: pairs of texts whose difference decides the next token."""
