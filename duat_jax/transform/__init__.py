"""Marks, and the two transformations of a function that has them: record it, and ask any question of the recording."""
