"""Targets: numbers that a model computes, as read-outs of its residual stream."""
