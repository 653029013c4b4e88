"""Long context: how far back a language model reads, and networks of limited reach that are trained beside it."""
