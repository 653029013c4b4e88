"""Checkpoint families, one file each: configuration and tensor map."""
