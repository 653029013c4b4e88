"""Marks, recordings of marked functions, and questions that a recording answers."""
