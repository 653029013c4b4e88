"""In-context learning: how far attention reads, and what demonstrations add."""
