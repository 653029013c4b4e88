"""Benchmarks, one claim each; results are kept as JSON with the environment beside them."""
