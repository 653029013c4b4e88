"""Edit values inside a model, run it again, and split the measured difference over the edits."""
