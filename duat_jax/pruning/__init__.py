"""Pruning of neurons, heads and layers: ranking, compensation, and the loss of the pruned model."""
