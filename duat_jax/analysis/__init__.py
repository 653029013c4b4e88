"""What a model is asked beyond one input: tasks, circuits, and who matters in them."""
