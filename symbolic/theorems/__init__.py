"""Theorems on a stack of residual terms: closed form, recursions, collapse, contributions, LoRA, pruning."""
