"""Universal approximation: static parameters against parameters that move with the prompt."""
