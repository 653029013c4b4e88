"""Tokens of a tokenizer: their labels, and the token that a label or a text names."""
