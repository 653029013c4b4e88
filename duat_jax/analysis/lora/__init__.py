"""What low-rank adapters change in a model, and how they are trained."""
