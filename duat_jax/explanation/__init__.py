"""One number that a model computed, explained: inputs, run, result, table, picture."""
