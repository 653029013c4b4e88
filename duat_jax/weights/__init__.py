"""Split the difference of a number between two models over their weights."""
