"""In-context learning: the reach of attention, and the effect of demonstrations."""
