"""Marks that a planner places in a function that has none."""
