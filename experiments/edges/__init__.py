"""Which edges between parts of a model carry a task: scores, tested by running the model without other edges."""
