"""What holds for a stack of residual terms: closed form, recursions, collapse, contributions, LoRA, pruning."""
