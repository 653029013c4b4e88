"""The symbolic form, the numeric form and the forward pass of one network, side by side."""
