"""Benchmarks, one claim each; results are stored as JSON with the environment."""
