"""Checkpoint families: tables of rows, by what they have in common."""
