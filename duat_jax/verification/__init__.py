"""Comparison of the symbolic form, the numeric form and the forward pass of one network."""
