"""Other methods that score units of circuits, by their papers' definitions, and what their circuits keep."""
