"""The change of a number along a training run, as a sum over weights and segments."""
