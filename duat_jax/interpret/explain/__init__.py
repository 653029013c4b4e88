"""Explain one number that a model computes on one input, as parts that sum to it."""
