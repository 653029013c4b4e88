"""Checkpoint families, one file each, and the loader that they plug into."""
