"""A Transformer of the embedded model's shape, followed through its training."""
