"""The colours of a number's sign, the same in tables, pictures and pages."""

POSITIVE, NEGATIVE = "#d53e34", "#2976c7"
"""Red raises the value, blue lowers it; both have a contrast of at least 4.5 on black and on white."""

DIVERGING = "RdBu_r"
"""Matplotlib's colour map of signed numbers: blue, white, red."""
