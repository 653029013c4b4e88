"""Deletion and insertion of tokens, by every attribution method."""
