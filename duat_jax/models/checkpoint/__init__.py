"""Checkpoints: configuration, tensors and tokenizer, with all problems reported at once."""
