"""In-context learning: what a part of a text adds to the answer."""
