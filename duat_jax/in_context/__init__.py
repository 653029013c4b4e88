"""In-context learning: exact decomposition of the effect of a part of a text on the answer."""
