"""The change of a number along a training run, as a sum over the examples of every step."""
