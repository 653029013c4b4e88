"""Tables and pictures of an explanation."""
