"""The pictures at the top of the pages of results."""
