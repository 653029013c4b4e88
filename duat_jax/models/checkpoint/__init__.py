"""A checkpoint's configuration and tensors, read with every problem kept for one report."""
