"""Blocks: the function of one layer, and its parameters in Eq. 20."""
