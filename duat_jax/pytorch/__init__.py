"""PyTorch modules as JAX functions."""
