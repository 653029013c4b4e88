"""Derivations: equations in a row, each with the rule that gives it, and their LaTeX."""
