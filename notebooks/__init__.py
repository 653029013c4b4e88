"""Notebooks, kept with their outputs, and what executes them."""
